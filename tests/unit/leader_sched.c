// leader_sched.c: the scheduler with toy ranks that answer its plans: no network, no clock, any
// order of results.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/harness/sched_group.h"
#include "tests/harness/suite.h"

// --- one answer

static void crowd(uint32_t n_ranks, uint32_t seqs, uint32_t budget, uint32_t depth) {
    static struct sink sinks[CROWD];
    struct toy_answer answers[CROWD];
    struct group g;
    group_start(&g, n_ranks, seqs, budget, depth);
    group_form(&g, 40);
    uint32_t n_errors = 0;
    for (uint32_t i = 0; i < CROWD; i++) {
        struct request *r = group_crowd_request(&sinks[i], i);
        toy_answer(r, VOCAB, &answers[i]);
        sched_submit(g.sched, r, 0);
        if (group_draw(&g, 3) == 0) group_step(&g);
    }
    group_run(&g);
    for (uint32_t i = 0; i < CROWD; i++) {
        group_expect(&sinks[i], &answers[i]);
        n_errors += sinks[i].finish == FINISH_ERROR ? 1 : 0;
        free(answers[i].tokens);
    }
    ck_assert_uint_lt(n_errors, CROWD / 2);
    group_finish(&g);
}

START_TEST(sched_answers_do_not_depend_on_ranks_slots_chunks_or_depth) {
    static const uint32_t ranks[] = {1, 2, 4}, seqs[] = {1, 5, 64}, budgets[] = {1, 7, 512};
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) {
            for (int c = 0; c < 3; c++) {
                crowd(ranks[a], seqs[b], budgets[c], 1);
                crowd(ranks[a], seqs[b], budgets[c], 2);
            }
        }
    }
}
END_TEST

START_TEST(sched_ends_a_request_that_only_reads_its_prompt) {
    static const uint32_t budgets[] = {1, 7, 64};
    for (uint32_t i = 0; i < 12; i++) {
        struct group g;
        struct sink k, other;
        group_start(&g, 1, 4, budgets[i % 3], 1 + i / 3 % 2);
        group_form(&g, 40);
        struct request *r = group_request(&k, 1, i < 6 ? 20 : 1, 0);
        if (i % 2 == 0) group_score(r, &k, 3);
        sched_submit(g.sched, r, 0);
        group_submit(&g, &other, 2, 5, 9);
        group_run(&g);
        ck_assert_int_eq(k.finish, FINISH_LENGTH);
        ck_assert_uint_eq(k.n_finishes, 1);
        ck_assert_uint_eq(k.n_tokens, 0);
        ck_assert_uint_eq(k.n_scores, i % 2 == 0 ? k.n_prompt - 1 : 0);
        ck_assert_uint_eq(other.n_tokens, 9);
        group_finish(&g);
    }
}
END_TEST

// More than a prompt of the small model has: ranks with many rows share the bound.
START_TEST(sched_bounds_the_scores_of_a_step) {
    struct group g;
    struct sink k[8], plain;
    group_start(&g, 1, 16, 4096, 1);
    group_form(&g, 200);
    for (uint32_t i = 0; i < 8; i++) {
        struct request *r = group_request(&k[i], i, 200, 1);
        group_score(r, &k[i], TOP_LOGPROBS_MAX);
        sched_submit(g.sched, r, 0);
    }
    group_submit(&g, &plain, 100, 50, 1);
    uint32_t n_steps = 0;
    for (; sched_has_work(g.sched); n_steps++) {
        ck_assert(group_plan(&g));
        const struct rank_plan *plan = &g.plans[g.first].ranks[0];
        uint32_t n_items = 0;
        for (uint32_t i = 0; i < plan->n_seqs; i++)
            n_items += plan->seqs[i].n_scored * (TOP_LOGPROBS_MAX + 1);
        ck_assert_uint_le(n_items, SCORES_STEP_ITEMS_MAX);
        ck_assert(group_answer(&g, 0));
        if (n_steps == 0) ck_assert_uint_eq(plain.n_tokens, 1); // it passes those that wait
    }
    ck_assert_uint_eq(n_steps, (8 * 199 * 21 + SCORES_STEP_ITEMS_MAX - 1) / SCORES_STEP_ITEMS_MAX);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(k[i].n_scores, 199);
    group_finish(&g);
}
END_TEST

// --- order and fairness

