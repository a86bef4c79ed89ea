// dtype.h: number formats of weights, KV pages and files.
#ifndef MOESAIC_COMMON_BASE_DTYPE_H
#define MOESAIC_COMMON_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Those before DTYPE_COUNT are of weights and files; those behind it only KV pages have.
enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_COUNT,
    DTYPE_E4M3, // 8 bits: 4 of exponent, 3 of mantissa
    DTYPE_I8,   // codes from -127 to 127 of a scale that stands beside them
    DTYPE_KV_COUNT
};

static inline size_t dtype_bytes(enum dtype t) {
    return t == DTYPE_F32 ? 4 : t < DTYPE_COUNT ? 2 : 1;
}

static inline const char *dtype_name(enum dtype t) {
    static const char *const names[] = {"float32", "float16",  "bfloat16",
                                        "none",    "fp8_e4m3", "int8"};
    return names[t];
}

// Whether KV pages may have this format.
static inline bool dtype_is_kv(enum dtype t) {
    return t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_E4M3 || t == DTYPE_I8;
}
static inline bool dtype_kv_parse(const char *name, enum dtype *out) {
    for (int t = 0; t < DTYPE_KV_COUNT; t++) {
        if (!dtype_is_kv((enum dtype)t) || strcmp(name, dtype_name((enum dtype)t)) != 0) continue;
        *out = (enum dtype)t;
        return true;
    }
    return false;
}

static inline float bits_to_f32(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t f32_to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float bf16_to_f32(uint16_t h) {
    return bits_to_f32((uint32_t)h << 16);
}

// Round to nearest even; a NaN stays a (quiet) NaN.
static inline uint16_t f32_to_bf16(float f) {
    uint32_t b = f32_to_bits(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((b >> 16) | 0x40u);
    return (uint16_t)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

// Exact; a NaN keeps its payload. There is no infinity: the largest is 448, and all ones are NaN.
static inline float e4m3_to_f32(uint8_t code) {
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, magnitude = code & 0x7fu;
    if (magnitude == 0x7fu) return bits_to_f32(sign | 0x7ff00000u);
    if (magnitude >= 8) return bits_to_f32(sign | ((magnitude << 20) + (120u << 23)));
    return bits_to_f32(sign | f32_to_bits((float)magnitude * 0x1p-9f));
}

// Round to nearest even; a finite number beyond 448 becomes 448, infinity and NaN become NaN.
static inline uint8_t f32_to_e4m3(float f) {
    uint32_t b = f32_to_bits(f), sign = b >> 24 & 0x80u, magnitude = b & 0x7fffffffu;
    if (magnitude >= 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (magnitude > 0x43e00000u) magnitude = 0x43e00000u; // 448
    if (magnitude >= 0x3c800000u) {                       // 2^-6: normal
        uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
        return (uint8_t)(sign | ((rounded - (120u << 23)) >> 20));
    }
    // Adding 2^14 leaves the subnormal's multiple of 2^-9 in the last bits, rounded by the addition
    // itself.
    float shifted = bits_to_f32(magnitude) + 0x1p14f;
    return (uint8_t)(sign | (f32_to_bits(shifted) - f32_to_bits(0x1p14f)));
}

// Exact; a NaN keeps its payload and becomes quiet.
static inline float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    if (magnitude > 0x7c00u) return bits_to_f32(sign | 0x7fc00000u | magnitude << 13);
    if (magnitude == 0x7c00u) return bits_to_f32(sign | 0x7f800000u);
    if (magnitude >= 0x0400u) return bits_to_f32(sign | ((magnitude << 13) + (112u << 23)));
    // A subnormal is a multiple of 2^-24, which float32 holds exactly.
    return bits_to_f32(sign | f32_to_bits((float)magnitude * 0x1p-24f));
}

// Round to nearest even; too large becomes infinity; a NaN keeps its upper payload and becomes
// quiet.
static inline uint16_t f32_to_f16(float f) {
    uint32_t b = f32_to_bits(f), sign = b >> 16 & 0x8000u, magnitude = b & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u); // 65,520 and more round to infinity
    if (magnitude >= 0x38800000u) {        // 2^-14: normal in float16
        uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
        return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
    }
    // Adding 0.5 leaves the subnormal's multiple of 2^-24 in the last bits, rounded by the addition
    // itself.
    float shifted = bits_to_f32(magnitude) + 0.5f;
    return (uint16_t)(sign | (f32_to_bits(shifted) - f32_to_bits(0.5f)));
}

#endif
