// engine.h: what the API needs of the scheduler, as a function table, so that tests put a toy
// behind it.
#ifndef MOESAIC_LEADER_ENGINE_H
#define MOESAIC_LEADER_ENGINE_H

#include "leader/leader.h"
#include "leader/request.h"

// Any thread; each as leader.h's function of the same name says.
struct engine {
    void *self;
    int (*submit)(void *self, struct request *r);
    void (*abort)(void *self, uint64_t request_id);
    bool (*ready)(void *self);
    bool (*takes_requests)(void *self); // also while there is no group, but one forms again
    bool (*leaving)(void *self);        // a reason not to: a worker of the group was asked to stop
    bool (*alive)(void *self);          // its thread runs and comes round
    bool (*in_time)(void *self);        // no step takes far longer than steps do
    int (*view)(void *self, struct leader_view *out);
};

#endif
