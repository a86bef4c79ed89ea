// cores.h: which CPUs this process may use, and its share when several workers live on one machine.
//
// Reads the cpuset (sched_getaffinity) and the cgroup's limits. Any thread; called at start and at
// a Welcome, never in a step.
#ifndef MOESAIC_WORKER_CORES_H
#define MOESAIC_WORKER_CORES_H

#include <stdbool.h>
#include <stdint.h>

// CPUs the kernel may number; larger machines are served with their first ones.
#define CORES_MAX 1024

struct core_set {
    uint32_t n;      // >= 1
    uint32_t usable; // n, or fewer when the cgroup's quota is smaller (rounded down, at least 1)
    int cpus[CORES_MAX]; // ascending
};

void cores_read(struct core_set *out);
// Lets the calling thread, and threads it starts later, run on these CPUs again.
void cores_bind(const struct core_set *set);

// What worker host_index of n_on_host takes.
struct core_share {
    uint32_t n_threads;  // >= 1
    bool exclusive;      // cpus are this worker's alone: it may pin its threads and spin
    int cpus[CORES_MAX]; // [n_threads] when exclusive
};

// Splits the set into disjoint lists, as evenly as they go. With fewer CPUs than workers, or with
// wanted (0 = the share) above the share, the CPUs are shared: not exclusive.
void cores_share(struct core_share *out, const struct core_set *set, uint32_t host_index,
                 uint32_t n_on_host, uint32_t wanted);

// The parser behind the above, for tests. False when the text is not of the form or says "no
// limit".
bool cores_parse_cpu_max(const char *text, double *cpus); // "200000 100000"

#endif
