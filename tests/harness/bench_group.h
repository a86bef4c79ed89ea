// bench_group.h: a group of processes on this machine, each rank pinned to a core of its own, and a
// leader that only listens: what benches of the network run in. Beside it UCX's own ping-pong.
#ifndef MOESAIC_TESTS_HARNESS_BENCH_GROUP_H
#define MOESAIC_TESTS_HARNESS_BENCH_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/net/fabric.h"

#define BENCH_RANKS 2
#define BENCH_PEERS (BENCH_RANKS + 1)

// One process of the group, as its body sees it: connected.
struct bench_member {
    uint32_t index;
    struct env *env;
    struct waker *waker;
    struct fabric *fabric;
    void *shared; // memory that all processes see
};

// Runs body in each rank's process, over "shm" or "tcp" (on the loopback device). The memory at
// *shared is theirs and the caller's until it is unmapped. False: a process failed.
bool bench_group_run(const char *transports, void (*body)(struct bench_member *), void *shared);
void *bench_shared(size_t bytes); // zeroed
void bench_unshare(void *shared, size_t bytes);

// From now on, for the waits of a body.
int64_t bench_deadline(const struct bench_member *m);
double bench_median(double *values, int n); // sorts them
void bench_pin(uint32_t core);

// Half a round trip of messages of so many bytes in microseconds as ucx_perftest measures it over
// the same transport, with the fabric's settings; 0 when it is not installed. A port for each call.
double bench_perftest_us(const char *transports, size_t bytes, int rounds, int port);
// What two processes take that use UCX alone and send each other so many bytes at the same time,
// from when the later begins until both have the other's bytes in memory of their own
// (bench_ucx.c).
double bench_both_us(const char *transports, size_t bytes, int rounds);
// The fabric's settings, for a UCX that starts later in this process.
void bench_ucx_settings(const char *transports);

#endif
