// worker_ranks.c: one answer: what a request answers does not depend on how many threads and ranks
// computed it. Ranks are threads of this process over the memory fabric; with 7 ranks some own no
// expert.

#include "tests/harness/answers.h"
#include "tests/harness/suite.h"

static void (*const specs[])(struct model_spec *) = {tiny_spec, tiny_spec_odd};

START_TEST(threads_change_nothing) {
    struct answers_way one = {.spec = specs[_i]}, more = one;
    more.serve.chunk = 90;
    for (more.n_threads = 2; more.n_threads <= 3; more.n_threads++)
        answers_expect_same(one, more, "threads");
}
END_TEST

START_TEST(ranks_change_nothing) {
    static const uint32_t counts[] = {2, 3, 4, 7};
    struct answers_way one = {.spec = specs[_i]}, more = one;
    struct answers expected = answers_of(one);
    more.serve.chunk = 200;
    for (int i = 0; i < 4; i++) {
        more.n_ranks = counts[i];
        struct answers got = answers_of(more);
        answers_compare(&expected, &got, "ranks");
    }
}
END_TEST

START_TEST(ranks_and_threads_together_change_nothing) {
    struct answers_way one = {.spec = specs[_i], .kv = DTYPE_BF16, .weights = DTYPE_BF16},
                       more = one;
    more.n_ranks = more.n_threads = 2;
    answers_expect_same(one, more, "ranks and threads");
}
END_TEST

static void dense_spec(struct model_spec *spec) {
    tiny_spec(spec);
    spec->router = (struct router_spec){0};
    for (uint32_t layer = 0; layer < spec->n_layers; layer++)
        spec->ffn[layer] = FFN_DENSE;
}

START_TEST(a_model_without_experts_runs_on_any_number_of_ranks) {
    answers_expect_same((struct answers_way){.spec = dense_spec},
                        (struct answers_way){.spec = dense_spec, .n_ranks = 2, .serve.chunk = 50},
                        "dense");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ranks");
    TCase *tests = tcase_create("one answer");
    tcase_set_timeout(tests, 800);
    tcase_add_loop_test(tests, threads_change_nothing, 0, 2);
    tcase_add_loop_test(tests, ranks_change_nothing, 0, 2);
    tcase_add_loop_test(tests, ranks_and_threads_together_change_nothing, 0, 2);
    tcase_add_test(tests, a_model_without_experts_runs_on_any_number_of_ranks);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
