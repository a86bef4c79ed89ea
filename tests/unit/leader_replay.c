// leader_replay.c: requests that lose their slot, to older ones or with their group, and go on as
// if nothing had been.
#include <stdlib.h>
#include <string.h>

#include "tests/harness/sched_group.h"
#include "tests/harness/suite.h"

// --- preemption

START_TEST(sched_preempts_the_newest_and_every_answer_stays_the_same) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct group g;
        struct sink k[6];
        struct toy_answer a[6];
        struct sched_counts counts;
        uint32_t n_ended = 0;
        uint64_t id = 1;
        group_start(&g, 1, 8, 64, depth);
        group_form(&g, 12); // six grow to 6 blocks each
        for (uint32_t i = 0; i < 6; i++)
            sched_submit(g.sched, group_whole(&k[i], &id, 90, &a[i]), 0);
        while (sched_has_work(g.sched)) {
            group_step(&g);
            group_check(&g);
            while (n_ended < 6 && k[n_ended].n_finishes == 1)
                n_ended++;
            for (uint32_t i = n_ended; i < 6; i++)
                ck_assert_uint_eq(k[i].n_finishes, 0); // none before one that came earlier
        }
        group_expect_all(k, a, 6);
        sched_count(g.sched, &counts);
        ck_assert_uint_ge(counts.preemptions, 4);
        ck_assert_uint_eq(counts.replays + counts.replay_mismatches, 0);
        group_run(&g);
        group_finish(&g);
    }
}
END_TEST

START_TEST(sched_preempts_nobody_while_blocks_are_free) {
    struct group g;
    struct sink k[4];
    struct sched_counts counts;
    group_start(&g, 1, 4, 64, 2);
    group_form(&g, 24);
    for (uint32_t i = 0; i < 4; i++)
        group_submit(&g, &k[i], 1 + i, 4, 90);
    group_run(&g);
    sched_count(g.sched, &counts);
    ck_assert_uint_eq(counts.preemptions, 0);
    group_finish(&g);
}
END_TEST

// Twice the blocks that there are, over ranks that lose their group on the way.
static uint64_t crowd_in_need(uint32_t n_ranks, uint32_t budget, uint32_t depth, uint64_t seed) {
    static struct sink sinks[CROWD];
    struct toy_answer answers[CROWD];
    struct sched_counts counts;
    struct group g;
    group_start(&g, n_ranks, 8, budget, depth);
    group_form(&g, 15); // the longest needs 15
    g.rng = seed;
    for (uint32_t i = 0; i < CROWD; i++) {
        struct request *r = group_crowd_request(&sinks[i], i);
        r->max_tokens = 1 + i * 5 % 40;
        toy_answer(r, VOCAB, &answers[i]);
        sched_submit(g.sched, r, 0);
    }
    group_run_losing(&g, (struct group_losses){.n = 3, .one_in = 60, .kv_blocks = 15});
    group_expect_all(sinks, answers, CROWD);
    sched_count(g.sched, &counts);
    ck_assert_uint_gt(counts.replays, 0);
    ck_assert_uint_eq(counts.replay_mismatches + counts.requests_lost, 0);
    group_finish(&g);
    return counts.preemptions;
}

START_TEST(sched_answers_do_not_depend_on_preemption_or_replay) {
    uint64_t n_preemptions = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        n_preemptions += crowd_in_need(1, 7, 1, seed);
        n_preemptions += crowd_in_need(2, 64, 2, seed);
        n_preemptions += crowd_in_need(3, 512, 2, seed);
    }
    ck_assert_uint_gt(n_preemptions, 20);
}
END_TEST

