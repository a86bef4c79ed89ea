// leader_snapshots.c: the prefix cache of models that keep a state in each slot: what can be begun
// from, what is dropped when, and that no answer depends on it. The toy ranks keep a hash of their
// slots' tokens as state and compare it with their pages, so a wrong snapshot aborts the test.
#include <stdlib.h>
#include <string.h>

#include "tests/harness/sched_group.h"
#include "tests/harness/suite.h"

// --- the accounts

static struct snapshots x;
static uint64_t step; // each place is taken in a step of its own

static void begin(uint32_t n) {
    step = 0;
    ck_assert_int_eq(snapshots_init(&x, n), 0);
}

static void end(void) {
    struct err_text e;
    ck_assert_msg(snapshots_check(&x, x.n_held, &e) == 0, "%s", e.text);
    snapshots_finish(&x);
}

static uint32_t keep(uint64_t contents) {
    uint32_t place = snapshots_take(&x, ++step);
    ck_assert_uint_ne(place, SNAPSHOT_NONE);
    snapshots_bind(&x, place, contents);
    return place;
}

START_TEST(the_one_used_longest_ago_is_written_next) {
    begin(3);
    uint32_t a = keep(10), b = keep(11), c = keep(12);
    ck_assert_uint_eq(snapshots_find(&x, 10), a);
    snapshots_touch(&x, a);
    ck_assert_uint_eq(keep(13), b);
    ck_assert_uint_eq(snapshots_find(&x, 11), SNAPSHOT_NONE);
    ck_assert_uint_eq(keep(14), c);
    ck_assert_uint_eq(snapshots_find(&x, 10), a);
    ck_assert_uint_eq(keep(15), a);
    end();
}
END_TEST

START_TEST(a_place_without_contents_is_written_first) {
    begin(3);
    uint32_t a = keep(10), b = keep(11);
    snapshots_forget(&x, 11);
    snapshots_forget(&x, 99); // nobody has it
    snapshots_forget(&x, 0);
    ck_assert_uint_eq(x.n_bound, 1);
    ck_assert_uint_eq(keep(12), b);
    ck_assert_uint_ne(keep(13), a);
    ck_assert_uint_eq(snapshots_find(&x, 10), a);
    end();
}
END_TEST

START_TEST(what_is_held_is_neither_found_nor_taken) {
    begin(2);
    uint32_t a = snapshots_take(&x, ++step), b = snapshots_take(&x, ++step);
    ck_assert_uint_ne(a, b);
    ck_assert_uint_eq(snapshots_take(&x, ++step), SNAPSHOT_NONE);
    snapshots_give(&x, b);
    ck_assert_uint_eq(snapshots_take(&x, ++step), b);
    snapshots_bind(&x, a, 7);
    ck_assert_uint_eq(snapshots_find(&x, 7), a);
    snapshots_give(&x, b);
    end();
    begin(0); // a model without states, or no room
    ck_assert_uint_eq(snapshots_take(&x, ++step), SNAPSHOT_NONE);
    ck_assert_uint_eq(snapshots_find(&x, 7), SNAPSHOT_NONE);
    end();
}
END_TEST

// Bound at once, forgotten as its block is taken, or given back: it is on its way all the same.
START_TEST(no_place_is_taken_twice_in_a_step) {
    begin(3);
    uint32_t a = snapshots_take(&x, 5), b = snapshots_take(&x, 5), c = snapshots_take(&x, 5);
    snapshots_bind(&x, a, 10);
    snapshots_bind(&x, b, 11);
    snapshots_forget(&x, 11);
    snapshots_give(&x, c);
    ck_assert_uint_eq(snapshots_take(&x, 5), SNAPSHOT_NONE);
    ck_assert_uint_eq(snapshots_find(&x, 10), a); // nor is one lost for it
    ck_assert_uint_eq(snapshots_take(&x, 6), c);
    ck_assert_uint_eq(snapshots_take(&x, 6), b);
    ck_assert_uint_eq(snapshots_take(&x, 6), a);
    end();
}
END_TEST

