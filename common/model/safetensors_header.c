// safetensors_header.c: the header of one file, from bytes. No I/O, so it can be fuzzed;
// safetensors.c opens files.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/model/config.h"
#include "common/model/safetensors.h"

// Types that only some tensors of a checkpoint have (position ids, quantised weights) must be known
// too, for their sizes. dtype is DTYPE_COUNT for what weights here may not be.
static const struct type_row {
    const char *name;
    uint32_t bytes;
    enum dtype dtype;
} types[] = {
    {"F32", 4, DTYPE_F32},       {"F16", 2, DTYPE_F16},       {"BF16", 2, DTYPE_BF16},
    {"F64", 8, DTYPE_COUNT},     {"F8_E4M3", 1, DTYPE_COUNT}, {"F8_E5M2", 1, DTYPE_COUNT},
    {"F8_E8M0", 1, DTYPE_COUNT}, {"BOOL", 1, DTYPE_COUNT},    {"U8", 1, DTYPE_COUNT},
    {"I8", 1, DTYPE_COUNT},      {"U16", 2, DTYPE_COUNT},     {"I16", 2, DTYPE_COUNT},
    {"U32", 4, DTYPE_COUNT},     {"I32", 4, DTYPE_COUNT},     {"U64", 8, DTYPE_COUNT},
    {"I64", 8, DTYPE_COUNT},     {"C64", 8, DTYPE_COUNT},
};
#define N_TYPES (sizeof types / sizeof *types)

const char *safetensors_type_name(const struct safetensors_tensor *t) {
    return types[t->type].name;
}

bool safetensors_dtype(const struct safetensors_tensor *t, enum dtype *out) {
    if (types[t->type].dtype == DTYPE_COUNT) return false;
    *out = types[t->type].dtype;
    return true;
}

uint32_t safetensors_id_bytes(const struct safetensors_tensor *t) {
    const char *name = types[t->type].name;
    return strcmp(name, "I32") == 0 || strcmp(name, "I64") == 0 ? types[t->type].bytes : 0;
}

void safetensors_shape_text(char *buf, size_t cap, const uint64_t *shape, uint32_t n_dims) {
    size_t used = 0;
    check(cap > 0);
    buf[0] = '\0';
    for (uint32_t i = 0; i <= n_dims && used < cap; i++) {
        int n = i == n_dims ? snprintf(buf + used, cap - used, n_dims == 0 ? "[]" : "]")
                            : snprintf(buf + used, cap - used, "%s%llu", i == 0 ? "[" : ", ",
                                       (unsigned long long)shape[i]);
        used += n > 0 ? (size_t)n : cap;
    }
}

int safetensors_header_bytes(uint64_t *out, const uint8_t first[8], uint64_t file_bytes,
                             const char *file, struct err_text *e) {
    uint64_t n = 0;
    if (memcmp(first, FILE_LFS_MARK, 8) == 0)
        return err_set(e, ERR_FATAL_MODEL, "%s: " FILE_LFS_REASON, file);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | first[i];
    if (n > SAFETENSORS_HEADER_BYTES_MAX)
        return err_set(e, ERR_FATAL_MODEL,
                       "%s: the header claims %llu bytes, more than the %u that are allowed", file,
                       (unsigned long long)n, SAFETENSORS_HEADER_BYTES_MAX);
    if (file_bytes < 8 || n > file_bytes - 8)
        return err_set(e, ERR_FATAL_MODEL,
                       "%s: the header claims %llu bytes, but the file has only %llu", file,
                       (unsigned long long)n, (unsigned long long)file_bytes);
    *out = n;
    return 0;
}

// What one entry is read into and checked against.
struct entry {
    const char *file, *name;
    uint64_t data_begin, data_bytes; // of the file
    struct err_text *e;
};

static int refuse(const struct entry *in, const char *what) {
    return err_set(in->e, ERR_FATAL_MODEL, "%.128s: tensor %.256s: %s", in->file, in->name, what);
}

static int read_type(struct safetensors_tensor *t, const json_t *v, const struct entry *in) {
    const char *name = json_string_value(v);
    if (name == NULL) return refuse(in, "dtype is missing or not a string");
    for (uint32_t i = 0; i < N_TYPES; i++) {
        if (strcmp(name, types[i].name) != 0) continue;
        t->type = i;
        return 0;
    }
    return err_set(in->e, ERR_FATAL_MODEL, "%.128s: tensor %.256s: dtype \"%.32s\" is unknown",
                   in->file, in->name, name);
}

// Numbers are whole and not negative; jansson has already refused those above 2^63.
static bool read_number(uint64_t *out, const json_t *v) {
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static int read_shape(struct safetensors_tensor *t, const json_t *v, const struct entry *in) {
    if (!json_is_array(v)) return refuse(in, "shape is missing or not a list");
    if (json_array_size(v) > SAFETENSORS_DIMS_MAX)
        return refuse(in, "shape has more than 8 dimensions");
    t->n_dims = (uint32_t)json_array_size(v);
    uint64_t bytes = types[t->type].bytes;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (!read_number(&t->shape[i], json_array_get(v, i)))
            return refuse(in, "shape has an entry that is not a whole number of 0 or more");
        if (__builtin_mul_overflow(bytes, t->shape[i], &bytes))
            return refuse(in, "the shape's product overflows");
    }
    t->bytes = bytes;
    return 0;
}

