// readiness.c: see readiness.h.
#include "leader/readiness.h"

enum readiness readiness(const struct serving *s) {
    const struct engine *engine = s->engine;
    if (s->draining) return NOT_READY_DRAINING;
    if (!engine->alive(engine->self)) return NOT_READY_HUNG;
    if (!engine->ready(engine->self)) return NOT_READY_GROUP;
    return engine->in_time(engine->self) ? READY : NOT_READY_STUCK;
}
