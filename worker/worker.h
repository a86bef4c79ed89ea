// worker.h: the worker's engine loop: joins, loads, forms, runs steps, and starts over when an
// epoch breaks.
#ifndef MOESAIC_WORKER_WORKER_H
#define MOESAIC_WORKER_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/net/channel.h"
#include "common/net/fabric.h"

struct worker;
struct weights;
struct weights_config;

// Replaces weights_load and weights_destroy: the simulator shares one copy among its workers.
struct weights_source {
    int (*load)(void *context, struct weights **out, const struct weights_config *config,
                struct err_text *e);
    void (*unload)(void *context, struct weights *w);
    void *context;
};

struct worker_config {
    struct env *env;
    struct waker *waker;   // of the thread that will call worker_run
    struct fabric *fabric; // opened; not owned, as all pointers here
    const char *model;     // folder that replaces the leader's, or NULL
    const char *build_id;
    const char *kernels;   // forced back end or NULL
    const char *name;      // or NULL: host:pid
    int32_t wanted_rank;   // -1: any
    uint32_t n_threads;    // 0 = this rank's share of the cores
    bool pin;              // pin threads to cores (never in the simulator)
    uint64_t memory_bytes; // 0 = ask the machine
    int64_t heartbeat_ns;  // 1 s
    bool single_thread; // no thread but the caller's: worker_run loads weights and sends heartbeats
                        // itself (the simulator)
    const struct weights_source *source; // NULL: weights_load
};

// Order: worker_create, dial a channel with worker_peek, worker_attach, worker_run, close the
// channel, worker_destroy.
int worker_create(struct worker **out, const struct worker_config *config, struct err_text *e);
void worker_destroy(struct worker *w);
void worker_attach(struct worker *w, struct channel *channel);
// Runs until env_stopped, the leader's Leave or the end of a drain (returns 0) or a fatal error
// (returns it; the text was logged and sent to the leader).
int worker_run(struct worker *w);
// Any thread. Runs until no request needs this worker any more: it asks the leader to be let go,
// and goes at once where it serves nothing. How long that may take is the caller's to bound.
void worker_drain(struct worker *w);
// Called on the channel's thread (channel_config.peek): interrupts the fabric when the leader
// closes the epoch. w is a struct worker *.
void worker_peek(void *w, const uint8_t *data, size_t bytes);
// Likewise (channel_config.lost): without a leader the epoch is over too.
void worker_lost(void *w);
// Any thread: makes heartbeats even while a long step or load runs. The process's control thread
// calls it each heartbeat_ns; with single_thread the engine loop does.
void worker_heartbeat(struct worker *w);

#endif
