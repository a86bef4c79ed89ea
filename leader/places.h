// places.h: numbered places of a rank, KV blocks or snapshots of states: the order in which they
// are taken, and an index of those that hold something.
//
// It links numbers and knows nothing of what stands in a place: pages.c and snapshots.c do, which
// are before and after it in the walk. Owned by the scheduler thread.
#ifndef MOESAIC_LEADER_PLACES_H
#define MOESAIC_LEADER_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#define PLACE_NONE UINT32_MAX

struct place_link {
    uint32_t prev, next;    // in the order, while in it
    uint32_t next_in_chain; // of its bucket, while in the index
};

struct places {
    struct place_link *links; // [n], owned
    uint32_t first, last;     // taken next, and last of all; PLACE_NONE: none can be
    uint32_t *buckets;        // [n_buckets], owned
    uint32_t n_buckets;       // a power of two
};

int places_init(struct places *p, uint32_t n); // in order of their numbers; ERR_FATAL_NOMEM
void places_finish(struct places *p);

void places_link(struct places *p, uint32_t place, bool at_end); // or in front
void places_unlink(struct places *p, uint32_t place);

// The first place under this hash, or PLACE_NONE; those behind it: next_in_chain.
static inline uint32_t places_under(const struct places *p, uint64_t hash) {
    return p->buckets[hash & (p->n_buckets - 1)];
}
void places_enter(struct places *p, uint64_t hash, uint32_t place);
void places_leave(struct places *p, uint64_t hash, uint32_t place); // where it was entered

#endif
