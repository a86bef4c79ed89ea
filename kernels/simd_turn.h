// simd_turn.h: rows that stand anywhere become panels [dim][16] of float32, with the rows in lanes.
// Attention over latents scores its keys so, and the index of compressed entries its own.
#ifndef MOESAIC_KERNELS_SIMD_TURN_H
#define MOESAIC_KERNELS_SIMD_TURN_H

#include "common/base/check.h"
#include "kernels/simd_tables.h"
#include "kernels/simd_tile.h"

#define BLOCK KV_BLOCK_TOKENS

static_assert(BLOCK == VEC_LANES, "a block of keys fills the lanes");

// Rows of dim elements of one kind (struct latent_keys), at most ATTN_PARTITION_TOKENS.
struct row_set {
    uint32_t n, dim, value_dim;
    enum dtype dtype;
    const unsigned char *rows[ATTN_PARTITION_TOKENS]; // where each stands
    float scales[ATTN_PARTITION_TOKENS][2];           // of int8
};

// Where row i is looked for.
struct row_place {
    const void *pages;
    size_t block_stride;
    const uint32_t *block_table;
    uint32_t rate;
};

INLINE void add_row(struct row_set *set, const struct row_place *at, uint32_t i) {
    const unsigned char *page = at->pages;
    uint32_t n_rows = latent_page_rows(at->rate), row = i % n_rows;
    page += at->block_table[latent_block(i, at->rate)] * at->block_stride;
    set->rows[set->n] = page + (size_t)row * set->dim * dtype_bytes(set->dtype);
    if (set->dtype == DTYPE_I8)
        memcpy(set->scales[set->n], page + (size_t)n_rows * set->dim + row * sizeof *set->scales,
               sizeof *set->scales);
    set->n++;
}

// Eight rows of eight: element r of column c goes to row c.
INLINE void transpose_8(float *out, const __m256 *in) {
    __m256 a[8], b[8];
    UNROLL
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_ps(in[2 * i], in[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(in[2 * i], in[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + (size_t)i * BLOCK, _mm256_permute2f128_ps(b[i], b[4 + i], 0x20));
        _mm256_storeu_ps(out + (size_t)(4 + i) * BLOCK,
                         _mm256_permute2f128_ps(b[i], b[4 + i], 0x31));
    }
}

// Sixteen dimensions of eight keys, into half of the panel's lanes.
INLINE void turn_half(float *panel, const vec *rows) {
    __m256 half[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        half[i] = vec_low(rows[i]);
    transpose_8(panel, half);
    UNROLL
    for (int i = 0; i < 8; i++)
        half[i] = vec_high(rows[i]);
    transpose_8(panel + (size_t)8 * BLOCK, half);
}

// n dimensions from d on of one key.
INLINE vec row_part(const struct row_set *set, uint32_t key, uint32_t d, uint32_t n,
                    enum dtype dtype) {
    const unsigned char *row = set->rows[key];
    vec x = n == VEC_LANES ? element_load(row, dtype, d) : element_load_n(row, dtype, d, n);
    return dtype == DTYPE_I8 ? vec_mul(x, vec_set(set->scales[key][d >= set->value_dim])) : x;
}

// n dimensions from d on of up to sixteen keys from number key on: out becomes [16][16]. Lanes
// behind the last key repeat it, and nobody looks at them.
INLINE void turn_square(const struct row_set *set, float *out, uint32_t key, const uint32_t d_n[2],
                        enum dtype dtype) {
    for (uint32_t from = 0; from < BLOCK; from += 8) {
        vec rows[8];
        UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t j = key + from + i < set->n ? key + from + i : set->n - 1;
            rows[i] = row_part(set, j, d_n[0], d_n[1], dtype);
        }
        turn_half(out + from, rows);
    }
}

// Dimensions [d, end) of the keys, which have one scale if any.
INLINE void turn_rows(const struct row_set *set, float *panel, uint32_t key, uint32_t d,
                      uint32_t end, enum dtype dtype) {
    for (; d + VEC_LANES <= end; d += VEC_LANES)
        turn_square(set, panel + (size_t)d * BLOCK, key, (uint32_t[]){d, VEC_LANES}, dtype);
    if (d == end) return;
    float tail[VEC_LANES * BLOCK];
    turn_square(set, tail, key, (uint32_t[]){d, end - d}, dtype);
    memcpy(panel + (size_t)d * BLOCK, tail, (end - d) * BLOCK * sizeof *tail);
}

INLINE void fill_panel_as(const struct row_set *set, float *panel, uint32_t key, enum dtype dtype) {
    if (dtype == DTYPE_I8) {
        turn_rows(set, panel, key, 0, set->value_dim, dtype);
        turn_rows(set, panel, key, set->value_dim, set->dim, dtype);
    } else {
        turn_rows(set, panel, key, 0, set->dim, dtype);
    }
}

// Up to sixteen rows from number key on.
static void fill_panel(const struct row_set *set, float *panel, uint32_t key) {
    switch (set->dtype) {
    case DTYPE_F32: fill_panel_as(set, panel, key, DTYPE_F32); break;
    case DTYPE_BF16: fill_panel_as(set, panel, key, DTYPE_BF16); break;
    case DTYPE_E4M3: fill_panel_as(set, panel, key, DTYPE_E4M3); break;
    default: fill_panel_as(set, panel, key, DTYPE_I8);
    }
}

#endif