START_TEST(sched_says_when_a_replay_comes_out_otherwise) {
    struct group g;
    struct sink k;
    struct sched_counts counts;
    group_start(&g, 1, 1, 64, 1);
    group_form(&g, 40);
    group_submit(&g, &k, 1, 20, 9);
    while (k.n_tokens < 3)
        group_step(&g);
    struct seq *q = sched_find(g.sched, 1);
    q->tokens[2] = (q->tokens[2] + 1) % (VOCAB - 1); // of what is computed again
    sched_lose(g.sched, 0);
    group_form(&g, 40);
    group_run(&g);
    sched_count(g.sched, &counts);
    ck_assert_uint_eq(counts.replay_mismatches, 1);
    ck_assert_int_eq(k.finish, FINISH_LENGTH);
    ck_assert_uint_eq(k.n_tokens, 9);
    group_finish(&g);
}
END_TEST

// --- the group is lost

START_TEST(sched_replays_who_ran_before_who_waited) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct group g;
        struct sink running, waiting;
        struct toy_answer a, b;
        group_start(&g, 1, 1, 64, depth);
        group_form(&g, 40);
        struct request *r = group_request(&running, 1, 20, 9);
        toy_answer(r, VOCAB, &a);
        sched_submit(g.sched, r, 0);
        while (running.n_tokens < 3)
            group_step(&g);
        while (group_plan(&g))
            continue;
        r = group_request(&waiting, 2, 20, 9);
        toy_answer(r, VOCAB, &b);
        sched_submit(g.sched, r, 0);
        sched_lose(g.sched, 10);
        ck_assert_uint_eq(running.n_finishes + waiting.n_finishes, 0);
        group_check(&g);
        group_form(&g, 40);
        while (running.n_finishes == 0)
            group_step(&g);
        ck_assert_uint_eq(waiting.n_starts, 0);
        group_run(&g);
        group_expect(&running, &a);
        group_expect(&waiting, &b);
        free(a.tokens);
        free(b.tokens);
        group_finish(&g);
    }
}
END_TEST

// A request that kills its workers must not do so for ever.
START_TEST(sched_gives_up_on_a_request_that_never_gets_on) {
    struct group g;
    struct sink k, other;
    group_start(&g, 1, 1, 64, 2);
    group_form(&g, 40);
    group_submit(&g, &k, 1, 20, 9);
    while (k.n_tokens < 3)
        group_step(&g);
    group_submit(&g, &other, 2, 20, 9);
    for (int i = 0; i < REPLAYS_IN_VAIN_MAX; i++) {
        ck_assert_uint_eq(k.n_finishes, 0);
        sched_lose(g.sched, 10);
        group_form(&g, 40);
        ck_assert(group_plan(&g));
    }
    ck_assert_int_eq(k.error, ERR_REQ_WORKER_LOST);
    group_run(&g);
    ck_assert_int_eq(other.finish, FINISH_LENGTH);
    group_finish(&g);
}
END_TEST

static bool has_rows(const struct rank_plan *plan, uint64_t id) {
    for (uint32_t i = 0; i < plan->n_seqs; i++) {
        if (plan->seqs[i].seq->id == id) return true;
    }
    return false;
}

// The ranks die of every step that has rows of request `id`.
static bool kills(struct group *g, uint64_t id) {
    bool any = false;
    for (uint32_t i = 0; i < g->n_flights; i++) {
        const struct step_plan *step = &g->plans[(g->first + i) % g->depth];
        for (uint32_t rank = 0; rank < step->n_ranks; rank++)
            any |= has_rows(&step->ranks[rank], id);
    }
    return any;
}

static uint32_t run_with_killer(struct group *g, uint64_t id) {
    uint32_t n_losses = 0;
    while (sched_has_work(g->sched) || g->n_flights > 0) {
        while (group_plan(g))
            continue;
        if (kills(g, id)) {
            sched_lose(g->sched, 0);
            group_check(g);
            group_form(g, 60);
            n_losses++;
            ck_assert_uint_lt(n_losses, 20);
            continue;
        }
        group_step(g);
    }
    return n_losses;
}

