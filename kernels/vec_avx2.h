// vec_avx2.h: the lane operations of vec.h in two 256-bit registers.
#ifndef MOESAIC_KERNELS_VEC_AVX2_H
#define MOESAIC_KERNELS_VEC_AVX2_H

#include "kernels/elementary.h"

typedef struct { // a pair of registers; the same name as the one register of AVX-512
    __m256 low, high;
} vec;

INLINE vec vec_pair(__m256 low, __m256 high) {
    return (vec){low, high};
}

// Lanes [from, from + 8) of a mask that is set below n.
INLINE __m256i vec_mask_8(uint32_t n, uint32_t from) {
    __m256i lane =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int)from));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

INLINE vec vec_zero(void) {
    return vec_pair(_mm256_setzero_ps(), _mm256_setzero_ps());
}
INLINE vec vec_set(float a) {
    return vec_pair(_mm256_set1_ps(a), _mm256_set1_ps(a));
}
INLINE vec vec_load(const void *p) {
    const float *f = p;
    return vec_pair(_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8));
}
INLINE vec vec_load_n(const void *p, uint32_t n) {
    const float *f = p;
    return vec_pair(_mm256_maskload_ps(f, vec_mask_8(n, 0)),
                    _mm256_maskload_ps(f + 8, vec_mask_8(n, 8)));
}
INLINE void vec_store(void *p, vec a) {
    float *f = p;
    _mm256_storeu_ps(f, a.low);
    _mm256_storeu_ps(f + 8, a.high);
}
INLINE void vec_store_n(void *p, vec a, uint32_t n) {
    float *f = p;
    _mm256_maskstore_ps(f, vec_mask_8(n, 0), a.low);
    _mm256_maskstore_ps(f + 8, vec_mask_8(n, 8), a.high);
}

INLINE vec vec_add(vec a, vec b) {
    return vec_pair(_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high));
}
INLINE vec vec_sub(vec a, vec b) {
    return vec_pair(_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high));
}
INLINE vec vec_mul(vec a, vec b) {
    return vec_pair(_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high));
}
INLINE vec vec_div(vec a, vec b) {
    return vec_pair(_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high));
}
INLINE vec vec_max(vec a, vec b) {
    return vec_pair(_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high));
}
INLINE vec vec_fma(vec a, vec b, vec c) {
    return vec_pair(_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high));
}

// Lane by lane: the test holds ? yes : no.
INLINE vec vec_if_greater(vec a, vec b, vec yes, vec no) {
    return vec_pair(_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ)),
                    _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ)));
}
INLINE vec vec_if_nan(vec a, vec yes, vec no) {
    return vec_pair(
        _mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q)),
        _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)));
}
INLINE vec vec_first_n(vec a, uint32_t n, vec rest) {
    return vec_pair(_mm256_blendv_ps(rest.low, a.low, _mm256_castsi256_ps(vec_mask_8(n, 0))),
                    _mm256_blendv_ps(rest.high, a.high, _mm256_castsi256_ps(vec_mask_8(n, 8))));
}

// Adds the low bits of steps, an integer on top of 1.5 * 2^23, to the exponent field of a.
INLINE __m256 vec_add_exponent_8(__m256 a, __m256 steps) {
    __m256i field = _mm256_slli_epi32(_mm256_castps_si256(steps), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), field));
}

// The end of vec_exp(x): p * 2^n, where that is a normal number; above it infinity, below it +0.
// NaN stays NaN.
INLINE vec vec_exp_begin(vec x) {
    return x;
}
INLINE vec vec_exp_end(vec x, vec p, vec n, vec shifted) {
    (void)n;
    vec y =
        vec_pair(vec_add_exponent_8(p.low, shifted.low), vec_add_exponent_8(p.high, shifted.high));
    y = vec_if_greater(x, vec_set(EXP_MAX), vec_set(__builtin_inff()), y);
    y = vec_if_greater(vec_set(EXP_MIN), x, vec_zero(), y);
    return vec_if_nan(x, x, y);
}

INLINE float vec_first(vec a) {
    return _mm256_cvtss_f32(a.low);
}
INLINE __m256 vec_low(vec a) {
    return a.low;
}
INLINE __m256 vec_high(vec a) {
    return a.high;
}

INLINE __m256i half_pair(__m128i low, __m128i high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
INLINE vec vec_from_f16(__m256i h) {
    return vec_pair(_mm256_cvtph_ps(_mm256_castsi256_si128(h)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
}
INLINE __m256 vec_from_bf16_8(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
INLINE vec vec_from_bf16(__m256i h) {
    return vec_pair(vec_from_bf16_8(_mm256_castsi256_si128(h)),
                    vec_from_bf16_8(_mm256_extracti128_si256(h, 1)));
}
INLINE __m256i vec_to_f16(vec a) {
    return half_pair(_mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                     _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE __m256i vec_to_bf16_8(__m256 a) {
    __m256i bits = _mm256_castps_si256(a), high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
}
INLINE __m256i vec_to_bf16(vec a) {
    // The pack works within each half register; the permutation puts its quarters in order.
    __m256i mixed = _mm256_packus_epi32(vec_to_bf16_8(a.low), vec_to_bf16_8(a.high));
    return _mm256_permute4x64_epi64(mixed, 0xd8);
}

// AVX2 masks no 16-bit elements: a tail goes through the stack.
INLINE __m256i half_load_n(const void *p, uint32_t n) {
    uint16_t h[VEC_LANES] = {0};
    memcpy(h, p, n * sizeof *h);
    return _mm256_loadu_si256((const __m256i *)(const void *)h);
}
INLINE void half_store_n(void *p, __m256i a, uint32_t n) {
    uint16_t h[VEC_LANES];
    _mm256_storeu_si256((__m256i *)(void *)h, a);
    memcpy(p, h, n * sizeof *h);
}

INLINE __m128i byte_load_n(const void *p, uint32_t n) {
    uint8_t b[VEC_LANES] = {0};
    memcpy(b, p, n);
    return _mm_loadu_si128((const __m128i *)(const void *)b);
}
INLINE vec vec_from_int8(__m128i b) {
    return vec_pair(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8))));
}

// Rows of a register tile, and the panels beside each other that fill 16 registers with it.
#define TILE_ROWS 4
#define TILE_PANELS(rows) ((rows) == 1 ? 4 : (rows) == 2 ? 2 : 1)

// Whether many queries share one float32 copy of keys and values of a type.
#define COPIES_PAY(dtype) ((dtype) != DTYPE_F32)

// Vectors whose exp are taken beside each other: enough to hide how long a step takes.
#define EXP_VECS 2

// Vectors of a state's row whose sums run beside each other: enough to hide how long one takes.
#define DELTA_VECS 2

#endif
