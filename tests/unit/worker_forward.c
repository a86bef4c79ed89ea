// worker_forward.c: one answer: what a request answers does not depend on chunks, company, threads,
// ranks, pages or the kernel table. Each test serves the same requests in two ways and compares
// tokens, log-probabilities and digests bit by bit.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/serve.h"
#include "tests/harness/tiny.h"

#define N_REQUESTS 5
#define N_GENERATE 6
#define PROMPT_MAX 600

static uint32_t prompts[N_REQUESTS][PROMPT_MAX];
static struct serve_request requests[N_REQUESTS];

struct answers {
    struct serve_token of[N_REQUESTS][N_GENERATE];
};

// How the requests are served; zero fields mean the plain way.
struct run {
    void (*spec)(struct model_spec *spec);
    uint32_t n_ranks, n_threads;
    const struct kernel_ops *ops;
    enum dtype weights, kv;
    struct serve_way way;
};

static void setup(void) {
    static const uint32_t lengths[N_REQUESTS] = {1, 17, 600, 33, 5};
    uint32_t state = 7;
    for (int i = 0; i < N_REQUESTS; i++) {
        for (uint32_t t = 0; t < lengths[i]; t++) {
            state = state * 1664525u + 1013904223u;
            prompts[i][t] = (state >> 16) % 97;
        }
        Moesaic__Step__V1__Sampling sampling = MOESAIC__STEP__V1__SAMPLING__INIT;
        sampling.top_p = i == 3 ? 0.9f : 1.0f;
        sampling.temperature = i == 0 ? 0.0f : 0.8f;
        sampling.top_k = i == 2 ? 20 : 0;
        sampling.seed = 1000u + (uint32_t)i;
        sampling.want_logprob = true;
        sampling.n_logprobs = (uint32_t)i;
        requests[i] = (struct serve_request){prompts[i], lengths[i], N_GENERATE, sampling};
    }
}

static struct answers answer(struct run run) {
    struct model_spec spec;
    (run.spec != NULL ? run.spec : tiny_spec)(&spec);
    if (run.n_ranks == 0) run.n_ranks = 1;
    if (run.n_threads == 0) run.n_threads = 1;
    if (run.way.chunk == 0) run.way.chunk = 512;
    if (run.way.n_together == 0) run.way.n_together = N_REQUESTS;
    struct tiny *t = tiny_create(&spec, run.n_ranks, run.weights, 11);
    const struct weights *weights[8];
    for (uint32_t i = 0; i < run.n_ranks; i++)
        weights[i] = tiny_weights(t, i);
    struct ranks_config config = {
        .weights = weights,
        .layout = tiny_layout(t),
        .ops = run.ops,
        .n_threads = run.n_threads,
        .n_slots = 8,
        .rows_max = 2600,
        .max_model_len = 700,
        .kv_blocks = 300,
        .kv_dtype = run.kv,
    };
    struct ranks *ranks = ranks_create(&config);
    struct answers a;
    memset(&a, 0, sizeof a);
    serve(ranks, &run.way,
          &(struct serve_batch){.requests = requests,
                                .n_requests = N_REQUESTS,
                                .answers = a.of[0],
                                .stride = N_GENERATE});
    ranks_destroy(ranks);
    tiny_destroy(t);
    return a;
}

static void assert_equal(const struct answers *a, const struct answers *b, const char *what) {
    for (int i = 0; i < N_REQUESTS; i++) {
        for (int n = 0; n < N_GENERATE; n++) {
            const struct serve_token *x = &a->of[i][n], *y = &b->of[i][n];
            ck_assert_msg(x->token == y->token && x->digest == y->digest &&
                              memcmp(&x->logprob, &y->logprob, 4) == 0,
                          "%s: request %d token %d: %u %016llx and %u %016llx", what, i, n,
                          x->token, (unsigned long long)x->digest, y->token,
                          (unsigned long long)y->digest);
        }
    }
}

