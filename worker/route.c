// route.c: see route.h. Logits to scores, scores to a choice, the chosen to weights.
#include "worker/route.h"

#include <math.h>
#include <string.h>

#include "worker/forward.h"
#include "worker/linear.h"

void route_lay(struct forward *f, struct scratch *s) {
    const struct router_spec *router = &f->spec->router;
    size_t rows = f->own_max;
    f->route.scores = scratch_take(s, rows * router->n_experts, sizeof(float));
    f->route.experts = scratch_take(s, rows * router->top_k, sizeof(uint32_t));
    f->route.weights = scratch_take(s, rows * router->top_k, sizeof(float));
    f->route.chosen_by = scratch_take(s, (size_t)f->n_threads * router->n_experts, sizeof(float));
}

// --- the choice

// Keeps the k best so far in order. A later expert moves ahead only when it is greater, so ties
// stay with the lower id, and a NaN never moves: k valid experts come out even then.
static void choose(const float *scores, uint32_t n, uint32_t k, uint32_t *experts) {
    uint32_t n_chosen = 0;
    for (uint32_t e = 0; e < n; e++) {
        if (n_chosen == k && !(scores[e] > scores[experts[k - 1]])) continue;
        uint32_t at = n_chosen < k ? n_chosen++ : k - 1;
        for (; at > 0 && scores[e] > scores[experts[at - 1]]; at--)
            experts[at] = experts[at - 1];
        experts[at] = e;
    }
}

// The largest score of a group, or the sum of its two largest.
static float group_score(enum router_groups kind, const float *scores, uint32_t n) {
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t e = 0; e < n; e++) {
        if (scores[e] > first) {
            second = first;
            first = scores[e];
        } else if (scores[e] > second) {
            second = scores[e];
        }
    }
    return kind == GROUPS_MAX ? first : first + second;
}

// Experts outside the best groups get minus infinity, below every score.
static void mask_groups(const struct router_spec *router, float *scores) {
    uint32_t size = router->n_experts / router->n_groups, kept[EXPERTS_MAX];
    float groups[EXPERTS_MAX];
    bool keeps[EXPERTS_MAX] = {false};
    for (uint32_t g = 0; g < router->n_groups; g++)
        groups[g] = group_score(router->groups, scores + (size_t)g * size, size);
    choose(groups, router->n_groups, router->groups_kept, kept);
    for (uint32_t i = 0; i < router->groups_kept; i++)
        keeps[kept[i]] = true;
    for (uint32_t e = 0; e < router->n_experts; e++)
        if (!keeps[e / size]) scores[e] = -INFINITY;
}

static void choose_experts(const struct route_rule *rule, const float *scores, uint32_t *experts) {
    const struct router_spec *router = rule->router;
    const float *by = scores;
    if (rule->selection_bias != NULL || router->groups != GROUPS_NONE) {
        memcpy(rule->chosen_by, scores, router->n_experts * sizeof *scores);
        by = rule->chosen_by;
    }
    if (rule->selection_bias != NULL)
        rule->ops->add(rule->chosen_by, rule->selection_bias, router->n_experts);
    if (router->groups != GROUPS_NONE) mask_groups(router, rule->chosen_by);
    choose(by, router->n_experts, router->top_k, experts);
}

// --- the weights

// The sparse mixer weighs each choice by a softmax over what is left and near enough to it; the
// earlier choices and what lies further below than 2 jitter, relative to its size, do not count.
static float mixer_weight(const struct route_rule *rule, const float *logits,
                          const uint32_t *experts, uint32_t j) {
    const struct router_spec *router = rule->router;
    float *left = rule->chosen_by, best = logits[experts[j]];
    for (uint32_t e = 0; e < router->n_experts; e++) {
        float size = fabsf(logits[e]) > best ? fabsf(logits[e]) : best;
        left[e] = (best - logits[e]) / size > 2.0f * router->jitter ? -INFINITY : logits[e];
    }
    for (uint32_t i = 0; i < j; i++)
        left[experts[i]] = -INFINITY;
    rule->ops->softmax(left, router->n_experts);
    return left[experts[j]];
}

