// vec.h: sixteen float32 lanes, as one AVX-512 register or two of AVX2, and every lane operation
// the back end uses.
//
// Only simd_*.c include this. An operation means the same in both forms, to the bit
// (docs/arithmetic.md); *_n forms touch n of the 16 elements in memory and no others: loads fill
// the rest with +0.
#ifndef MOESAIC_KERNELS_VEC_H
#define MOESAIC_KERNELS_VEC_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_LANES 16
#define INLINE static inline __attribute__((always_inline))

#define KERNEL_JOIN2(name, isa) name##_##isa
#define KERNEL_JOIN(name, isa) KERNEL_JOIN2(name, isa)
// The name of a function that exists once for each instruction set.
#define KERNEL_SYMBOL(name) KERNEL_JOIN(name, KERNEL_ISA)

#if defined(KERNEL_ISA_avx512)
#include "kernels/vec_avx512.h"
#elif defined(KERNEL_ISA_avx2)
#include "kernels/vec_avx2.h"
#else
#error "compile with -DKERNEL_ISA=avx2 or avx512"
#endif

// The last steps of a lane sum and of a lane max: lanes j and j + 4, j + 2, j + 1.
INLINE float vec_tree_sum_8(__m256 a) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

INLINE float vec_tree_max_8(__m256 a) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

INLINE float vec_tree_sum(vec a) {
    return vec_tree_sum_8(_mm256_add_ps(vec_low(a), vec_high(a)));
}
INLINE float vec_tree_max(vec a) {
    return vec_tree_max_8(_mm256_max_ps(vec_low(a), vec_high(a)));
}

#endif
