// meter.c: see meter.h. The bounds are vLLM's, so that its dashboards and alerts fit.
#include "leader/meter.h"

#include <string.h>

static const double first_token_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                            0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                            20,    40,    80,   160,  640,  2560};
static const double token_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                      0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double request_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
static const double iteration_bounds[] = {1,   8,    16,   32,   64,   128,  256,
                                          512, 1024, 2048, 4096, 8192, 16384};
static const double choices_bounds[] = {1, 2, 5, 10, 20};

#define INIT(h, bounds) histogram_init(h, bounds, sizeof(bounds) / sizeof *(bounds))

void meter_init(struct meter *m, struct env *env, uint32_t max_model_len) {
    memset(m, 0, sizeof *m);
    m->env = env;
    pthread_mutex_init(&m->lock, NULL);
    window_init(&m->recent, m->recent_counts, RECENT_SERIES, env_now_ns(env));
    histogram_init_decades(&m->prompt_tokens, max_model_len);
    histogram_init_decades(&m->generation_tokens, max_model_len);
    histogram_init_decades(&m->max_tokens, max_model_len);
    INIT(&m->iteration_tokens, iteration_bounds);
    INIT(&m->n_choices, choices_bounds);
    INIT(&m->first_token_s, first_token_bounds);
    INIT(&m->between_tokens_s, token_bounds);
    INIT(&m->per_token_s, token_bounds);
    INIT(&m->whole_s, request_bounds);
    INIT(&m->queue_s, request_bounds);
    INIT(&m->inference_s, request_bounds);
    INIT(&m->prefill_s, request_bounds);
    INIT(&m->decode_s, request_bounds);
}

static void observe_span(struct histogram *h, int64_t from_ns, int64_t to_ns) {
    histogram_observe(h, (double)(to_ns - from_ns) / (double)NS_PER_S);
}

void meter_choice(struct meter *m, enum finish finish, const struct choice_times *t,
                  uint32_t n_prompt, uint32_t n_generated) {
    counter_add(&m->finished[finish], 1);
    histogram_observe(&m->prompt_tokens, n_prompt);
    histogram_observe(&m->generation_tokens, n_generated);
    observe_span(&m->whole_s, t->arrived_ns, t->finished_ns);
    if (t->started_ns == 0) return;
    observe_span(&m->queue_s, t->arrived_ns, t->started_ns);
    observe_span(&m->inference_s, t->started_ns, t->finished_ns);
    if (t->first_ns == 0) return;
    observe_span(&m->prefill_s, t->started_ns, t->first_ns);
    observe_span(&m->decode_s, t->first_ns, t->last_ns);
    if (n_generated > 1)
        histogram_observe(&m->per_token_s, (double)(t->last_ns - t->first_ns) / (double)NS_PER_S /
                                               (n_generated - 1));
}

void meter_token(struct meter *m, int64_t arrived_ns, int64_t before_ns, int64_t now_ns) {
    bool is_first = before_ns == 0;
    int64_t from_ns = is_first ? arrived_ns : before_ns;
    observe_span(is_first ? &m->first_token_s : &m->between_tokens_s, from_ns, now_ns);
    pthread_mutex_lock(&m->lock);
    window_add_span(&m->recent, now_ns, is_first ? RECENT_FIRST_TOKEN : RECENT_BETWEEN_TOKENS,
                    now_ns - from_ns);
    pthread_mutex_unlock(&m->lock);
}

void meter_step(void *context, const struct step_report *r) {
    struct meter *m = context;
    int64_t now_ns = env_now_ns(m->env);
    histogram_observe(&m->iteration_tokens, (double)r->n_prompt_tokens + r->n_decode_tokens);
    pthread_mutex_lock(&m->lock);
    window_add(&m->recent, now_ns, RECENT_PROMPT_TOKENS, r->n_prompt_tokens);
    window_add(&m->recent, now_ns, RECENT_GENERATION_TOKENS, r->n_sampled_tokens);
    pthread_mutex_unlock(&m->lock);
}

void meter_recent(struct meter *m, struct meter_recent *out) {
    int64_t now_ns = env_now_ns(m->env);
    pthread_mutex_lock(&m->lock);
    const struct window *w = &m->recent;
    double span_s = window_span_s(w, now_ns);
    *out = (struct meter_recent){
        .span_s = span_s,
        .prompt_tokens_per_s = (double)window_sum(w, now_ns, RECENT_PROMPT_TOKENS) / span_s,
        .generation_tokens_per_s = (double)window_sum(w, now_ns, RECENT_GENERATION_TOKENS) / span_s,
        .first_token_p50_s = window_quantile_s(w, now_ns, RECENT_FIRST_TOKEN, 0.5),
        .first_token_p95_s = window_quantile_s(w, now_ns, RECENT_FIRST_TOKEN, 0.95),
        .between_tokens_p50_s = window_quantile_s(w, now_ns, RECENT_BETWEEN_TOKENS, 0.5),
        .between_tokens_p95_s = window_quantile_s(w, now_ns, RECENT_BETWEEN_TOKENS, 0.95)};
    pthread_mutex_unlock(&m->lock);
}
