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

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif
// Four times the code takes minutes to compile with a sanitiser's checks in it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef UNROLL_4
#define UNROLL_4
#endif

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

// E4M3 is the format of half numbers with fewer bits, but for their bias (15 and not 7) and NaN.
INLINE vec vec_from_e4m3(__m128i b) {
    __m256i half = _mm256_slli_epi16(_mm256_cvtepi8_epi16(b), 7); // two bits of sign, 7 of the rest
    half = _mm256_and_si256(half, _mm256_set1_epi16((short)0xbfff));
    __m256i ones = _mm256_set1_epi16(0x3f80);
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(half, ones), ones);
    half = _mm256_or_si256(half, _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00)));
    return vec_mul(vec_from_f16(half), vec_set(256.0f));
}

// dtype.h's f32_to_e4m3, eight at a time.
INLINE __m256i vec_to_e4m3_8(__m256 a) {
    __m256i bits = _mm256_castps_si256(a);
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f7fffff));
    magnitude = _mm256_min_epi32(magnitude, _mm256_set1_epi32(0x43e00000));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(1));
    __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff - (120 << 23)));
    __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(magnitude, half), 20);
    __m256 shifted = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p14f));
    __m256i small = _mm256_sub_epi32(_mm256_castps_si256(shifted),
                                     _mm256_castps_si256(_mm256_set1_ps(0x1p14f)));
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), magnitude);
    __m256i code = _mm256_blendv_epi8(normal, small, is_small);
    code = _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7f), nan);
    return _mm256_or_si256(code, sign);
}

// The lowest bytes of sixteen numbers from -128 to 127.
INLINE __m128i vec_bytes(__m256i low, __m256i high) {
    // The pack works within each half register; the permutation puts its quarters in order.
    __m256i mixed = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(mixed), _mm256_extracti128_si256(mixed, 1));
}

INLINE __m128i vec_to_e4m3(vec a) {
    // Shifted up and down again, a byte of 128 and more is a negative number.
    __m256i low = _mm256_slli_epi32(vec_to_e4m3_8(vec_low(a)), 24);
    __m256i high = _mm256_slli_epi32(vec_to_e4m3_8(vec_high(a)), 24);
    return vec_bytes(_mm256_srai_epi32(low, 24), _mm256_srai_epi32(high, 24));
}

// The nearest integers, ties to even, at most 127 in magnitude.
INLINE __m256i vec_to_int8_8(__m256 a) {
    __m256i n = _mm256_min_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
    return _mm256_max_epi32(n, _mm256_set1_epi32(-127));
}
INLINE __m128i vec_to_int8(vec a) {
    return vec_bytes(vec_to_int8_8(vec_low(a)), vec_to_int8_8(vec_high(a)));
}

INLINE void byte_store_n(void *p, __m128i a, uint32_t n) {
    uint8_t b[VEC_LANES];
    _mm_storeu_si128((__m128i *)(void *)b, a);
    memcpy(p, b, n);
}

INLINE float vec_tree_sum(vec a) {
    return vec_tree_sum_8(_mm256_add_ps(vec_low(a), vec_high(a)));
}
INLINE float vec_tree_max(vec a) {
    return vec_tree_max_8(_mm256_max_ps(vec_low(a), vec_high(a)));
}

#endif
