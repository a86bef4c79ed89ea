// worker_route.c: the router against its formulas, written a second time in double and without
// haste: scores, groups, choice, weights; ties and masked groups included.
#include "worker/route.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/suite.h"

#define EXPERTS_MOST 32

static uint32_t random_state = 12345;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * n >> 32);
}

static void route(const struct router_spec *router, const float *bias, const float *logits,
                  uint32_t *experts, float *weights) {
    float copy[EXPERTS_MOST], chosen_by[EXPERTS_MOST];
    memcpy(copy, logits, router->n_experts * sizeof *copy);
    route_row(&(struct route_rule){router, kernel_ops_ref(), bias, chosen_by, NULL}, copy, experts,
              weights);
}

// --- the formulas

static double capped(const struct router_spec *r, float logit) {
    double cap = (double)r->logit_cap;
    return cap == 0 ? (double)logit : cap * tanh((double)logit / cap);
}

static void scores_of(const struct router_spec *r, const float *logits, double *scores) {
    double sum = 0;
    for (uint32_t e = 0; e < r->n_experts; e++)
        sum += exp(capped(r, logits[e]));
    for (uint32_t e = 0; e < r->n_experts; e++) {
        double x = capped(r, logits[e]);
        scores[e] = r->score == ROUTER_SOFTMAX         ? exp(x) / sum
                    : r->score == ROUTER_SIGMOID       ? 1 / (1 + exp(-x))
                    : r->score == ROUTER_SQRT_SOFTPLUS ? sqrt(log1p(exp(x)))
                                                       : x;
    }
}

// The k largest, largest first, the lower index first among equals.
static void largest(const double *x, uint32_t n, uint32_t k, uint32_t *out) {
    bool taken[EXPERTS_MOST] = {false};
    for (uint32_t j = 0; j < k; j++) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++)
            if (!taken[i] && (best == n || x[i] > x[best])) best = i;
        taken[best] = true;
        out[j] = best;
    }
}

static void mask(const struct router_spec *r, double *by) {
    double groups[EXPERTS_MOST];
    uint32_t size = r->n_experts / r->n_groups, order[EXPERTS_MOST], kept[EXPERTS_MOST];
    for (uint32_t g = 0; g < r->n_groups; g++) {
        largest(by + g * size, size, size > 1 ? 2 : 1, order);
        groups[g] = by[g * size + order[0]];
        if (r->groups == GROUPS_TOP2) groups[g] += by[g * size + order[1]];
    }
    largest(groups, r->n_groups, r->groups_kept, kept);
    for (uint32_t e = 0; e < r->n_experts; e++) {
        bool in = false;
        for (uint32_t i = 0; i < r->groups_kept; i++)
            in = in || kept[i] == e / size;
        if (!in) by[e] = -INFINITY;
    }
}

// The sparse mixer of Phi-3.5-MoE: each choice is weighed by a softmax over what is left of the
// earlier ones and within 2 jitter of it.
static double mixer(const struct router_spec *r, const float *logits, const uint32_t *experts,
                    uint32_t j) {
    double sum = 0, best = (double)logits[experts[j]];
    for (uint32_t e = 0; e < r->n_experts; e++) {
        double x = (double)logits[e];
        bool out = (best - x) / fmax(fabs(x), best) > 2 * (double)r->jitter;
        for (uint32_t i = 0; i < j; i++)
            out = out || experts[i] == e;
        if (!out) sum += exp(x - best);
    }
    return 1 / sum;
}

static void weights_of(const struct router_spec *r, const float *logits, const double *scores,
                       const uint32_t *experts, double *weights) {
    double softmax = 0, sum = 0, squares = 0;
    for (uint32_t j = 0; j < r->top_k; j++)
        softmax += exp(scores[experts[j]]);
    for (uint32_t j = 0; j < r->top_k; j++) {
        double s = scores[experts[j]];
        weights[j] = r->weights == WEIGHTS_SOFTMAX   ? exp(s) / softmax
                     : r->weights == WEIGHTS_SIGMOID ? 1 / (1 + exp(-s))
                     : r->weights == WEIGHTS_MIXER   ? mixer(r, logits, experts, j)
                                                     : s;
        sum += weights[j];
        squares += weights[j] * weights[j];
    }
    double least = (double)r->renorm_least;
    for (uint32_t j = 0; j < r->top_k; j++) {
        if (r->renorm == RENORM_L1) weights[j] /= sum + least;
        if (r->renorm == RENORM_FLOOR) weights[j] /= fmax(sum, least);
        if (r->renorm == RENORM_L2) weights[j] /= sqrt(squares);
        weights[j] *= (double)r->scale;
    }
}

