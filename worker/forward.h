// forward.h: private to the forward pass: what the phases of one step share.
//
// model.c owns the one struct forward. Each phase's file owns its part (struct attn, route, ...)
// and reads the others'. All of it is used by the engine thread; the compute team sees it only
// inside pool_run.
#ifndef MOESAIC_WORKER_FORWARD_H
#define MOESAIC_WORKER_FORWARD_H

#include "worker/attn.h"
#include "worker/batch.h"
#include "worker/combine.h"
#include "worker/compress.h"
#include "worker/delta.h"
#include "worker/dispatch.h"
#include "worker/expert.h"
#include "worker/head.h"
#include "worker/hyper.h"
#include "worker/indexer.h"
#include "worker/joint.h"
#include "worker/kv.h"
#include "worker/mla.h"
#include "worker/model.h"
#include "worker/route.h"
#include "worker/slice.h"
#include "worker/stage.h"
#include "worker/state.h"
#include "worker/tp.h"

struct forward {
    struct model_config config; // pointers in it are not owned
    const struct model_spec *spec;
    const struct kernel_ops *ops;
    struct pool *pool;
    uint32_t n_threads, n_ranks, rank;
    struct layout_place place; // of this rank
    struct slice slice;        // of what its TP group splits
    // The ranks of its stage, which hold the experts of its layers: [stage_first, stage_first +
    // stage_ranks), itself at index self.
    uint32_t stage_first, stage_ranks, self;
    uint32_t first_layer, n_layers; // of its stage; elsewhere a layer is its number in the model

    uint64_t step; // of the plan, for the exchanges' tags
    // A step's rows are spread over the ranks of a TP group: each keeps the residual stream of its
    // own, row own_first + i of the batch at index i, and works on them alone outside of attention
    // and split dense layers.
    uint32_t own_max, own_first, n_own;
    float *x;          // [own_max, spec_stream_dim] the residual stream, or streams
    float *normed;     // [n_own, hidden] its norm, the input of the next block: in all_normed
    float *all_normed; // [rows_max, hidden] of all rows of the step, where a block wants them
    float *partial;    // [rows_max, hidden] what a block returned for them: sums over the slice
    struct batch batch;
    struct kv kv;
    struct attn attn;
    struct mla mla;
    struct joint joint;
    struct hyper hyper;
    struct state state;
    struct delta delta;
    struct compress compress;
    struct indexer indexer;
    struct route route;
    struct dispatch dispatch;
    struct expert expert;
    struct combine combine;
    struct stage stage;
    struct head head;
    struct tp tp;
};

static inline const struct layer_weights *forward_layer(const struct forward *f, uint32_t layer) {
    return &f->config.weights->layers[layer];
}

struct row_range {
    uint32_t first, n;
};
// These rows of y = x w^T from the same rows of x; in both one row is behind the other.
void forward_project(struct forward *f, const struct matrix *w, struct row_range rows,
                     const float *x, float *y);

// The blocks of a layer.
enum forward_block { BLOCK_ATTN, BLOCK_FFN };
// normed = norm(x), what the block reads, for the own rows.
void forward_norm(struct forward *f, uint32_t layer, enum forward_block block);

// x += what a block returned for the own rows, in partial, or its norm where post_norm is not NULL.
void forward_return_rows(struct forward *f, const float *post_norm);

static inline void forward_norm_row(const struct forward *f, float *y, const float *x,
                                    const struct norm_weights *w) {
    if (f->spec->norm == NORM_RMS)
        f->ops->rms_norm(y, x, w->w, f->spec->hidden, f->spec->norm_eps);
    else
        f->ops->layer_norm(y, x, w, f->spec->hidden, f->spec->norm_eps);
}

// The residual stream of an own row takes in what a block returned for it, or the norm of that
// where there is one (then y is changed): x += y, the multiple that the model's spec asks for, or
// what hyper-connections make of it.
static inline void forward_return(const struct forward *f, uint32_t own_row, float *y,
                                  const float *post_norm) {
    float multiplier = f->spec->scale.residual, *x = f->x + (size_t)own_row * f->spec->hidden;
    if (post_norm != NULL) forward_norm_row(f, y, y, &(struct norm_weights){post_norm, NULL});
    if (f->spec->hyper.n != 0)
        hyper_take_in(f, own_row, y);
    else if (multiplier == 0)
        f->ops->add(x, y, f->spec->hidden);
    else
        f->ops->axpy(x, y, multiplier, f->spec->hidden);
}

#endif
