// linear.h: a matrix product split over the compute team.
//
// The split is by rows and panels, which never meet in a sum (docs/arithmetic.md), so it cannot
// change a bit.
#ifndef MOESAIC_WORKER_LINEAR_H
#define MOESAIC_WORKER_LINEAR_H

#include "kernels/ops.h"
#include "worker/pool.h"

// Rows of one work item: their inputs stay in a core's cache while panels pass by.
#define ROW_TILE 64

// y = x w^T + bias, then residual += y (times residual_scale where that is not 0).
struct linear {
    const struct kernel_ops *ops;
    const struct matrix *w;
    const float *x; // [n_rows, n_in], row stride ldx floats
    float *y;       // [n_rows, n_out], row stride ldy
    size_t ldx, ldy;
    uint32_t n_rows;
    const float *bias; // [n_out], or NULL
    float *residual;   // [n_rows, n_out], row stride n_out; or NULL
    float residual_scale;
};
void linear_run(struct pool *pool, const struct linear *l);

#endif
