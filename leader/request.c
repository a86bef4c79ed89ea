// request.c: memory of a request and the moves its state may make. An API thread fills it; sched.c
// is next in the walk.
#include "leader/request.h"

#include "common/base/mem.h"

bool request_may_move(enum request_state from, enum request_state to) {
    static const bool allowed[REQ_ENDED + 1][REQ_ENDED + 1] = {
        [REQ_QUEUED] = {[REQ_PREFILLING] = true, [REQ_ENDED] = true},
        [REQ_PREFILLING] = {[REQ_QUEUED] = true, [REQ_DECODING] = true, [REQ_ENDED] = true},
        [REQ_DECODING] = {[REQ_QUEUED] = true, [REQ_ENDED] = true},
    };
    return allowed[from][to];
}

struct request *request_create(uint32_t n_prompt) {
    struct request *r = mem_zalloc(sizeof *r);
    uint32_t *prompt = mem_array(n_prompt, sizeof *prompt);
    if (r == NULL || prompt == NULL) {
        mem_free(prompt);
        mem_free(r);
        return NULL;
    }
    r->prompt = prompt;
    r->n_prompt = n_prompt;
    return r;
}

void request_destroy(struct request *r) {
    if (r == NULL) return;
    mem_free(r->prompt);
    mem_free(r->steering);
    mem_free(r);
}
