// expert.h: the feed-forward networks: this rank's experts over the pairs that dispatch listed, the
// shared expert over the own rows, and dense layers.
//
// Rows are sorted by expert, so that an expert's weights are read once for all rows that want it.
// How rows are grouped cannot change a bit: rows never meet in a sum.
#ifndef MOESAIC_WORKER_EXPERT_H
#define MOESAIC_WORKER_EXPERT_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/err.h"
#include "kernels/ops.h"
#include "worker/scratch.h"
#include "worker/weights.h"

struct forward;

// Rows of one FFN in one group, at most ROW_TILE of them; the columns are cut into work items.
struct ffn_segment {
    const struct expert_weights *weights;
    uint32_t row_begin, n_rows;                              // in the group
    uint32_t inner_panels, inner_item, out_panels, out_item; // panels of an item
};

struct expert {
    uint32_t group_rows; // rows that are computed together
    uint32_t inner_max;
    float *x;                     // [group_rows, hidden] gathered
    float *gate, *up;             // [group_rows, inner_max]
    float *y;                     // [group_rows, hidden]
    float *shared;                // [own_max, hidden] what the shared expert returned
    float *shared_weights;        // [own_max] where it is gated
    uint32_t *order;              // pair indexes sorted by expert
    uint32_t *begin;              // [n_local_experts + 1] of each expert in order
    struct ffn_segment *segments; // [group_rows]
    uint32_t n_segments;
    uint32_t *item_begin;     // [group_rows + 1] first work item of each segment
    _Atomic uint64_t *tokens; // [own layers][n_local_experts], cumulative; any thread reads
};

void expert_lay(struct forward *f, struct scratch *s);
// combine.out[p] = expert(pairs[p]) for every pair.
void expert_run(struct forward *f, uint32_t layer);
// expert.shared = the shared expert of normed, where the model has one.
void shared_forward(struct forward *f, uint32_t layer);
// x += ffn(normed), of a dense layer: over the own rows where each rank holds it whole; else this
// rank's inner columns for all rows, and the TP group's sums.
int dense_forward(struct forward *f, uint32_t layer, struct err_text *e);

#endif
