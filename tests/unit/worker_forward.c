// worker_forward.c: one answer: what a request answers does not depend on chunks, company, pages or
// the kernel table. Each test serves the same requests in two ways and compares tokens,
// log-probabilities and digests bit by bit.
#include <stdio.h>
#include <string.h>

#include "tests/harness/answers.h"
#include "tests/harness/suite.h"

static void (*const specs[])(struct model_spec *) = {tiny_spec, tiny_spec_odd};
static const enum dtype kvs[] = {DTYPE_F32, DTYPE_BF16, DTYPE_E4M3, DTYPE_I8};
#define N_KVS (int)(sizeof kvs / sizeof *kvs)

START_TEST(different_requests_and_models_answer_differently) {
    struct answers a = answers_of((struct answers_way){0}),
                   b = answers_of((struct answers_way){.spec = tiny_spec_odd});
    struct answers c = answers_of((struct answers_way){.kv = DTYPE_BF16});
    ck_assert_uint_ne(a.of[1][0].digest, a.of[2][0].digest);
    ck_assert_uint_ne(a.of[1][0].digest, a.of[1][1].digest);
    ck_assert_uint_ne(a.of[1][0].digest, b.of[1][0].digest);
    ck_assert_uint_ne(a.of[1][0].digest, c.of[1][0].digest);
    ck_assert_int_ne(memcmp(a.scores, b.scores, sizeof a.scores), 0);
    ck_assert_int_ne(memcmp(a.scores, c.scores, sizeof a.scores), 0);
    ck_assert_uint_ne(a.scores[400].tops, a.scores[401].tops);
    ck_assert_uint_eq(a.scores[1].rank, 0); // the second prompt's first token
    ck_assert_uint_ge(a.scores[2].rank, 1);
}
END_TEST

START_TEST(chunks_change_nothing) {
    struct answers_way way = {.spec = specs[_i / N_KVS], .kv = kvs[_i % N_KVS]};
    struct answers expected = answers_of(way);
    static const uint32_t chunks[] = {1, 7, 16, 100};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        way.serve.chunk = chunks[i];
        struct answers got = answers_of(way);
        answers_compare(&expected, &got, "chunks");
    }
    way.serve = (struct serve_way){.chunk = 40, .mixed = true};
    struct answers got = answers_of(way);
    answers_compare(&expected, &got, "mixed chunks");
}
END_TEST

START_TEST(company_changes_nothing) {
    struct answers_way all = {.spec = specs[_i]}, alone = all, two = all;
    alone.serve.n_together = 1;
    two.serve = (struct serve_way){.n_together = 2, .chunk = 64};
    answers_expect_same(all, alone, "alone");
    answers_expect_same(all, two, "two together");
}
END_TEST

START_TEST(pages_change_nothing) {
    answers_expect_same((struct answers_way){0}, (struct answers_way){.serve.page_seed = 99},
                        "pages");
}
END_TEST

START_TEST(token_from_slot_equals_the_token_sent) {
    answers_expect_same((struct answers_way){0}, (struct answers_way){.serve.from_slot = true},
                        "from slot");
}
END_TEST

START_TEST(kernel_tables_change_nothing) {
    enum dtype weights = _i % DTYPE_COUNT;
    struct answers_way way = {
        .spec = specs[_i / DTYPE_COUNT], .ops = kernel_ops_ref(), .weights = weights};
    way.kv = kvs[(_i + 2) % N_KVS];
    struct answers expected = answers_of(way);
    char names[256], *rest = names;
    snprintf(names, sizeof names, "%s", kernel_ops_available());
    for (const char *name; (name = strtok_r(rest, ", ", &rest)) != NULL;) {
        way.ops = kernel_ops_select(name);
        struct answers got = answers_of(way);
        answers_compare(&expected, &got, name);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("forward");
    TCase *tests = tcase_create("one answer");
    tcase_set_timeout(tests, 800);
    tcase_add_test(tests, different_requests_and_models_answer_differently);
    tcase_add_loop_test(tests, chunks_change_nothing, 0, 2 * N_KVS);
    tcase_add_loop_test(tests, company_changes_nothing, 0, 2);
    tcase_add_test(tests, pages_change_nothing);
    tcase_add_test(tests, token_from_slot_equals_the_token_sent);
    tcase_add_loop_test(tests, kernel_tables_change_nothing, 0, 2 * DTYPE_COUNT);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