// Wherever in the line it is, and whether the others had begun or came with it.
START_TEST(sched_ends_a_request_that_kills_its_group_and_nobody_beside_it) {
    for (uint32_t i = 0; i < 32; i++) {
        struct group g;
        struct sink k[4];
        struct toy_answer a[4];
        struct sched_counts counts;
        uint32_t killer = i % 4;
        uint64_t id = 1, killer_id = 0;
        group_start(&g, 1 + i / 4 % 2, 8, i < 16 ? 64 : 7, 1 + i / 8 % 2);
        group_form(&g, 60);
        for (uint32_t n = 0; n < 4; n++) {
            struct request *r = group_whole(&k[n], &id, 9, &a[n]);
            if (n == killer) killer_id = r->id;
            sched_submit(g.sched, r, 0);
        }
        ck_assert_uint_eq(run_with_killer(&g, killer_id), REPLAYS_IN_VAIN_MAX);
        for (uint32_t n = 0; n < 4; n++) {
            if (n == killer)
                ck_assert_int_eq(k[n].error, ERR_REQ_WORKER_LOST);
            else
                group_expect(&k[n], &a[n]);
            free(a[n].tokens);
        }
        sched_count(g.sched, &counts);
        ck_assert_uint_eq(counts.requests_lost, 1);
        group_finish(&g);
    }
}
END_TEST

// Scores are progress, too.
START_TEST(sched_never_gives_up_on_a_long_prompt_whose_scores_come) {
    struct group g;
    struct sink k;
    group_start(&g, 1, 1, 8, 1);
    group_form(&g, 40);
    struct request *r = group_request(&k, 1, 60, 1);
    group_score(r, &k, 0);
    sched_submit(g.sched, r, 0);
    for (uint32_t i = 0; i < REPLAYS_IN_VAIN_MAX + 2; i++) {
        uint32_t n_scores = k.n_scores;
        while (k.n_scores == n_scores)
            group_step(&g);
        sched_lose(g.sched, 0);
        group_form(&g, 40);
    }
    group_run(&g);
    ck_assert_uint_eq(k.n_scores, 59);
    ck_assert_int_eq(k.finish, FINISH_LENGTH);
    group_finish(&g);
}
END_TEST

START_TEST(sched_expire_ends_all_when_no_group_comes) {
    struct group g;
    struct sink running, waiting;
    struct sched_counts counts;
    group_start(&g, 1, 1, 64, 1);
    group_form(&g, 40);
    group_submit(&g, &running, 1, 20, 9);
    group_step(&g);
    group_submit(&g, &waiting, 2, 20, 9);
    ck_assert_int_eq(sched_deadline(g.sched), NO_DEADLINE);
    sched_lose(g.sched, 10);
    ck_assert_int_eq(sched_deadline(g.sched), 1010);
    sched_expire(g.sched, 1009);
    ck_assert_uint_eq(running.n_finishes + waiting.n_finishes, 0);
    sched_expire(g.sched, 1010);
    ck_assert_int_eq(running.error, ERR_REQ_WORKER_LOST);
    ck_assert_ptr_nonnull(strstr(running.message, "the worker group was lost"));
    ck_assert_int_eq(waiting.error, ERR_REQ_UNAVAILABLE);
    ck_assert_int_eq(sched_deadline(g.sched), NO_DEADLINE);
    sched_count(g.sched, &counts);
    ck_assert_uint_eq(counts.requests_lost, 1);
    group_form(&g, 40);
    group_finish(&g);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("replay");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, sched_preempts_the_newest_and_every_answer_stays_the_same);
    tcase_add_test(t, sched_preempts_nobody_while_blocks_are_free);
    tcase_add_test(t, sched_answers_do_not_depend_on_preemption_or_replay);
    tcase_add_test(t, sched_says_when_a_replay_comes_out_otherwise);
    tcase_add_test(t, sched_replays_who_ran_before_who_waited);
    tcase_add_test(t, sched_gives_up_on_a_request_that_never_gets_on);
    tcase_add_test(t, sched_ends_a_request_that_kills_its_group_and_nobody_beside_it);
    tcase_add_test(t, sched_never_gives_up_on_a_long_prompt_whose_scores_come);
    tcase_add_test(t, sched_expire_ends_all_when_no_group_comes);
    Suite *s = suite_create("leader_replay");
    suite_add_tcase(s, t);
    return suite_run(s);
}
