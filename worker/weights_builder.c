// weights_builder.c: see weights_builder.h.
#include "worker/weights_builder.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/model/tensors.h"

int builder_no_memory(struct builder *b) {
    return err_set(b->e, ERR_FATAL_NOMEM, "no memory for the weights");
}

int builder_cancelled(struct builder *b) {
    const _Atomic bool *cancel = b->config->cancel;
    if (cancel == NULL || !atomic_load(cancel)) return 0;
    return err_set(b->e, ERR_FATAL_STOPPED, "loading was cancelled");
}

static int wrong_shape(struct builder *b, const struct safetensors_tensor *t,
                       const struct tensor_place *want) {
    char expected[64], found[128];
    safetensors_shape_text(expected, sizeof expected, want->dims, want->n_dims);
    safetensors_shape_text(found, sizeof found, t->shape, t->n_dims);
    return err_set(b->e, ERR_FATAL_MODEL,
                   "tensor %s: config.json asks for shape %s, the file has %s", t->name, expected,
                   found);
}

static struct tensor_place place_of(const struct builder *b, const struct tensor_ref *ref,
                                    struct want want) {
    uint32_t cols = want.cols == 0 ? 1 : want.cols;
    struct tensor_place place = {.dims = {want.rows, cols},
                                 .n_dims = want.cols == 0 ? 1 : 2,
                                 .row_stride = cols,
                                 .column_stride = 1};
    if (b->family->tensor_place != NULL) b->family->tensor_place(b->spec, ref, &place);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < place.n_dims; i++)
        elements *= place.dims[i];
    check(want.rows > 0 && want.row.first + want_rows(&want) <= want.rows &&
          want.col.first + want.col.n <= cols &&
          place.offset + (want.rows - 1) * place.row_stride + (cols - 1) * place.column_stride <
              elements);
    return place;
}

// The tensor and its place, whatever its type.
static int look_up(struct builder *b, struct tensor_ref ref, const struct tensor_place *place,
                   const struct safetensors_tensor **out) {
    char name[TENSOR_NAME_MAX];
    check(b->family->tensor_name(b->spec, &ref, name, sizeof name));
    const struct safetensors_tensor *t = safetensors_find(b->st, name);
    if (t == NULL) return err_set(b->e, ERR_FATAL_MODEL, "tensor %s is missing", name);
    if (t->n_dims != place->n_dims ||
        memcmp(t->shape, place->dims, place->n_dims * sizeof place->dims[0]) != 0)
        return wrong_shape(b, t, place);
    b->used[t - safetensors_at(b->st, 0)] = 1;
    *out = t;
    return 0;
}

int builder_find(struct builder *b, struct tensor_ref ref, struct want want,
                 struct weights_source *out) {
    enum dtype dtype;
    const struct tensor_place place = place_of(b, &ref, want);
    const struct safetensors_tensor *t;
    int rc = look_up(b, ref, &place, &t);
    if (rc != 0) return rc;
    if (!safetensors_dtype(t, &dtype))
        return err_set(b->e, ERR_FATAL_MODEL,
                       "tensor %s has type %s; only F32, F16 and BF16 are supported", t->name,
                       safetensors_type_name(t));
    *out = (struct weights_source){t, want_rows(&want),
                                   place.offset + want.row.first * place.row_stride +
                                       want.col.first * place.column_stride,
                                   place.row_stride, place.column_stride};
    return 0;
}

int builder_check(struct builder *b, struct tensor_ref ref, struct want want) {
    struct weights_source source;
    return builder_find(b, ref, want, &source);
}

struct weights_item *builder_item(struct builder *b, uint32_t n_cols) {
    check(b->plan->n_items < b->plan->items_max);
    struct weights_item *item = &b->plan->items[b->plan->n_items++];
    *item = (struct weights_item){.n_cols = n_cols, .dst_dtype = b->w->dtype};
    return item;
}

int builder_source(struct builder *b, struct weights_item *item, struct tensor_ref ref,
                   struct want want) {
    struct weights_source source;
    int rc = builder_find(b, ref, want, &source);
    if (rc != 0) return rc;
    enum dtype dtype = DTYPE_F32;
    check(safetensors_dtype(source.tensor, &dtype));
    if (item->n_sources > 0 && dtype != item->src_dtype)
        return err_set(b->e, ERR_FATAL_MODEL, "tensors %s and %s have different types",
                       item->sources[0].tensor->name, source.tensor->name);
    // A vector whose elements are apart is one column.
    item->by_columns = source.column_stride != 1 || (item->n_cols == 1 && source.row_stride != 1);
    check(!item->by_columns || item->n_sources == 0);
    item->src_dtype = dtype;
    item->sources[item->n_sources++] = source;
    item->n_rows += source.n_rows;
    b->plan->source_bytes += (uint64_t)source.n_rows * item->n_cols * dtype_bytes(dtype);
    return 0;
}

