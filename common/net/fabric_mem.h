// fabric_mem.h: the memory fabric's hub: what the fabrics of one test or one simulated world share.
//
// Works with real threads and under the simulator, because every wait goes through a waker.
// Thread-safe.
#ifndef MOESAIC_COMMON_NET_FABRIC_MEM_H
#define MOESAIC_COMMON_NET_FABRIC_MEM_H

#include <stdint.h>

#include "common/base/env.h"

struct fabric_mem_hub;

struct fabric_mem_options {
    int64_t delay_ns_max;  // a message takes 0..max, drawn from the sender's env_random, in order
                           // for each pair
    int64_t detect_ns_max; // a lost peer is noticed within 0..max
    // Of 100 clean ends of an epoch, how many its peers take for a loss (TCP resets do that, shared
    // memory does not).
    uint32_t end_lost_percent;
    // Of 100 posted pieces, how many find no room in the receiver's queue for 0..max: they and what
    // is posted behind them leave later, inside a call of the sender, from the memory that the
    // caller had to leave unchanged. What is posted after such a call may pass them.
    uint32_t full_percent;
    int64_t full_ns_max;
};

struct fabric_mem_hub *
fabric_mem_hub_create(const struct fabric_mem_options *options); // NULL: no memory
void fabric_mem_hub_destroy(struct fabric_mem_hub *hub);         // after its fabrics

// The process that owns env is gone: its fabrics neither send nor receive any more and their peers
// lose them.
void fabric_mem_kill(struct fabric_mem_hub *hub, const struct env *env);

#endif
