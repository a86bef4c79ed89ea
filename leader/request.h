// request.h: one generation: one prompt, one choice. Made by an API thread, owned by the scheduler
// from sched_submit on.
#ifndef MOESAIC_LEADER_REQUEST_H
#define MOESAIC_LEADER_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/limits.h"
#include "leader/scores.h"
#include "leader/steering.h"

struct sampling {
    float temperature; // 0 = greedy
    float top_p, min_p;
    uint32_t top_k; // 0 = off
    uint64_t seed;  // drawn at admission when the client gave none
    uint32_t prompt_index, choice_index;
    bool steered; // the scheduler's: the request has a steering
    bool want_logprob;
    uint32_t n_logprobs; // alternatives, <= TOP_LOGPROBS_MAX
};

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ABORT, FINISH_ERROR };

// What the scheduler tells the API side, in order. finish != FINISH_NONE is the last event, exactly
// one a request; after it the scheduler touches neither the request nor sink_context. The first
// event after admission to a slot has is_start.
struct token_event {
    void *sink_context;
    uint64_t request_id;
    bool is_start;     // no token: the request left the queue (for queue-time metrics)
    uint32_t n_cached; // with is_start: tokens of its prompt that need not be computed
    bool has_token;    // false with FINISH_STOP: token is the stop id, which is no text
    uint32_t token;
    float logprob;
    uint32_t n_top;
    uint32_t top_ids[TOP_LOGPROBS_MAX];
    float top_logprobs[TOP_LOGPROBS_MAX];
    struct prompt_scores *scores; // no token: the next of its prompt's; the receiver's. Or NULL
    uint64_t digest;              // rolling over this request's sampled rows so far
    enum finish finish;
    int error;         // with FINISH_ERROR: enum err
    char message[160]; // with FINISH_ERROR
};

struct request {
    uint64_t id;      // unique in the process
    uint32_t *prompt; // owned, mem_alloc'd
    uint32_t n_prompt;
    struct sampling sampling;
    struct steering *steering; // owned; NULL = none
    int32_t priority;          // lower ones are served first; those with equal ones as they came
    // What requests must have in common, beside tokens, to share KV blocks.
    uint64_t salt[2];
    uint32_t max_tokens;  // 0: only its prompt is read; n_prompt + max_tokens <= max_model_len
    bool score_prompt;    // events bring how likely each of its tokens was, from the second on
    uint32_t n_score_top; // and as many of the most likely ones; <= TOP_LOGPROBS_MAX
    uint32_t n_stop_ids;
    uint32_t stop_ids[STOP_IDS_MAX];
    // Called on the scheduler thread; must not block.
    void (*emit)(const struct token_event *ev);
    void *sink_context;
};

// Where the scheduler has it. Requests move only along request_may_move's table.
enum request_state { REQ_QUEUED, REQ_PREFILLING, REQ_DECODING, REQ_ENDED };

bool request_may_move(enum request_state from, enum request_state to);

struct request *
request_create(uint32_t n_prompt); // with room for n_prompt ids; NULL when memory is out
void request_destroy(struct request *r);

#endif
