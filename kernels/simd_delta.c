// simd_delta.c: the gated delta rule of one head. Columns of the state never meet, so a few vectors
// of them run through all tokens before the next ones begin: their part of the state stays in the
// first cache level.
#include "kernels/simd_tables.h"

INLINE vec load_part(const float *x, uint32_t n) {
    return n < VEC_LANES ? vec_load_n(x, n) : vec_load(x);
}

INLINE void store_part(float *y, vec a, uint32_t n) {
    if (n < VEC_LANES)
        vec_store_n(y, a, n);
    else
        vec_store(y, a);
}

// Lanes of vector i of n_vecs, the last of which may be a part.
#define LANES(i) ((i) + 1 == n_vecs ? last : VEC_LANES)

// One token, and the columns [first, first + 16 (n_vecs - 1) + last). The decayed state is not
// stored between the two passes: the product is the same again.
INLINE void token(const struct delta_job *job, uint32_t t, uint32_t first, const uint32_t n_vecs,
                  uint32_t last) {
    const float *q = job->q + t * job->qkv_stride, *k = job->k + t * job->qkv_stride;
    const float *v = job->v + t * job->qkv_stride + first;
    vec decay = vec_set(job->decay[t * job->gate_stride]);
    vec beta = vec_set(job->beta[t * job->gate_stride]), sum[DELTA_VECS], d[DELTA_VECS];
    for (uint32_t j = 0; j < n_vecs; j++)
        sum[j] = vec_zero();
    for (uint32_t i = 0; i < job->k_dim; i++) {
        const float *s = job->state + (size_t)i * job->v_dim + first;
        for (uint32_t j = 0; j < n_vecs; j++) {
            vec x = vec_mul(load_part(s + j * VEC_LANES, LANES(j)), decay);
            sum[j] = vec_fma(x, vec_set(k[i]), sum[j]);
        }
    }
    for (uint32_t j = 0; j < n_vecs; j++) {
        d[j] = vec_mul(vec_sub(load_part(v + j * VEC_LANES, LANES(j)), sum[j]), beta);
        sum[j] = vec_zero();
    }
    for (uint32_t i = 0; i < job->k_dim; i++) {
        float *s = job->state + (size_t)i * job->v_dim + first;
        for (uint32_t j = 0; j < n_vecs; j++) {
            vec x = vec_mul(load_part(s + j * VEC_LANES, LANES(j)), decay);
            x = vec_fma(vec_set(k[i]), d[j], x);
            store_part(s + j * VEC_LANES, x, LANES(j));
            sum[j] = vec_fma(x, vec_set(q[i]), sum[j]);
        }
    }
    for (uint32_t j = 0; j < n_vecs; j++)
        store_part(job->out + t * job->out_stride + first + j * VEC_LANES, sum[j], LANES(j));
}

void KERNEL_SYMBOL(delta_rule)(const struct delta_job *job) {
    uint32_t first = 0;
    for (; job->v_dim - first >= DELTA_VECS * VEC_LANES; first += DELTA_VECS * VEC_LANES)
        for (uint32_t t = 0; t < job->n_tokens; t++)
            token(job, t, first, DELTA_VECS, VEC_LANES);
    for (; first < job->v_dim; first += VEC_LANES) {
        uint32_t left = job->v_dim - first, last = left < VEC_LANES ? left : VEC_LANES;
        for (uint32_t t = 0; t < job->n_tokens; t++)
            token(job, t, first, 1, last);
    }
}
