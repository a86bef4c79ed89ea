// jobs.h: requests for simulated clusters, what came back, and the comparison that "one answer"
// means.
//
// A job is asked once and may be answered in many worlds; a reference answer has all tokens and
// digests of a run in the plainest configuration, and any other run must agree with it for as long
// as it went.
#ifndef MOESAIC_TESTS_SIM_JOBS_H
#define MOESAIC_TESTS_SIM_JOBS_H

#include "common/model/spec.h"
#include "leader/request.h"

#define JOB_TOKENS_MAX 64

struct job {
    uint32_t *prompt; // owned by the pool
    uint32_t n_prompt, max_tokens;
    struct sampling sampling;
    struct steering steering; // lists are static; idle for most
    bool score_prompt;
    uint32_t n_score_top;
    uint32_t n_stop_ids, stop_ids[STOP_IDS_MAX];
};

// What one run saw of one job.
struct answer {
    uint32_t n_tokens, n_finals, n_late; // events after the final one
    uint32_t tokens[JOB_TOKENS_MAX];
    uint64_t digests[JOB_TOKENS_MAX]; // rolling, after each token
    float logprobs[JOB_TOKENS_MAX];
    uint64_t last_digest; // of the final event
    uint32_t n_scores;    // tokens of the prompt that were scored
    uint64_t scores;      // rolling over them
    enum finish finish;
    int error;
    char message[160];
};

struct job_pool {
    struct job *jobs; // owned
    uint32_t n_jobs;
};

struct job_mix {
    uint64_t seed;
    uint32_t n_jobs, prompt_min, prompt_max, tokens_max; // tokens_max <= JOB_TOKENS_MAX
};

// Every second prompt begins as the others of these do. Prompts with lengths spread evenly over the
// logarithm, shortest and longest included; half are sampled at temperature 1, with filters on
// some, the rest is greedy. Every fifth is steered, every fourth has its prompt scored, with 0 to
// 20 alternatives, and another goes on to its max_tokens.
void job_pool_make(struct job_pool *pool, const struct model_spec *spec, const struct job_mix *mix);
void job_pool_finish(struct job_pool *pool);

// Takes an event's scores in and frees them.
void answer_take_scores(struct answer *a, struct prompt_scores *scores);

// NULL when the answer agrees with the reference: equal tokens, digests and log-probabilities as
// far as both go, and when it was neither aborted nor ended by an error, the same end. Otherwise a
// sentence in buf.
const char *answer_differs(const struct answer *a, const struct answer *reference, char *buf,
                           size_t bytes);

#endif