int builder_stack(struct builder *b, float **out, uint32_t layer, const struct part *parts,
                  uint32_t n_parts) {
    struct weights_item *item = builder_item(b, 1);
    item->dst_dtype = DTYPE_F32;
    item->plus_one = b->spec->norm_from_one && tensor_is_norm(parts[0].kind);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n_parts; i++)
        rc = builder_source(b, item, (struct tensor_ref){parts[i].kind, layer, 0},
                            (struct want){.rows = parts[i].n, .row = parts[i].row});
    if (rc != 0 || b->dry) return rc;
    *out = item->vector = weights_alloc(b->w, (size_t)item->n_rows * sizeof(float), MATRIX_ALIGN);
    return *out == NULL ? builder_no_memory(b) : 0;
}

int builder_vector(struct builder *b, float **out, enum tensor_kind kind, uint32_t layer,
                   uint32_t n) {
    return builder_stack(b, out, layer, &(struct part){.kind = kind, .n = n}, 1);
}

int builder_alloc(struct builder *b, struct matrix *m) {
    if (b->dry) return 0;
    m->data = weights_alloc(b->w, matrix_bytes(m), MATRIX_ALIGN);
    return m->data == NULL ? builder_no_memory(b) : 0;
}

int builder_fill(struct builder *b, const struct matrix *m, struct tensor_ref ref,
                 struct want want) {
    struct weights_item *item = builder_item(b, m->n_in);
    item->packed = m;
    item->dst_dtype = m->dtype;
    item->expert = ref.kind == TENSOR_EXPERT_GATE || ref.kind == TENSOR_EXPERT_UP ||
                   ref.kind == TENSOR_EXPERT_DOWN;
    return builder_source(b, item, ref, want);
}

int builder_fill_whole(struct builder *b, const struct matrix *m, struct tensor_ref ref) {
    return builder_fill(b, m, ref, (struct want){.rows = m->n_out, .cols = m->n_in});
}

struct matrix builder_shape(const struct builder *b, uint32_t n_out, uint32_t n_in,
                            uint32_t n_segments) {
    return (struct matrix){
        .dtype = b->w->dtype, .n_out = n_out, .n_in = n_in, .n_segments = n_segments};
}

int builder_slice(struct builder *b, struct matrix *m, struct tensor_ref ref, struct want want) {
    *m = builder_shape(b, want_rows(&want), want.cols, 1);
    int rc = builder_alloc(b, m);
    return rc == 0 ? builder_fill(b, m, ref, want) : rc;
}

int builder_matrix(struct builder *b, struct matrix *m, struct matrix shape,
                   struct tensor_ref ref) {
    *m = shape;
    int rc = builder_alloc(b, m);
    return rc == 0 ? builder_fill_whole(b, m, ref) : rc;
}

int builder_precise(struct builder *b, struct matrix *m, struct tensor_ref ref) {
    const struct tensor_want held = {ref, m->n_out, m->n_in};
    struct weights_source source;
    enum dtype found = DTYPE_F32;
    int rc = builder_find(b, ref, (struct want){.rows = m->n_out, .cols = m->n_in}, &source);
    if (rc != 0) return rc;
    check(safetensors_dtype(source.tensor, &found));
    m->dtype = tensor_held_dtype(b->spec, &held, found, m->dtype);
    rc = builder_alloc(b, m);
    return rc == 0 ? builder_fill_whole(b, m, ref) : rc;
}

int builder_table(struct builder *b, uint16_t **out, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct tensor_ref ref = {TENSOR_HASH, layer, 0};
    const struct want want = {.rows = s->vocab, .cols = s->router.top_k};
    const struct tensor_place place = place_of(b, &ref, want);
    const struct safetensors_tensor *t;
    int rc = look_up(b, ref, &place, &t);
    if (rc != 0) return rc;
    if (safetensors_id_bytes(t) == 0)
        return err_set(b->e, ERR_FATAL_MODEL, "tensor %s has type %s; only I32 and I64 are ids",
                       t->name, safetensors_type_name(t));
    if (b->dry) return 0;
    *out = weights_alloc(b->w, (size_t)want.rows * want.cols * sizeof **out, MATRIX_ALIGN);
    if (*out == NULL) return builder_no_memory(b);
    b->plan->tables[b->plan->n_tables++] = (struct weights_table){t, *out};
    b->plan->source_bytes += t->bytes;
    return 0;
}
