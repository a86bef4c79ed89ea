// weights_plan.c: see weights_plan.h. Walks the spec in the order of the forward pass.
#include "worker/weights_plan.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

// A cache line: what the kernels' loads want at least.
#define MATRIX_ALIGN 64

struct builder {
    struct weights_plan *plan;
    struct weights *w;
    const struct weights_config *config;
    const struct model_spec *spec;
    const struct family *family;
    const struct safetensors *st;
    uint8_t *used; // [tensors of the checkpoint]
    struct err_text *e;
};

static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

static int no_memory(struct builder *b) {
    return err_set(b->e, ERR_FATAL_NOMEM, "no memory for the weights");
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

// What the forward pass wants of a tensor: a matrix, or a vector where cols is 0.
struct want {
    uint32_t rows, cols;
};

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
    check(want.rows > 0 &&
          place.offset + (want.rows - 1) * place.row_stride + (cols - 1) * place.column_stride <
              elements);
    return place;
}

// Looks up a tensor that must be there and checks what its header says.
static int find(struct builder *b, struct tensor_ref ref, struct want want,
                struct weights_source *out) {
    char name[TENSOR_NAME_MAX];
    enum dtype dtype;
    check(b->family->tensor_name(b->spec, &ref, name, sizeof name));
    const struct tensor_place place = place_of(b, &ref, want);
    const struct safetensors_tensor *t = safetensors_find(b->st, name);
    if (t == NULL) return err_set(b->e, ERR_FATAL_MODEL, "tensor %s is missing", name);
    if (t->n_dims != place.n_dims ||
        memcmp(t->shape, place.dims, place.n_dims * sizeof place.dims[0]) != 0)
        return wrong_shape(b, t, &place);
    if (!safetensors_dtype(t, &dtype))
        return err_set(b->e, ERR_FATAL_MODEL,
                       "tensor %s has type %s; only F32, F16 and BF16 are supported", name,
                       safetensors_type_name(t));
    b->used[t - safetensors_at(b->st, 0)] = 1;
    *out =
        (struct weights_source){t, want.rows, place.offset, place.row_stride, place.column_stride};
    return 0;
}

static struct weights_item *add_item(struct builder *b, uint32_t n_cols) {
    check(b->plan->n_items < b->plan->items_max);
    struct weights_item *item = &b->plan->items[b->plan->n_items++];
    *item = (struct weights_item){.n_cols = n_cols, .dst_dtype = b->w->dtype};
    return item;
}

static int add_source(struct builder *b, struct weights_item *item, struct tensor_ref ref,
                      struct want want) {
    struct weights_source source;
    int rc = find(b, ref, want, &source);
    if (rc != 0) return rc;
    enum dtype dtype = DTYPE_F32;
    check(safetensors_dtype(source.tensor, &dtype));
    if (item->n_sources > 0 && dtype != item->src_dtype)
        return err_set(b->e, ERR_FATAL_MODEL, "tensors %s and %s have different types",
                       item->sources[0].tensor->name, source.tensor->name);
    item->by_columns = source.column_stride != 1 || source.row_stride != item->n_cols;
    check(!item->by_columns || item->n_sources == 0);
    item->src_dtype = dtype;
    item->sources[item->n_sources++] = source;
    item->n_rows += want.rows;
    b->plan->source_bytes += (uint64_t)want.rows * item->n_cols * dtype_bytes(dtype);
    return 0;
}

// A vector of float32 from one tensor, or several behind each other.
struct part {
    enum tensor_kind kind;
    uint32_t n;
};

static int add_vector(struct builder *b, float **out, uint32_t layer, const struct part *parts,
                      uint32_t n_parts) {
    struct weights_item *item = add_item(b, 1);
    item->dst_dtype = DTYPE_F32;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n_parts; i++)
        rc = add_source(b, item, (struct tensor_ref){parts[i].kind, layer, 0},
                        (struct want){parts[i].n, 0});
    if (rc != 0) return rc;
    *out = item->vector = weights_alloc(b->w, (size_t)item->n_rows * sizeof(float), MATRIX_ALIGN);
    return *out == NULL ? no_memory(b) : 0;
}

static int add_one(struct builder *b, float **out, enum tensor_kind kind, uint32_t layer,
                   uint32_t n) {
    return add_vector(b, out, layer, &(struct part){kind, n}, 1);
}

