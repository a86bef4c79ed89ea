// admit.h: how many choices may wait or run: a place is taken before any work is done for them, and
// given back when the scheduler is done with each. Any thread.
#ifndef MOESAIC_LEADER_ADMIT_H
#define MOESAIC_LEADER_ADMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RETRY_AFTER_MAX_S 60

struct admit {
    uint32_t max;
    _Atomic uint32_t in_flight;
    _Atomic int64_t
        gap_ns; // mean time between two ends of late, while there was work; 0: not known
    // Of the thread that calls admit_finish:
    int64_t ended_ns;
    double n_ended, busy_ns; // fading sums
};

// All or nothing. False: over the limit (HTTP 429).
bool admit_reserve(struct admit *a, uint32_t n_choices);
void admit_release(struct admit *a, uint32_t n_choices);
// As admit_release, for one choice that the scheduler had since arrived_ns. One thread.
void admit_finish(struct admit *a, int64_t arrived_ns, int64_t now_ns);
// In how many seconds, at the rate of late, all that are there now will have ended: 1 to
// RETRY_AFTER_MAX_S.
uint32_t admit_retry_after_s(const struct admit *a);

#endif
