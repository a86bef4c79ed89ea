// scratch.h: one block of memory for everything a step writes, laid out before the first step.
//
// The layout code runs twice: first with no memory behind it (scratch_take only counts and returns
// NULL), then over the one allocation of exactly that size. So sizes and pointers come from the
// same lines and cannot disagree.
#ifndef MOESAIC_WORKER_SCRATCH_H
#define MOESAIC_WORKER_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct scratch {
    uint8_t *base; // NULL while measuring
    size_t used, capacity;
    bool borrowed; // base is someone else's
    bool overflow; // a size did not fit size_t: scratch_allocate refuses
};

// A piece of count elements of bytes each, 64-byte aligned, zeroed where the memory is its own.
// NULL while measuring.
void *scratch_take(struct scratch *s, size_t count, size_t bytes);
// Ends the measuring pass of a zeroed struct: allocates what was taken and starts the second pass.
int scratch_allocate(struct scratch *s, struct err_text *e);
// The same over memory of someone else's, of s->used bytes, whose content is any.
int scratch_place(struct scratch *s, void *base, struct err_text *e);
void scratch_finish(struct scratch *s);

#endif
