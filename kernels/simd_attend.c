// simd_attend.c: see simd_attend.h. Outputs have dimensions in lanes, so that each is one chain of
// additions over the keys, in their order.
#include "kernels/simd_attend.h"

#include <math.h>

#include "kernels/simd_elementary.h"
#include "kernels/simd_tile.h"

// --- weights

// Chains that look for the largest score beside each other. Their order may differ from the
// oracle's: it shows only where a score is NaN, and then the sum, and all that is divided by it,
// is.
#define TOP_CHAINS 4

static float largest(const float *scores, uint32_t n) {
    vec top[TOP_CHAINS];
    uint32_t j = 0;
    FOR_EACH(i, TOP_CHAINS) top[i] = vec_set(-INFINITY);
    for (; j + TOP_CHAINS * BLOCK <= n; j += TOP_CHAINS * BLOCK)
        FOR_EACH(i, TOP_CHAINS) top[i] = vec_max(top[i], vec_load(scores + j + i * BLOCK));
    for (; j < n; j += BLOCK)
        top[0] = vec_max(top[0], vec_load(scores + j));
    return vec_tree_max(vec_max(vec_max(top[0], top[1]), vec_max(top[2], top[3])));
}

// n blocks of scores become weights; returns sum with them added to it.
INLINE vec weigh_blocks(float *scores, int n, vec top, vec sum) {
    vec p[EXP_VECS];
    FOR_EACH(i, n) p[i] = vec_sub(vec_load(scores + i * BLOCK), top);
    vec_exp_each(p, n);
    FOR_EACH(i, n) vec_store(scores + i * BLOCK, p[i]);
    FOR_EACH(i, n) sum = vec_add(sum, p[i]);
    return sum;
}

void attend_softmax(struct attend_sums *s, float *scores, uint32_t n) {
    s->part_top = largest(scores, n);
    vec top = vec_set(s->part_top), sum = vec_zero();
    uint32_t j = 0;
    for (; j + EXP_VECS * BLOCK <= n; j += EXP_VECS * BLOCK)
        sum = weigh_blocks(scores + j, EXP_VECS, top, sum);
    for (; j < n; j += BLOCK)
        sum = weigh_blocks(scores + j, 1, top, sum);
    s->part_sum = vec_tree_sum(sum);
}

// --- values

struct value_tile {
    const struct attend_sums *sums;
    const struct attend_values *v;
    const float *weights;
    uint32_t key, end, dim;
};

INLINE void value_tile(const struct value_tile *t, int rows, int n_vecs, enum dtype dtype,
                       uint32_t n_lanes) {
    vec acc[TILE_ROWS * 4];
    const struct attend_values *v = t->v;
    size_t dim = v->dim;
    UNROLL
    for (int i = 0; i < rows * n_vecs; i++)
        acc[i] = vec_load(t->sums[i / n_vecs].acc + t->dim + i % n_vecs * VEC_LANES);
    for (uint32_t key = t->key; key < t->end;) {
        const unsigned char *base = v->rows[key >> v->shift];
        uint32_t begin = key >> v->shift << v->shift, stop = begin + (1u << v->shift);
        if (stop > t->end) stop = t->end;
        const float *p = t->weights + key;
        size_t index = (size_t)(key - begin) * dim + t->dim;
        UNROLL_4
        for (uint32_t i = key; i < stop; i++, p++, index += dim) {
            vec x[4];
            UNROLL
            for (int j = 0; j < n_vecs; j++)
                x[j] = n_lanes == VEC_LANES
                           ? element_load(base, dtype, index + (size_t)j * VEC_LANES)
                           : element_load_n(base, dtype, index, n_lanes);
            UNROLL
            for (int j = 0; j < rows * n_vecs; j++)
                acc[j] = vec_fma(vec_set(p[j / n_vecs * PART]), x[j % n_vecs], acc[j]);
        }
        key = stop;
    }
    UNROLL
    for (int i = 0; i < rows * n_vecs; i++)
        vec_store(t->sums[i / n_vecs].acc + t->dim + i % n_vecs * VEC_LANES, acc[i]);
}

// Two vectors are a kind of their own where more fit: heads of 32 would be two chains too few.
#define PANELS_TWO(rows) (TILE_PANELS(rows) < 2 ? 1 : 2)
#define DEFINE_VALUE(rows, n, kind, dtype)                                                         \
    static void value_##dtype##_##rows##_##kind(const struct value_tile *t) {                      \
        value_tile(t, rows, n, DTYPE_##dtype, VEC_LANES);                                          \
    }