// Memory of its own for a matrix whose shape is set.
static int alloc_matrix(struct builder *b, struct matrix *m) {
    m->data = weights_alloc(b->w, matrix_bytes(m), MATRIX_ALIGN);
    return m->data == NULL ? no_memory(b) : 0;
}

// One tensor [n_out, n_in] into a matrix that has memory.
static int fill_matrix(struct builder *b, const struct matrix *m, struct tensor_ref ref) {
    struct weights_item *item = add_item(b, m->n_in);
    item->packed = m;
    item->dst_dtype = m->dtype;
    item->expert = ref.kind == TENSOR_EXPERT_GATE || ref.kind == TENSOR_EXPERT_UP ||
                   ref.kind == TENSOR_EXPERT_DOWN;
    return add_source(b, item, ref, (struct want){m->n_out, m->n_in});
}

static struct matrix matrix_shape(const struct builder *b, uint32_t n_out, uint32_t n_in,
                                  uint32_t n_segments) {
    return (struct matrix){
        .dtype = b->w->dtype, .n_out = n_out, .n_in = n_in, .n_segments = n_segments};
}

static int plan_embedding(struct builder *b) {
    const struct model_spec *s = b->spec;
    struct weights *w = b->w;
    w->head = matrix_shape(b, s->vocab, s->hidden, 1);
    w->embed = weights_alloc(w, (size_t)s->vocab * s->hidden * dtype_bytes(w->dtype), MATRIX_ALIGN);
    if (w->embed == NULL) return no_memory(b);
    int rc = alloc_matrix(b, &w->head);
    if (rc != 0) return rc;
    struct weights_item *item = add_item(b, s->hidden);
    item->rows = w->embed;
    // A tied head is packed from the same bytes, read once.
    if (s->tied_embeddings) item->packed = &w->head;
    rc = add_source(b, item, (struct tensor_ref){.kind = TENSOR_EMBED},
                    (struct want){s->vocab, s->hidden});
    if (rc == 0 && !s->tied_embeddings)
        rc = fill_matrix(b, &w->head, (struct tensor_ref){.kind = TENSOR_HEAD});
    if (rc == 0) rc = add_one(b, &w->final_norm, TENSOR_FINAL_NORM, 0, s->hidden);
    if (rc == 0 && s->norm_bias)
        rc = add_one(b, &w->final_norm_bias, TENSOR_FINAL_NORM_BIAS, 0, s->hidden);
    if (rc == 0 && s->head_bias) rc = add_one(b, &w->head_bias, TENSOR_HEAD_BIAS, 0, s->vocab);
    return rc;
}

static int plan_qkv(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct part rows[] = {{TENSOR_Q, s->n_heads * s->head_dim},
                                {TENSOR_K, s->n_kv_heads * s->head_dim},
                                {TENSOR_V, s->n_kv_heads * s->head_dim}};
    const struct part biases[] = {
        {TENSOR_Q_BIAS, rows[0].n}, {TENSOR_K_BIAS, rows[1].n}, {TENSOR_V_BIAS, rows[2].n}};
    l->qkv = matrix_shape(b, rows[0].n + rows[1].n + rows[2].n, s->hidden, 1);
    int rc = alloc_matrix(b, &l->qkv);
    if (rc != 0) return rc;
    struct weights_item *item = add_item(b, s->hidden);
    item->packed = &l->qkv;
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = add_source(b, item, (struct tensor_ref){rows[i].kind, layer, 0},
                        (struct want){rows[i].n, s->hidden});
    if (rc == 0 && s->attn_bias) rc = add_vector(b, &l->qkv_bias, layer, biases, 3);
    return rc;
}

static int plan_qk_norms(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    if (s->qk_norm == QK_NORM_NONE || s->qk_norm == QK_NORM_AFTER_ROPE) return 0;
    bool wide = s->qk_norm == QK_NORM_WIDE;
    uint32_t q = wide ? s->n_heads * s->head_dim : s->head_dim;
    uint32_t k = wide ? s->n_kv_heads * s->head_dim : s->head_dim;
    int rc = add_one(b, &l->q_norm, TENSOR_Q_NORM, layer, q);
    return rc == 0 ? add_one(b, &l->k_norm, TENSOR_K_NORM, layer, k) : rc;
}

// One tensor into a matrix with memory of its own.
static int plan_matrix(struct builder *b, struct matrix *m, struct matrix shape,
                       struct tensor_ref ref) {
    *m = shape;
    int rc = alloc_matrix(b, m);
    return rc == 0 ? fill_matrix(b, m, ref) : rc;
}

