// readiness.c: see readiness.h.
#include "leader/readiness.h"

enum readiness readiness(const struct serving *s) {
    const struct engine *engine = s->engine;
    if (s->draining) return NOT_READY_DRAINING;
    if (!engine->alive(engine->self)) return NOT_READY_HUNG;
    if (!engine->ready(engine->self)) return NOT_READY_GROUP;
    return engine->in_time(engine->self) ? READY : NOT_READY_STUCK;
}

const char *readiness_sentence(enum readiness r) {
    static const char *const sentences[] = {
        [READY] = "ready",
        [NOT_READY_DRAINING] = "the server is shutting down",
        [NOT_READY_HUNG] = "the scheduler does not come round",
        [NOT_READY_GROUP] = "no group of workers is ready",
        [NOT_READY_STUCK] = "a step takes too long",
    };
    return sentences[r];
}