START_TEST(sched_plans_decodes_before_prompts_under_the_budget) {
    struct group g;
    struct sink a, b;
    group_start(&g, 1, 4, 8, 1);
    group_form(&g, 40);
    group_submit(&g, &a, 1, 3, 10);
    group_step(&g); // the prompt of a, and its first token
    group_submit(&g, &b, 2, 20, 1);
    ck_assert(group_plan(&g));
    const struct rank_plan *plan = &g.plans[g.first].ranks[0];
    ck_assert_uint_eq(plan->n_seqs, 2);
    ck_assert_uint_eq(plan->seqs[0].n_tokens, 1); // the decode
    ck_assert_uint_eq(plan->seqs[1].n_tokens, 7); // a chunk in what is left of the budget
    ck_assert(!plan->seqs[1].sample);
    group_run(&g);
    group_finish(&g);
}
END_TEST

START_TEST(sched_gives_requests_to_the_least_loaded_rank_and_the_lowest_of_equals) {
    struct group g;
    struct sink k[4];
    group_start(&g, 2, 8, 512, 1);
    group_form(&g, 40);
    group_submit(&g, &k[0], 1, 100, 1); // rank 0, 7 blocks
    group_submit(&g, &k[1], 2, 10, 1);  // rank 1, 1 block
    group_submit(&g, &k[2], 3, 10, 1);  // rank 1
    group_submit(&g, &k[3], 4, 10, 1);  // rank 1
    ck_assert(group_plan(&g));
    ck_assert_uint_eq(g.plans[g.first].ranks[0].n_seqs, 1);
    ck_assert_uint_eq(g.plans[g.first].ranks[0].n_rows, 100);
    ck_assert_uint_eq(g.plans[g.first].ranks[1].n_seqs, 3);
    group_run(&g);
    group_finish(&g);
}
END_TEST

START_TEST(sched_plans_every_rank_and_runs_no_step_without_work) {
    struct group g;
    struct sink k;
    group_start(&g, 3, 4, 16, 1);
    group_form(&g, 40);
    ck_assert(!group_plan(&g));
    group_submit(&g, &k, 1, 4, 3);
    group_run(&g);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(toy_steps(g.ranks[i]), 3);
    ck_assert_uint_eq(toy_idle_steps(g.ranks[0]), 0);
    ck_assert_uint_eq(toy_idle_steps(g.ranks[1]), 3);
    ck_assert(!group_plan(&g));
    group_finish(&g);
}
END_TEST

START_TEST(sched_lets_small_requests_pass_one_that_waits_for_blocks) {
    struct group g;
    struct sink big, huge, small;
    group_start(&g, 1, 8, 512, 1);
    group_form(&g, 10);
    group_submit(&g, &big, 1, 100, 20);  // 7 blocks for its prompt
    group_submit(&g, &huge, 2, 100, 20); // must wait for them
    group_submit(&g, &small, 3, 1, 1);   // fits beside the first
    group_step(&g);
    ck_assert_uint_eq(big.n_starts, 1);
    ck_assert_uint_eq(huge.n_starts, 0);
    ck_assert_uint_eq(small.n_starts, 1);
    group_run(&g);
    ck_assert_uint_eq(huge.n_starts, 1);
    group_finish(&g);
}
END_TEST

START_TEST(sched_lets_each_request_be_passed_only_so_often) {
    struct group g;
    struct sink big, huge, later, small[OVERTAKEN_MAX + 8];
    group_start(&g, 1, 2, 512,
                1); // two slots: big has one, the small ones follow each other in the other
    group_form(&g, 20);
    group_submit(&g, &big, 7, 250, 45); // 16 to 19 blocks, for longer than they take
    group_submit(&g, &huge, 2, 250, 45);
    group_submit(&g, &later, 3, 240, 50); // just as large
    for (uint32_t i = 0; i < OVERTAKEN_MAX + 8; i++)
        group_submit(&g, &small[i], 100 + i, 1, 1);
    while (big.n_finishes == 0)
        group_step(&g);
    ck_assert_int_eq(big.finish, FINISH_LENGTH); // it did not leave early
    uint32_t n_passed = 0;
    for (uint32_t i = 0; i < OVERTAKEN_MAX + 8; i++)
        n_passed += small[i].n_starts;
    ck_assert_uint_eq(n_passed, OVERTAKEN_MAX);
    group_step(&g);
    ck_assert_uint_eq(huge.n_starts, 1);
    while (huge.n_finishes == 0)
        group_step(&g);
    for (uint32_t i = OVERTAKEN_MAX; i < OVERTAKEN_MAX + 8; i++)
        ck_assert_uint_eq(small[i].n_starts, 0);
    group_run(&g);
    ck_assert_uint_eq(later.n_starts, 1);
    group_finish(&g);
}
END_TEST

