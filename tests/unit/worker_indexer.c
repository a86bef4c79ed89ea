// worker_indexer.c: which keys sparse attention chooses, and that a long request has one answer
// whatever the chunks, threads, ranks and kernel table.
#include "worker/indexer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/serve.h"
#include "tests/harness/suite.h"

static uint64_t state = 77;

static uint32_t draw(uint32_t n) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

// Whether a comes before b: greater, or equal and lower in position; NaN behind all.
static bool before(const float *x, uint32_t a, uint32_t b) {
    if (isnan(x[a]) || isnan(x[b])) return isnan(x[a]) == isnan(x[b]) ? a < b : isnan(x[b]);
    return x[a] != x[b] ? x[a] > x[b] : a < b;
}

static void expect_best(const float *x, uint32_t n, uint32_t k) {
    uint32_t chosen[2048], at = 0;
    index_best(x, n, k, chosen);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t better = 0;
        for (uint32_t j = 0; j < n; j++)
            better += before(x, j, i);
        if (better >= k) continue;
        ck_assert_msg(at < k && chosen[at] == i, "%u of %u: %u is missing", k, n, i);
        at++;
    }
    ck_assert_uint_eq(at, k);
}

START_TEST(the_best_are_chosen_in_ascending_order_of_position) {
    static float x[1500];
    for (int round = 0; round < 40; round++) {
        uint32_t n = 2 + draw(round < 30 ? 100 : 1400), k = 1 + draw(n - 1);
        for (uint32_t i = 0; i < n; i++)
            x[i] = ((float)draw(1000) - 500.0f) * ldexpf(1.0f, (int)draw(40) - 20);
        expect_best(x, n, k);
    }
}
END_TEST

START_TEST(of_equal_scores_the_lowest_positions_are_chosen) {
    static float x[600];
    uint32_t chosen[5];
    const float few[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.0f};
    for (int round = 0; round < 40; round++) {
        uint32_t n = 2 + draw(590);
        for (uint32_t i = 0; i < n; i++)
            x[i] = few[draw(5)];
        expect_best(x, n, 1 + draw(n - 1));
    }
    for (int i = 0; i < 10; i++)
        x[i] = i % 2 ? 0.0f : -0.0f;
    index_best(x, 10, 5, chosen);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_uint_eq(chosen[i], i);
}
END_TEST

START_TEST(scores_that_are_no_numbers_are_chosen_last) {
    float x[] = {NAN, -INFINITY, INFINITY, -NAN, 1.0f, NAN, INFINITY, -3e38f};
    for (uint32_t k = 1; k < 8; k++)
        expect_best(x, 8, k);
}
END_TEST

#define PROMPT 1200 // more than one item of work for a row's scores, more than two partitions
#define ANSWER 6

struct way {
    const char *table;
    uint32_t n_ranks, tp, n_threads;
    struct serve_way serve;
};

// The second has layers that share a choice.
static const struct subject {
    const char *folder;
    enum dtype kv_dtype;
    uint32_t n_prompt;
} subjects[] = {{TEST_DATA "/models/deepseek-v32", DTYPE_F32, PROMPT},
                {TEST_DATA "/models/glm5", DTYPE_BF16, 500},
                {TEST_DATA "/models/deepseek-v32", DTYPE_I8, PROMPT}};

static void answer(struct serve_token *out, const struct way *way, const struct subject *subject) {
    struct model_spec spec;
    struct layout layout;
    struct weights *weights[4];
    struct err_text e;
    static uint32_t prompt[PROMPT];
    const char *folder = subject->folder;
    ck_assert_msg(spec_load(&spec, folder, &e) == 0, "%s", e.text);
    layout = (struct layout){.n_ranks = way->n_ranks,
                             .pp = 1,
                             .dp = way->n_ranks / way->tp,
                             .tp = way->tp,
                             .ep = way->n_ranks,
                             .etp = 1};
    for (uint32_t rank = 0; rank < way->n_ranks; rank++) {
        struct weights_config config = {.folder = folder,
                                        .spec = &spec,
                                        .layout = &layout,
                                        .rank = rank,
                                        .dtype = spec.dtype,
                                        .n_threads = 1};
        ck_assert_msg(weights_load(&weights[rank], &config, &e) == 0, "%s", e.text);
    }
    struct ranks *ranks = ranks_create(&(struct ranks_config){
        .weights = (const struct weights *const *)weights,
        .layout = &layout,
        .ops = kernel_ops_select(way->table),
        .n_threads = way->n_threads,
        .n_slots = 2,
        .rows_max = PROMPT,
        .max_model_len = subject->n_prompt + ANSWER,
        .kv_blocks = (PROMPT + ANSWER) / KV_BLOCK_TOKENS + 1,
        .kv_dtype = subject->kv_dtype,
    });
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = i * 37 % 101 + i % 11;
    struct serve_request request = {.prompt = prompt,
                                    .n_prompt = subject->n_prompt,
                                    .n_generate = ANSWER,
                                    .sampling = MOESAIC__STEP__V1__SAMPLING__INIT};
    serve(ranks, &way->serve, &(struct serve_batch){&request, 1, out, ANSWER, NULL, NULL});
    ranks_destroy(ranks);
    for (uint32_t rank = 0; rank < way->n_ranks; rank++)
        weights_destroy(weights[rank]);
}

START_TEST(a_long_request_of_sparse_attention_has_one_answer) {
    static const struct way ways[] = {
        {"auto", 1, 1, 1, {.chunk = PROMPT, .n_together = 1}},
        {"auto", 1, 1, 3, {.chunk = PROMPT, .n_together = 1}},
        {"auto", 2, 1, 2, {.chunk = 97, .mixed = true, .n_together = 1, .page_seed = 5}},
        {"auto", 2, 2, 2, {.chunk = 350, .n_together = 1}},
        {"auto", 4, 4, 1, {.chunk = 333, .n_together = 1}},
        {"avx2", 1, 1, 2, {.chunk = 16, .n_together = 1}},
    };
    struct serve_token first[ANSWER], other[ANSWER];
    answer(first, &ways[0], &subjects[_i]);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        if (kernel_ops_select(ways[i].table) == NULL) continue;
        answer(other, &ways[i], &subjects[_i]);
        for (int t = 0; t < ANSWER; t++)
            ck_assert_msg(first[t].token == other[t].token && first[t].digest == other[t].digest,
                          "way %zu token %d", i, t);
    }
}
END_TEST

int main(void) {
    TCase *c = tcase_create("indexer");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, the_best_are_chosen_in_ascending_order_of_position);
    tcase_add_test(c, of_equal_scores_the_lowest_positions_are_chosen);
    tcase_add_test(c, scores_that_are_no_numbers_are_chosen_last);
    tcase_add_loop_test(c, a_long_request_of_sparse_attention_has_one_answer, 0,
                        (int)(sizeof subjects / sizeof *subjects));
    Suite *s = suite_create("worker_indexer");
    suite_add_tcase(s, c);
    return suite_run(s);
}
