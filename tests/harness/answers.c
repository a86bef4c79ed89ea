// answers.c: see answers.h. The third prompt passes an attention partition of 512 keys.
#include "tests/harness/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

#define PROMPT_MAX 530

static const uint32_t lengths[ANSWERS_REQUESTS] = {1, 17, PROMPT_MAX, 33, 5};

struct prompts {
    Moesaic__Step__V1__Steering steering; // of one request
    uint32_t ids[ANSWERS_REQUESTS][PROMPT_MAX];
    struct serve_request requests[ANSWERS_REQUESTS];
};

static void fill_steering(Moesaic__Step__V1__Steering *s, uint32_t n_prompt) {
    static uint32_t bias_ids[] = {3, 41, 90};
    static float bias[] = {1.5f, -2.0f, 0.5f};
    moesaic__step__v1__steering__init(s);
    s->n_prompt = n_prompt;
    s->presence_penalty = 0.4f;
    s->frequency_penalty = 0.3f;
    s->repetition_penalty = 1.2f;
    s->n_bias_ids = s->n_bias = 3;
    s->bias_ids = bias_ids;
    s->bias = bias;
}

static void fill_prompts(struct prompts *p) {
    uint32_t state = 7;
    fill_steering(&p->steering, lengths[3]);
    for (int i = 0; i < ANSWERS_REQUESTS; i++) {
        for (uint32_t t = 0; t < lengths[i]; t++) {
            state = state * 1664525u + 1013904223u;
            p->ids[i][t] = (state >> 16) % 97;
        }
        Moesaic__Step__V1__Sampling sampling = MOESAIC__STEP__V1__SAMPLING__INIT;
        sampling.top_p = i == 3 ? 0.9f : 1.0f;
        sampling.temperature = i == 0 ? 0.0f : 0.8f;
        sampling.top_k = i == 2 ? 20 : 0;
        sampling.seed = 1000u + (uint32_t)i;
        sampling.want_logprob = true;
        sampling.n_logprobs = (uint32_t)i;
        sampling.steered = i == 3;
        p->requests[i] = (struct serve_request){.prompt = p->ids[i],
                                                .n_prompt = lengths[i],
                                                .n_generate = ANSWERS_TOKENS,
                                                .sampling = sampling,
                                                .steering = i == 3 ? &p->steering : NULL,
                                                .scored = i != 4,
                                                .n_score_top = 2 * (uint32_t)i};
    }
}

struct answers answers_of(struct answers_way way) {
    struct model_spec spec;
    (way.spec != NULL ? way.spec : tiny_spec)(&spec);
    if (way.n_ranks == 0) way.n_ranks = 1;
    if (way.n_threads == 0) way.n_threads = 1;
    if (way.serve.chunk == 0) way.serve.chunk = 512;
    if (way.serve.n_together == 0) way.serve.n_together = ANSWERS_REQUESTS;
    struct layout layout;
    if (way.layout != NULL) way.n_ranks = way.layout->n_ranks;
    check(layout_make(&layout, way.n_ranks, NULL) == 0);
    if (way.layout != NULL) layout = *way.layout;
    struct tiny *t = tiny_create_in(&spec, &layout, way.weights, 11);
    const struct weights *weights[16];
    for (uint32_t i = 0; i < way.n_ranks; i++)
        weights[i] = tiny_weights(t, i);
    struct ranks *ranks = ranks_create(&(struct ranks_config){
        .weights = weights,
        .layout = tiny_layout(t),
        .ops = way.ops,
        .n_threads = way.n_threads,
        .n_slots = 8,
        .rows_max = 700,
        .max_model_len = 600,
        .kv_blocks = 100,
        .kv_dtype = way.kv,
    });
    static struct prompts p;
    struct answers a;
    fill_prompts(&p);
    memset(&a, 0, sizeof a);
    serve(ranks, &way.serve,
          &(struct serve_batch){.requests = p.requests,
                                .n_requests = ANSWERS_REQUESTS,
                                .answers = a.of[0],
                                .stride = ANSWERS_TOKENS,
                                .scores = a.scores});
    ranks_destroy(ranks);
    tiny_destroy(t);
    return a;
}

void answers_compare(const struct answers *a, const struct answers *b, const char *what) {
    for (int row = 0; row < ANSWERS_ROWS; row++) {
        const struct serve_score *x = &a->scores[row], *y = &b->scores[row];
        if (memcmp(x, y, sizeof *x) == 0) continue;
        fprintf(stderr, "%s: row %d of the prompts: %.9g rank %u and %.9g rank %u\n", what, row,
                (double)x->logprob, x->rank, (double)y->logprob, y->rank);
        abort();
    }
    for (int i = 0; i < ANSWERS_REQUESTS; i++) {
        for (int n = 0; n < ANSWERS_TOKENS; n++) {
            const struct serve_token *x = &a->of[i][n], *y = &b->of[i][n];
            if (x->token == y->token && x->digest == y->digest &&
                memcmp(&x->logprob, &y->logprob, 4) == 0)
                continue;
            fprintf(stderr, "%s: request %d token %d: %u %016llx and %u %016llx\n", what, i, n,
                    x->token, (unsigned long long)x->digest, y->token,
                    (unsigned long long)y->digest);
            abort();
        }
    }
}

void answers_expect_same(struct answers_way a, struct answers_way b, const char *what) {
    struct answers x = answers_of(a), y = answers_of(b);
    answers_compare(&x, &y, what);
}
