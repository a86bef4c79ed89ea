// dtype.h: number formats of weights, KV pages and files.
#ifndef MOESAIC_COMMON_BASE_DTYPE_H
#define MOESAIC_COMMON_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_COUNT };

static inline size_t dtype_bytes(enum dtype t) { return t == DTYPE_F32 ? 4 : 2; }

static inline const char *dtype_name(enum dtype t) {
    static const char *const names[] = {"float32", "float16", "bfloat16"};
    return names[t];
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

static inline float bf16_to_f32(uint16_t h) { return bits_to_f32((uint32_t)h << 16); }

// Round to nearest even; a NaN stays a (quiet) NaN.
static inline uint16_t f32_to_bf16(float f) {
    uint32_t b = f32_to_bits(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((b >> 16) | 0x40u);
    return (uint16_t)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

#endif
