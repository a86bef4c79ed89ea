// elementary.c: the scalar functions against double precision, and the number formats against their
// definition.
#include <fenv.h>

#include "tests/kernels/kernel_testing.h"

// Distance of y from the true value in units of y's last place.
static double ulps(float y, double truth) {
    double step = (double)nextafterf(fabsf((float)truth), INFINITY) - (double)fabsf((float)truth);
    return fabs((double)y - truth) / step;
}

START_TEST(exp_is_within_1_ulp) {
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 997) {
        for (uint32_t sign = 0; sign <= 1; sign++) {
            float x = bits_to_f32(bits | sign << 31);
            if (x > 0x1.62e42ep6f || x < -0x1.5d589ep6f) continue;
            double error = ulps(elementary_exp(x), exp((double)x));
            if (error > worst) worst = error;
        }
    }
    ck_assert_msg(worst <= 1.0, "worst %f ulp", worst);
}
END_TEST

START_TEST(exp_ends_at_its_limits) {
    ck_assert_float_eq(elementary_exp(0.0f), 1.0f);
    ck_assert_float_eq(elementary_exp(-0.0f), 1.0f);
    ck_assert(isfinite(elementary_exp(0x1.62e42ep6f)));
    ck_assert_float_gt(elementary_exp(0x1.62e42ep6f), 3.402e38f);
    ck_assert(isinf(elementary_exp(nextafterf(0x1.62e42ep6f, INFINITY))));
    ck_assert(isinf(elementary_exp(INFINITY)));
    ck_assert(elementary_exp(-0x1.5d589ep6f) >= 0x1p-126f);
    ck_assert_uint_eq(f32_to_bits(elementary_exp(nextafterf(-0x1.5d589ep6f, -INFINITY))), 0);
    ck_assert_uint_eq(f32_to_bits(elementary_exp(-INFINITY)), 0);
    ck_assert(isnan(elementary_exp(NAN)));
    ck_assert(isnan(elementary_exp(-NAN)));
}
END_TEST

START_TEST(exp_never_decreases) {
    float previous = 0.0f;
    for (int i = -88000; i <= 89000; i++) {
        float y = elementary_exp((float)i * 0.001f);
        ck_assert(y >= previous);
        previous = y;
    }
}
END_TEST

START_TEST(sqrt_softplus_is_within_1_ulp) {
    for (float x = -160.0f; x < 60.0f; x += 0.0137f) {
        double truth = sqrt(x > 20.0f ? (double)x : log1p(exp((double)x)));
        ck_assert_msg(ulps(elementary_sqrt_softplus(x), truth) <= 0.51, "at %a", (double)x);
    }
    ck_assert_float_eq(elementary_sqrt_softplus(-INFINITY), 0.0f);
    ck_assert(isinf(elementary_sqrt_softplus(INFINITY)));
    ck_assert(isnan(elementary_sqrt_softplus(NAN)));
}
END_TEST

START_TEST(log_is_correctly_rounded_nearly_everywhere) {
    double worst = 0;
    for (uint32_t bits = 1; bits < 0x7f800000u; bits += 1009) {
        float x = bits_to_f32(bits);
        double truth = log((double)x);
        if (truth == 0) continue;
        double error = ulps(elementary_log(x), truth);
        if (error > worst) worst = error;
    }
    ck_assert_msg(worst <= 0.5001, "worst %f ulp", worst);
    ck_assert_uint_eq(f32_to_bits(elementary_log(1.0f)), 0);
}
END_TEST

START_TEST(softplus_follows_its_definition) {
    for (int i = -20000; i <= 20000; i++) {
        float x = (float)i * 0.0043f, y = elementary_softplus(x);
        double truth = log1p(exp((double)x));
        // Far below zero the sum with 1 loses what is small beside it.
        ck_assert_double_le(fabs((double)y - truth), truth * 2e-7 + 1e-15);
    }
    ck_assert_float_eq(elementary_softplus(-INFINITY), 0.0f);
    ck_assert_float_eq(elementary_softplus(INFINITY), INFINITY);
    ck_assert_float_eq(elementary_softplus(1e30f), 1e30f);
    ck_assert(isnan(elementary_softplus(NAN)));
}
END_TEST

START_TEST(sigmoid_and_silu_follow_their_definition) {
    for (int i = -20000; i <= 20000; i++) {
        float x = (float)i * 0.005f;
        double sigmoid = 1.0 / (1.0 + exp(-(double)x));
        if (sigmoid > 1e-37) ck_assert_double_le(ulps(elementary_sigmoid(x), sigmoid), 4.0);
        if (x != 0 && sigmoid > 1e-37)
            ck_assert_double_le(ulps(elementary_silu(x), sigmoid * (double)x), 4.0);
    }
    ck_assert_float_eq(elementary_silu(-200.0f), 0.0f);
    ck_assert_float_eq(elementary_silu(200.0f), 200.0f);
    ck_assert_float_eq(elementary_sigmoid(-INFINITY), 0.0f);
    ck_assert_float_eq(elementary_sigmoid(INFINITY), 1.0f);
}
END_TEST

START_TEST(tanh_is_within_2_ulp) {
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 9973) {
        float x = bits_to_f32(bits), y = elementary_tanh(x);
        ck_assert(elementary_tanh(-x) == -y);
        if (x >= 0x1p-120f) worst = fmax(worst, ulps(y, tanh((double)x)));
    }
    ck_assert_msg(worst <= 2.0, "worst %f ulp", worst);
    ck_assert_float_eq(elementary_tanh(INFINITY), 1.0f);
    ck_assert_float_eq(elementary_tanh(-INFINITY), -1.0f);
    ck_assert(isnan(elementary_tanh(NAN)) && isnan(elementary_tanh(-NAN)));
}
END_TEST

