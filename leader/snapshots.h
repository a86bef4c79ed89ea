// snapshots.h: the accounts of one rank's snapshots: which place holds the state behind which
// contents, and which place is written next.
//
// A model with states beside its pages (worker/state.h) can begin behind blocks of another sequence
// only where a copy of that one's state was kept. What a place holds is known by the number of the
// contents before it (pages.h: of the tokens so far, and what they must have in common beside), so
// who may not share those blocks cannot find the state either. Owned by the scheduler thread; seq.c
// is before and after it in the walk.
//
// A place is free, held by the sequence whose state is on its way to it while its newest tokens are
// not known, or bound to contents. Free ones are taken first, then the one used longest ago, but
// none twice in a step: a rank writes all of them after the step's rows, in no order. It reads
// those of a step before it writes any, so a place may be taken that the same step reads.
#ifndef MOESAIC_LEADER_SNAPSHOTS_H
#define MOESAIC_LEADER_SNAPSHOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/snapshot.h"
#include "leader/places.h"

struct snapshot {
    uint64_t contents; // 0 = free or held
    uint64_t step;     // that writes it last; 0 = none did
    bool held;
};

struct snapshots {
    uint32_t n, n_held, n_bound;
    struct snapshot *snapshots; // [n], owned
    struct places places;       // those that are not held in order; those that are bound
};

int snapshots_init(struct snapshots *x, uint32_t n); // ERR_FATAL_NOMEM; n may be 0
void snapshots_finish(struct snapshots *x);

// A place for this step to write to, held from now on. SNAPSHOT_NONE: all are held, or written by
// this step already.
uint32_t snapshots_take(struct snapshots *x, uint64_t step);
void snapshots_give(struct snapshots *x, uint32_t place); // held in vain: it is free
// A held place has, after its step, the state behind these contents, which no other place has.
void snapshots_bind(struct snapshots *x, uint32_t place, uint64_t contents);

// The place with the state behind these contents, or SNAPSHOT_NONE.
uint32_t snapshots_find(const struct snapshots *x, uint64_t contents);
void snapshots_touch(struct snapshots *x, uint32_t place);     // a bound one is used now
void snapshots_forget(struct snapshots *x, uint64_t contents); // nobody can look for them any more

// Recounts: lists and index, and n_held, the number of sequences that hold a place.
int snapshots_check(const struct snapshots *x, uint32_t n_held, struct err_text *e);

#endif
