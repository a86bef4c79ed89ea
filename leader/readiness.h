// readiness.h: the one truth behind /ready and gRPC's health service: whether a request sent now
// would be served.
//
// A group that is formed but whose step does not come back, or a scheduler that does not come
// round, is not ready: clients and balancers must learn it before the step's time is over.
#ifndef MOESAIC_LEADER_READINESS_H
#define MOESAIC_LEADER_READINESS_H

#include "leader/serving.h"

enum readiness {
    READY,
    NOT_READY_DRAINING,
    NOT_READY_HUNG,  // the scheduler's thread has ended or does not come round
    NOT_READY_GROUP, // none is formed
    NOT_READY_STUCK, // a step takes far longer than steps do
};

enum readiness readiness(const struct serving *s); // any thread
const char *readiness_sentence(enum readiness r);

#endif