START_TEST(gelu_follows_its_definition) {
    for (int i = -20000; i <= 20000; i++) {
        double x = (double)((float)i * 0.001f);
        double t = tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x));
        ck_assert_double_le(fabs((double)elementary_gelu((float)x) - 0.5 * x * (1 + t)),
                            4e-7 * fmax(1, fabs(x)));
    }
    ck_assert_float_eq(elementary_gelu(200.0f), 200.0f);
    ck_assert_float_eq(elementary_gelu(-200.0f), 0.0f);
}
END_TEST

START_TEST(rope_tables_match_double_precision) {
    float inv_freq[40], cosine[40], sine[40];
    const float thetas[] = {10000.0f, 1000000.0f, 5e8f};
    const uint32_t positions[] = {0, 1, 2, 511, 1900, 131071, 4194303};
    for (int t = 0; t < 3; t++) {
        elementary_inv_freq(inv_freq, thetas[t], 80);
        ck_assert_float_eq(inv_freq[0], 1.0f);
        for (uint32_t i = 0; i < 40; i++) {
            double power = (double)(float)pow((double)thetas[t], (double)((float)(2 * i) / 80.0f));
            ck_assert_float_eq(inv_freq[i], (float)(1.0 / power));
        }
        for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) {
            elementary_rope_table(cosine, sine, positions[p], inv_freq, 40);
            for (uint32_t i = 0; i < 40; i++) {
                float angle = (float)positions[p] * inv_freq[i];
                ck_assert_float_eq(cosine[i], (float)cos((double)angle));
                ck_assert_float_eq(sine[i], (float)sin((double)angle));
            }
        }
    }
}
END_TEST

// The value that the format's fields spell.
static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double magnitude = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

START_TEST(e4m3_converts_both_ways_exactly) {
    for (uint32_t code = 0; code < 256; code++) {
        float f = e4m3_to_f32((uint8_t)code);
        ck_assert_uint_eq(f32_to_e4m3(f), code);
        if ((code & 0x7f) == 0x7f) {
            ck_assert(isnan(f));
            continue;
        }
        int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
        double want = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
        ck_assert_double_eq((double)f, code & 0x80 ? -want : want);
    }
}
END_TEST

START_TEST(e4m3_rounds_to_nearest_even_and_saturates) {
    for (uint32_t code = 0; code < 0x7e; code++) {
        float low = e4m3_to_f32((uint8_t)code), high = e4m3_to_f32((uint8_t)(code + 1)),
              middle = (low + high) / 2;
        ck_assert_uint_eq(f32_to_e4m3(middle), code + (code & 1));
        ck_assert_uint_eq(f32_to_e4m3(nextafterf(middle, 0.0f)), code);
        ck_assert_uint_eq(f32_to_e4m3(-nextafterf(middle, INFINITY)), 0x80u | (code + 1));
    }
    ck_assert_uint_eq(f32_to_e4m3(464.0f), 0x7e);
    ck_assert_uint_eq(f32_to_e4m3(-3.4e38f), 0xfe);
    ck_assert_uint_eq(f32_to_e4m3(INFINITY), 0x7f);
    ck_assert_uint_eq(f32_to_e4m3(-NAN) & 0x7f, 0x7f);
    ck_assert_uint_eq(f32_to_e4m3(0x1p-149f), 0);
    ck_assert_uint_eq(f32_to_e4m3(-0.0f), 0x80);
}
END_TEST

START_TEST(f16_converts_both_ways_exactly) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            ck_assert(isnan(f) && isnan(f16_to_f32(f32_to_f16(f))));
            continue;
        }
        if ((h & 0x7fff) == 0x7c00)
            ck_assert(isinf(f));
        else
            ck_assert_double_eq((double)f, half_value((uint16_t)h));
        ck_assert_uint_eq(f32_to_f16(f), h);
    }
}
END_TEST

START_TEST(f16_rounds_to_nearest_even) {
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = f16_to_f32((uint16_t)h), high = f16_to_f32((uint16_t)(h + 1)),
              middle = (low + high) / 2;
        ck_assert_uint_eq(f32_to_f16(middle), h + (h & 1));
        ck_assert_uint_eq(f32_to_f16(nextafterf(middle, 0.0f)), h);
        ck_assert_uint_eq(f32_to_f16(-nextafterf(middle, INFINITY)), 0x8000u | (h + 1));
    }
    ck_assert_uint_eq(f32_to_f16(65519.0f), 0x7bff);
    ck_assert_uint_eq(f32_to_f16(65520.0f), 0x7c00);
    ck_assert_uint_eq(f32_to_f16(-1e30f), 0xfc00);
}
END_TEST

START_TEST(thread_init_restores_rounding) {
    fesetround(FE_UPWARD);
    kernel_thread_init();
    ck_assert_int_eq(fegetround(), FE_TONEAREST);
    volatile float denormal = 0x1p-140f, half = 0.5f;
    ck_assert_float_gt(denormal * half, 0.0f);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        exp_is_within_1_ulp,
        exp_ends_at_its_limits,
        exp_never_decreases,
        sqrt_softplus_is_within_1_ulp,
        log_is_correctly_rounded_nearly_everywhere,
        softplus_follows_its_definition,
        sigmoid_and_silu_follow_their_definition,
        tanh_is_within_2_ulp,
        gelu_follows_its_definition,
        rope_tables_match_double_precision,
        e4m3_converts_both_ways_exactly,
        e4m3_rounds_to_nearest_even_and_saturates,
        f16_converts_both_ways_exactly,
        f16_rounds_to_nearest_even,
        thread_init_restores_rounding,
    };
    return test_run("elementary", tests, sizeof tests / sizeof *tests);
}
