// hyper.h: hyper-connections: the residual is several streams, and a block works on a mix of them.
// Before a block they are collapsed into one row, behind it they are mixed with each other and take
// in what it returned (docs/arithmetic.md, Hyper-connections).
#ifndef MOESAIC_WORKER_HYPER_H
#define MOESAIC_WORKER_HYPER_H

#include "worker/scratch.h"
#include "worker/weights.h"

struct forward;

struct hyper {
    float *mixes; // [own_max, 2 n + n * n] of the block that runs: pre, post, comb of each own row
    float *ends;  // [n_threads, n] before the final norm
};

void hyper_lay(struct forward *f, struct scratch *s);
// normed = norm(what the block reads of the streams), for the own rows. Remembers how they take in
// what it returns.
void hyper_collapse(struct forward *f, const struct hyper_weights *w,
                    const struct norm_weights *norm);
// The streams of an own row take in what the block returned, y [hidden].
void hyper_take_in(const struct forward *f, uint32_t own_row, const float *y);
// y [hidden] = an own row behind the last layer.
void hyper_end(const struct forward *f, float *y, uint32_t own_row, uint32_t thread);

// One row's n + n + n * n products with the mix become its weights, in place: pre [n], post [n],
// comb [n][n].
void hyper_weigh(const struct model_spec *spec, const struct kernel_ops *ops,
                 const struct hyper_weights *w, float *mixes);

#endif
