// ref.h: what the files of the oracle share: elements of any format, and sums in lanes. Private to
// ref*.c.
#ifndef MOESAIC_KERNELS_REF_H
#define MOESAIC_KERNELS_REF_H

#include <math.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "kernels/ops.h"

#define LANES 16

static inline float element(const void *base, enum dtype dtype, size_t index) {
    const unsigned char *p = (const unsigned char *)base + index * dtype_bytes(dtype);
    uint16_t half;
    float single;
    if (dtype == DTYPE_F32) {
        memcpy(&single, p, sizeof single);
        return single;
    }
    if (dtype == DTYPE_E4M3) return e4m3_to_f32(*p);
    if (dtype == DTYPE_I8) return (float)(*p < 128 ? *p : *p - 256);
    memcpy(&half, p, sizeof half);
    return dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static inline float larger(float a, float b) {
    return a > b ? a : b;
}

static inline float lane_tree_sum(float *a) {
    for (uint32_t d = LANES / 2; d >= 1; d /= 2)
        for (uint32_t j = 0; j < d; j++)
            a[j] = a[j] + a[j + d];
    return a[0];
}

static inline float lane_max(const float *x, uint32_t n) {
    float a[LANES];
    for (uint32_t j = 0; j < LANES; j++)
        a[j] = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        a[i % LANES] = larger(a[i % LANES], x[i]);
    for (uint32_t d = LANES / 2; d >= 1; d /= 2)
        for (uint32_t j = 0; j < d; j++)
            a[j] = larger(a[j], a[j + d]);
    return a[0];
}

// ref_latent.c: rows that are key and value at once, and what is beside them.
void ref_attend_latent(const struct latent_job *job);
void ref_index_scores(const struct index_job *job);
void ref_entry_scores(const struct entry_job *job);
void ref_window_sum(float *y, const struct window *w, uint32_t n);

#endif
