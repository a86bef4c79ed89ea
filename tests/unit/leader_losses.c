// leader_losses.c: a whole leader over toy workers that are killed, fall silent or answer wrongly:
// requests pause, go on in the next group with the same answers, and end only when none comes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/suite.h"
#include "tests/harness/toy_crowd.h"

static struct toy_cluster c;

// Runs what is submitted between the two for at least a step more, then as set_fault says.
static void begin_together(struct toy_client *first) {
    toy_gate_set(true);
    toy_client_init(first, 7000);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(first, 1, 3)), 0);
    toy_gate_await_held();
}

static void go_together(struct toy_client *last) {
    toy_gate_set(false);
    toy_client_await_start(last);
}

// A request that is still there when the workers misbehave.
struct long_one {
    struct toy_client client;
    struct toy_answer answer;
};

static void submit_long(struct long_one *k, uint64_t id) {
    toy_client_init(&k->client, id);
    struct request *r = toy_request(&k->client, 20, 250);
    toy_answer(r, TOY_VOCAB, &k->answer);
    ck_assert_int_eq(leader_submit(c.leader, r), 0);
}

// The loss of its group is a pause to a client, and no more.
static void expect_whole(struct long_one *k) {
    toy_client_await_end(&k->client);
    ck_assert_int_eq(k->client.finish, FINISH_LENGTH);
    ck_assert_uint_eq(k->client.n_starts, 1);
    ck_assert_uint_eq(k->client.n_tokens, k->answer.n_tokens);
    ck_assert_mem_eq(k->client.tokens, k->answer.tokens, k->answer.n_tokens * sizeof(uint32_t));
    ck_assert_uint_eq(k->client.digest, k->answer.digest);
    free(k->answer.tokens);
    toy_client_finish(&k->client);
}

// A client hears that the group was lost, and nothing of who was at fault.
static void expect_lost(struct long_one *k) {
    toy_client_await_end(&k->client);
    ck_assert_int_eq(k->client.finish, FINISH_ERROR);
    ck_assert_int_eq(k->client.error, ERR_REQ_WORKER_LOST);
    ck_assert_str_eq(
        k->client.message,
        "the worker group was lost while the request ran, and none was formed in time");
    free(k->answer.tokens);
    toy_client_finish(&k->client);
}

static void expect_replays(uint64_t least) {
    struct leader_view v;
    ck_assert_int_eq(leader_check(c.leader), 0); // brings the view up to date
    ck_assert_int_eq(leader_view(c.leader, &v), 0);
    ck_assert_uint_ge(v.replays, least);
    ck_assert_uint_eq(v.replay_mismatches, 0);
    leader_view_finish(&v);
}

START_TEST(run_goes_on_after_a_killed_worker_with_the_same_answers) {
    static struct toy_client first;
    static struct toy_crowd crowd;
    static struct long_one running[4];
    for (uint32_t depth = 1; depth <= 2; depth++) {
        toy_start(&c, 2, depth);
        begin_together(&first);
        for (uint32_t i = 0; i < 4; i++)
            submit_long(&running[i], 500 + i);
        toy_set_fault(&c, 2, TOY_SWALLOWS);
        go_together(&running[3].client);
        toy_worker_kill(&c, 1);
        toy_await_ready(&c, false);
        ck_assert_int_eq(leader_check(c.leader), 0);
        toy_set_fault(&c, 1, TOY_HONEST);
        toy_worker_start(&c, 1);
        toy_await_ready(&c, true);
        toy_crowd_start(&c, &crowd, 1);
        for (uint32_t i = 0; i < 4; i++)
            expect_whole(&running[i]);
        toy_crowd_check(&crowd);
        toy_expect_all_back(&c);
        expect_replays(4);
        toy_client_finish(&first);
        toy_cluster_finish(&c);
    }
}
END_TEST

START_TEST(run_loses_who_ran_only_when_no_group_forms_in_time) {
    static struct long_one k;
    toy_cluster_prepare(&c, 2);
    c.config.recovery_timeout_ns = 200 * NS_PER_MS;
    toy_cluster_start(&c);
    for (uint32_t i = 0; i < 2; i++)
        toy_worker_start(&c, i);
    toy_await_ready(&c, true);
    toy_set_fault(&c, 2, TOY_SWALLOWS);
    submit_long(&k, 1);
    toy_client_await_start(&k.client);
    toy_worker_kill(&c, 1);
    expect_lost(&k);
    toy_cluster_finish(&c);
}
END_TEST

