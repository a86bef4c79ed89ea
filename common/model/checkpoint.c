// checkpoint.c: see checkpoint.h.
#include "common/model/checkpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/model/expert_table.h"
#include "common/model/tensors.h"

#define PIECE_BYTES (1u << 20) // of a tensor, read at once

// --- sizes

static bool count(void *context, const struct tensor_want *want) {
    struct checkpoint_sizes *sizes = context;
    uint64_t n = (uint64_t)want->rows * (want->cols == 0 ? 1 : want->cols);
    if (tensor_of_ids(want->ref.kind)) return true; // no parameters, and small
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
    enum dtype previous; // of the tensor before; DTYPE_COUNT where it has none or is missing
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

// A table of experts by token, of the right shape and type: small enough to be read each time.
static void check_table(struct matching *m, const struct safetensors_tensor *t) {
    struct err_text why;
    uint16_t *ids = mem_array(m->spec->vocab, m->spec->router.top_k * sizeof *ids);
    const struct expert_table_source source = {m->st, t};
    if (ids == NULL)
        say(m->problems, "no memory to read tensor %s", t->name);
    else if (expert_table_read(ids, NULL, m->spec, &source, &why) != 0)
        say(m->problems, "%s", why.text);
    mem_free(ids);
}

static void check_tensor(struct matching *m, const struct safetensors_tensor *t,
                         const struct tensor_want *want) {
    const struct tensor_place place = tensor_want_place(m->spec, want);
    enum dtype dtype;
    bool fits = t->n_dims == place.n_dims &&
                memcmp(t->shape, place.dims, place.n_dims * sizeof place.dims[0]) == 0;
    if (!fits) {
        char expected[64], found[128];
        safetensors_shape_text(expected, sizeof expected, place.dims, place.n_dims);
        safetensors_shape_text(found, sizeof found, t->shape, t->n_dims);
        say(m->problems, "tensor %s: config.json asks for shape %s, the file has %s", t->name,
            expected, found);
    }
    if (tensor_of_ids(want->ref.kind)) {
        if (safetensors_id_bytes(t) == 0)
            say(m->problems, "tensor %s has type %s; only I32 and I64 are ids", t->name,
                safetensors_type_name(t));
        else if (fits)
            check_table(m, t);
        return;
    }
    if (!safetensors_dtype(t, &dtype)) {
        say(m->problems, "tensor %s has type %s; only F32, F16 and BF16 are supported", t->name,
            safetensors_type_name(t));
        m->previous = DTYPE_COUNT;
        return;
    }
    if (follows_in_matrix(m->spec, want->ref.kind) && m->previous != DTYPE_COUNT &&
        dtype != m->previous)
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
        m->previous = DTYPE_COUNT;
        return true;
    }
    m->used[t - safetensors_at(m->st, 0)] = 1;
    check_tensor(m, t, want);
    return true;
}

