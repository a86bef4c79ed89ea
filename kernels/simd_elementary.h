// simd_elementary.h: elementary.c's float32 functions in lanes: the same operations in the same
// order.
#ifndef MOESAIC_KERNELS_SIMD_ELEMENTARY_H
#define MOESAIC_KERNELS_SIMD_ELEMENTARY_H

#include <math.h>

#include "kernels/elementary.h"
#include "kernels/vec.h"

// A step for each of n vectors: none of them waits for itself, as it would in one that is alone.
#define FOR_EACH(i, n) UNROLL for (int i = 0; i < (n); i++)

// exp of each of n vectors, at most EXP_VECS, in place. n is a constant.
INLINE void vec_exp_each(vec *x, int n) {
    static const float horner[] = {EXP_C5, EXP_C4, EXP_C3, EXP_C2, 1.0f, 1.0f};
    vec from[EXP_VECS], shifted[EXP_VECS], steps[EXP_VECS], r[EXP_VECS], p[EXP_VECS];
    FOR_EACH(i, n) from[i] = vec_exp_begin(x[i]);
    FOR_EACH(i, n) shifted[i] = vec_fma(from[i], vec_set(EXP_LOG2E), vec_set(EXP_ROUND));
    FOR_EACH(i, n) steps[i] = vec_sub(shifted[i], vec_set(EXP_ROUND));
    FOR_EACH(i, n) r[i] = vec_fma(steps[i], vec_set(-EXP_LN2_HIGH), from[i]);
    FOR_EACH(i, n) r[i] = vec_fma(steps[i], vec_set(-EXP_LN2_LOW), r[i]);
    FOR_EACH(i, n) p[i] = vec_set(EXP_C6);
    FOR_EACH(c, 6) {
        FOR_EACH(i, n) p[i] = vec_fma(p[i], r[i], vec_set(horner[c]));
    }
    FOR_EACH(i, n) x[i] = vec_exp_end(x[i], p[i], steps[i], shifted[i]);
}

INLINE vec vec_exp(vec x) {
    vec_exp_each(&x, 1);
    return x;
}

// 1 + exp(-x). The sign is flipped as the scalar form does it, not by a subtraction from zero.
INLINE vec vec_one_plus_exp_minus(vec x) {
    return vec_add(vec_set(1.0f), vec_exp(vec_mul(x, vec_set(-1.0f))));
}

INLINE vec vec_sigmoid(vec x) {
    return vec_div(vec_set(1.0f), vec_one_plus_exp_minus(x));
}
INLINE vec vec_silu(vec x) {
    return vec_div(x, vec_one_plus_exp_minus(x));
}

INLINE vec vec_tanh(vec x) {
    vec minus = vec_mul(x, vec_set(-1.0f)), a = vec_max(x, minus), z = vec_mul(x, x);
    vec p = vec_fma(vec_set(TANH_T4), z, vec_set(TANH_T3));
    p = vec_fma(p, z, vec_set(TANH_T2));
    p = vec_fma(p, z, vec_set(TANH_T1));
    p = vec_fma(p, z, vec_set(TANH_T0));
    vec near_zero = vec_fma(vec_mul(p, z), x, x);
    vec e = vec_exp(vec_mul(vec_set(2.0f), a));
    vec y = vec_sub(vec_set(1.0f), vec_div(vec_set(2.0f), vec_add(e, vec_set(1.0f))));
    y = vec_if_greater(vec_zero(), x, vec_mul(y, vec_set(-1.0f)), y);
    return vec_if_greater(vec_set(TANH_SMALL), a, near_zero, y);
}
INLINE vec vec_gelu(vec x) {
    vec v = vec_fma(vec_mul(vec_mul(x, x), vec_set(GELU_CUBE)), x, x);
    vec t = vec_tanh(vec_mul(vec_set(GELU_ROOT), v));
    return vec_mul(vec_mul(vec_set(0.5f), x), vec_add(vec_set(1.0f), t));
}
INLINE vec vec_softcap(vec x, vec cap) {
    return vec_mul(cap, vec_tanh(vec_div(x, cap)));
}

#endif