// Whoever asks in the moments after a loss knows nothing of it: it waits as if it had come before.
START_TEST(run_takes_requests_while_a_lost_group_forms_again) {
    static struct long_one early, late;
    toy_start(&c, 2, 2);
    submit_long(&early, 1);
    toy_client_await_start(&early.client);
    toy_worker_kill(&c, 1);
    toy_await_ready(&c, false);
    ck_assert(leader_takes_requests(c.leader));
    submit_long(&late, 2);
    ck_assert_int_eq(leader_check(c.leader), 0); // all mail was read
    ck_assert_uint_eq(late.client.n_starts + late.client.n_finishes, 0);
    toy_worker_start(&c, 1);
    expect_whole(&early);
    expect_whole(&late);
    toy_expect_all_back(&c);
    toy_cluster_finish(&c);
}
END_TEST

// Also where nothing ran when the group was lost: the time counts from the loss.
START_TEST(run_refuses_once_a_lost_group_was_not_there_again_in_time) {
    static struct toy_client k;
    struct timespec pause = {.tv_nsec = NS_PER_MS};
    toy_cluster_prepare(&c, 1);
    c.config.recovery_timeout_ns = 200 * NS_PER_MS;
    toy_cluster_start(&c);
    toy_worker_start(&c, 0);
    toy_await_ready(&c, true);
    toy_worker_kill(&c, 0);
    while (leader_takes_requests(c.leader))
        nanosleep(&pause, NULL);
    ck_assert(!leader_ready(c.leader));
    toy_client_init(&k, 1);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 1, 1)), ERR_REQ_UNAVAILABLE);
    toy_worker_start(&c, 0);
    toy_await_ready(&c, true);
    ck_assert(leader_takes_requests(c.leader));
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 1, 1)), 0);
    toy_client_await_end(&k);
    ck_assert_int_eq(k.finish, FINISH_LENGTH);
    toy_client_finish(&k);
    toy_cluster_finish(&c);
}
END_TEST

START_TEST(run_keeps_the_queue_while_the_group_forms_again) {
    static struct toy_client first, waiting[9];
    static struct long_one running[2];
    toy_start(&c, 1, 2);
    begin_together(&first);
    for (uint32_t i = 0; i < 2; i++)
        submit_long(&running[i], 10 + i);
    for (uint32_t i = 0; i < 9; i++) { // more than there are slots
        toy_client_init(&waiting[i], 99 + i);
        ck_assert_int_eq(leader_submit(c.leader, toy_request(&waiting[i], 200, 4)), 0);
    }
    toy_set_fault(&c, 1, TOY_SWALLOWS);
    go_together(&running[1].client);
    toy_worker_kill(&c, 0);
    toy_await_ready(&c, false);
    ck_assert_int_eq(leader_check(c.leader), 0);
    ck_assert_uint_eq(waiting[8].n_starts + waiting[8].n_finishes, 0);
    toy_worker_start(&c, 0);
    for (uint32_t i = 0; i < 9; i++) {
        toy_client_await_end(&waiting[i]);
        ck_assert_int_eq(waiting[i].finish, FINISH_LENGTH);
        toy_client_finish(&waiting[i]);
    }
    for (uint32_t i = 0; i < 2; i++)
        expect_whole(&running[i]);
    toy_client_finish(&first);
    toy_expect_all_back(&c);
    toy_cluster_finish(&c);
}
END_TEST

// Long before the step's time is over, /ready and health must stop saying that all is well.
START_TEST(run_is_not_in_time_while_a_step_hangs) {
    static struct long_one k;
    struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};
    toy_start(&c, 1, 1);
    ck_assert(leader_in_time(c.leader, 0)); // nothing is under way
    toy_set_fault(&c, 1, TOY_SWALLOWS);
    submit_long(&k, 1);
    while (leader_in_time(c.leader, 100 * NS_PER_MS))
        nanosleep(&pause, NULL);
    ck_assert(leader_ready(c.leader)); // the group is not lost yet
    ck_assert(leader_in_time(c.leader, 10 * NS_PER_S));
    toy_worker_kill(&c, 0);
    while (!leader_in_time(c.leader, 0)) // that step is over
        nanosleep(&pause, NULL);
    toy_set_fault(&c, 1, TOY_HONEST);
    toy_worker_start(&c, 0);
    expect_whole(&k);
    toy_cluster_finish(&c);
}
END_TEST