START_TEST(sched_serves_lower_priorities_first_and_preempts_the_highest) {
    static const int32_t priorities[] = {3, -1, 0, -1, 7, 0};
    static const uint32_t order[] = {1, 3, 2, 5, 0, 4};
    struct group g;
    struct sink k[6];
    struct toy_answer a[6];
    uint32_t n_ended = 0;
    uint64_t id = 1;
    group_start(&g, 1, 8, 64, 2);
    group_form(&g, 12); // six grow to 6 blocks each
    for (uint32_t i = 0; i < 6; i++) {
        struct request *r = group_whole(&k[i], &id, 90, &a[i]);
        r->priority = priorities[i];
        sched_submit(g.sched, r, 0);
    }
    while (sched_has_work(g.sched)) {
        group_step(&g);
        group_check(&g);
        while (n_ended < 6 && k[order[n_ended]].n_finishes == 1)
            n_ended++;
        for (uint32_t i = n_ended; i < 6; i++)
            ck_assert_uint_eq(k[order[i]].n_finishes, 0);
    }
    group_expect_all(k, a, 6);
    group_run(&g);
    group_finish(&g);
}
END_TEST

// --- how well the slots are used, counted in steps

START_TEST(sched_keeps_95_of_100_slots_busy_while_requests_wait) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        static struct sink k[200];
        struct group g;
        uint64_t busy = 0, all = 0;
        group_start(&g, 2, 8, 128, depth);
        group_form(&g, 200);
        for (uint32_t i = 0; i < 200; i++)
            group_submit(&g, &k[i], 1 + i, 1 + i * 37 % 120, 8 + i * 11 % 40);
        while (sched_has_work(g.sched)) {
            group_step(&g);
            if (g.sched->queue.count == 0) continue;
            for (uint32_t rank = 0; rank < 2; rank++)
                busy += g.sched->ranks[rank].running.count;
            all += 2 * 8;
        }
        ck_assert_uint_ge(all, 2 * 8 * 100);
        ck_assert_uint_ge(busy * 100, all * 95);
        group_finish(&g);
    }
}
END_TEST

START_TEST(sched_lets_no_stream_wait_longer_than_two_steps_for_a_long_prompt) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct group g;
        struct sink stream, prompt[4];
        uint32_t n_tokens = 0, n_rows = 0, most = 0, budget = 16;
        uint64_t id = 1;
        struct toy_answer a;
        group_start(&g, 1, 8, budget, depth);
        group_form(&g, 100);
        sched_submit(g.sched, group_whole(&stream, &id, 80, &a), 0);
        while (stream.n_tokens < 5)
            group_step(&g);
        for (uint32_t i = 0; i < 4; i++)
            group_submit(&g, &prompt[i], 100 + i, MODEL_LEN - 1, 1);
        n_tokens = stream.n_tokens;
        while (stream.n_finishes == 0) {
            while (group_plan(&g))
                continue;
            n_rows += g.plans[g.first].ranks[0].n_rows; // of the step that is answered now
            ck_assert(group_answer(&g, 0));
            if (stream.n_tokens == n_tokens) continue;
            n_tokens = stream.n_tokens;
            most = n_rows > most ? n_rows : most;
            n_rows = 0;
        }
        ck_assert_uint_gt(most, 1); // the prompts did come between
        ck_assert_uint_le(most, 2 * budget);
        free(a.tokens);
        group_run(&g);
        group_finish(&g);
    }
}
END_TEST

START_TEST(sched_holds_the_queue_and_lets_run_what_runs) {
    struct group g;
    struct sink a, b;
    group_start(&g, 1, 8, 512, 2);
    group_form(&g, 40);
    group_submit(&g, &a, 1, 20, 9);
    group_step(&g);
    sched_hold(g.sched, true);
    group_submit(&g, &b, 2, 20, 9);
    while (a.n_finishes == 0 || g.n_flights > 0)
        group_step(&g);
    ck_assert_int_eq(a.finish, FINISH_LENGTH);
    ck_assert(!group_plan(&g));
    ck_assert_uint_eq(b.n_starts, 0);
    sched_hold(g.sched, false);
    group_run(&g);
    ck_assert_int_eq(b.finish, FINISH_LENGTH);
    group_finish(&g);
}
END_TEST

