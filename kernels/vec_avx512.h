// vec_avx512.h: the lane operations of vec.h in one 512-bit register.
#ifndef MOESAIC_KERNELS_VEC_AVX512_H
#define MOESAIC_KERNELS_VEC_AVX512_H

#include "kernels/elementary.h"

typedef __m512 vec; // a register: the one type that reads better with a name of its own

INLINE __mmask16 vec_mask(uint32_t n) {
    return (__mmask16)((1u << n) - 1u);
}

INLINE vec vec_zero(void) {
    return _mm512_setzero_ps();
}
INLINE vec vec_set(float a) {
    return _mm512_set1_ps(a);
}
INLINE vec vec_load(const void *p) {
    return _mm512_loadu_ps(p);
}
INLINE vec vec_load_n(const void *p, uint32_t n) {
    return _mm512_maskz_loadu_ps(vec_mask(n), p);
}
INLINE void vec_store(void *p, vec a) {
    _mm512_storeu_ps(p, a);
}
INLINE void vec_store_n(void *p, vec a, uint32_t n) {
    _mm512_mask_storeu_ps(p, vec_mask(n), a);
}

INLINE vec vec_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}
INLINE vec vec_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}
INLINE vec vec_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}
INLINE vec vec_div(vec a, vec b) {
    return _mm512_div_ps(a, b);
}
INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vec vec_max(vec a, vec b) {
    return _mm512_max_ps(a, b);
}

// Lane by lane: the test holds ? yes : no.
INLINE vec vec_if_greater(vec a, vec b, vec yes, vec no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), no, yes);
}
INLINE vec vec_if_nan(vec a, vec yes, vec no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), no, yes);
}
INLINE vec vec_first_n(vec a, uint32_t n, vec rest) {
    return _mm512_mask_blend_ps(vec_mask(n), rest, a);
}

// The end of vec_exp(x): p * 2^n, where that is a normal number; above it infinity, below it +0.
// NaN stays NaN. Above is where x passes 89 at the latest: there p * 2^n overflows by itself, as
// long as n stays an integer.
INLINE vec vec_exp_begin(vec x) {
    return _mm512_min_ps(_mm512_set1_ps(89.0f), x);
}
INLINE vec vec_exp_end(vec x, vec p, vec n, vec shifted) {
    (void)shifted;
    __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_MIN), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(normal, p, n);
}

INLINE float vec_first(vec a) {
    return _mm512_cvtss_f32(a);
}
INLINE __m256 vec_low(vec a) {
    return _mm512_castps512_ps256(a);
}
INLINE __m256 vec_high(vec a) {
    return _mm512_extractf32x8_ps(a, 1);
}

INLINE vec vec_from_f16(__m256i h) {
    return _mm512_cvtph_ps(h);
}
INLINE vec vec_from_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
INLINE __m256i vec_to_f16(vec a) {
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE __m256i vec_to_bf16(vec a) {
    __m512i bits = _mm512_castps_si512(a), high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet));
}

INLINE __m256i half_load_n(const void *p, uint32_t n) {
    return _mm256_maskz_loadu_epi16(vec_mask(n), p);
}
INLINE void half_store_n(void *p, __m256i h, uint32_t n) {
    _mm256_mask_storeu_epi16(p, vec_mask(n), h);
}

INLINE __m128i byte_load_n(const void *p, uint32_t n) {
    return _mm_maskz_loadu_epi8(vec_mask(n), p);
}
INLINE vec vec_from_int8(__m128i b) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
}

// Rows of a register tile, and the panels beside each other that fill 32 registers with it.
#define TILE_ROWS 8
#define TILE_PANELS(rows) ((rows) <= 4 ? 4 : 2)

// Whether many queries share one float32 copy of keys and values of a type: only of that which
// takes long to turn into numbers; others are turned beside the sums as quickly.
#define COPIES_PAY(dtype) ((dtype) == DTYPE_E4M3)

// Vectors whose exp are taken beside each other: enough to hide how long a step takes.
#define EXP_VECS 4

// Vectors of a state's row whose sums run beside each other: enough to hide how long one takes.
#define DELTA_VECS 4

#endif
