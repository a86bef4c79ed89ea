// slice.h: what a rank has of the things that a TP group splits: query heads, KV heads, heads of
// recurrent layers, inner columns of dense layers, columns of the head (docs/design.md, Words).
//
// Sums over heads and inner columns stay exact because a slice is whole segments that form a
// subtree (docs/arithmetic.md, Matrix products). The layout is legal for the model
// (common/model/legal.h).
#ifndef MOESAIC_WORKER_SLICE_H
#define MOESAIC_WORKER_SLICE_H

#include "common/base/layout.h"
#include "common/model/spec.h"

struct slice {
    uint32_t first_head, n_heads;       // query heads
    uint32_t first_kv_head, n_kv_heads; // that their queries read; latent attention has one
    uint32_t kv_copies;                 // ranks that hold the same KV heads
    uint32_t attn_segments;             // of the output projection's K
    // Of recurrent layers, where the model has some: key heads and the value heads that they serve,
    // and the segments of the output projection's K.
    uint32_t first_k_head, n_k_heads, first_v_head, n_v_heads, delta_segments;
    // Of dense layers. tp = 1 where their segments are too few: then each rank holds them whole and
    // runs its own rows.
    uint32_t dense_tp, first_inner, n_inner, inner_segments;
    uint32_t first_token, n_tokens; // columns of the head: whole panels
};

struct slice slice_of(const struct model_spec *spec, const struct layout *layout, uint32_t rank);

// Columns of the head that a TP index has: from first(tp) up to first(tp + 1).
uint32_t slice_token_first(const struct model_spec *spec, uint32_t tp, uint32_t index);

#endif