// What one head turns latents into: a split over heads would cut here. All lie in one block.
static int plan_mla_heads(struct builder *b, struct mla_weights *w, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct matrix uk = matrix_shape(b, s->mla.kv_rank, s->mla.nope_dim, 1),
                        uv = matrix_shape(b, s->mla.value_dim, s->mla.kv_rank, 1);
    size_t uk_bytes = round_up(matrix_bytes(&uk), MATRIX_ALIGN),
           uv_bytes = round_up(matrix_bytes(&uv), MATRIX_ALIGN), total;
    if (!size_mul(uk_bytes + uv_bytes, s->n_heads, &total)) return no_memory(b);
    uint8_t *at = weights_alloc(b->w, total, MATRIX_ALIGN);
    w->uk = weights_alloc(b->w, 2 * s->n_heads * sizeof *w->uk, MATRIX_ALIGN);
    if (at == NULL || w->uk == NULL) return no_memory(b);
    w->uv = w->uk + s->n_heads;
    int rc = 0;
    for (uint32_t h = 0; rc == 0 && h < s->n_heads; h++, at += uk_bytes + uv_bytes) {
        w->uk[h] = uk;
        w->uv[h] = uv;
        w->uk[h].data = at;
        w->uv[h].data = at + uk_bytes;
        rc = fill_matrix(b, &w->uk[h], (struct tensor_ref){TENSOR_UK, layer, h});
        if (rc == 0) rc = fill_matrix(b, &w->uv[h], (struct tensor_ref){TENSOR_UV, layer, h});
    }
    return rc;
}

static int plan_mla(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct mla_spec *mla = &s->mla;
    struct mla_weights *w = &l->mla;
    uint32_t q_in = mla->q_rank != 0 ? mla->q_rank : s->hidden;
    uint32_t q_out = s->n_heads * (mla->nope_dim + s->rope.dim);
    int rc = 0;
    if (mla->q_rank != 0) {
        rc = plan_matrix(b, &w->q_a, matrix_shape(b, mla->q_rank, s->hidden, 1),
                         (struct tensor_ref){TENSOR_Q_A, layer, 0});
        if (rc == 0) rc = add_one(b, &w->q_a_norm, TENSOR_Q_A_NORM, layer, mla->q_rank);
    }
    if (rc == 0)
        rc = plan_matrix(b, &w->q, matrix_shape(b, q_out, q_in, 1),
                         (struct tensor_ref){TENSOR_Q, layer, 0});
    if (rc == 0)
        rc = plan_matrix(b, &w->kv_a, matrix_shape(b, mla->kv_rank + s->rope.dim, s->hidden, 1),
                         (struct tensor_ref){TENSOR_KV_A, layer, 0});
    if (rc == 0) rc = add_one(b, &w->kv_a_norm, TENSOR_KV_A_NORM, layer, mla->kv_rank);
    return rc == 0 ? plan_mla_heads(b, w, layer) : rc;
}

static int plan_norms(struct builder *b, struct layer_weights *l, uint32_t layer) {
    uint32_t n = b->spec->hidden;
    int rc = add_one(b, &l->attn_norm, TENSOR_ATTN_NORM, layer, n);
    if (rc == 0) rc = add_one(b, &l->ffn_norm, TENSOR_FFN_NORM, layer, n);
    if (rc != 0 || !b->spec->norm_bias) return rc;
    rc = add_one(b, &l->attn_norm_bias, TENSOR_ATTN_NORM_BIAS, layer, n);
    return rc == 0 ? add_one(b, &l->ffn_norm_bias, TENSOR_FFN_NORM_BIAS, layer, n) : rc;
}

static int plan_post_norms(struct builder *b, struct layer_weights *l, uint32_t layer) {
    if (!b->spec->post_norms) return 0;
    int rc = add_one(b, &l->attn_post_norm, TENSOR_ATTN_POST_NORM, layer, b->spec->hidden);
    return rc == 0 ? add_one(b, &l->ffn_post_norm, TENSOR_FFN_POST_NORM, layer, b->spec->hidden)
                   : rc;
}

