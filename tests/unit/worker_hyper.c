// worker_hyper.c: the weights of hyper-connections against their formulas, written a second time in
// double and without haste.
#include "worker/hyper.h"

#include <math.h>

#include "tests/harness/suite.h"

#define MOST HYPER_STREAMS_MAX
#define MIXES_MOST (2 * MOST + MOST * MOST)

static uint32_t random_state = 4711;

static float random_in(float from, float to) {
    random_state = random_state * 1664525u + 1013904223u;
    return from + (to - from) * (float)(random_state >> 8) / 16777216.0f;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

// --- the formulas

static void divide(double *comb, uint32_t n, bool columns, double eps) {
    double sums[MOST] = {0};
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t k = 0; k < n; k++)
            sums[columns ? k : j] += comb[j * n + k];
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t k = 0; k < n; k++)
            comb[j * n + k] /= sums[columns ? k : j] + eps;
}

static void expect(const struct hyper_spec *h, const float *m, double *out) {
    uint32_t n = h->n;
    double eps = (double)h->eps, *comb = out + 2 * n;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = sigmoid((double)m[i]) + eps;
        out[n + i] = 2 * sigmoid((double)m[n + i]);
    }
    for (uint32_t j = 0; j < n; j++) {
        double sum = 0;
        for (uint32_t k = 0; k < n; k++)
            sum += comb[j * n + k] = exp((double)m[(2 + j) * n + k]);
        for (uint32_t k = 0; k < n; k++)
            comb[j * n + k] = comb[j * n + k] / sum + eps;
    }
    divide(comb, n, true, eps);
    for (uint32_t round = 1; round < h->rounds; round++) {
        divide(comb, n, false, eps);
        divide(comb, n, true, eps);
    }
}

// --- what is there

struct subject {
    struct model_spec spec;
    float scale[3], base[MIXES_MOST], products[MIXES_MOST], weights[MIXES_MOST];
    uint32_t n_mixes;
};

static void weigh(struct subject *s, uint32_t n, uint32_t rounds) {
    *s = (struct subject){.spec = {.hyper = {.n = n, .rounds = rounds, .eps = 1e-6f}},
                          .n_mixes = (2 + n) * n};
    for (int i = 0; i < 3; i++)
        s->scale[i] = random_in(0.2f, 2.0f);
    for (uint32_t i = 0; i < s->n_mixes; i++) {
        s->base[i] = random_in(-2.0f, 2.0f);
        s->products[i] = s->weights[i] = random_in(-3.0f, 3.0f);
    }
    const struct hyper_weights w = {.base = s->base, .scale = s->scale};
    hyper_weigh(&s->spec, kernel_ops_ref(), &w, s->weights);
}

START_TEST(weights_follow_the_formulas) {
    static const uint32_t rounds[] = {1, 2, 20};
    for (uint32_t n = 1; n <= MOST; n++) {
        for (int r = 0; r < 3; r++) {
            struct subject s;
            float m[MIXES_MOST];
            double want[MIXES_MOST];
            weigh(&s, n, rounds[r]);
            for (uint32_t i = 0; i < s.n_mixes; i++)
                m[i] = s.products[i] * s.scale[i / n < 2 ? i / n : 2] + s.base[i];
            expect(&s.spec.hyper, m, want);
            for (uint32_t i = 0; i < s.n_mixes; i++)
                ck_assert_msg(fabs((double)s.weights[i] - want[i]) <= 2e-6 * fmax(1, want[i]),
                              "%u streams, %u rounds: weight %u is %.9g, must be %.9g", n,
                              rounds[r], i, (double)s.weights[i], want[i]);
        }
    }
}
END_TEST

START_TEST(what_streams_give_and_get_of_each_other_comes_to_one) {
    struct subject s;
    weigh(&s, 4, 100);
    const float *comb = s.weights + 8;
    for (uint32_t i = 0; i < 4; i++) {
        float row = 0, column = 0;
        for (uint32_t k = 0; k < 4; k++) {
            row += comb[i * 4 + k];
            column += comb[k * 4 + i];
        }
        ck_assert_double_eq_tol((double)row, 1, 1e-5);
        ck_assert_double_eq_tol((double)column, 1, 1e-5);
    }
}
END_TEST

int main(void) {
    TCase *c = tcase_create("hyper");
    tcase_add_test(c, weights_follow_the_formulas);
    tcase_add_test(c, what_streams_give_and_get_of_each_other_comes_to_one);
    Suite *s = suite_create("worker_hyper");
    suite_add_tcase(s, c);
    return suite_run(s);
}