START_TEST(the_recount_sees_what_does_not_add_up) {
    struct err_text e;
    begin(3);
    uint32_t a = keep(10);
    ck_assert_int_eq(snapshots_check(&x, 0, &e), 0);
    ck_assert_int_eq(snapshots_check(&x, 1, &e), ERR_FATAL_BOOKS);
    x.snapshots[a].contents = 11; // in a bucket that nobody looks into for it
    ck_assert_int_eq(snapshots_check(&x, 0, &e), ERR_FATAL_BOOKS);
    x.snapshots[a].contents = 10;
    snapshots_touch(&x, a);
    x.snapshots[a].held = true;
    ck_assert_int_eq(snapshots_check(&x, 0, &e), ERR_FATAL_BOOKS);
    x.snapshots[a].held = false;
    end();
}
END_TEST

// --- requests

static struct group g;

// Whose first n_shared tokens are those of all with the same family.
static struct request *relative(struct sink *k, uint64_t id, uint32_t n_shared, uint32_t n_prompt,
                                uint32_t max_tokens) {
    struct request *r = group_request(k, id, n_prompt, max_tokens);
    for (uint32_t i = 0; i < n_shared && i < n_prompt; i++)
        r->prompt[i] = (39 + i * 5) % (VOCAB - 1);
    return r;
}

static void run_one(struct request *r, struct sink *k) {
    struct toy_answer a;
    toy_answer(r, VOCAB, &a);
    sched_submit(g.sched, r, 0);
    group_run(&g);
    group_expect(k, &a);
    free(a.tokens);
}

// How much of a prompt of so many tokens, n_shared of them those of the others, was known.
static uint32_t cached(uint64_t id, uint32_t n_shared, uint32_t n_prompt) {
    struct sink k;
    run_one(relative(&k, id, n_shared, n_prompt, 6), &k);
    return k.n_cached;
}

static uint32_t bound(void) {
    struct sched_rank_counts counts;
    sched_count_rank(g.sched, 0, &counts);
    return counts.snapshots_used;
}

START_TEST(a_prompt_is_begun_from_the_last_state_that_was_kept_of_it) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        group_start_stateful(&g, 8, 64, depth);
        group_form(&g, 60);
        ck_assert_uint_eq(cached(1, 150, 150), 0); // keeps 64, 128 and 144
        ck_assert_uint_eq(bound(), 3);
        ck_assert_uint_eq(cached(2, 150, 150), 144);
        ck_assert_uint_eq(cached(3, 150, 170), 144);
        ck_assert_uint_eq(cached(4, 143, 170), 128); // the blocks would reach further
        ck_assert_uint_eq(cached(5, 100, 170), 64);
        ck_assert_uint_eq(cached(6, 63, 170), 0);
        ck_assert_uint_eq(cached(7, 150, 144), 128); // a token is left to compute
        group_finish(&g);
    }
}
END_TEST

// A run ends only where that is worth the step.
START_TEST(states_that_stand_close_together_are_not_kept) {
    group_start_stateful(&g, 8, 256, 1); // at least 32 apart
    group_form(&g, 60);
    ck_assert_uint_eq(cached(1, 100, 30), 0); // its last block is behind 16 tokens
    ck_assert_uint_eq(bound(), 0);
    ck_assert_uint_eq(cached(2, 100, 40), 0);
    ck_assert_uint_eq(bound(), 1); // at 32
    ck_assert_uint_eq(cached(3, 100, 60), 32);
    ck_assert_uint_eq(bound(), 1); // 48 is only 16 further
    ck_assert_uint_eq(cached(4, 100, 90), 32);
    ck_assert_uint_eq(cached(5, 100, 100), 80);
    group_finish(&g);
}
END_TEST

