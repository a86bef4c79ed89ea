// elementary.h: the constants that the scalar functions of elementary.c and the vector forms of
// simd_elementary.h share.
//
// Both forms run the operations of docs/arithmetic.md in the same order, so they agree in every
// bit.
#ifndef MOESAIC_KERNELS_ELEMENTARY_H
#define MOESAIC_KERNELS_ELEMENTARY_H

// Adding 1.5 * 2^23 leaves the nearest integer in the low bits of a float; subtracting it gives
// that integer back.
#define EXP_ROUND 0x1.8p23f
#define EXP_LOG2E 0x1.715476p0f
// ln 2 in two parts: for |n| <= 128 the product with the first leaves an exact remainder.
#define EXP_LN2_HIGH 0x1.62e43p-1f
#define EXP_LN2_LOW (-0x1.05c61p-29f)
// exp(r) = 1 + r + C2 r^2 + ... + C6 r^6 for |r| <= 0.347, minimax in relative error (0.05 ulp).
#define EXP_C2 0x1.fffffcp-2f
#define EXP_C3 0x1.55549p-3f
#define EXP_C4 0x1.5558f8p-5f
#define EXP_C5 0x1.123ae6p-7f
#define EXP_C6 0x1.6a2286p-10f
// The largest float32 whose exponential is finite, and the smallest whose exponential is a normal
// number.
#define EXP_MAX 0x1.62e42ep6f
#define EXP_MIN (-0x1.5d589ep6f)

// tanh(x) = x + x z (T0 + T1 z + ... + T4 z^4) with z = x^2, for |x| below TANH_SMALL, minimax in
// relative error (0.1 ulp).
#define TANH_SMALL 0.625f
#define TANH_T0 (-0x1.555534p-2f)
#define TANH_T1 0x1.110768p-3f
#define TANH_T2 (-0x1.b84448p-5f)
#define TANH_T3 0x1.5256d4p-6f
#define TANH_T4 (-0x1.76ac08p-8f)
#define GELU_CUBE 0x1.6e4e26p-5f // 0.044715
#define GELU_ROOT 0x1.988454p-1f // sqrt(2 / pi)

#endif