static int plan_attention(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    int rc = plan_norms(b, l, layer);
    if (rc == 0) rc = plan_post_norms(b, l, layer);
    if (rc == 0) rc = s->mla.kv_rank != 0 ? plan_mla(b, l, layer) : plan_qkv(b, l, layer);
    if (rc == 0) rc = plan_qk_norms(b, l, layer);
    if (rc == 0 && s->sinks) rc = add_one(b, &l->sinks, TENSOR_SINKS, layer, s->n_heads);
    if (rc == 0)
        rc = plan_matrix(
            b, &l->o,
            matrix_shape(b, s->hidden, s->n_heads * spec_out_dim(s), spec_attn_segments(s)),
            (struct tensor_ref){TENSOR_O, layer, 0});
    if (rc == 0 && s->attn_out_bias) rc = add_one(b, &l->o_bias, TENSOR_O_BIAS, layer, s->hidden);
    return rc;
}

static void shape_ffn(const struct builder *b, struct expert_weights *x, uint32_t inner) {
    uint32_t hidden = b->spec->hidden;
    x->gate = x->up = matrix_shape(b, inner, hidden, 1);
    x->down = matrix_shape(b, hidden, inner, spec_inner_segments(inner));
}

// gate, up and down are tensor kinds behind each other.
static int fill_ffn(struct builder *b, struct expert_weights *x, struct tensor_ref gate) {
    static_assert(TENSOR_UP == TENSOR_GATE + 1 && TENSOR_DOWN == TENSOR_GATE + 2 &&
                      TENSOR_SHARED_DOWN == TENSOR_SHARED_GATE + 2 &&
                      TENSOR_EXPERT_DOWN == TENSOR_EXPERT_GATE + 2,
                  "an FFN's kinds stand together");
    struct tensor_ref up = gate, down = gate;
    up.kind += 1;
    down.kind += 2;
    int rc = fill_matrix(b, &x->gate, gate);
    if (rc == 0) rc = fill_matrix(b, &x->up, up);
    if (rc == 0) rc = fill_matrix(b, &x->down, down);
    return rc;
}

// Lays the three matrices of an expert record (worker/weights.h) into its memory. Returns the
// record's size.
static size_t lay_record(struct expert_weights *x, uint8_t *at) {
    struct matrix *const parts[] = {&x->gate, &x->up, &x->down};
    size_t used = 0;
    for (int i = 0; i < 3; i++) {
        if (at != NULL) parts[i]->data = at + used;
        used += round_up(matrix_bytes(parts[i]), MATRIX_ALIGN);
    }
    return round_up(used, EXPERT_ALIGN);
}

// A feed-forward network that every rank holds whole: gate, up and down are kinds behind each
// other.
static int plan_ffn(struct builder *b, struct expert_weights *x, struct tensor_ref gate,
                    uint32_t inner) {
    shape_ffn(b, x, inner);
    void *record = weights_alloc(b->w, lay_record(x, NULL), EXPERT_ALIGN);
    if (record == NULL) return no_memory(b);
    lay_record(x, record);
    return fill_ffn(b, x, gate);
}

// The shared expert of an MoE layer: replicated, as attention is.
static int plan_shared(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    if (s->shared.inner == 0) return 0;
    int rc =
        plan_ffn(b, &l->shared, (struct tensor_ref){TENSOR_SHARED_GATE, layer, 0}, s->shared.inner);
    if (rc != 0 || !s->shared.gated) return rc;
    l->shared_weight = matrix_shape(b, 1, s->hidden, 1);
    rc = alloc_matrix(b, &l->shared_weight);
    return rc == 0 ? fill_matrix(b, &l->shared_weight,
                                 (struct tensor_ref){TENSOR_SHARED_WEIGHT, layer, 0})
                   : rc;
}

// Biases of one expert stand beside its record.
static int plan_expert_biases(struct builder *b, struct expert_weights *x, uint32_t layer,
                              uint32_t expert) {
    if (!b->spec->expert_bias) return 0;
    float *at = x->gate_bias; // where their memory begins
    const struct {
        enum tensor_kind kind;
        float **out;
        uint32_t n;
    } biases[] = {{TENSOR_EXPERT_GATE_BIAS, &x->gate_bias, b->spec->inner_expert},
                  {TENSOR_EXPERT_UP_BIAS, &x->up_bias, b->spec->inner_expert},
                  {TENSOR_EXPERT_DOWN_BIAS, &x->down_bias, b->spec->hidden}};
    for (int i = 0; i < 3; i++) {
        struct weights_item *item = add_item(b, 1);
        item->dst_dtype = DTYPE_F32;
        item->expert = true;
        int rc = add_source(b, item, (struct tensor_ref){biases[i].kind, layer, expert},
                            (struct want){biases[i].n, 0});
        if (rc != 0) return rc;
        *biases[i].out = item->vector = at;
        at += biases[i].n;
    }
    return 0;
}