// 4 + 60 tokens end where a block does; the token that is sampled last has no row.
START_TEST(a_turn_begins_where_the_answer_before_it_ended) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct sink k[2];
        struct toy_answer a;
        uint64_t id = 1;
        group_start_stateful(&g, 8, 32, depth);
        group_form(&g, 60);
        struct request *first = group_whole(&k[0], &id, 61, &a);
        struct request *second = group_request(&k[1], 999, 4 + 60 + 10, 3);
        memcpy(second->prompt, first->prompt, 4 * sizeof *first->prompt);
        memcpy(second->prompt + 4, a.tokens, 60 * sizeof *a.tokens);
        sched_submit(g.sched, first, 0);
        group_run(&g);
        ck_assert_uint_eq(bound(), 2); // 32, while it decoded, and 64, its end
        run_one(second, &k[1]);
        ck_assert_uint_eq(k[1].n_cached, 64);
        free(a.tokens);
        group_finish(&g);
    }
}
END_TEST

START_TEST(a_state_is_not_found_over_salts) {
    struct sink k;
    group_start_stateful(&g, 8, 16, 2);
    group_form(&g, 60);
    ck_assert_uint_eq(cached(1, 90, 90), 0);
    struct request *r = relative(&k, 2, 90, 90, 6);
    r->salt[0] = 7;
    run_one(r, &k);
    ck_assert_uint_eq(k.n_cached, 0);
    ck_assert_uint_eq(cached(3, 90, 90), 80);
    group_finish(&g);
}
END_TEST

// Contents without their state are of no use, and the state without them of none either.
START_TEST(blocks_and_states_go_together) {
    group_start_stateful(&g, 2, 16, 1);
    group_form(&g, 60);
    ck_assert_uint_eq(cached(1, 60, 60), 0); // 16, 32 and 48: two remain
    ck_assert_uint_eq(bound(), 2);
    ck_assert_uint_eq(cached(2, 20, 60), 0);
    ck_assert_uint_eq(cached(3, 60, 60), 0); // the second's took their places
    group_finish(&g);
    group_start_stateful(&g, 20, 16, 1);
    group_form(&g, 6);
    ck_assert_uint_eq(cached(1, 60, 60), 0);
    ck_assert_uint_eq(bound(), 3 + 1);      // and one of the answer, at 64
    ck_assert_uint_eq(cached(2, 0, 90), 0); // takes all blocks
    ck_assert_uint_eq(cached(3, 60, 60), 0);
    group_finish(&g);
}
END_TEST

START_TEST(states_of_a_lost_group_are_gone) {
    group_start_stateful(&g, 8, 16, 2);
    group_form(&g, 40);
    ck_assert_uint_eq(cached(1, 90, 90), 0);
    sched_lose(g.sched, 0);
    group_form(&g, 40);
    ck_assert_uint_eq(bound(), 0);
    ck_assert_uint_eq(cached(2, 90, 90), 0);
    ck_assert_uint_eq(cached(3, 90, 90), 80);
    group_finish(&g);
}
END_TEST

START_TEST(without_room_or_caching_runs_are_not_cut) {
    for (int i = 0; i < 2; i++) {
        group_start_stateful(&g, i == 0 ? 0 : 8, 16, 1);
        g.sched->config.prefix_caching = i == 0;
        group_form(&g, 40);
        struct sink k;
        group_submit(&g, &k, 1, 60, 4);
        ck_assert(group_plan(&g));
        ck_assert_uint_eq(g.plans[0].n_prompt_tokens, 60);
        group_run(&g);
        ck_assert_uint_eq(cached(2, 60, 60) + cached(3, 60, 60), 0);
        group_finish(&g);
    }
}
END_TEST

