// simd_tile.h: the one inner loop of the dense products and of the attention scores: rows of x
// against panels of 16 columns.
#ifndef MOESAIC_KERNELS_SIMD_TILE_H
#define MOESAIC_KERNELS_SIMD_TILE_H

#include "kernels/ops.h"
#include "kernels/vec.h"

// Sixteen elements of dtype, which is a constant wherever this is used.
INLINE vec element_load(const unsigned char *base, enum dtype dtype, size_t index) {
    const unsigned char *p = base + index * dtype_bytes(dtype);
    if (dtype == DTYPE_F32) return vec_load(p);
    if (dtype_bytes(dtype) == 1) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        return dtype == DTYPE_E4M3 ? vec_from_e4m3(bytes) : vec_from_int8(bytes);
    }
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return dtype == DTYPE_F16 ? vec_from_f16(half) : vec_from_bf16(half);
}

INLINE vec element_load_n(const unsigned char *base, enum dtype dtype, size_t index, uint32_t n) {
    const unsigned char *p = base + index * dtype_bytes(dtype);
    if (dtype == DTYPE_F32) return vec_load_n(p, n);
    if (dtype_bytes(dtype) == 1) {
        __m128i bytes = byte_load_n(p, n);
        return dtype == DTYPE_E4M3 ? vec_from_e4m3(bytes) : vec_from_int8(bytes);
    }
    __m256i half = half_load_n(p, n);
    return dtype == DTYPE_F16 ? vec_from_f16(half) : vec_from_bf16(half);
}

// What one register tile reads: rows at x + r * ldx, columns in panels [k][16].
struct tile_input {
    const float *x;
    size_t ldx;
    const unsigned char *panels[4];
};

// acc[r * n_panels + p] = the sums over k in [begin, end), k ascending from +0. rows, n_panels and
// dtype are constants: the accumulators live in registers, and each is a chain of its own.
INLINE void tile_sum(vec *out, const struct tile_input *in, int rows, int n_panels,
                     enum dtype dtype, uint32_t begin, uint32_t end) {
    vec acc[TILE_ROWS * 4];
    const float *x = in->x;
    size_t ldx = in->ldx;
    UNROLL
    for (int i = 0; i < rows * n_panels; i++)
        acc[i] = vec_zero();
    UNROLL_4
    for (size_t k = begin; k < end; k++) {
        vec w[4];
        UNROLL
        for (int p = 0; p < n_panels; p++)
            w[p] = element_load(in->panels[p], dtype, k * PANEL_COLS);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vec value = vec_set(x[(size_t)r * ldx + k]);
            UNROLL
            for (int p = 0; p < n_panels; p++)
                acc[r * n_panels + p] = vec_fma(w[p], value, acc[r * n_panels + p]);
        }
    }
    UNROLL
    for (int i = 0; i < rows * n_panels; i++)
        out[i] = acc[i];
}

// Rows of the next tile when n are left: dealt evenly over the fewest tiles. Nine are five and
// four, since a tile of one is as slow as one of four.
INLINE uint32_t tile_rows(uint32_t n) {
    uint32_t n_tiles = (n + TILE_ROWS - 1) / TILE_ROWS;
    return (n + n_tiles - 1) / n_tiles;
}

// Expands M(rows, panels, dtype) for every tile of one number of rows: as many panels as fit the
// registers, and one.
#define FOR_TILES_OF_ROWS(M, rows, dtype)                                                          \
    M(rows, TILE_PANELS(rows), full, dtype) M(rows, 1, one, dtype)

#if TILE_ROWS == 8
#define FOR_TILE_ROWS(M, dtype)                                                                    \
    M(1, dtype) M(2, dtype) M(3, dtype) M(4, dtype) M(5, dtype) M(6, dtype) M(7, dtype) M(8, dtype)
#else
#define FOR_TILE_ROWS(M, dtype) M(1, dtype) M(2, dtype) M(3, dtype) M(4, dtype)
#endif

#endif