static int read_offsets(struct safetensors_tensor *t, const json_t *v, const struct entry *in) {
    uint64_t begin, end;
    if (!json_is_array(v) || json_array_size(v) != 2)
        return refuse(in, "data_offsets is missing or not two numbers");
    if (!read_number(&begin, json_array_get(v, 0)) || !read_number(&end, json_array_get(v, 1)))
        return refuse(in, "data_offsets has an entry that is not a whole number of 0 or more");
    if (begin > end) return refuse(in, "data_offsets end before they begin");
    if (end > in->data_bytes) return refuse(in, "data_offsets reach past the end of the file");
    if (end - begin != t->bytes) return refuse(in, "data_offsets do not fit dtype and shape");
    t->offset = in->data_begin + begin;
    return 0;
}

static int read_entry(struct safetensors_tensor *t, const json_t *v, const struct entry *in) {
    if (in->name[0] == '\0' || strlen(in->name) >= TENSOR_NAME_MAX)
        return refuse(in, "the name is empty or too long");
    if (!json_is_object(v)) return refuse(in, "the entry is not an object");
    if (json_object_size(v) != 3)
        return refuse(in, "the entry must have dtype, shape and data_offsets and nothing else");
    int rc = read_type(t, json_object_get(v, "dtype"), in);
    if (rc == 0) rc = read_shape(t, json_object_get(v, "shape"), in);
    if (rc == 0) rc = read_offsets(t, json_object_get(v, "data_offsets"), in);
    return rc;
}

static int check_metadata(const json_t *v, const char *file, struct err_text *e) {
    if (v == NULL) return 0;
    bool fine = json_is_object(v);
    for (void *i = json_object_iter((json_t *)v); fine && i != NULL;
         i = json_object_iter_next((json_t *)v, i))
        fine = json_is_string(json_object_iter_value(i));
    if (fine) return 0;
    return err_set(e, ERR_FATAL_MODEL, "%s: __metadata__ is not an object of strings", file);
}

static int by_offset(const void *a, const void *b) {
    const struct safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b) {
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

// The data must be covered without gap or overlap: whoever hides bytes between tensors, or shares
// them, is refused.
static int check_cover(struct safetensors_header *h, const struct entry *file) {
    qsort(h->tensors, h->n_tensors, sizeof *h->tensors, by_offset);
    uint64_t at = file->data_begin;
    for (size_t i = 0; i < h->n_tensors; i++) {
        const struct safetensors_tensor *t = &h->tensors[i];
        struct entry in = *file;
        in.name = t->name;
        if (t->offset < at) return refuse(&in, "its bytes overlap those of another tensor");
        if (t->offset > at) return refuse(&in, "there is a gap before its bytes");
        at = t->offset + t->bytes;
    }
    if (at != file->data_begin + file->data_bytes)
        return err_set(file->e, ERR_FATAL_MODEL, "%s: %llu bytes at the end belong to no tensor",
                       file->file, (unsigned long long)(file->data_begin + file->data_bytes - at));
    qsort(h->tensors, h->n_tensors, sizeof *h->tensors, by_name);
    return 0;
}

static int allocate(struct safetensors_header *h, const json_t *root, struct err_text *e) {
    size_t name_bytes = 0;
    for (void *i = json_object_iter((json_t *)root); i != NULL;
         i = json_object_iter_next((json_t *)root, i))
        name_bytes += strlen(json_object_iter_key(i)) + 1;
    h->tensors = mem_array(json_object_size(root), sizeof *h->tensors);
    h->names = mem_alloc(name_bytes);
    if (h->tensors == NULL || h->names == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "no memory for the list of tensors");
    return 0;
}

static int read_entries(struct safetensors_header *h, const json_t *root, struct entry *in) {
    char *name = h->names;
    for (void *i = json_object_iter((json_t *)root); i != NULL;
         i = json_object_iter_next((json_t *)root, i)) {
        in->name = json_object_iter_key(i);
        if (strcmp(in->name, "__metadata__") == 0) continue;
        struct safetensors_tensor *t = &h->tensors[h->n_tensors];
        int rc = read_entry(t, json_object_iter_value(i), in);
        if (rc != 0) return rc;
        size_t bytes = strlen(in->name) + 1;
        memcpy(name, in->name, bytes);
        t->name = name;
        name += bytes;
        h->n_tensors++;
    }
    return 0;
}

int safetensors_header_parse(struct safetensors_header *out,
                             const struct safetensors_source *source, struct err_text *e) {
    check(source->json_bytes <= source->file_bytes && source->file_bytes - source->json_bytes >= 8);
    struct safetensors_header h = {0};
    json_t *root = NULL;
    const char *file = source->file;
    struct entry in = {.file = file, .data_begin = 8 + (uint64_t)source->json_bytes, .e = e};
    in.data_bytes = source->file_bytes - in.data_begin;
    if (source->json_bytes == 0 || source->json[0] != '{')
        return err_set(e, ERR_FATAL_MODEL, "%s: the header does not begin with '{'", file);
    int rc = config_parse(&root, source->json, source->json_bytes, file, e);
    if (rc == 0 && json_object_size(root) > TENSORS_MAX)
        rc = err_set(e, ERR_FATAL_MODEL, "%s has more than %d tensors", file, TENSORS_MAX);
    if (rc == 0) rc = check_metadata(json_object_get(root, "__metadata__"), file, e);
    if (rc == 0) rc = allocate(&h, root, e);
    if (rc == 0) rc = read_entries(&h, root, &in);
    if (rc == 0) rc = check_cover(&h, &in);
    json_decref(root);
    if (rc == 0)
        *out = h;
    else
        safetensors_header_finish(&h);
    return rc;
}

void safetensors_header_finish(struct safetensors_header *h) {
    mem_free(h->tensors);
    mem_free(h->names);
    *h = (struct safetensors_header){0};
}