static void fault_then_answer(enum toy_fault fault) {
    static struct long_one k, again;
    toy_cluster_prepare(&c, 2);
    c.config.step_timeout_ns = fault == TOY_SWALLOWS ? 300 * NS_PER_MS : 20 * NS_PER_S;
    toy_cluster_start(&c);
    for (uint32_t i = 0; i < 2; i++)
        toy_worker_start(&c, i);
    toy_await_ready(&c, true);
    toy_set_fault(&c, 2, fault); // one of them has work
    submit_long(&k, 1);
    toy_await_ready(&c, false);
    toy_set_fault(&c, 2, TOY_HONEST);
    if (fault == TOY_LIES) { // it was refused, so it stays away; its successor is welcome
        toy_worker_stop(&c, 0);
        toy_worker_stop(&c, 1);
        toy_worker_start(&c, 0);
        toy_worker_start(&c, 1);
    }
    expect_whole(&k);
    submit_long(&again, 2);
    expect_whole(&again);
    toy_expect_all_back(&c);
    toy_cluster_finish(&c);
}

START_TEST(run_loses_the_group_but_not_itself_when_a_worker_misbehaves) {
    fault_then_answer(TOY_SWALLOWS);
    fault_then_answer(TOY_LIES);
    fault_then_answer(TOY_GIVES_UP);
    fault_then_answer(TOY_CLOSES);
}
END_TEST

// --- where workers share requests

// Whichever rank it is: one that answers, or one whose answer is empty.
START_TEST(run_replays_when_any_worker_of_a_layout_is_lost) {
    static struct toy_client k;
    const struct layout layout = {8, 2, 2, 2, 2, 2};
    struct toy_answer answer;
    toy_start_layout(&c, layout, 2);
    toy_client_init(&k, 1);
    struct request *r = toy_request(&k, 50, 200);
    toy_answer(r, TOY_VOCAB, &answer);
    ck_assert_int_eq(leader_submit(c.leader, r), 0);
    for (uint32_t i = 0; i < layout.n_ranks; i++) {
        toy_client_await(&k, 20 * (i + 1));
        toy_worker_kill(&c, i);
        toy_await_ready(&c, false);
        toy_worker_start(&c, i);
        toy_await_ready(&c, true);
    }
    toy_client_await_end(&k);
    ck_assert_int_eq(k.finish, FINISH_LENGTH);
    ck_assert_uint_eq(k.digest, answer.digest);
    free(answer.tokens);
    toy_client_finish(&k);
    toy_cluster_finish(&c);
}
END_TEST

START_TEST(run_refuses_an_answer_of_a_worker_that_has_none) {
    static struct toy_client k;
    const struct layout layout = {4, 2, 1, 2, 1, 2};
    struct leader_view v;
    toy_start_layout(&c, layout, 1);
    for (uint32_t i = 0; i < layout.n_ranks; i++)
        atomic_store(&c.workers[i].fault, TOY_ANSWERS);
    toy_client_init(&k, 1);
    ck_assert_int_eq(leader_submit(c.leader, toy_request(&k, 10, 5)), 0);
    toy_await_ready(&c, false);
    for (uint32_t i = 0; i < layout.n_ranks; i++) {
        toy_worker_stop(&c, i); // a refused one would stay away
        toy_worker_start(&c, i);
    }
    toy_client_await_end(&k);
    ck_assert_int_eq(k.finish, FINISH_LENGTH);
    ck_assert_int_eq(leader_view(c.leader, &v), 0);
    ck_assert_uint_ge(v.counts.lost, 1);
    leader_view_finish(&v);
    toy_client_finish(&k);
    toy_cluster_finish(&c);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("losses");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, run_goes_on_after_a_killed_worker_with_the_same_answers);
    tcase_add_test(t, run_loses_who_ran_only_when_no_group_forms_in_time);
    tcase_add_test(t, run_takes_requests_while_a_lost_group_forms_again);
    tcase_add_test(t, run_refuses_once_a_lost_group_was_not_there_again_in_time);
    tcase_add_test(t, run_keeps_the_queue_while_the_group_forms_again);
    tcase_add_test(t, run_is_not_in_time_while_a_step_hangs);
    tcase_add_test(t, run_loses_the_group_but_not_itself_when_a_worker_misbehaves);
    tcase_add_test(t, run_replays_when_any_worker_of_a_layout_is_lost);
    tcase_add_test(t, run_refuses_an_answer_of_a_worker_that_has_none);
    Suite *s = suite_create("leader_losses");
    suite_add_tcase(s, t);
    return suite_run(s);
}
