// route.h: which experts each row goes to, and with what weight (docs/arithmetic.md, Experts).
#ifndef MOESAIC_WORKER_ROUTE_H
#define MOESAIC_WORKER_ROUTE_H

#include "common/model/spec.h"
#include "kernels/ops.h"
#include "worker/scratch.h"

struct forward;

struct route {
    float *scores;     // [rows_max, n_experts]
    uint32_t *experts; // [rows_max, top_k] in the router's order
    float *weights;    // [rows_max, top_k]
};

void route_lay(struct forward *f, struct scratch *s);
// Reads normed, fills experts and weights of the step's rows.
void route_topk(struct forward *f, uint32_t layer);

// One row: scores (changed in place from logits) to top_k experts and weights. Chooses k different
// experts whatever the numbers are.
void route_row(const struct router_spec *router, const struct kernel_ops *ops, float *scores,
               uint32_t *experts, float *weights);

#endif
