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

#endif
