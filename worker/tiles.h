// tiles.h: how a step's attention is split into work items: query rows that read pages together.
//
// Rows of one sequence do; and so do single rows of sequences whose block tables begin alike, as
// those of requests with a common prompt: what they share is read once for all of them. Between
// batch.c and attn.c in the walk; it decides nothing but who computes what, so no bit depends on
// it. Engine thread only.
#ifndef MOESAIC_WORKER_TILES_H
#define MOESAIC_WORKER_TILES_H

#include <stdint.h>

#include "worker/scratch.h"

struct forward;

// The rows order[begin, begin + n_rows): of one sequence, or of several whose first n_shared blocks
// are the same.
struct attn_tile {
    uint32_t begin, n_rows, n_shared;
};

struct tiles {
    uint32_t n, heads_per_item;
    struct attn_tile *tiles; // [rows_max]
    uint32_t *order;         // [rows_max] the step's rows, tile by tile
    uint32_t *place;         // [rows_max] where a row stands in order
    uint32_t *singles[2];    // [n_slots] rows that are alone in their sequence; one is for sorting
};

void tiles_lay(struct forward *f, struct scratch *s);
// Once a step, after batch_fill.
void tiles_plan(struct forward *f);

#endif