static void assert_same(struct run a, struct run b, const char *what) {
    struct answers x = answer(a), y = answer(b);
    ck_assert_uint_ne(x.of[1][0].digest, x.of[2][0].digest); // the digest sees something
    assert_equal(&x, &y, what);
}

static void (*const specs[])(struct model_spec *) = {tiny_spec, tiny_spec_odd};
static const enum dtype kvs[] = {DTYPE_F32, DTYPE_BF16};

START_TEST(chunks_change_nothing) {
    struct run plain = {.spec = specs[_i / 2], .kv = kvs[_i % 2]}, other = plain;
    struct answers expected = answer(plain);
    static const uint32_t chunks[] = {1, 7, 16, 100};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        other.way.chunk = chunks[i];
        struct answers got = answer(other);
        assert_equal(&expected, &got, "chunks");
    }
    other.way.chunk = 40;
    other.way.mixed = true;
    struct answers got = answer(other);
    assert_equal(&expected, &got, "mixed chunks");
}
END_TEST

START_TEST(company_changes_nothing) {
    assert_same((struct run){.spec = specs[_i]},
                (struct run){.spec = specs[_i], .way.n_together = 1}, "alone");
    assert_same((struct run){.spec = specs[_i]},
                (struct run){.spec = specs[_i], .way = {.n_together = 2, .chunk = 64}}, "two");
}
END_TEST

START_TEST(threads_change_nothing) {
    for (uint32_t n = 2; n <= 3; n++)
        assert_same((struct run){.spec = specs[_i]},
                    (struct run){.spec = specs[_i], .n_threads = n, .way.chunk = 90}, "threads");
}
END_TEST

START_TEST(ranks_change_nothing) {
    for (uint32_t n = 2; n <= 7; n += n < 4 ? 1 : 3)
        assert_same((struct run){.spec = specs[_i]},
                    (struct run){.spec = specs[_i], .n_ranks = n, .way.chunk = 200}, "ranks");
    assert_same((struct run){.spec = specs[_i], .kv = DTYPE_BF16, .weights = DTYPE_BF16},
                (struct run){.spec = specs[_i],
                             .kv = DTYPE_BF16,
                             .weights = DTYPE_BF16,
                             .n_ranks = 2,
                             .n_threads = 2},
                "ranks");
}
END_TEST

START_TEST(pages_change_nothing) {
    assert_same((struct run){0}, (struct run){.way.page_seed = 99}, "pages");
}
END_TEST

START_TEST(token_from_slot_equals_the_token_sent) {
    assert_same((struct run){0}, (struct run){.way.from_slot = true}, "from slot");
}
END_TEST

START_TEST(kernel_tables_change_nothing) {
    char names[256];
    snprintf(names, sizeof names, "%s", kernel_ops_available());
    for (char *rest = names, *name; (name = strtok_r(rest, ", ", &rest)) != NULL;) {
        for (int weights = DTYPE_F32; weights < DTYPE_COUNT; weights++) {
            struct run ref = {.spec = specs[_i],
                              .ops = kernel_ops_ref(),
                              .weights = weights,
                              .way.chunk = 64},
                       other = ref;
            other.ops = kernel_ops_select(name);
            assert_same(ref, other, name);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("forward");
    TCase *tests = tcase_create("one answer");
    tcase_set_timeout(tests, 600);
    tcase_add_unchecked_fixture(tests, setup, NULL);
    tcase_add_loop_test(tests, chunks_change_nothing, 0, 4);
    tcase_add_loop_test(tests, company_changes_nothing, 0, 2);
    tcase_add_loop_test(tests, threads_change_nothing, 0, 2);
    tcase_add_loop_test(tests, ranks_change_nothing, 0, 2);
    tcase_add_test(tests, pages_change_nothing);
    tcase_add_test(tests, token_from_slot_equals_the_token_sent);
    tcase_add_loop_test(tests, kernel_tables_change_nothing, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
