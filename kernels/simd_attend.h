// simd_attend.h: what attention over pages and attention over latents share: scores of a tile,
// their softmax, values times weights, partitions merged in order.
//
// A tile is a few queries whose scores of one partition stand in scratch. Keys are numbered as the
// caller likes, as long as keys and values can be found by number; simd_scores.c and simd_attend.c
// do the sums.
#ifndef MOESAIC_KERNELS_SIMD_ATTEND_H
#define MOESAIC_KERNELS_SIMD_ATTEND_H

#include "common/base/limits.h"
#include "kernels/ops.h"
#include "kernels/vec.h"

#define PART ATTN_PARTITION_TOKENS
#define BLOCK KV_BLOCK_TOKENS

static_assert(BLOCK == VEC_LANES, "a block of keys fills the lanes");

// A query's sums over the partitions so far, and those of the one that is being added.
struct attend_sums {
    float top, sum; // of all so far
    float part_top, part_sum;
    bool started;
    float *merged, *acc; // [padded] each
};

static inline size_t attend_padded(uint32_t value_dim) {
    return ((size_t)value_dim + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
}

// A tile's queries and where their scores of keys [0, PART) of a partition go.
struct attend_queries {
    const float *q;
    size_t stride;
    uint32_t n;    // at most TILE_ROWS
    float *scores; // row stride PART
};

// Those keys: block b's sixteen at panels[b], as [dim][16].
struct attend_keys {
    const unsigned char *const *panels;
    uint32_t dim;
    enum dtype dtype;
};

// Dot products with keys [key, end), times scale; of int8 they are with the codes. No other key is
// looked at.
#define attend_scores KERNEL_SYMBOL(attend_scores)
void attend_scores(const struct attend_queries *q, const struct attend_keys *k, float scale,
                   const uint32_t key_end[2]);

// Values of keys [0, PART) of a partition: key j's row is rows[j >> shift] and the (j mod
// 2^shift)th from there.
struct attend_values {
    const unsigned char *const *rows;
    uint32_t shift, dim;
    enum dtype dtype;
};

// Scores [0, n) become exp(score - largest); their sum and the largest go to s. n is a multiple of
// the lanes; keys that do not exist have -infinity and become +0.
#define attend_softmax KERNEL_SYMBOL(attend_softmax)
void attend_softmax(struct attend_sums *s, float *scores, uint32_t n);

// Keys [key, end) times their weights, row r's at weights + r * PART, are added to the acc of
// n_rows neighbours. n_rows is at most TILE_ROWS.
#define attend_add_values KERNEL_SYMBOL(attend_add_values)
void attend_add_values(const struct attend_sums *s, uint32_t n_rows, const float *weights,
                       const struct attend_values *v, const uint32_t key_end[2]);

// The partition in acc goes into merged.
#define attend_merge KERNEL_SYMBOL(attend_merge)
void attend_merge(struct attend_sums *s, uint32_t value_dim);

// out = merged over its sum, with a sink's weight in it where there is one.
#define attend_write KERNEL_SYMBOL(attend_write)
void attend_write(const struct attend_sums *s, float *out, uint32_t value_dim, const float *sink);

#endif