// Rows of prompts that twelve requests took which have blocks for a few of them, and nothing in
// common; each is answered as alone.
static uint64_t rows_of_twelve(uint32_t snapshots, uint32_t depth) {
    struct sink k[12];
    struct toy_answer a[12];
    struct sched_counts counts;
    group_start_stateful(&g, snapshots, 16, depth);
    group_form(&g, 20);
    for (uint32_t i = 0; i < 12; i++) {
        struct request *r = group_request(&k[i], 100 + i, 45 + i, 60);
        toy_answer(r, VOCAB, &a[i]);
        sched_submit(g.sched, r, 0);
    }
    while (sched_has_work(g.sched) || g.n_flights > 0) {
        group_step(&g);
        group_check(&g);
    }
    sched_count(g.sched, &counts);
    ck_assert_uint_gt(counts.preemptions, 0);
    ck_assert_uint_eq(counts.prefix_hits, 0);
    ck_assert_uint_eq(counts.replay_mismatches, 0);
    for (uint32_t i = 0; i < 12; i++) {
        group_expect(&k[i], &a[i]);
        free(a[i].tokens);
    }
    group_finish(&g);
    return counts.prompt_tokens;
}

START_TEST(who_gave_up_its_slot_goes_on_from_its_state) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        uint64_t from_nothing = rows_of_twelve(0, depth);
        ck_assert_uint_lt(rows_of_twelve(40, depth), from_nothing);
    }
}
END_TEST

// All kinds of requests, aborts and a lost group, checked after each step.
START_TEST(a_crowd_is_answered_as_each_alone_and_the_books_balance) {
    static const uint32_t places[] = {1, 8, 15, 22, 1, 2, 2, 3};
    static const uint32_t every[] = {16, 32, 64, 128, 32, 16, 64, 16};
    for (uint32_t round = 0; round < 8; round++) {
        static struct sink k[CROWD];
        static struct toy_answer a[CROWD];
        group_start_stateful(&g, places[round], every[round], 1 + round % 2);
        g.rng = round;
        group_form(&g, 40);
        for (uint32_t i = 0; i < CROWD; i++) {
            struct request *r = group_crowd_request(&k[i], i);
            for (uint32_t t = 0; t < r->n_prompt && i % 3 == 0 && !r->score_prompt; t++)
                r->prompt[t] = t % 50;
            toy_answer(r, VOCAB, &a[i]);
            sched_submit(g.sched, r, 0);
        }
        for (uint32_t n = 0; sched_has_work(g.sched) || g.n_flights > 0; n++) {
            if (n == 60) {
                sched_lose(g.sched, 0);
                group_form(&g, 40);
            }
            group_step(&g);
            group_check(&g);
        }
        for (uint32_t i = 0; i < CROWD; i++) {
            group_expect(&k[i], &a[i]);
            free(a[i].tokens);
        }
        group_finish(&g);
    }
}
END_TEST

int main(void) {
    TCase *t = tcase_create("snapshots");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_one_used_longest_ago_is_written_next);
    tcase_add_test(t, a_place_without_contents_is_written_first);
    tcase_add_test(t, what_is_held_is_neither_found_nor_taken);
    tcase_add_test(t, no_place_is_taken_twice_in_a_step);
    tcase_add_test(t, the_recount_sees_what_does_not_add_up);
    tcase_add_test(t, a_prompt_is_begun_from_the_last_state_that_was_kept_of_it);
    tcase_add_test(t, states_that_stand_close_together_are_not_kept);
    tcase_add_test(t, a_turn_begins_where_the_answer_before_it_ended);
    tcase_add_test(t, a_state_is_not_found_over_salts);
    tcase_add_test(t, blocks_and_states_go_together);
    tcase_add_test(t, states_of_a_lost_group_are_gone);
    tcase_add_test(t, without_room_or_caching_runs_are_not_cut);
    tcase_add_test(t, who_gave_up_its_slot_goes_on_from_its_state);
    tcase_add_test(t, a_crowd_is_answered_as_each_alone_and_the_books_balance);
    Suite *s = suite_create("leader_snapshots");
    suite_add_tcase(s, t);
    return suite_run(s);
}
