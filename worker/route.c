// route.c: see route.h.
#include "worker/route.h"

#include "worker/forward.h"
#include "worker/linear.h"

void route_lay(struct forward *f, struct scratch *s) {
    const struct router_spec *router = &f->spec->router;
    size_t rows = f->config.rows_max;
    f->route.scores = scratch_take(s, rows * router->n_experts, sizeof(float));
    f->route.experts = scratch_take(s, rows * router->top_k, sizeof(uint32_t));
    f->route.weights = scratch_take(s, rows * router->top_k, sizeof(float));
}

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

void route_row(const struct router_spec *router, const struct kernel_ops *ops, float *scores,
               uint32_t *experts, float *weights) {
    if (router->score == ROUTER_SOFTMAX)
        ops->softmax(scores, router->n_experts);
    else
        ops->sigmoid(scores, router->n_experts);
    choose(scores, router->n_experts, router->top_k, experts);
    float sum = 0.0f;
    for (uint32_t j = 0; j < router->top_k; j++)
        sum += scores[experts[j]];
    for (uint32_t j = 0; j < router->top_k; j++) {
        float weight = scores[experts[j]];
        if (router->renorm == RENORM_L1) weight /= sum;
        weights[j] = weight * router->scale;
    }
}

static void route_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    struct forward *f = context;
    const struct router_spec *router = &f->spec->router;
    for (uint32_t row = row_begin; row < row_end; row++) {
        size_t at = (size_t)row * router->top_k;
        route_row(router, f->ops, f->route.scores + (size_t)row * router->n_experts,
                  f->route.experts + at, f->route.weights + at);
    }
}

void route_topk(struct forward *f, uint32_t layer) {
    const struct router_spec *router = &f->spec->router;
    struct linear scores = {
        .ops = f->ops,
        .w = &forward_layer(f, layer)->router,
        .x = f->normed,
        .ldx = f->spec->hidden,
        .y = f->route.scores,
        .ldy = router->n_experts,
        .n_rows = f->batch.n_rows,
    };
    linear_run(f->pool, &scores);
    // An exponential costs about as much as ten elementwise operations, a choice as one or two.
    pool_run_rows(f->pool, f->batch.n_rows, (size_t)router->n_experts * 12, route_rows, f);
}
