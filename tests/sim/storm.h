// storm.h: one random world from a seed: sizes, delays, arrivals, aborts, and sometimes a worker
// that is killed and started again.
#ifndef MOESAIC_TESTS_SIM_STORM_H
#define MOESAIC_TESTS_SIM_STORM_H

#include "tests/sim/cluster.h"

#define STORM_TURNS_MAX 16

struct storm {
    struct model_cache *model; // not owned, as all pointers here
    const struct job_pool *pool;
    const struct answer *reference;    // [pool->n_jobs]
    uint32_t workers_min, workers_max; // <= CLUSTER_WORKERS_MAX
    bool verbose;
};

struct storm_result {
    char failure[512]; // empty: all was as promised
    uint64_t trace_hash, steps;
    uint32_t n_workers, n_turns, n_kills, n_pauses, n_errors, n_aborts, n_whole;
    uint64_t n_replays, n_preemptions, n_cached;
};

void storm_run(const struct storm *storm, uint64_t seed, struct storm_result *out);

// A number from the environment, or fallback.
uint64_t storm_setting(const char *name, uint64_t fallback);

#endif
