// meter.h: what the API side measures of requests and steps; status.c shows it under vLLM's names.
// Any thread.
#ifndef MOESAIC_LEADER_METER_H
#define MOESAIC_LEADER_METER_H

#include <pthread.h>

#include "common/base/metrics.h"
#include "leader/leader.h"
#include "leader/request.h"
#include "leader/window.h"

enum rejection { REJECT_QUEUE_FULL, REJECT_UNAVAILABLE, REJECT_INVALID, REJECT_COUNT };

// The series of the meter's window.
enum {
    RECENT_PROMPT_TOKENS,
    RECENT_GENERATION_TOKENS,
    RECENT_FIRST_TOKEN,
    RECENT_BETWEEN_TOKENS = RECENT_FIRST_TOKEN + SPAN_SERIES,
    RECENT_SERIES = RECENT_BETWEEN_TOKENS + SPAN_SERIES
};

struct meter {
    struct counter finished[FINISH_ERROR + 1]; // choices by enum finish
    struct counter rejected[REJECT_COUNT];     // calls that never reached the scheduler
    struct histogram prompt_tokens, generation_tokens, iteration_tokens;
    struct histogram max_tokens, n_choices;
    struct histogram first_token_s, between_tokens_s, per_token_s;
    struct histogram whole_s, queue_s, inference_s, prefill_s, decode_s;
    struct env *env; // not owned
    pthread_mutex_t lock;
    struct window recent; // under the lock
    uint64_t recent_counts[WINDOW_SLOTS * RECENT_SERIES];
};

// It holds pointers into itself: it stays where it is. It owns no memory, so nothing ends it.
void meter_init(struct meter *m, struct env *env, uint32_t max_model_len);

// One choice's life; times are 0 when it did not get that far.
struct choice_times {
    int64_t arrived_ns, started_ns, first_ns, last_ns, finished_ns;
};
void meter_choice(struct meter *m, enum finish finish, const struct choice_times *t,
                  uint32_t n_prompt, uint32_t n_generated);
// A token came; before_ns is the one before it, or 0.
void meter_token(struct meter *m, int64_t arrived_ns, int64_t before_ns, int64_t now_ns);
// For leader_on_step; context is the meter.
void meter_step(void *context, const struct step_report *r);

// The last seconds; quantiles are -1 when there was nothing.
struct meter_recent {
    double span_s, prompt_tokens_per_s, generation_tokens_per_s;
    double first_token_p50_s, first_token_p95_s, between_tokens_p50_s, between_tokens_p95_s;
};
void meter_recent(struct meter *m, struct meter_recent *out);

#endif
