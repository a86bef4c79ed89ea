// compress.h: entries of compressed attention: windows of tokens that become one row in the pages
// when their last token is there (docs/arithmetic.md, Compressed attention). Part of attn.c's block
// in layers of kind CSA and HCA, between what joint.c spreads and attention.
//
// What a layer's tokens gave to windows that are not done lives in their slot, as float32, whatever
// the pages are of: one run of bytes for each layer and slot. batch.c sees to it that a run begins
// at position 0, or where the slot's state or a snapshot of one ends; nothing of before position 0
// is ever read.
#ifndef MOESAIC_WORKER_COMPRESS_H
#define MOESAIC_WORKER_COMPRESS_H

#include "common/base/limits.h"
#include "worker/rotary.h"
#include "worker/scratch.h"

struct forward;

// A window whose last token is in this step.
struct compress_window {
    uint32_t seq, number; // of batch.seqs; of the sequence's windows
};

// Those of one rate, and rotations to their first positions.
struct compress_windows {
    uint32_t rate, n;
    struct compress_window *list; // [rows_max]
    struct rotary rope;
};

struct compress {
    float *rows;       // [rows_max][a layer's channels] what each token gives, then its gates
    float *index_rows; // the same of the entries that an index scores
    struct compress_windows csa, hca;
    // Of each layer: [slot][tokens kept][channels], then the same for the index (state.h).
    float *states[LAYERS_MAX];
    size_t state_floats[LAYERS_MAX]; // of one slot
};

void compress_lay(struct forward *f, struct scratch *s);
// Once a step, after batch_fill.
void compress_begin(struct forward *f);
// Writes the entries of the windows that end in this step, and keeps what those behind them need.
// Nothing in layers that do not compress.
void compress_forward(struct forward *f, uint32_t layer);

#endif
