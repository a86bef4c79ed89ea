// rotary.h: cosines and sines of one rotary embedding for the rows of a step, and the rotation by
// them (docs/arithmetic.md, RoPE). Most models have one for all layers; attn.c says which layer
// takes which.
#ifndef MOESAIC_WORKER_ROTARY_H
#define MOESAIC_WORKER_ROTARY_H

#include "common/model/spec.h"
#include "kernels/ops.h"
#include "worker/scratch.h"

struct rotary {
    const struct kernel_ops *ops;
    uint32_t dim;     // rotated dimensions
    bool interleaved; // pairs that are neighbours come out as halves
    float factor;     // of cosines and sines; 0 = none
    float *inv_freq;  // [dim / 2]
    float *cos, *sin; // [rows, dim / 2]
};

struct rotary_config {
    const struct kernel_ops *ops;
    const struct rope_spec *rope;
    uint32_t n_rows, max_model_len;
};

void rotary_lay(struct rotary *r, const struct rotary_config *config, struct scratch *s);
// Row i of the tables is of this position.
void rotary_fill(const struct rotary *r, uint32_t row, uint32_t position);
// Rotates the first dim elements of x by a row of the tables.
void rotary_turn(const struct rotary *r, float *x, uint32_t row);
// The same where neighbours (interleaved) or halves are pairs, whatever the embedding says.
void rotary_turn_as(const struct rotary *r, float *x, uint32_t row, bool interleaved);
// Takes rotary_turn back: halves are pairs, and come out as the model's own.
void rotary_turn_back(const struct rotary *r, float *x, uint32_t row);

#endif