static int check_foreign_biases(struct builder *b, uint32_t layer, uint32_t expert) {
    struct weights_source source;
    if (!b->spec->expert_bias) return 0;
    const struct want inner = {b->spec->inner_expert, 0}, hidden = {b->spec->hidden, 0};
    int rc = find(b, (struct tensor_ref){TENSOR_EXPERT_GATE_BIAS, layer, expert}, inner, &source);
    if (rc == 0)
        rc = find(b, (struct tensor_ref){TENSOR_EXPERT_UP_BIAS, layer, expert}, inner, &source);
    if (rc == 0)
        rc = find(b, (struct tensor_ref){TENSOR_EXPERT_DOWN_BIAS, layer, expert}, hidden, &source);
    return rc;
}

// Other ranks' experts are looked at too: every rank then refuses a wrong checkpoint with the same
// words.
static int check_foreign_expert(struct builder *b, uint32_t layer, uint32_t expert) {
    struct weights_source source;
    uint32_t hidden = b->spec->hidden, inner = b->spec->inner_expert;
    const struct want in = {inner, hidden}, out = {hidden, inner};
    int rc = find(b, (struct tensor_ref){TENSOR_EXPERT_GATE, layer, expert}, in, &source);
    if (rc == 0) rc = find(b, (struct tensor_ref){TENSOR_EXPERT_UP, layer, expert}, in, &source);
    if (rc == 0) rc = find(b, (struct tensor_ref){TENSOR_EXPERT_DOWN, layer, expert}, out, &source);
    return rc == 0 ? check_foreign_biases(b, layer, expert) : rc;
}

static int alloc_experts(struct builder *b, struct layer_weights *l) {
    struct weights *w = b->w;
    struct expert_weights shape = {0};
    size_t total;
    shape_ffn(b, &shape, b->spec->inner_expert);
    size_t record_bytes = lay_record(&shape, NULL);
    if (!size_mul(record_bytes, w->n_local_experts, &total)) return no_memory(b);
    uint8_t *records = weights_alloc(w, total, EXPERT_ALIGN);
    l->experts = weights_alloc(w, w->n_local_experts * sizeof *l->experts, MATRIX_ALIGN);
    if (records == NULL || l->experts == NULL) return no_memory(b);
    size_t n_biases =
        b->spec->expert_bias ? 2 * (size_t)b->spec->inner_expert + b->spec->hidden : 0;
    float *biases = NULL;
    if (n_biases != 0 && w->n_local_experts != 0) {
        biases = weights_alloc(w, w->n_local_experts * n_biases * sizeof *biases, MATRIX_ALIGN);
        if (biases == NULL) return no_memory(b);
    }
    for (uint32_t i = 0; i < w->n_local_experts; i++) {
        l->experts[i] = shape;
        if (biases != NULL) l->experts[i].gate_bias = biases + i * n_biases;
        lay_record(&l->experts[i], records + i * record_bytes);
    }
    return 0;
}

// A checkpoint of two-byte weights whose router is float32 means it so: rounded, it would choose
// other experts where scores are close.
static int shape_router(struct builder *b, struct matrix *m, struct tensor_ref ref) {
    struct weights_source source;
    enum dtype dtype = DTYPE_F32;
    *m = matrix_shape(b, b->spec->router.n_experts, b->spec->hidden, 1);
    int rc = find(b, ref, (struct want){m->n_out, m->n_in}, &source);
    if (rc != 0) return rc;
    check(safetensors_dtype(source.tensor, &dtype));
    if (dtype == DTYPE_F32 && b->spec->dtype != DTYPE_F32) m->dtype = DTYPE_F32;
    return 0;
}

static int plan_router(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct router_spec *router = &b->spec->router;
    const struct tensor_ref ref = {TENSOR_ROUTER, layer, 0};
    int rc = shape_router(b, &l->router, ref);
    if (rc == 0) rc = alloc_matrix(b, &l->router);
    if (rc == 0) rc = fill_matrix(b, &l->router, ref);
    if (rc == 0 && router->bias)
        rc = add_one(b, &l->router_bias, TENSOR_ROUTER_BIAS, layer, router->n_experts);
    if (rc == 0 && router->selection_bias)
        rc = add_one(b, &l->selection_bias, TENSOR_SELECTION_BIAS, layer, router->n_experts);
    return rc;
}

