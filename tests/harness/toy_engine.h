// toy_engine.h: a scheduler for tests of the API side: a thread that "generates" a script of token
// ids for every request, one token a tick, with the same events in the same order as the real one.
#ifndef MOESAIC_TESTS_HARNESS_TOY_ENGINE_H
#define MOESAIC_TESTS_HARNESS_TOY_ENGINE_H

#include "leader/engine.h"

struct toy_engine;

struct toy_script {
    const uint32_t *ids; // what each request says before its stop id; not owned
    uint32_t n_ids;
    uint32_t stop_id;
    uint32_t slots; // requests that run at once; the others wait
    int64_t tick_ns;
    uint32_t fail_after;  // tokens, then FINISH_ERROR with ERR_REQ_WORKER_LOST; 0 = never
    bool fails_when_told; // and then not before toy_engine_fail
    int submit_error;     // what submit returns; 0 = takes it
    uint32_t n_errors;    // so many times; 0 = always; then it waits until an abort has come
    bool awaits_abort;    // a request that has said everything ends by its abort alone
    bool not_ready;       // at first
    bool takes_requests;  // also while it is not ready
    bool leaving;         // a worker is, so that nothing is taken

    // For toy_house: what to say in place of TOY_ANSWER, and how calls are read out of it.
    const char *answer, *tool_call_parser;
};

struct toy_engine *toy_engine_create(struct env *env, const struct toy_script *script);
void toy_engine_stop(struct toy_engine *t);    // ends what runs with FINISH_ERROR
void toy_engine_destroy(struct toy_engine *t); // after it, and after the API
// What probes see from now on: a group that is ready, a step that hangs.
void toy_engine_show(struct toy_engine *t, bool ready, bool stuck);
void toy_engine_fail(struct toy_engine *t);
const struct engine *toy_engine_table(const struct toy_engine *t);

// How many requests are inside, how many ended as aborted, and how many were ever submitted.
struct toy_counts {
    uint32_t inside, aborted, submitted, aborts; // aborts: that were asked for
};
struct toy_counts toy_engine_counts(struct toy_engine *t);
// Waits up to 10 s until n requests are inside.
bool toy_engine_await(struct toy_engine *t, uint32_t n_inside);
// How many of those inside are to end at the next tick.
uint32_t toy_engine_aborting(struct toy_engine *t);

#endif