static void weigh(const struct route_rule *rule, const float *scores, const uint32_t *experts,
                  float *weights) {
    const struct router_spec *router = rule->router;
    for (uint32_t j = 0; j < router->top_k; j++)
        weights[j] = router->weights == WEIGHTS_MIXER ? mixer_weight(rule, scores, experts, j)
                                                      : scores[experts[j]];
    if (router->weights == WEIGHTS_SOFTMAX) rule->ops->softmax(weights, router->top_k);
    if (router->weights == WEIGHTS_SIGMOID) rule->ops->sigmoid(weights, router->top_k);
}

static void renormalise(const struct router_spec *router, float *weights) {
    if (router->renorm == RENORM_NONE) return;
    bool squares = router->renorm == RENORM_L2;
    float sum = 0.0f;
    for (uint32_t j = 0; j < router->top_k; j++)
        sum += squares ? weights[j] * weights[j] : weights[j];
    if (squares)
        sum = sqrtf(sum);
    else if (router->renorm == RENORM_L1)
        sum += router->renorm_least;
    else if (!(sum > router->renorm_least))
        sum = router->renorm_least;
    for (uint32_t j = 0; j < router->top_k; j++)
        weights[j] /= sum;
}

void route_row(const struct route_rule *rule, float *logits, uint32_t *experts, float *weights) {
    const struct router_spec *router = rule->router;
    if (router->logit_cap != 0) rule->ops->softcap(logits, router->logit_cap, router->n_experts);
    if (router->score == ROUTER_SOFTMAX) rule->ops->softmax(logits, router->n_experts);
    if (router->score == ROUTER_SIGMOID) rule->ops->sigmoid(logits, router->n_experts);
    for (uint32_t e = 0; router->score == ROUTER_SQRT_SOFTPLUS && e < router->n_experts; e++)
        logits[e] = elementary_sqrt_softplus(logits[e]);
    for (uint32_t j = 0; rule->given != NULL && j < router->top_k; j++)
        experts[j] = rule->given[j];
    if (rule->given == NULL) choose_experts(rule, logits, experts);
    weigh(rule, logits, experts, weights);
    renormalise(router, weights);
    for (uint32_t j = 0; j < router->top_k; j++)
        weights[j] *= router->scale;
}

// --- all rows of a step

struct route_layer {
    struct forward *f;
    const struct layer_weights *w;
};

static void route_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    const struct route_layer *rl = context;
    struct forward *f = rl->f;
    const struct router_spec *router = &f->spec->router;
    struct route_rule rule = {router, f->ops, rl->w->selection_bias,
                              f->route.chosen_by + (size_t)thread * router->n_experts, NULL};
    for (uint32_t row = row_begin; row < row_end; row++) {
        size_t at = (size_t)row * router->top_k;
        if (rl->w->experts_of != NULL)
            rule.given =
                rl->w->experts_of + (size_t)f->batch.token[f->own_first + row] * router->top_k;
        route_row(&rule, f->route.scores + (size_t)row * router->n_experts, f->route.experts + at,
                  f->route.weights + at);
    }
}

void route_topk(struct forward *f, uint32_t layer) {
    const struct router_spec *router = &f->spec->router;
    struct route_layer rl = {f, forward_layer(f, layer)};
    struct linear logits = {
        .ops = f->ops,
        .w = &rl.w->router,
        .x = f->normed,
        .ldx = f->spec->hidden,
        .y = f->route.scores,
        .ldy = router->n_experts,
        .n_rows = f->n_own,
        .bias = rl.w->router_bias,
    };
    linear_run(f->pool, &logits);
    // An exponential costs about as much as ten elementwise operations, a choice as one or two.
    pool_run_rows(f->pool, f->n_own, (size_t)router->n_experts * 12, route_rows, &rl);
}

static void weigh_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    struct forward *f = context;
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *x = f->normed + (size_t)row * f->spec->hidden;
        f->ops->scale(x, x, f->route.weights[row], f->spec->hidden);
        f->route.weights[row] = 1.0f;
    }
}

void route_weigh_input(struct forward *f) {
    if (f->spec->router.on_input) pool_run_rows(f->pool, f->n_own, f->spec->hidden, weigh_rows, f);
}