static void expect_formula(const struct router_spec *r, const float *bias, const float *logits) {
    double scores[EXPERTS_MOST], by[EXPERTS_MOST], want_weights[EXPERTS_MOST];
    uint32_t want[EXPERTS_MOST], got[EXPERTS_MOST];
    float weights[EXPERTS_MOST];
    scores_of(r, logits, scores);
    for (uint32_t e = 0; e < r->n_experts; e++)
        by[e] = scores[e] + (bias != NULL ? (double)bias[e] : 0);
    if (r->groups != GROUPS_NONE) mask(r, by);
    largest(by, r->n_experts, r->top_k, want);
    weights_of(r, logits, scores, want, want_weights);
    route(r, bias, logits, got, weights);
    for (uint32_t j = 0; j < r->top_k; j++) {
        ck_assert_uint_eq(got[j], want[j]);
        ck_assert_double_eq_tol((double)weights[j], want_weights[j],
                                2e-6 * fmax(1, fabs(want_weights[j])));
    }
}

// --- the routers of the families, by what is special in them

static const struct router_spec routers[] = {
    {.n_experts = 8, .top_k = 2, .score = ROUTER_SOFTMAX, .renorm = RENORM_L1, .scale = 1},
    {.n_experts = 7, .top_k = 3, .score = ROUTER_SOFTMAX, .scale = 1.5f},
    {.n_experts = 8, .top_k = 4, .score = ROUTER_SOFTMAX, .renorm = RENORM_L2, .scale = 1},
    {.n_experts = 9, .top_k = 1, .score = ROUTER_SOFTMAX, .scale = 1}, // Switch
    {.n_experts = 8, .top_k = 4, .score = ROUTER_RAW, .weights = WEIGHTS_SOFTMAX, .scale = 1},
    {.n_experts = 6,
     .top_k = 1,
     .score = ROUTER_RAW,
     .weights = WEIGHTS_SIGMOID,
     .scale = 1,
     .on_input = true},
    {.n_experts = 16,
     .top_k = 2,
     .score = ROUTER_RAW,
     .weights = WEIGHTS_MIXER,
     .scale = 1,
     .jitter = 0.01f},
    {.n_experts = 16,
     .top_k = 2,
     .score = ROUTER_RAW,
     .weights = WEIGHTS_MIXER,
     .scale = 1,
     .jitter = 0.3f},
    {.n_experts = 8,
     .top_k = 3,
     .score = ROUTER_SOFTMAX,
     .selection_bias = true,
     .renorm = RENORM_FLOOR,
     .renorm_least = 1e-12f,
     .scale = 1},
    {.n_experts = 8,
     .top_k = 3,
     .score = ROUTER_SOFTMAX,
     .renorm = RENORM_FLOOR,
     .renorm_least = 0.9f,
     .scale = 1},
    {.n_experts = 16,
     .top_k = 6,
     .score = ROUTER_SOFTMAX,
     .groups = GROUPS_MAX,
     .n_groups = 4,
     .groups_kept = 2,
     .scale = 16},
    {.n_experts = 32,
     .top_k = 8,
     .score = ROUTER_SIGMOID,
     .selection_bias = true,
     .groups = GROUPS_TOP2,
     .n_groups = 8,
     .groups_kept = 4,
     .renorm = RENORM_L1,
     .renorm_least = 1e-20f,
     .scale = 2.5f},
    {.n_experts = 8, .top_k = 2, .score = ROUTER_SIGMOID, .selection_bias = true, .scale = 1},
    {.n_experts = 8, .top_k = 2, .score = ROUTER_SOFTMAX, .scale = 1, .logit_cap = 1.5f},
    {.n_experts = 8, .top_k = 2, .score = ROUTER_SIGMOID, .scale = 1, .logit_cap = 30},
    {.n_experts = 9,
     .top_k = 4,
     .score = ROUTER_SQRT_SOFTPLUS,
     .selection_bias = true,
     .renorm = RENORM_L1,
     .renorm_least = 1e-20f,
     .scale = 1.5f},
};

// The token's experts, in the table's order, weighted by their own scores.
START_TEST(given_experts_are_weighted_by_their_scores) {
    const struct router_spec router = {.n_experts = 4,
                                       .top_k = 2,
                                       .score = ROUTER_SQRT_SOFTPLUS,
                                       .selection_bias = true,
                                       .renorm = RENORM_L1,
                                       .scale = 1.5f};
    float logits[] = {9.0f, -1.0f, 0.5f, 2.0f}, weights[2], chosen_by[4];
    const uint16_t given[] = {2, 1};
    uint32_t experts[2];
    double a = sqrt(log1p(exp(0.5))), b = sqrt(log1p(exp(-1.0)));
    route_row(&(struct route_rule){&router, kernel_ops_ref(), NULL, chosen_by, given}, logits,
              experts, weights);
    ck_assert(experts[0] == 2 && experts[1] == 1);
    ck_assert_double_eq_tol((double)weights[0], 1.5 * a / (a + b), 1e-6);
    ck_assert_double_eq_tol((double)weights[1], 1.5 * b / (a + b), 1e-6);
}
END_TEST

