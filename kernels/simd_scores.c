// simd_scores.c: scores before anything becomes of them: queries times keys (simd_attend.h).
//
// Keys are in lanes, a block of sixteen is a panel, and each score is one chain over the
// dimensions.
#include "kernels/simd_attend.h"
#include "kernels/simd_tile.h"

struct score_tile {
    struct tile_input in;
    float *out, scale; // row stride PART
    uint32_t dim, n_lanes;
};

INLINE void score_tile(const struct score_tile *t, int rows, int n_blocks, enum dtype dtype) {
    vec acc[TILE_ROWS * 4];
    float *out = t->out; // as a copy, it cannot be what is stored to
    vec scale = vec_set(t->scale);
    tile_sum(acc, &t->in, rows, n_blocks, dtype, 0, t->dim);
    UNROLL
    for (int i = 0; i < rows * n_blocks; i++)
        vec_store(out + i / n_blocks * PART + i % n_blocks * BLOCK, vec_mul(acc[i], scale));
}

// Keys of one block, the first of which is where the panel begins: they are loaded into the first
// lanes, so no other is touched.
INLINE void score_part(const struct score_tile *t, int rows, enum dtype dtype) {
    vec acc[TILE_ROWS];
    uint32_t n_lanes = t->n_lanes;
    UNROLL
    for (int r = 0; r < rows; r++)
        acc[r] = vec_zero();
    for (size_t d = 0; d < t->dim; d++) {
        vec k = element_load_n(t->in.panels[0], dtype, d * BLOCK, n_lanes);
        UNROLL
        for (int r = 0; r < rows; r++)
            acc[r] = vec_fma(k, vec_set(t->in.x[(size_t)r * t->in.ldx + d]), acc[r]);
    }
    for (int r = 0; r < rows; r++)
        vec_store_n(t->out + r * PART, vec_mul(acc[r], vec_set(t->scale)), n_lanes);
}

#define DEFINE_SCORE(rows, n, kind, dtype)                                                         \
    static void score_##dtype##_##rows##_##kind(const struct score_tile *t) {                      \
        score_tile(t, rows, n, DTYPE_##dtype);                                                     \
    }
#define DEFINE_SCORES(rows, dtype)                                                                 \
    FOR_TILES_OF_ROWS(DEFINE_SCORE, rows, dtype)                                                   \
    static void score_##dtype##_##rows##_part(const struct score_tile *t) {                        \
        score_part(t, rows, DTYPE_##dtype);                                                        \
    }
FOR_TILE_ROWS(DEFINE_SCORES, F32)
FOR_TILE_ROWS(DEFINE_SCORES, BF16)
FOR_TILE_ROWS(DEFINE_SCORES, E4M3)
FOR_TILE_ROWS(DEFINE_SCORES, I8)

enum score_kind { SCORE_ONE, SCORE_FULL, SCORE_PART, SCORE_KINDS };
#define NAME_SCORES(rows, dtype)                                                                   \
    {score_##dtype##_##rows##_one, score_##dtype##_##rows##_full, score_##dtype##_##rows##_part},
static void (*const score_tiles[DTYPE_KV_COUNT][TILE_ROWS][SCORE_KINDS])(
    const struct score_tile *) = {
    [DTYPE_F32] = {FOR_TILE_ROWS(NAME_SCORES, F32)},
    [DTYPE_BF16] = {FOR_TILE_ROWS(NAME_SCORES, BF16)},
    [DTYPE_E4M3] = {FOR_TILE_ROWS(NAME_SCORES, E4M3)},
    [DTYPE_I8] = {FOR_TILE_ROWS(NAME_SCORES, I8)},
};

// The widest kind that keys [key, end) begin with, and how many keys it takes.
static enum score_kind widest(uint32_t n_rows, uint32_t key, uint32_t end, uint32_t *taken) {
    uint32_t left = BLOCK - key % BLOCK, full = (uint32_t)TILE_PANELS(n_rows) * BLOCK;
    *taken = end - key < left ? end - key : left;
    if (*taken < BLOCK) return SCORE_PART;
    if (end - key < full) return SCORE_ONE;
    *taken = full;
    return SCORE_FULL;
}

void attend_scores(const struct attend_queries *q, const struct attend_keys *k, float scale,
                   const uint32_t key_end[2]) {
    struct score_tile t = {.in = {.x = q->q, .ldx = q->stride}, .dim = k->dim, .scale = scale};
    for (uint32_t key = key_end[0], n; key < key_end[1]; key += n) {
        enum score_kind kind = widest(q->n, key, key_end[1], &n);
        for (uint32_t b = 0; b * BLOCK < n; b++)
            t.in.panels[b] = k->panels[key / BLOCK + b] + key % BLOCK * dtype_bytes(k->dtype);
        t.n_lanes = n;
        t.out = q->scores + key;
        score_tiles[k->dtype][q->n - 1][kind](&t);
    }
}
