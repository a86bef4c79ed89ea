// model_rope.c: stretched rotary embeddings against their formulas in double.
#include "common/model/rope.h"

#include <math.h>

#include "tests/harness/suite.h"

#define DIM 64
#define PI 3.14159265358979323846

static double plain(double theta, uint32_t i) {
    return pow(theta, -2.0 * i / DIM);
}

// Close for every pair, where a position far out would turn by a hundredth.
static void expect(const struct rope_spec *rope, uint32_t length, const double *want,
                   double factor) {
    float got[DIM / 2];
    float attention = rope_frequencies(got, rope, length);
    ck_assert_double_eq_tol((double)attention, factor, 1e-6);
    for (uint32_t i = 0; i < DIM / 2; i++)
        ck_assert_msg(fabs((double)got[i] - want[i]) <= 1e-6 * want[i], "pair %u: %.9g, not %.9g",
                      i, (double)got[i], want[i]);
}

START_TEST(linear_divides_all_frequencies) {
    struct rope_spec rope = {.dim = DIM, .theta = 10000, .kind = ROPE_LINEAR, .factor = 4};
    double want[DIM / 2];
    for (uint32_t i = 0; i < DIM / 2; i++)
        want[i] = plain(10000, i) / 4;
    expect(&rope, 4096, want, 0);
}
END_TEST

START_TEST(llama3_divides_the_slow_ones) {
    struct rope_spec rope = {.dim = DIM,
                             .theta = 500000,
                             .kind = ROPE_LLAMA3,
                             .factor = 8,
                             .low = 1,
                             .high = 4,
                             .original_position = 8192};
    double want[DIM / 2];
    int kinds[3] = {0};
    for (uint32_t i = 0; i < DIM / 2; i++) {
        double f = plain(500000, i), length = 2 * PI / f, mix = (8192 / length - 1) / 3;
        int kind = length > 8192 ? 2 : length < 2048 ? 0 : 1;
        want[i] = kind == 2 ? f / 8 : kind == 0 ? f : (1 - mix) * f / 8 + mix * f;
        kinds[kind]++;
    }
    ck_assert(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0);
    expect(&rope, 100000, want, 0);
}
END_TEST

// Llama 4's numbers: one factor for both, so nothing is between fast and slow.
START_TEST(llama3_has_nothing_between_equal_factors) {
    struct rope_spec rope = {.dim = DIM,
                             .theta = 500000,
                             .kind = ROPE_LLAMA3,
                             .factor = 16,
                             .low = 1,
                             .high = 1,
                             .original_position = 8192};
    double want[DIM / 2];
    for (uint32_t i = 0; i < DIM / 2; i++) {
        double f = plain(500000, i);
        want[i] = 2 * PI / f > 8192 ? f / 16 : f;
    }
    expect(&rope, 100000, want, 0);
    // The first pair turns once in just this context.
    float got[DIM / 2], length = (float)(2 * PI), context = 0;
    do {
        rope.original_position = (uint32_t)++context;
        rope.low = rope.high = context / length;
    } while (context / rope.low != length);
    rope_frequencies(got, &rope, 1);
    ck_assert(got[0] == 1.0f && got[1] < 0.0625f);
}
END_TEST

// A model's numbers: gpt-oss and Qwen3 with YaRN.
static void expect_yarn(bool truncate, double theta, double factor, double context) {
    struct rope_spec rope = {.dim = DIM,
                             .theta = (float)theta,
                             .kind = ROPE_YARN,
                             .factor = (float)factor,
                             .low = 1,
                             .high = 32,
                             .original_position = (uint32_t)context,
                             .truncate = truncate,
                             .attention = 1.25f};
    double low = DIM * log(context / (32 * 2 * PI)) / (2 * log(theta));
    double high = DIM * log(context / (2 * PI)) / (2 * log(theta)), want[DIM / 2];
    if (truncate) low = floor(low), high = ceil(high);
    for (uint32_t i = 0; i < DIM / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1), f = plain(theta, i);
        want[i] = f / factor * ramp + f * (1 - ramp);
    }
    expect(&rope, 131072, want, 1.25);
}

START_TEST(yarn_mixes_over_a_ramp) {
    expect_yarn(false, 150000, 32, 4096);
    expect_yarn(true, 1000000, 4, 32768);
}
END_TEST

START_TEST(longrope_is_long_for_a_whole_run_or_not_at_all) {
    struct rope_spec rope = {.dim = DIM,
                             .theta = 10000,
                             .kind = ROPE_LONG,
                             .factor = 32,
                             .original_position = 4096,
                             .attention = 1.1f,
                             .long_attention = 1.2f};
    double shorter[DIM / 2], longer[DIM / 2];
    for (uint32_t i = 0; i < DIM / 2; i++) {
        rope.short_factors[i] = 1.0f + 0.0625f * (float)i;
        rope.long_factors[i] = 2.0f + (float)i;
        shorter[i] = plain(10000, i) / (double)rope.short_factors[i];
        longer[i] = plain(10000, i) / (double)rope.long_factors[i];
    }
    expect(&rope, 4096, shorter, (double)1.1f);
    expect(&rope, 4097, longer, (double)1.2f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rope");
    TCase *tests = tcase_create("rope");
    tcase_add_test(tests, linear_divides_all_frequencies);
    tcase_add_test(tests, llama3_divides_the_slow_ones);
    tcase_add_test(tests, llama3_has_nothing_between_equal_factors);
    tcase_add_test(tests, yarn_mixes_over_a_ramp);
    tcase_add_test(tests, longrope_is_long_for_a_whole_run_or_not_at_all);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
