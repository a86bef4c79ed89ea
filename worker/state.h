// state.h: what a slot keeps of its sequence beside pages, and numbered copies of it: snapshots.
//
// A layer that remembers a sequence from step to step (delta.c, compress.c) takes the memory for
// that here, so that all a slot holds on this rank can be copied as bytes, whatever they mean. A
// snapshot is exact: who goes on from it computes the bits of who never stopped. Which snapshot is
// written and read when is decided in the leader and checked in batch.c. Engine thread; the copies
// are split over the compute team.
#ifndef MOESAIC_WORKER_STATE_H
#define MOESAIC_WORKER_STATE_H

#include "common/base/limits.h"
#include "worker/scratch.h"

struct forward;

#define STATE_PARTS_MAX (2 * LAYERS_MAX)

// What some layers keep: each of them so many bytes a slot.
struct state_part {
    uint8_t *data; // [n_layers][n_slots][bytes]
    uint32_t n_layers;
    size_t bytes;
};

struct state {
    uint32_t n_slots, n_snapshots, n_parts;
    uint32_t n_pieces; // layers of all parts
    size_t bytes;      // of one slot: all pieces
    struct state_part parts[STATE_PARTS_MAX];
    uint8_t *snapshots;   // [n_snapshots][bytes]
    struct scratch *kept; // not owned; while it is laid
};

// Before anything is taken, in each pass of the layout. All is laid into kept.
void state_begin(struct state *st, uint32_t n_slots, uint32_t n_snapshots, struct scratch *kept);
// [n_layers][n_slots][bytes]; NULL while measuring. bytes is a multiple of 4. What it holds is any:
// a sequence begins by writing, not by reading zeros.
void *state_take(struct state *st, uint32_t n_layers, size_t bytes);
// Places for the snapshots, once all is taken.
void state_lay(struct state *st);

// Before the rows of the batch: the slots that begin from a snapshot become what it holds.
void state_restore(struct forward *f);
// After them: the snapshots that runs are saved to become what their slots hold.
void state_save(struct forward *f);

#endif
