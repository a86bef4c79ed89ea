// channel_mem.h: the memory channel's hub: what the channels of one test or one simulated world
// share.
//
// Works with real threads and under the simulator. Thread-safe. Addresses are any strings; a
// listener is found by an equal one.
#ifndef MOESAIC_COMMON_NET_CHANNEL_MEM_H
#define MOESAIC_COMMON_NET_CHANNEL_MEM_H

#include <stdint.h>

#include "common/base/env.h"

struct channel_mem_hub;

struct channel_mem_options {
    int64_t delay_ns_max;  // a message takes 0..max, drawn from the sender's env_random, in order
                           // for each stream
    int64_t detect_ns_max; // after a kill the other side sees its stream end within 0..max
    // Wakes a waker at a time (the simulator's sim_wake_at). NULL: real time; then nothing is
    // delayed and a closed stream is dialled again at once, a refused one not before the server
    // listens again.
    void (*wake_at)(struct waker *w, int64_t due_ns);
};

struct channel_mem_hub *
channel_mem_hub_create(const struct channel_mem_options *options); // NULL: no memory
void channel_mem_hub_destroy(struct channel_mem_hub *hub);         // after its channels

// The process that owns env is gone: its channels say nothing any more and their peers see
// CHANNEL_CLOSED.
void channel_mem_kill(struct channel_mem_hub *hub, const struct env *env);

#endif
