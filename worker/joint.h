// joint.h: attention whose one head's keys are its values: how its rows come to queries and to what
// the pages hold, and from the heads' outputs to what the output projection reads. What stands
// between is attention as everywhere.
#ifndef MOESAIC_WORKER_JOINT_H
#define MOESAIC_WORKER_JOINT_H

#include <stddef.h>

#include "worker/scratch.h"

struct forward;

struct joint {
    float *q_a; // [rows_max, q_rank] compressed queries, normed
    float *q;   // [rows_max, n_heads * head_dim] of the slice's heads
    float *kv;  // [rows_max, head_dim]
    float *out; // [rows_max, the slice's groups * o_rank]
};

void joint_lay(struct forward *f, struct scratch *s);
// From all_normed to queries, and to rows in the pages.
void joint_spread(struct forward *f, uint32_t layer);
// What the output projection reads of the rows: their outputs, rotated back, through the first step
// of the projection. Changes attn.out.
const float *joint_outputs(struct forward *f, uint32_t layer);

#endif
