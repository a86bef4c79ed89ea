// route.h: which experts each row goes to, and with what weight (docs/arithmetic.md, Experts).
#ifndef MOESAIC_WORKER_ROUTE_H
#define MOESAIC_WORKER_ROUTE_H

#include "common/model/spec.h"
#include "kernels/ops.h"
#include "worker/scratch.h"

struct forward;

struct route {
    float *scores;     // [own_max, n_experts]
    uint32_t *experts; // [own_max, top_k] in the router's order
    float *weights;    // [own_max, top_k]
    float *chosen_by;  // [n_threads, n_experts]
};

void route_lay(struct forward *f, struct scratch *s);
// Reads normed, fills experts and weights of the own rows.
void route_topk(struct forward *f, uint32_t layer);
// Of a router that weighs the experts' input: normed becomes that input, and all weights become 1.
void route_weigh_input(struct forward *f);

// How rows are routed in one layer, with the memory for one row at a time.
struct route_rule {
    const struct router_spec *router;
    const struct kernel_ops *ops;
    const float *selection_bias; // [n_experts], or NULL
    float *chosen_by;            // [n_experts]
    const uint16_t *given;       // [top_k] the row's experts, that its token has; NULL = it chooses
};
// One row: logits (changed in place) to top_k experts and weights. Chooses k different experts
// whatever the numbers are, but where they are given.
void route_row(const struct route_rule *rule, float *logits, uint32_t *experts, float *weights);

#endif
