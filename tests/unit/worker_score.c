// worker_score.c: the scores of a prompt's rows: ranks, ties, and rows that are not finite.
#include <math.h>
#include <string.h>

#include "tests/harness/suite.h"
#include "worker/score.h"

#define VOCAB 6
#define ROWS 4

static struct scratch memory;
static struct score scores;
static uint32_t tokens[ROWS];
static struct batch batch;
static struct seq_scores out;

static void setup(void) {
    memory = (struct scratch){0};
    score_lay(&scores, ROWS, &memory);
    ck_assert_int_eq(scratch_allocate(&memory, NULL), 0);
    score_lay(&scores, ROWS, &memory);
    score_begin(&scores);
    batch = (struct batch){.vocab = VOCAB, .rows_max = ROWS, .token = tokens};
}

static void teardown(void) {
    scratch_finish(&memory);
}

// One run of n_rows rows with these tokens, all scored.
static void begin(const uint32_t *run, uint32_t n_rows, uint32_t next, uint32_t n_top) {
    static Moesaic__Step__V1__Scoring asked;
    moesaic__step__v1__scoring__init(&asked);
    asked.n_rows = n_rows;
    asked.next_token = next;
    asked.n_top = n_top;
    memcpy(tokens, run, n_rows * sizeof *run);
    struct batch_seq seq = {.n_rows = n_rows, .scoring = &asked};
    score_add(&scores, &batch, &seq, &out);
}

static void row(uint32_t index, const float *logits) {
    score_row(&scores, kernel_ops_select(NULL), logits, VOCAB, index);
}

START_TEST(the_token_behind_a_row_is_scored) {
    const float logits[VOCAB] = {0, 1, 2, 3, 4, 5};
    begin((const uint32_t[]){9, 3, 5}, 3, 0, 2);
    for (uint32_t i = 0; i < 3; i++)
        row(i, logits);
    ck_assert(score_finite(&out));
    ck_assert_uint_eq(out.ranks[0], 3); // of 3
    ck_assert_uint_eq(out.ranks[1], 1); // of 5
    ck_assert_uint_eq(out.ranks[2], 6); // of 0, which follows the run
    ck_assert_float_eq_tol(out.logprobs[1], -0.4561933f, 1e-6f);
    ck_assert_float_eq_tol(out.logprobs[1] - out.logprobs[0], 2, 1e-5f);
    ck_assert_uint_eq(out.top_ids[4], 5);
    ck_assert_uint_eq(out.top_ids[5], 4);
    ck_assert_float_eq(out.top_logprobs[4], out.logprobs[1]);
}
END_TEST

START_TEST(equal_logits_share_the_last_of_their_ranks_and_are_listed_by_id) {
    const float logits[VOCAB] = {1, 7, 3, 7, 7, 0};
    begin((const uint32_t[]){0, 1}, 2, 4, 3);
    row(0, logits);
    row(1, logits);
    ck_assert_uint_eq(out.ranks[0], 3);
    ck_assert_uint_eq(out.ranks[1], 3);
    ck_assert_mem_eq(out.top_ids, ((const uint32_t[]){1, 3, 4}), 3 * sizeof(uint32_t));
}
END_TEST

START_TEST(there_are_no_more_alternatives_than_ids) {
    const float logits[VOCAB] = {0};
    begin((const uint32_t[]){0}, 1, 5, 20);
    ck_assert_uint_eq(out.n_top, VOCAB);
    row(0, logits);
    ck_assert_uint_eq(out.top_ids[VOCAB - 1], VOCAB - 1);
    ck_assert_uint_eq(out.ranks[0], VOCAB);
}
END_TEST

START_TEST(a_row_that_is_not_finite_is_seen) {
    float logits[VOCAB] = {0};
    begin((const uint32_t[]){0, 1}, 2, 5, 1);
    row(0, logits);
    ck_assert(!score_finite(&out)); // the second is not known yet
    logits[3] = _i == 0 ? NAN : -INFINITY;
    row(1, logits);
    ck_assert(!score_finite(&out));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("score");
    TCase *tests = tcase_create("score");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_token_behind_a_row_is_scored);
    tcase_add_test(tests, equal_logits_share_the_last_of_their_ranks_and_are_listed_by_id);
    tcase_add_test(tests, there_are_no_more_alternatives_than_ids);
    tcase_add_loop_test(tests, a_row_that_is_not_finite_is_seen, 0, 2);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