// --- ends

START_TEST(sched_does_not_deliver_the_stop_id) {
    struct group g;
    struct sink k;
    struct toy_answer a;
    group_start(&g, 1, 2, 16, 2);
    group_form(&g, 40);
    struct request *r = group_request(&k, 1, 4, 20);
    toy_answer(r, VOCAB, &a);
    r->n_stop_ids = 1;
    r->stop_ids[0] = a.tokens[6];
    uint32_t first = 6;
    for (uint32_t i = 6; i-- > 0;)
        first = a.tokens[i] == a.tokens[6] ? i : first;
    sched_submit(g.sched, r, 0);
    group_run(&g);
    ck_assert_int_eq(k.finish, FINISH_STOP);
    ck_assert_uint_eq(k.stop_id, a.tokens[6]);
    ck_assert_uint_eq(k.n_tokens, first);
    free(a.tokens);
    group_finish(&g);
}
END_TEST

START_TEST(sched_ends_a_request_whose_logits_are_not_finite_and_no_other) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct group g;
        struct sink bad, good;
        struct toy_answer a;
        group_start(&g, 1, 4, 64, depth);
        group_form(&g, 40);
        struct request *r = group_request(&bad, 1, 5, 20);
        r->prompt[2] = VOCAB - 1;
        sched_submit(g.sched, r, 0);
        r = group_request(&good, 2, 9, 4);
        toy_answer(r, VOCAB, &a);
        sched_submit(g.sched, r, 0);
        group_run(&g);
        ck_assert_int_eq(bad.finish, FINISH_ERROR);
        ck_assert_int_eq(bad.error, ERR_REQ_NONFINITE);
        ck_assert_uint_eq(bad.n_tokens, 0);
        group_expect(&good, &a);
        free(a.tokens);
        group_finish(&g);
    }
}
END_TEST

START_TEST(sched_aborts_at_every_stage_and_gets_everything_back) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        for (int stage = 0; stage < 12; stage++) {
            struct group g;
            struct sink k, other;
            group_start(&g, 2, 2, 8, depth);
            group_form(&g, 40);
            group_submit(&g, &other, 2, 3, 9);
            group_submit(&g, &k, 1, 30, 9); // 0: queued; then chunks; then tokens
            for (int i = 0; i < stage; i++)
                group_step(&g);
            sched_abort(g.sched, 1);
            ck_assert_int_eq(k.finish, FINISH_ABORT);
            sched_abort(g.sched, 1);  // again: unknown by now
            sched_abort(g.sched, 77); // never known
            group_check(&g);
            group_run(&g);
            ck_assert_int_eq(other.finish, FINISH_LENGTH);
            group_finish(&g);
        }
    }
}
END_TEST

START_TEST(sched_lets_the_next_step_have_what_an_ended_request_had) {
    struct group g;
    struct sink k, next;
    struct toy_answer a;
    group_start(&g, 1, 1, 64, 2);
    group_form(&g, 3);
    group_submit(&g, &k, 1, 20, 9);
    ck_assert(group_plan(&g)); // on its way
    struct request *r = group_request(&next, 2, 40, 5);
    toy_answer(r, VOCAB, &a);
    sched_submit(g.sched, r, 0);
    sched_abort(g.sched, 1);
    group_check(&g);
    ck_assert(group_plan(&g)); // with the same slot and blocks
    ck_assert_uint_eq(next.n_starts, 1);
    group_run(&g);
    group_expect(&next, &a);
    ck_assert_uint_eq(k.n_tokens, 0);
    free(a.tokens);
    group_finish(&g);
}
END_TEST

static void expect_refused(struct group *g, struct request *r, struct sink *k, int error) {
    sched_submit(g->sched, r, 0);
    ck_assert_int_eq(k->finish, FINISH_ERROR);
    ck_assert_int_eq(k->error, error);
    ck_assert(k->message[0] != '\0');
}

