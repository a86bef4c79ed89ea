// leader_prefix.c: the prefix cache: who shares which blocks, who must not, and that no answer
// depends on it. The toy ranks sample what they read in the pages, so a wrong page is a wrong
// token.
#include <stdlib.h>
#include <string.h>

#include "tests/harness/sched_group.h"
#include "tests/harness/suite.h"

// A request whose first n_shared tokens are those of all with the same family.
static struct request *relative(struct sink *k, uint64_t id, uint32_t family, uint32_t n_shared,
                                uint32_t n_prompt) {
    struct request *r = group_request(k, id, n_prompt, 6);
    for (uint32_t i = 0; i < n_shared && i < n_prompt; i++)
        r->prompt[i] = (family * 13 + i * 5) % (VOCAB - 1);
    return r;
}

static void run_one(struct group *g, struct request *r, struct sink *k) {
    struct toy_answer a;
    toy_answer(r, VOCAB, &a);
    sched_submit(g->sched, r, 0);
    group_run(g);
    group_expect(k, &a);
    free(a.tokens);
}

static void expect_hits(struct group *g, uint64_t hits, uint64_t queries) {
    struct sched_counts counts;
    sched_count(g->sched, &counts);
    ck_assert_uint_eq(counts.prefix_hits, hits);
    ck_assert_uint_eq(counts.prefix_queries, queries);
}