int checkpoint_check(const struct model_spec *spec, const struct safetensors *st,
                     const struct problems *problems, struct err_text *e) {
    size_t n = safetensors_count(st);
    struct matching m = {.spec = spec, .st = st, .problems = problems, .previous = DTYPE_COUNT};
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

struct counts {
    uint64_t not_finite, beyond; // beyond: finite, but not in the type that they are held in
};

// overflow: float32 bits (float16 bits of that type) of the least magnitude that is too large.
static void count_values(struct counts *c, const uint8_t *bytes, size_t n, enum dtype dtype,
                         uint32_t overflow) {
    uint64_t infinite = 0, too_large = 0;
    if (dtype == DTYPE_F32) {
        for (size_t i = 0; i + 4 <= n; i += 4) {
            uint32_t bits;
            memcpy(&bits, bytes + i, sizeof bits);
            infinite += (bits & 0x7fffffffu) >= 0x7f800000u;
            too_large += (bits & 0x7fffffffu) >= overflow;
        }
    } else {
        uint32_t shift = dtype == DTYPE_BF16 ? 16 : 0, limit = shift != 0 ? 0x7f800000u : 0x7c00u;
        for (size_t i = 0; i + 2 <= n; i += 2) {
            uint16_t bits;
            memcpy(&bits, bytes + i, sizeof bits);
            infinite += (uint32_t)(bits & 0x7fffu) << shift >= limit;
            too_large += (uint32_t)(bits & 0x7fffu) << shift >= overflow;
        }
    }
    c->not_finite += infinite;
    c->beyond += too_large - infinite;
}

// What each tensor of the checkpoint is held in, DTYPE_COUNT where nothing asks for it.
struct holding {
    const struct model_spec *spec;
    const struct safetensors *st;
    uint8_t *held; // [tensors of the checkpoint]
};

static bool hold(void *context, const struct tensor_want *want) {
    struct holding *h = context;
    char name[TENSOR_NAME_MAX];
    enum dtype found, asked = h->spec->dtype == DTYPE_COUNT ? DTYPE_F32 : h->spec->dtype;
    tensor_want_name(h->spec, want, name);
    if (is_seen(h->spec, want, name)) return true;
    const struct safetensors_tensor *t = safetensors_find(h->st, name);
    if (t != NULL && safetensors_dtype(t, &found))
        h->held[t - safetensors_at(h->st, 0)] =
            (uint8_t)tensor_held_dtype(h->spec, want, found, asked);
    return true;
}

static int scan(const struct holding *h, const struct safetensors_tensor *t, uint8_t *piece,
                struct counts *counts, struct err_text *e) {
    enum dtype dtype, held = (enum dtype)h->held[t - safetensors_at(h->st, 0)];
    *counts = (struct counts){0};
    if (!safetensors_dtype(t, &dtype)) return 0;
    // Every number of float16 is one of the other types.
    uint32_t overflow = dtype == DTYPE_F16 ? 0x7c00u : dtype_overflow_bits(held);
    for (uint64_t at = 0; at < t->bytes; at += PIECE_BYTES) {
        size_t n = t->bytes - at < PIECE_BYTES ? (size_t)(t->bytes - at) : PIECE_BYTES;
        int rc = safetensors_read(h->st, t, (struct safetensors_range){at, n}, piece, e);
        if (rc != 0) return rc;
        count_values(counts, piece, n, dtype, overflow);
    }
    return 0;
}

static int scan_all(const struct holding *h, uint8_t *piece, const struct problems *problems,
                    struct err_text *e) {
    for (size_t i = 0; i < safetensors_count(h->st); i++) {
        const struct safetensors_tensor *t = safetensors_at(h->st, i);
        struct counts counts;
        if (tensor_is_left_out(h->spec, t->name)) continue;
        int rc = scan(h, t, piece, &counts, e);
        if (rc != 0) return rc;
        if (counts.not_finite > 0)
            say(problems, "tensor %s: %llu of its numbers are infinite or none (NaN)", t->name,
                (unsigned long long)counts.not_finite);
        if (counts.beyond > 0)
            say(problems,
                "tensor %s: %llu of its numbers are beyond the range of %s, which config.json asks "
                "for; load it as another dtype",
                t->name, (unsigned long long)counts.beyond, dtype_name((enum dtype)h->held[i]));
    }
    return 0;
}

int checkpoint_check_values(const struct model_spec *spec, const struct safetensors *st,
                            const struct problems *problems, struct err_text *e) {
    size_t n = safetensors_count(st);
    uint8_t *piece = mem_alloc(PIECE_BYTES), *held = mem_alloc(n + 1);
    struct holding h = {spec, st, held};
    int rc = 0;
    if (piece == NULL || held == NULL) {
        rc = err_set(e, ERR_FATAL_NOMEM, "no memory to read tensors");
    } else {
        memset(held, DTYPE_COUNT, n + 1);
        check(tensors_each(spec, hold, &h));
        rc = scan_all(&h, piece, problems, e);
    }
    mem_free(piece);
    mem_free(held);
    return rc;
}