START_TEST(sched_refuses_requests_that_cannot_run) {
    struct group g;
    struct sink k, first;
    group_start(&g, 1, 2, 64, 1);
    group_form(&g, 10);
    expect_refused(&g, group_request(&k, 1, 0, 1), &k, ERR_REQ_INVALID);
    expect_refused(&g, group_request(&k, 1, MODEL_LEN, 1), &k, ERR_REQ_TOO_LARGE);
    expect_refused(&g, group_request(&k, 1, 10, UINT32_MAX), &k, ERR_REQ_TOO_LARGE);
    struct request *r = group_request(&k, 1, 4, 1);
    r->prompt[3] = VOCAB;
    expect_refused(&g, r, &k, ERR_REQ_INVALID);
    group_submit(&g, &first, 9, 4, 1);
    expect_refused(&g, group_request(&k, 9, 4, 1), &k, ERR_REQ_INVALID);
    group_submit(&g, &k, 2, 200, 1); // fits the model, not the pages
    group_run(&g);
    ck_assert_int_eq(k.error, ERR_REQ_TOO_LARGE);
    ck_assert_int_eq(first.finish, FINISH_LENGTH);
    group_finish(&g);
}
END_TEST

START_TEST(sched_check_sees_books_that_do_not_add_up) {
    struct group g;
    struct sink k;
    struct err_text e;
    group_start(&g, 1, 4, 64, 1);
    group_form(&g, 40);
    group_submit(&g, &k, 1, 20, 9);
    group_step(&g);
    struct sched_rank *rank = &g.sched->ranks[0];
    rank->n_free_slots--;
    ck_assert_int_eq(sched_check(g.sched, &e), ERR_FATAL_BOOKS);
    rank->n_free_slots++;
    seq_of(list_first(&rank->running))->n_blocks--;
    ck_assert_int_eq(sched_check(g.sched, &e), ERR_FATAL_BOOKS);
    seq_of(list_first(&rank->running))->n_blocks++;
    g.sched->n_resuming++;
    ck_assert_int_eq(sched_check(g.sched, &e), ERR_FATAL_BOOKS);
    g.sched->n_resuming--;
    g.sched->n_live++;
    ck_assert_int_eq(sched_check(g.sched, &e), ERR_FATAL_BOOKS);
    g.sched->n_live--;
    group_check(&g);
    group_finish(&g);
}
END_TEST

START_TEST(request_moves_only_along_its_table) {
    ck_assert(request_may_move(REQ_QUEUED, REQ_PREFILLING));
    ck_assert(request_may_move(REQ_DECODING, REQ_ENDED));
    ck_assert(!request_may_move(REQ_QUEUED, REQ_DECODING));
    ck_assert(!request_may_move(REQ_DECODING, REQ_PREFILLING));
    ck_assert(request_may_move(REQ_DECODING, REQ_QUEUED)); // preempted, or replayed
    for (int to = REQ_QUEUED; to <= REQ_ENDED; to++)
        ck_assert(!request_may_move(REQ_ENDED, (enum request_state)to));
}
END_TEST

int main(void) {
    TCase *t = tcase_create("sched");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, sched_answers_do_not_depend_on_ranks_slots_chunks_or_depth);
    tcase_add_test(t, sched_ends_a_request_that_only_reads_its_prompt);
    tcase_add_test(t, sched_bounds_the_scores_of_a_step);
    tcase_add_test(t, sched_plans_decodes_before_prompts_under_the_budget);
    tcase_add_test(t, sched_gives_requests_to_the_least_loaded_rank_and_the_lowest_of_equals);
    tcase_add_test(t, sched_plans_every_rank_and_runs_no_step_without_work);
    tcase_add_test(t, sched_lets_small_requests_pass_one_that_waits_for_blocks);
    tcase_add_test(t, sched_lets_each_request_be_passed_only_so_often);
    tcase_add_test(t, sched_serves_lower_priorities_first_and_preempts_the_highest);
    tcase_add_test(t, sched_keeps_95_of_100_slots_busy_while_requests_wait);
    tcase_add_test(t, sched_lets_no_stream_wait_longer_than_two_steps_for_a_long_prompt);
    tcase_add_test(t, sched_holds_the_queue_and_lets_run_what_runs);
    tcase_add_test(t, sched_does_not_deliver_the_stop_id);
    tcase_add_test(t, sched_ends_a_request_whose_logits_are_not_finite_and_no_other);
    tcase_add_test(t, sched_aborts_at_every_stage_and_gets_everything_back);
    tcase_add_test(t, sched_lets_the_next_step_have_what_an_ended_request_had);
    tcase_add_test(t, sched_refuses_requests_that_cannot_run);
    tcase_add_test(t, sched_check_sees_books_that_do_not_add_up);
    tcase_add_test(t, request_moves_only_along_its_table);
    Suite *s = suite_create("leader_sched");
    suite_add_tcase(s, t);
    return suite_run(s);
}
