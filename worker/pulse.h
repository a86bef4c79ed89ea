// pulse.h: what a heartbeat says: the engine's counters, readable while the engine works.
//
// The engine thread writes, any thread sends. The one lock only keeps the model's counters alive
// while they are copied; the engine takes it when an epoch begins or ends, never in a step.
#ifndef MOESAIC_WORKER_PULSE_H
#define MOESAIC_WORKER_PULSE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/env.h"
#include "common/net/channel.h"
#include "common/net/fabric.h"
#include "worker/model.h"

struct pulse {
    struct env *env;
    _Atomic bool joined; // a Welcome came on the stream that is open
    _Atomic bool busy;   // the engine runs a step
    _Atomic int64_t progress_ns;
    _Atomic uint64_t epoch, steps, bytes_sent, bytes_received;
    pthread_mutex_t lock;      // of the three below
    const struct model *model; // NULL between epochs
    uint32_t n_counters;       // layers of the stage x local experts
};

int pulse_init(struct pulse *p, struct env *env);
void pulse_finish(struct pulse *p);

// Engine: an epoch has a model, or (model NULL) none any more.
void pulse_set_model(struct pulse *p, const struct model *model, uint64_t epoch,
                     uint32_t n_counters);
// Engine: around a step.
void pulse_step_begin(struct pulse *p);
void pulse_step_end(struct pulse *p, const struct fabric *fabric, bool counted);

// Any thread: sends one heartbeat, if the worker has joined.
void pulse_send(struct pulse *p, struct channel *channel);

#endif