#define DEFINE_VALUES(rows, dtype)                                                                 \
    FOR_TILES_OF_ROWS(DEFINE_VALUE, rows, dtype)                                                   \
    DEFINE_VALUE(rows, PANELS_TWO(rows), two, dtype)                                               \
    static void value_##dtype##_##rows##_tail(const struct value_tile *t) {                        \
        value_tile(t, rows, 1, DTYPE_##dtype, t->v->dim % VEC_LANES);                              \
    }
FOR_TILE_ROWS(DEFINE_VALUES, F32)
FOR_TILE_ROWS(DEFINE_VALUES, BF16)
FOR_TILE_ROWS(DEFINE_VALUES, E4M3)
FOR_TILE_ROWS(DEFINE_VALUES, I8)

enum value_kind { VALUE_TAIL, VALUE_ONE, VALUE_TWO, VALUE_FULL, VALUE_KINDS };
#define NAME_VALUES(rows, dtype)                                                                   \
    {value_##dtype##_##rows##_tail, value_##dtype##_##rows##_one, value_##dtype##_##rows##_two,    \
     value_##dtype##_##rows##_full},
static void (*const value_tiles[DTYPE_KV_COUNT][TILE_ROWS][VALUE_KINDS])(
    const struct value_tile *) = {
    [DTYPE_F32] = {FOR_TILE_ROWS(NAME_VALUES, F32)},
    [DTYPE_BF16] = {FOR_TILE_ROWS(NAME_VALUES, BF16)},
    [DTYPE_E4M3] = {FOR_TILE_ROWS(NAME_VALUES, E4M3)},
    [DTYPE_I8] = {FOR_TILE_ROWS(NAME_VALUES, I8)},
};

// The widest kind that n dimensions fill, and how many it takes.
static enum value_kind widest(uint32_t rows, uint32_t n, uint32_t *taken) {
    uint32_t full = (uint32_t)TILE_PANELS(rows) * VEC_LANES,
             two = (uint32_t)PANELS_TWO(rows) * VEC_LANES;
    enum value_kind kind = n >= full  ? VALUE_FULL
                           : n >= two ? VALUE_TWO
                                      : (n >= VEC_LANES ? VALUE_ONE : VALUE_TAIL);
    *taken = kind == VALUE_FULL ? full : kind == VALUE_TWO ? two : VEC_LANES;
    return kind;
}

void attend_add_values(const struct attend_sums *s, uint32_t n_rows, const float *weights,
                       const struct attend_values *v, const uint32_t key_end[2]) {
    if (key_end[0] >= key_end[1]) return;
    struct value_tile t = {s, v, weights, key_end[0], key_end[1], 0};
    for (uint32_t taken; t.dim < v->dim; t.dim += taken) {
        enum value_kind kind = widest(n_rows, v->dim - t.dim, &taken);
        value_tiles[v->dtype][n_rows - 1][kind](&t);
    }
}

// --- partitions

// elementary_exp has the same bits, but is compiled for any CPU, without fused operations.
static float exp_one(float x) {
    return vec_first(vec_exp(vec_set(x)));
}

void attend_merge(struct attend_sums *s, uint32_t value_dim) {
    size_t padded = attend_padded(value_dim);
    if (!s->started) {
        memcpy(s->merged, s->acc, padded * sizeof *s->acc);
        s->top = s->part_top;
        s->sum = s->part_sum;
        s->started = true;
        return;
    }
    float top = s->top > s->part_top ? s->top : s->part_top;
    float c1 = exp_one(s->top - top), c2 = exp_one(s->part_top - top);
    s->sum = s->sum * c1 + s->part_sum * c2;
    s->top = top;
    for (size_t d = 0; d < padded; d += VEC_LANES) {
        vec a = vec_mul(vec_load(s->merged + d), vec_set(c1)),
            b = vec_mul(vec_load(s->acc + d), vec_set(c2));
        vec_store(s->merged + d, vec_add(a, b));
    }
}

void attend_write(const struct attend_sums *s, float *out, uint32_t value_dim, const float *sink) {
    float l = s->sum, keep = 1.0f;
    if (sink != NULL) {
        float top = s->top > *sink ? s->top : *sink;
        keep = exp_one(s->top - top);
        l = l * keep + exp_one(*sink - top);
    }
    for (uint32_t d = 0; d < value_dim; d += VEC_LANES) {
        vec o = vec_div(vec_mul(vec_load(s->merged + d), vec_set(keep)), vec_set(l));
        uint32_t left = value_dim - d;
        vec_store_n(out + d, o, left < VEC_LANES ? left : VEC_LANES);
    }
}
