// jobs.c: see jobs.h.
#include "tests/sim/jobs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/mem.h"

#define SHARED_MAX 70 // tokens at the beginning of every second prompt

static uint64_t next_random(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint32_t prompt_length(const struct job_mix *mix, uint32_t i) {
    if (i == 0 || mix->n_jobs == 1) return mix->prompt_min;
    if (i == mix->n_jobs - 1) return mix->prompt_max;
    double position = (double)i / (double)(mix->n_jobs - 1);
    return (uint32_t)lround(mix->prompt_min *
                            pow((double)mix->prompt_max / mix->prompt_min, position));
}

static struct sampling make_sampling(uint32_t i, uint64_t *random) {
    struct sampling s = {.top_p = 1.0f, .seed = next_random(random), .want_logprob = i % 3 == 0};
    if (i % 2 == 0) return s; // greedy
    s.temperature = 1.0f;
    if (i % 8 == 1) s.top_p = 0.9f;
    if (i % 8 == 3) s.top_k = 20;
    if (i % 8 == 5) s.min_p = 0.05f;
    s.choice_index = i % 5;
    return s;
}

// Penalties read the tokens so far from the pages, so they see wherever a page is wrong.
static struct steering make_steering(uint32_t i) {
    static const uint32_t ids[] = {3, 40, 7, 11}, lengths[] = {1, 2};
    static const float bias[] = {2.5f, -3.0f};
    if (i % 5 != 2) return (struct steering){0};
    return (struct steering){.presence_penalty = 0.25f,
                             .frequency_penalty = 0.5f,
                             .repetition_penalty = 1.25f,
                             .min_tokens = 4,
                             .n_bias = 2,
                             .bias_ids = ids,
                             .bias = bias,
                             .n_words = 2,
                             .n_word_ids = 3,
                             .word_ids = ids + 1,
                             .word_lengths = lengths};
}

void job_pool_make(struct job_pool *pool, const struct model_spec *spec,
                   const struct job_mix *mix) {
    uint64_t random = mix->seed;
    check(mix->tokens_max >= 1 && mix->tokens_max <= JOB_TOKENS_MAX);
    pool->n_jobs = mix->n_jobs;
    pool->jobs = mem_array(mix->n_jobs, sizeof *pool->jobs);
    check(pool->jobs != NULL);
    for (uint32_t i = 0; i < mix->n_jobs; i++) {
        struct job *job = &pool->jobs[i];
        job->n_prompt = prompt_length(mix, i);
        job->prompt = mem_array(job->n_prompt, sizeof *job->prompt);
        check(job->prompt != NULL);
        for (uint32_t t = 0; t < job->n_prompt; t++)
            job->prompt[t] = (uint32_t)(next_random(&random) % spec->vocab);
        for (uint32_t t = 0; i % 2 == 1 && t < job->n_prompt && t < SHARED_MAX; t++)
            job->prompt[t] = (7 + 31 * t) % spec->vocab;
        job->max_tokens = 1 + (uint32_t)(next_random(&random) % mix->tokens_max);
        if (i % 4 == 3) job->max_tokens = mix->tokens_max;
        job->sampling = make_sampling(i, &random);
        job->steering = make_steering(i);
        job->score_prompt = i % 4 == 1;
        job->n_score_top = i % (TOP_LOGPROBS_MAX + 1);
        job->n_stop_ids = i % 4 == 3 ? 0 : spec->n_stop_ids;
        memcpy(job->stop_ids, spec->stop_ids, sizeof job->stop_ids);
    }
}

void job_pool_finish(struct job_pool *pool) {
    for (uint32_t i = 0; i < pool->n_jobs; i++)
        mem_free(pool->jobs[i].prompt);
    mem_free(pool->jobs);
    *pool = (struct job_pool){0};
}

static uint64_t roll(uint64_t hash, const void *data, size_t bytes) {
    return XXH3_64bits_withSeed(data, bytes, hash);
}

// Token by token, so that it does not depend on how the prompt was cut.
void answer_take_scores(struct answer *a, struct prompt_scores *s) {
    for (uint32_t i = 0; s != NULL && i < s->n_tokens; i++) {
        size_t top = (size_t)i * s->n_top;
        a->scores = roll(a->scores, &s->tokens[i], sizeof s->tokens[i]);
        a->scores = roll(a->scores, &s->logprobs[i], sizeof s->logprobs[i]);
        a->scores = roll(a->scores, &s->ranks[i], sizeof s->ranks[i]);
        a->scores = roll(a->scores, s->top_ids + top, s->n_top * sizeof *s->top_ids);
        a->scores = roll(a->scores, s->top_logprobs + top, s->n_top * sizeof *s->top_logprobs);
        a->n_scores++;
    }
    mem_free(s);
}

static bool equal_floats(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

const char *answer_differs(const struct answer *a, const struct answer *reference, char *buf,
                           size_t bytes) {
    uint32_t n = a->n_tokens < reference->n_tokens ? a->n_tokens : reference->n_tokens;
    for (uint32_t i = 0; i < n; i++) {
        if (a->tokens[i] == reference->tokens[i] && a->digests[i] == reference->digests[i] &&
            equal_floats(a->logprobs[i], reference->logprobs[i]))
            continue;
        snprintf(buf, bytes,
                 "token %u is %u digest %016" PRIx64 ", the reference has %u digest %016" PRIx64, i,
                 a->tokens[i], a->digests[i], reference->tokens[i], reference->digests[i]);
        return buf;
    }
    bool whole = a->finish == FINISH_STOP || a->finish == FINISH_LENGTH;
    bool read = whole || a->n_tokens > 0; // its prompt was
    if (read && (a->n_scores != reference->n_scores || a->scores != reference->scores)) {
        snprintf(buf, bytes, "%u scores %016" PRIx64 ", the reference has %u scores %016" PRIx64,
                 a->n_scores, a->scores, reference->n_scores, reference->scores);
        return buf;
    }
    if (a->n_tokens > reference->n_tokens || (whole && a->n_tokens != reference->n_tokens)) {
        snprintf(buf, bytes, "%u tokens, the reference has %u", a->n_tokens, reference->n_tokens);
        return buf;
    }
    if (whole && (a->finish != reference->finish || a->last_digest != reference->last_digest)) {
        snprintf(buf, bytes,
                 "finish %d digest %016" PRIx64 ", the reference has %d digest %016" PRIx64,
                 (int)a->finish, a->last_digest, (int)reference->finish, reference->last_digest);
        return buf;
    }
    return NULL;
}
