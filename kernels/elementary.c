// elementary.c: exp, log, sigmoid, silu and the RoPE tables, written here so that no C library
// version changes a bit.
//
// docs/arithmetic.md lists the operations. Float32 functions have vector forms in
// simd_elementary.h; what runs once per row or per model (log, the RoPE tables) is computed in
// double with additions, products and divisions only.
#include "kernels/elementary.h"

#include <math.h>

#include "kernels/ops.h"

float elementary_exp(float x) {
    float shifted = fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = shifted - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_HIGH, x);
    r = fmaf(n, -EXP_LN2_LOW, r);
    float p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    // The exponent field takes n; within [EXP_MIN, EXP_MAX] it stays that of a normal number.
    float y = bits_to_f32(f32_to_bits(p) + (f32_to_bits(shifted) << 23));
    if (x > EXP_MAX) y = INFINITY;
    if (x < EXP_MIN) y = 0.0f;
    return x != x ? x : y;
}

float elementary_sigmoid(float x) {
    return 1.0f / (1.0f + elementary_exp(-x));
}

float elementary_silu(float x) {
    return x / (1.0f + elementary_exp(-x));
}

float elementary_tanh(float x) {
    float a = x > -x ? x : -x, z = x * x;
    float p = fmaf(TANH_T4, z, TANH_T3);
    p = fmaf(p, z, TANH_T2);
    p = fmaf(p, z, TANH_T1);
    p = fmaf(p, z, TANH_T0);
    float near_zero = fmaf(p * z, x, x);
    float y = 1.0f - 2.0f / (elementary_exp(2.0f * a) + 1.0f);
    if (x < 0.0f) y = -y;
    return a < TANH_SMALL ? near_zero : y;
}

float elementary_gelu(float x) {
    float v = fmaf((x * x) * GELU_CUBE, x, x);
    return (0.5f * x) * (1.0f + elementary_tanh(GELU_ROOT * v));
}

#define LN2_HIGH 0x1.62e42fefa39efp-1
#define LN2_LOW 0x1.abc9e3b39803fp-56

static double bits_to_f64(uint64_t bits) {
    double f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint64_t f64_to_bits(double f) {
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

// x > 0, finite and normal. log(x) = e ln 2 + 2 artanh(z), z = (m - 1) / (m + 1), m within
// sqrt(1/2) and sqrt(2).
static double log_double(double x) {
    uint64_t bits = f64_to_bits(x);
    // Subtracting the bits of sqrt(1/2) first makes the exponent field count from there.
    int64_t e =
        (int64_t)((bits - UINT64_C(0x3fe6a09e667f3bcd) + (UINT64_C(1023) << 52)) >> 52) - 1023;
    double m = bits_to_f64(bits - ((uint64_t)e << 52));
    double z = (m - 1.0) / (m + 1.0), z2 = z * z;
    double p = 0.0;
    for (int odd = 23; odd >= 3; odd -= 2)
        p = (p + 1.0 / odd) * z2;
    double n = (double)e;
    return n * LN2_HIGH + (2.0 * z + (2.0 * z * p + n * LN2_LOW));
}

// |x| <= 700. exp(x) = 2^n exp(r), exp(r) as its Taylor sum to r^14 / 14!.
static double exp_double(double x) {
    double shifted = x * 0x1.71547652b82fep+0 + 0x1.8p52;
    double n = shifted - 0x1.8p52;
    double r = fma(n, -LN2_HIGH, x);
    r = fma(n, -LN2_LOW, r);
    double p = 1.0;
    for (int i = 14; i >= 1; i--)
        p = 1.0 + p * r / i;
    return bits_to_f64(f64_to_bits(p) + (f64_to_bits(shifted) << 52));
}

float elementary_log(float x) {
    return (float)log_double((double)x);
}

float elementary_softplus(float x) {
    if (x != x || x > 20.0f) return x;
    return (float)log_double(1.0 + (double)elementary_exp(x));
}

// log(1 + exp(x)), and its root. Above 20 the reference takes x itself. Below, 1 + e would round
// e's last bits away, and the series' second term is enough.
float elementary_sqrt_softplus(float x) {
    if (x > 20.0f) return sqrtf(x);
    if (!(x > -700.0f)) return x != x ? x : 0.0f;
    double e = exp_double((double)x);
    return (float)sqrt(e < 0x1p-20 ? e - e * e / 2.0 : log_double(1.0 + e));
}

// Three float32 roundings, as in the programs that the models were trained with: exponent, power,
// reciprocal.
void elementary_inv_freq(float *inv_freq, float theta, uint32_t rotary_dim) {
    double log_theta = log_double((double)theta);
    for (uint32_t i = 0; i < rotary_dim / 2; i++) {
        float exponent = (float)(2 * i) / (float)rotary_dim;
        inv_freq[i] = 1.0f / (float)exp_double((double)exponent * log_theta);
    }
}

// Taylor sums for |r| <= pi / 4: the first term left out is below 2^-55.
static double sin_kernel(double r) {
    double r2 = r * r, p = 0.0;
    for (int i = 16; i >= 2; i -= 2)
        p = -r2 / (i * (i + 1)) * (1.0 + p);
    return r + r * p;
}

static double cos_kernel(double r) {
    double r2 = r * r, p = 0.0;
    for (int i = 17; i >= 1; i -= 2)
        p = -r2 / (i * (i + 1)) * (1.0 + p);
    return 1.0 + p;
}

// The angle is a float32 below 2^23, so k fits 23 bits and the two fused steps leave r exact to
// 2^-75.
static void sin_cos(double angle, float *sine, float *cosine) {
    double shifted = angle * 0x1.45f306dc9c883p-1 + 0x1.8p52;
    double k = shifted - 0x1.8p52;
    double r = fma(k, -0x1.921fb54442d18p+0, angle);
    r = fma(k, -0x1.1a62633145c07p-54, r);
    double s = sin_kernel(r), c = cos_kernel(r);
    uint64_t quadrant = f64_to_bits(shifted) & 3;
    double out_sine = quadrant & 1 ? c : s, out_cosine = quadrant & 1 ? s : c;
    *sine = (float)(quadrant & 2 ? -out_sine : out_sine);
    *cosine = (float)(quadrant == 1 || quadrant == 2 ? -out_cosine : out_cosine);
}

void elementary_rope_table(float *cos, float *sin, uint32_t position, const float *inv_freq,
                           uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float angle = (float)position * inv_freq[i];
        sin_cos((double)angle, &sin[i], &cos[i]);
    }
}
