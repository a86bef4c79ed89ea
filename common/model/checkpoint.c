// checkpoint.c: see checkpoint.h.
#include "common/model/checkpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/model/tensors.h"

#define PIECE_BYTES (1u << 20) // of a tensor, read at once

// --- sizes

static bool count(void *context, const struct tensor_want *want) {
    struct checkpoint_sizes *sizes = context;
    uint64_t n = (uint64_t)want->rows * (want->cols == 0 ? 1 : want->cols);
    sizes->parameters += n;
    if (!tensor_of_expert(want->ref.kind))
        sizes->outside_experts += n;
    else if (want->ref.expert == 0)
        sizes->of_one_expert += n;
    return true;
}

void checkpoint_sizes(struct checkpoint_sizes *out, const struct model_spec *spec) {
    *out = (struct checkpoint_sizes){0};
    check(tensors_each(spec, count, out));
    out->active = out->outside_experts + spec->router.top_k * out->of_one_expert;
    if (spec->tied_embeddings) out->outside_experts += (uint64_t)spec->vocab * spec->hidden;
}

uint64_t checkpoint_rank_bytes(const struct checkpoint_sizes *sizes, const struct model_spec *spec,
                               uint32_t n_ranks) {
    uint64_t experts = (spec->router.n_experts + (uint64_t)n_ranks - 1) / n_ranks;
    return (sizes->outside_experts + experts * sizes->of_one_expert) * dtype_bytes(spec->dtype);
}

// --- names, shapes, types

struct matching {
    const struct model_spec *spec;
    const struct safetensors *st;
    const struct problems *problems;
    uint8_t *used;       // [tensors of the checkpoint]
    enum dtype previous; // of the last tensor that was there
};

static void say(const struct problems *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(const struct problems *p, const char *format, ...) {
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->say(p->context, text);
}

// Several matrices may stand in one tensor: those of all experts or heads, or those whose kinds
// stand together. It is looked at once.
static bool is_seen(const struct model_spec *spec, const struct tensor_want *want,
                    const char *name) {
    struct tensor_want other = *want;
    char other_name[TENSOR_NAME_MAX];
    if (want->ref.expert > 0) {
        other.ref.expert = 0;
        tensor_want_name(spec, &other, other_name);
        if (strcmp(other_name, name) == 0) return true;
    }
    const struct family *family = spec_family(spec);
    if (want->ref.kind == 0) return false;
    other.ref = want->ref;
    other.ref.kind -= 1;
    return family->tensor_name(spec, &other.ref, other_name, sizeof other_name) &&
           strcmp(other_name, name) == 0;
}

// Queries, keys and values become one matrix, which has one type; projections of recurrent layers
// become two.
static bool follows_in_matrix(const struct model_spec *spec, enum tensor_kind kind) {
    bool latent = spec->mla.kv_rank != 0;
    if (kind == TENSOR_DELTA_Z || kind == TENSOR_DELTA_A) return true;
    return !latent &&
           (kind == TENSOR_K || kind == TENSOR_V || kind == TENSOR_K_BIAS || kind == TENSOR_V_BIAS);
}

static void check_tensor(struct matching *m, const struct safetensors_tensor *t,
                         const struct tensor_want *want) {
    const struct tensor_place place = tensor_want_place(m->spec, want);
    enum dtype dtype;
    if (t->n_dims != place.n_dims ||
        memcmp(t->shape, place.dims, place.n_dims * sizeof place.dims[0]) != 0) {
        char expected[64], found[128];
        safetensors_shape_text(expected, sizeof expected, place.dims, place.n_dims);
        safetensors_shape_text(found, sizeof found, t->shape, t->n_dims);
        say(m->problems, "tensor %s: config.json asks for shape %s, the file has %s", t->name,
            expected, found);
    }
    if (!safetensors_dtype(t, &dtype)) {
        say(m->problems, "tensor %s has type %s; only F32, F16 and BF16 are supported", t->name,
            safetensors_type_name(t));
        return;
    }
    if (follows_in_matrix(m->spec, want->ref.kind) && dtype != m->previous)
        say(m->problems, "tensor %s has type %s, the one before it in its matrix another", t->name,
            safetensors_type_name(t));
    m->previous = dtype;
}

static bool match(void *context, const struct tensor_want *want) {
    struct matching *m = context;
    char name[TENSOR_NAME_MAX];
    tensor_want_name(m->spec, want, name);
    if (is_seen(m->spec, want, name)) return true;
    const struct safetensors_tensor *t = safetensors_find(m->st, name);
    if (t == NULL) {
        say(m->problems, "tensor %s is missing", name);
        return true;
    }
    m->used[t - safetensors_at(m->st, 0)] = 1;
    check_tensor(m, t, want);
    return true;
}

int checkpoint_check(const struct model_spec *spec, const struct safetensors *st,
                     const struct problems *problems, struct err_text *e) {
    size_t n = safetensors_count(st);
    struct matching m = {.spec = spec, .st = st, .problems = problems};
    m.used = mem_zalloc(n + 1);
    if (m.used == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory to check %zu tensors", n);
    check(tensors_each(spec, match, &m));
    for (size_t i = 0; i < n; i++) {
        const char *name = safetensors_at(st, i)->name;
        if (!m.used[i] && !tensor_is_left_out(spec, name))
            say(problems, "tensor %s has no place in %s", name, spec->architecture);
    }
    mem_free(m.used);
    return 0;
}

// --- values

// Numbers whose exponent is all ones are infinite or none.
static uint64_t count_not_finite(const uint8_t *bytes, size_t n, enum dtype dtype) {
    uint64_t found = 0;
    if (dtype == DTYPE_F32) {
        for (size_t i = 0; i + 4 <= n; i += 4) {
            uint32_t bits;
            memcpy(&bits, bytes + i, sizeof bits);
            found += (bits & 0x7f800000u) == 0x7f800000u;
        }
        return found;
    }
    uint16_t exponent = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80;
    for (size_t i = 0; i + 2 <= n; i += 2) {
        uint16_t bits;
        memcpy(&bits, bytes + i, sizeof bits);
        found += (bits & exponent) == exponent;
    }
    return found;
}

static int scan(const struct safetensors *st, const struct safetensors_tensor *t, uint8_t *piece,
                uint64_t *found, struct err_text *e) {
    enum dtype dtype;
    *found = 0;
    if (!safetensors_dtype(t, &dtype)) return 0;
    for (uint64_t at = 0; at < t->bytes; at += PIECE_BYTES) {
        size_t n = t->bytes - at < PIECE_BYTES ? (size_t)(t->bytes - at) : PIECE_BYTES;
        int rc = safetensors_read(st, t, (struct safetensors_range){at, n}, piece, e);
        if (rc != 0) return rc;
        *found += count_not_finite(piece, n, dtype);
    }
    return 0;
}

int checkpoint_check_values(const struct model_spec *spec, const struct safetensors *st,
                            const struct problems *problems, struct err_text *e) {
    uint8_t *piece = mem_alloc(PIECE_BYTES);
    if (piece == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory to read tensors");
    int rc = 0;
    for (size_t i = 0; i < safetensors_count(st) && rc == 0; i++) {
        const struct safetensors_tensor *t = safetensors_at(st, i);
        uint64_t found;
        if (tensor_is_left_out(spec, t->name)) continue;
        rc = scan(st, t, piece, &found, e);
        if (rc == 0 && found > 0)
            say(problems, "tensor %s: %llu of its numbers are infinite or none (NaN)", t->name,
                (unsigned long long)found);
    }
    mem_free(piece);
    return rc;
}
