// admit.h: how many choices may wait or run: a place is taken before any work is done for them, and
// given back when the scheduler is done with each. Any thread.
#ifndef MOESAIC_LEADER_ADMIT_H
#define MOESAIC_LEADER_ADMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct admit {
    uint32_t max;
    _Atomic uint32_t in_flight;
};

// All or nothing. False: over the limit (HTTP 429).
bool admit_reserve(struct admit *a, uint32_t n_choices);
void admit_release(struct admit *a, uint32_t n_choices);

#endif