static int plan_experts(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct weights *w = b->w;
    int rc = alloc_experts(b, l);
    for (uint32_t x = 0; rc == 0 && x < b->spec->router.n_experts; x++) {
        bool own = x >= w->first_expert && x - w->first_expert < w->n_local_experts;
        if (!own) {
            rc = check_foreign_expert(b, layer, x);
            continue;
        }
        struct expert_weights *expert = &l->experts[x - w->first_expert];
        rc = fill_ffn(b, expert, (struct tensor_ref){TENSOR_EXPERT_GATE, layer, x});
        if (rc == 0) rc = plan_expert_biases(b, expert, layer, x);
    }
    return rc;
}

static int plan_moe(struct builder *b, struct layer_weights *l, uint32_t layer) {
    int rc = plan_router(b, l, layer);
    if (rc == 0) rc = plan_shared(b, l, layer);
    return rc == 0 ? plan_experts(b, l, layer) : rc;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

// A tensor that nothing reads belongs to a model that is not this one (a shared expert, scales of a
// quantised format). Tables of rotary frequencies are derived, and a head beside a tied embedding
// is the embedding again.
static int refuse_unused(struct builder *b) {
    char head[TENSOR_NAME_MAX];
    check(b->family->tensor_name(b->spec, &(struct tensor_ref){.kind = TENSOR_HEAD}, head,
                                 sizeof head));
    for (size_t i = 0; i < safetensors_count(b->st); i++) {
        const char *name = safetensors_at(b->st, i)->name;
        if (b->used[i] || ends_with(name, "rotary_emb.inv_freq") || strcmp(name, head) == 0)
            continue;
        if (b->family->leaves_out != NULL && b->family->leaves_out(b->spec, name)) continue;
        return err_set(b->e, ERR_FATAL_MODEL, "tensor %s has no place in %s", name,
                       b->spec->architecture);
    }
    return 0;
}

static int plan_all(struct builder *b) {
    const struct model_spec *s = b->spec;
    b->w->layers = weights_alloc(b->w, s->n_layers * sizeof *b->w->layers, MATRIX_ALIGN);
    if (b->w->layers == NULL) return no_memory(b);
    int rc = plan_embedding(b);
    for (uint32_t i = 0; rc == 0 && i < s->n_layers; i++) {
        struct layer_weights *l = &b->w->layers[i];
        rc = plan_attention(b, l, i);
        if (rc != 0) break;
        rc = s->ffn[i] == FFN_MOE
                 ? plan_moe(b, l, i)
                 : plan_ffn(b, &l->dense, (struct tensor_ref){TENSOR_GATE, i, 0}, s->inner_dense);
    }
    return rc == 0 ? refuse_unused(b) : rc;
}

int weights_plan_make(struct weights_plan *out, struct weights *w,
                      const struct weights_config *config, const struct safetensors *st,
                      struct err_text *e) {
    const struct model_spec *s = config->spec;
    uint32_t n_experts = s->router.n_experts;
    w->spec = s;
    w->rank = config->rank;
    w->dtype = config->dtype;
    w->first_expert = layout_expert_first(config->layout, n_experts, config->rank);
    w->n_local_experts = layout_expert_count(config->layout, n_experts, config->rank);
    struct weights_plan plan = {0};
    // A layer has at most this many items outside its experts and latent heads; what is outside the
    // layers is 6 more.
    size_t in_heads = s->mla.kv_rank != 0 ? 2 * (size_t)s->n_heads : 0;
    plan.items_max = (size_t)s->n_layers * (26 + in_heads + 6 * (size_t)w->n_local_experts) + 6;
    plan.items = mem_array(plan.items_max, sizeof *plan.items);
    struct builder b = {.plan = &plan, .w = w, .config = config, .spec = s, .st = st, .e = e};
    b.family = family_find(s->architecture);
    check(b.family != NULL);
    b.used = mem_zalloc(safetensors_count(st));
    int rc = plan.items == NULL || b.used == NULL ? no_memory(&b) : plan_all(&b);
    mem_free(b.used);
    if (rc == 0)
        *out = plan;
    else
        weights_plan_finish(&plan);
    return rc;
}

void weights_plan_finish(struct weights_plan *plan) {
    mem_free(plan->items);
    *plan = (struct weights_plan){0};
}