START_TEST(a_router_follows_its_formula) {
    const struct router_spec *r = &routers[_i];
    float logits[EXPERTS_MOST], bias[EXPERTS_MOST];
    for (int round = 0; round < 500; round++) {
        // Few levels make ties, of experts and of groups; then one bias for all keeps them.
        uint32_t levels = round % 2 ? 1000003 : 4;
        for (uint32_t e = 0; e < r->n_experts; e++) {
            logits[e] = 6.0f * (float)random_below(levels) / (float)levels - 2.5f;
            bias[e] = round % 2 ? (float)random_below(3) - 1.1f : -0.8f;
        }
        expect_formula(r, r->selection_bias ? bias : NULL, logits);
    }
}
END_TEST

static void expect_choice(struct router_spec router, const float *bias, const float *logits,
                          const uint32_t *experts) {
    uint32_t got[EXPERTS_MOST];
    float weights[EXPERTS_MOST];
    route(&router, bias, logits, got, weights);
    ck_assert_mem_eq(got, experts, router.top_k * sizeof *got);
}

START_TEST(the_lowest_id_wins_a_tie) {
    struct router_spec router = {
        .n_experts = 6, .top_k = 3, .score = ROUTER_SOFTMAX, .renorm = RENORM_L1, .scale = 1};
    expect_choice(router, NULL, (const float[]){1, 2, 1, 2, 1, 1}, (const uint32_t[]){1, 3, 0});
    expect_choice(router, NULL, (const float[]){0, 0, 0, 0, 0, 0}, (const uint32_t[]){0, 1, 2});
    expect_choice(router, NULL, (const float[]){-1, -2, -3, -4, -5, 9},
                  (const uint32_t[]){5, 0, 1});
}
END_TEST

START_TEST(the_selection_bias_selects_and_does_not_weigh) {
    struct router_spec router = {
        .n_experts = 4, .top_k = 1, .score = ROUTER_SIGMOID, .selection_bias = true, .scale = 2};
    uint32_t expert;
    float weight;
    route(&router, (const float[]){0, 0, 5, 0}, (const float[]){1, 2, 0, 3}, &expert, &weight);
    ck_assert_uint_eq(expert, 2);
    ck_assert_float_eq_tol(weight, 1.0f, 1e-6f);
}
END_TEST

START_TEST(experts_of_masked_groups_are_never_chosen) {
    struct router_spec router = {.n_experts = 8,
                                 .top_k = 4,
                                 .score = ROUTER_SIGMOID,
                                 .groups = GROUPS_TOP2,
                                 .n_groups = 4,
                                 .groups_kept = 2,
                                 .selection_bias = true,
                                 .scale = 1};
    // Biases make scores negative: what is masked must still be below them.
    const float bias[] = {-3, -3, -3, -3, -9, -9, -9, 0};
    expect_choice(router, bias, (const float[]){0, 1, 0, 0, 5, 5, 4, 5},
                  (const uint32_t[]){1, 0, 2, 3});
    // Equal groups: the first ones stay.
    expect_choice(router, NULL, (const float[]){1, 0, 1, 0, 1, 0, 1, 0},
                  (const uint32_t[]){0, 2, 1, 3});
    // One large expert does not carry a group of two; by the maximum it does.
    const float spike[] = {1, 1, 1, 1, 1.5f, -9, -9, -9};
    expect_choice(router, NULL, spike, (const uint32_t[]){0, 1, 2, 3});
    router.groups = GROUPS_MAX;
    expect_choice(router, NULL, spike, (const uint32_t[]){4, 0, 1, 5});
}
END_TEST

START_TEST(different_experts_are_chosen_whatever_the_numbers) {
    float nan = __builtin_nanf("");
    for (size_t i = 0; i < sizeof routers / sizeof *routers; i++) {
        const struct router_spec *r = &routers[i];
        for (uint32_t bits = 0; bits < 256; bits++) {
            float logits[EXPERTS_MOST], weights[EXPERTS_MOST];
            uint32_t experts[EXPERTS_MOST], seen = 0;
            for (uint32_t e = 0; e < r->n_experts; e++)
                logits[e] = bits >> (e % 8) & 1 ? e % 3 ? nan : -INFINITY : (float)e;
            route(r, NULL, logits, experts, weights);
            for (uint32_t j = 0; j < r->top_k; j++) {
                ck_assert_uint_lt(experts[j], r->n_experts);
                seen |= 1u << experts[j];
            }
            ck_assert_int_eq(__builtin_popcount(seen), (int)r->top_k);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("route");
    TCase *tests = tcase_create("route");
    tcase_add_test(tests, given_experts_are_weighted_by_their_scores);
    tcase_add_loop_test(tests, a_router_follows_its_formula, 0,
                        (int)(sizeof routers / sizeof *routers));
    tcase_add_test(tests, the_lowest_id_wins_a_tie);
    tcase_add_test(tests, the_selection_bias_selects_and_does_not_weigh);
    tcase_add_test(tests, experts_of_masked_groups_are_never_chosen);
    tcase_add_test(tests, different_experts_are_chosen_whatever_the_numbers);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
