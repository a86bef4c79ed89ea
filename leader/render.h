// render.h: from a call's body to requests at the scheduler: a pool of threads that parse, reserve
// a place, render the template, tokenise and submit, so that a long prompt delays neither HTTP nor
// a step.
//
// Behind api.c in a request's walk; sched.c is next.
#ifndef MOESAIC_LEADER_RENDER_H
#define MOESAIC_LEADER_RENDER_H

#include "leader/client.h"
#include "leader/serving.h"
#include "leader/stream.h"

struct render;

int render_create(struct render **out, struct serving *s, struct stream *stream, uint32_t n_threads,
                  struct err_text *e);
// Finishes what it has been given.
void render_destroy(struct render *r);

// Any thread: takes a client whose message is complete. False when memory is out.
bool render_take(struct render *r, struct client client);

// Other work with prompts, which takes a place in the queue as well while it waits and runs.
struct render_task {
    void (*run)(struct serving *s, void *context); // render thread, once
    void *context;
    size_t bytes; // of the message
};
// Any thread. On an error (no place, draining) e is filled and the task will not run.
int render_run(struct render *r, const struct render_task *task, struct api_error *e);

#endif