START_TEST(prefix_is_shared_in_full_blocks_and_a_token_is_left_to_compute) {
    static const struct {
        uint32_t n_prompt, cached;
    } cases[] = {{100, 64}, {64, 48}, {65, 64}, {70, 64}, {20, 16}, {16, 0}, {1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct group g;
        struct sink k[2];
        group_start(&g, 1, 4, 64, 2);
        group_form(&g, 40);
        run_one(&g, relative(&k[0], 1, 3, 64, 90), &k[0]);
        run_one(&g, relative(&k[1], 2, 3, 64, cases[i].n_prompt), &k[1]);
        ck_assert_uint_eq(k[0].n_cached, 0);
        ck_assert_uint_eq(k[1].n_cached, cases[i].cached);
        expect_hits(&g, cases[i].cached, 90 + cases[i].n_prompt);
        group_finish(&g);
    }
}
END_TEST

// The blocks of an answer are there for the turn that begins with it.
START_TEST(prefix_goes_on_through_the_answer) {
    struct group g;
    struct sink k[2];
    struct toy_answer a;
    uint64_t id = 1;
    group_start(&g, 1, 4, 64, 2);
    group_form(&g, 40);
    struct request *first = group_whole(&k[0], &id, 60, &a);
    struct request *second = group_request(&k[1], 999, 4 + 60 + 10, 3);
    memcpy(second->prompt, first->prompt, 4 * sizeof *first->prompt);
    memcpy(second->prompt + 4, a.tokens, 60 * sizeof *a.tokens);
    sched_submit(g.sched, first, 0);
    group_run(&g);
    run_one(&g, second, &k[1]);
    ck_assert_uint_eq(k[1].n_cached, (4 + 59) / 16 * 16); // the last token's row never ran
    free(a.tokens);
    group_finish(&g);
}
END_TEST

START_TEST(prefix_is_not_shared_over_salts_nor_after_other_tokens) {
    struct group g;
    struct sink k[4];
    group_start(&g, 1, 4, 64, 1);
    group_form(&g, 60);
    run_one(&g, relative(&k[0], 1, 3, 64, 90), &k[0]);
    struct request *r = relative(&k[1], 2, 3, 64, 90);
    r->salt[0] = 7;
    run_one(&g, r, &k[1]);
    r = relative(&k[2], 3, 3, 64, 90);
    r->prompt[0]++; // all blocks behind it have equal tokens, but not an equal beginning
    run_one(&g, r, &k[2]);
    r = relative(&k[3], 4, 3, 64, 90);
    r->salt[0] = 7;
    run_one(&g, r, &k[3]);
    ck_assert_uint_eq(k[1].n_cached + k[2].n_cached, 0);
    ck_assert_uint_eq(k[3].n_cached, 64);
    group_finish(&g);
}
END_TEST

START_TEST(prefix_can_be_switched_off) {
    struct group g;
    struct sink k[2];
    group_start(&g, 1, 4, 64, 2);
    g.sched->config.prefix_caching = false;
    group_form(&g, 40);
    for (uint32_t i = 0; i < 2; i++)
        run_one(&g, relative(&k[i], 1 + i, 3, 64, 90), &k[i]);
    ck_assert_uint_eq(k[1].n_cached, 0);
    expect_hits(&g, 0, 0);
    group_finish(&g);
}
END_TEST

START_TEST(prefix_of_a_lost_group_is_gone) {
    struct group g;
    struct sink k[2];
    group_start(&g, 1, 4, 64, 2);
    group_form(&g, 40);
    run_one(&g, relative(&k[0], 1, 3, 64, 90), &k[0]);
    sched_lose(g.sched, 0);
    group_form(&g, 40);
    run_one(&g, relative(&k[1], 2, 3, 64, 90), &k[1]);
    ck_assert_uint_eq(k[1].n_cached, 0);
    group_finish(&g);
}
END_TEST

START_TEST(prefix_is_kept_until_its_blocks_are_needed_the_oldest_first) {
    struct group g;
    struct sink k[5];
    group_start(&g, 1, 4, 512, 1);
    group_form(&g, 13);
    run_one(&g, relative(&k[0], 1, 1, 64, 65), &k[0]); // 5 blocks, 4 of them full
    run_one(&g, relative(&k[1], 2, 2, 64, 65), &k[1]); // 5 more
    run_one(&g, relative(&k[2], 3, 1, 64, 65), &k[2]); // uses the first family again
    run_one(&g, relative(&k[3], 4, 3, 96, 97), &k[3]); // 7: all that is unused, and of the second
    ck_assert_uint_eq(k[2].n_cached, 64);
    run_one(&g, relative(&k[4], 5, 1, 64, 65), &k[4]);
    ck_assert_uint_eq(k[4].n_cached, 64);
    run_one(&g, relative(&k[4], 6, 2, 64, 65), &k[4]);
    ck_assert_uint_lt(k[4].n_cached, 64);
    group_finish(&g);
}
END_TEST

START_TEST(choices_of_one_prompt_share_its_blocks_within_the_first_step) {
    struct group g;
    struct sink k[4];
    group_start(&g, 1, 4, 512, 2);
    group_form(&g, 13); // not enough for four times seven
    for (uint32_t i = 0; i < 4; i++) {
        struct request *r = relative(&k[i], 1 + i, 4, 100, 100);
        r->sampling = (struct sampling){.temperature = 1, .top_p = 1, .seed = 9};
        r->sampling.choice_index = i;
        sched_submit(g.sched, r, 0);
    }
    ck_assert(group_plan(&g));
    const struct rank_plan *plan = &g.plans[g.first].ranks[0];
    ck_assert_uint_eq(plan->n_seqs, 4);
    ck_assert_uint_eq(plan->n_rows, 100 + 3 * 4);
    ck_assert_uint_eq(g.sched->ranks[0].pages.n_free, 13 - (6 + 4));
    group_run(&g);
    group_finish(&g);
}
END_TEST

START_TEST(rank_is_chosen_by_prefix_then_by_load_and_never_by_prefix_alone) {
    struct group g;
    struct sink k[20];
    group_start(&g, 2, 8, 512, 1);
    group_form(&g, 60);
    run_one(&g, relative(&k[0], 1, 1, 64, 65), &k[0]);       // on rank 0
    sched_submit(g.sched, relative(&k[1], 2, 9, 64, 65), 0); // on rank 0, too: nothing runs
    sched_submit(g.sched, relative(&k[2], 3, 1, 64, 65), 0); // rank 1 is idle, but 0 knows it
    ck_assert(group_plan(&g));
    ck_assert_uint_eq(g.plans[g.first].ranks[0].n_seqs, 2);
    ck_assert_uint_eq(k[2].n_cached, 64);
    group_run(&g);
    for (uint32_t i = 3; i < 19; i++)
        sched_submit(g.sched, relative(&k[i], 1 + i, 1, 64, 65), 0);
    ck_assert(group_plan(&g));
    ck_assert_uint_eq(g.plans[g.first].ranks[0].n_seqs, 8);
    ck_assert_uint_eq(g.plans[g.first].ranks[1].n_seqs, 8);
    ck_assert_uint_eq(k[10].n_cached + k[11].n_cached, 128); // rank 1 knows it by now
    group_run(&g);
    group_finish(&g);
}
END_TEST

// --- one answer, with everything at once

static uint64_t crowd(uint32_t n_ranks, uint32_t budget, uint32_t depth, uint64_t seed) {
    static struct sink sinks[CROWD];
    struct toy_answer answers[CROWD];
    struct sched_counts counts;
    struct group g;
    group_start(&g, n_ranks, 8, budget, depth);
    group_form(&g, 18);
    g.rng = seed;
    for (uint32_t i = 0; i < CROWD; i++) {
        struct request *r = relative(&sinks[i], 1 + i, i % 3, 16 * (i % 9), 8 + i * 7 % 150);
        r->max_tokens = 1 + i * 5 % 60;
        r->salt[0] = i % 4 == 0;
        if (i % 5 == 1) group_score(r, &sinks[i], i % 21);
        toy_answer(r, VOCAB, &answers[i]);
        sched_submit(g.sched, r, 0);
        if (group_draw(&g, 2) == 0) group_step(&g);
    }
    group_run_losing(&g, (struct group_losses){.n = 2, .one_in = 100, .kv_blocks = 18});
    group_expect_all(sinks, answers, CROWD);
    sched_count(g.sched, &counts);
    ck_assert_uint_gt(counts.prefix_hits, 0);
    ck_assert_uint_eq(counts.replay_mismatches + counts.requests_lost, 0);
    group_finish(&g);
    return counts.preemptions;
}

START_TEST(answers_do_not_depend_on_the_cache_preemption_or_replay) {
    uint64_t n_preemptions = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        for (uint32_t depth = 1; depth <= 2; depth++) {
            n_preemptions += crowd(1, 7, depth, seed);
            n_preemptions += crowd(1, 512, depth, seed);
            n_preemptions += crowd(3, 40, depth, seed);
        }
    }
    ck_assert_uint_gt(n_preemptions, 20);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("prefix");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, prefix_is_shared_in_full_blocks_and_a_token_is_left_to_compute);
    tcase_add_test(t, prefix_goes_on_through_the_answer);
    tcase_add_test(t, prefix_is_not_shared_over_salts_nor_after_other_tokens);
    tcase_add_test(t, prefix_can_be_switched_off);
    tcase_add_test(t, prefix_of_a_lost_group_is_gone);
    tcase_add_test(t, prefix_is_kept_until_its_blocks_are_needed_the_oldest_first);
    tcase_add_test(t, choices_of_one_prompt_share_its_blocks_within_the_first_step);
    tcase_add_test(t, rank_is_chosen_by_prefix_then_by_load_and_never_by_prefix_alone);
    tcase_add_test(t, answers_do_not_depend_on_the_cache_preemption_or_replay);
    Suite *s = suite_create("leader_prefix");
    suite_add_tcase(s, t);
    return suite_run(s);
}
