// leader_layouts.c: what changes for the leader when workers share requests or layers: whose
// weights are compared, how many blocks a group has, whose experts are counted, how decodes are
// spread over the stages.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "leader/sched_state.h"
#include "tests/harness/fake_cluster.h"
#include "tests/harness/sched_group.h"
#include "tests/harness/suite.h"

static struct fake_cluster f;

// --- members

static void load_as(uint64_t peer, uint64_t shared, uint32_t kv_blocks) {
    Moesaic__Control__V1__Loaded l = MOESAIC__CONTROL__V1__LOADED__INIT;
    l.model_digest = FAKE_MODEL_DIGEST;
    l.shared_digest = shared;
    l.experts_digest = peer;
    l.kv_blocks = kv_blocks;
    l.snapshots = kv_blocks / 2;
    fake_loaded_with(&f, peer, &l);
}

// Workers 1.. join as ranks 0.., with what their stage and TP index shares, and 100 blocks, but for
// one. All say that they share a machine.
static void load_all(const struct layout *layout, uint32_t odd_rank, uint32_t odd_blocks) {
    for (uint32_t rank = 0; rank < layout->n_ranks; rank++) {
        const struct layout_place p = layout_place(layout, rank);
        fake_hello(&f, rank + 1, (int32_t)rank);
        load_as(rank + 1, 10 + p.stage * 2 + p.tp, rank == odd_rank ? odd_blocks : 100);
    }
}

static const struct layout staged = {8, 2, 2, 2, 2, 2};

START_TEST(only_ranks_of_one_stage_and_tp_index_must_hold_the_same) {
    fake_start_layout(&f, &staged);
    load_all(&staged, 0, 100);
    for (uint32_t rank = 0; rank < 8; rank++)
        ck_assert_int_eq(fake_state(&f, rank), MEMBER_LOADED);
    fake_close(&f, 3, "killed"); // rank 2 shares with rank 0, not with rank 1
    fake_hello(&f, 20, 2);
    load_as(20, 11, 100);
    ck_assert(f.peers[20].refused);
    ck_assert_msg(strstr(f.peers[20].reason, "the same checkpoint") != NULL, "%s",
                  f.peers[20].reason);
    fake_hello(&f, 21, 2);
    load_as(21, 10, 100);
    ck_assert_int_eq(fake_state(&f, 2), MEMBER_LOADED);
    fake_finish(&f);
}
END_TEST

START_TEST(what_a_stage_held_stays_pinned_after_a_group_ran) {
    fake_start_layout(&f, &staged);
    load_all(&staged, 0, 100);
    fake_tick(&f);
    for (uint64_t p = 1; p <= 8; p++)
        fake_formed(&f, p, f.peers[p].epoch, 8);
    for (uint64_t p = 1; p <= 8; p++)
        fake_ready(&f, p, f.peers[p].epoch);
    ck_assert(members_ready(f.members));
    for (uint64_t p = 1; p <= 8; p++)
        fake_close(&f, p, "killed");
    fake_hello(&f, 30, 7);
    load_as(30, 10, 100); // what stage 0 had
    ck_assert(f.peers[30].refused);
    fake_finish(&f);
}
END_TEST

START_TEST(the_ranks_of_a_dp_group_have_as_many_blocks_and_snapshots_as_the_least) {
    fake_start_layout(&f, &staged);
    f.leader.kv_cache_bytes = f.leader.snapshot_bytes = 1; // each has memory of its own
    load_all(&staged, 6, 40);                              // stage 1, DP group 1
    fake_tick(&f);
    for (uint32_t rank = 0; rank < 8; rank++) {
        uint32_t blocks = layout_place(&staged, rank).dp == 1 ? 40 : 100;
        ck_assert_uint_eq(f.peers[rank + 1].kv_blocks, blocks);
        ck_assert_uint_eq(f.peers[rank + 1].snapshots, blocks / 2);
    }
    for (uint64_t p = 1; p <= 8; p++)
        fake_formed(&f, p, f.peers[p].epoch, 8);
    for (uint64_t p = 1; p <= 8; p++)
        fake_ready(&f, p, f.peers[p].epoch);
    ck_assert_uint_eq(f.kv_blocks[0], 100);
    ck_assert_uint_eq(f.kv_blocks[1], 40);
    ck_assert_uint_eq(f.snapshots[0], 50);
    ck_assert_uint_eq(f.snapshots[1], 20);
    fake_finish(&f);
}
END_TEST

// Stage 1 keeps none, so it has room for any number and takes no part of what stage 0 has.
START_TEST(a_stage_without_states_costs_the_others_no_snapshots) {
    fake_start_layout(&f, &staged);
    f.spec.layer_flags[1] = 0;
    f.leader.kv_cache_bytes = 1; // blocks are not divided here
    for (uint32_t rank = 0; rank < 8; rank++) {
        Moesaic__Control__V1__Loaded l = MOESAIC__CONTROL__V1__LOADED__INIT;
        const struct layout_place p = layout_place(&staged, rank);
        l.model_digest = FAKE_MODEL_DIGEST;
        l.shared_digest = 10 + p.stage * 2 + p.tp;
        l.experts_digest = rank + 1;
        l.kv_blocks = 100;
        l.snapshots = p.stage == 0 ? 50 : SNAPSHOTS_MAX;
        fake_hello(&f, rank + 1, (int32_t)rank);
        fake_loaded_with(&f, rank + 1, &l);
    }
    fake_tick(&f);
    for (uint32_t rank = 0; rank < 8; rank++)
        ck_assert_uint_eq(f.peers[rank + 1].snapshots, 50 / 4);
    fake_finish(&f);
}
END_TEST

static void count_as(uint64_t peer, uint64_t *counters, size_t n) {
    Moesaic__Control__V1__Heartbeat beat = MOESAIC__CONTROL__V1__HEARTBEAT__INIT;
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    beat.epoch = f.peers[peer].epoch;
    beat.n_expert_tokens = n;
    beat.expert_tokens = counters;
    up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_HEARTBEAT;
    up.heartbeat = &beat;
    fake_say(&f, peer, &up);
}

// 2 layers of 6 experts: each stage has one layer, each place 3 experts, of two ranks each.
START_TEST(tokens_of_an_expert_are_counted_for_its_layer_and_once) {
    uint64_t counters[] = {5, 6, 7};
    fake_start_layout(&f, &staged);
    load_all(&staged, 0, 100);
    fake_tick(&f);
    for (uint32_t rank = 0; rank < 8; rank++)
        count_as(rank + 1, counters, 3);
    const uint64_t *tokens = members_expert_tokens(f.members);
    for (int i = 0; i < 12; i++)
        ck_assert_uint_eq(tokens[i], counters[i % 3]);
    counters[1] = 10;
    count_as(7, counters, 3); // stage 1, the first rank of place 1
    count_as(8, counters, 3);
    ck_assert_uint_eq(tokens[6 + 4], 10);
    ck_assert_uint_eq(tokens[4], 6);
    count_as(1, counters, 2);
    ck_assert_msg(strstr(f.peers[1].reason, "2 expert counters, not 3") != NULL, "%s",
                  f.peers[1].reason);
    fake_finish(&f);
}
END_TEST

// --- the scheduler

// A step has its share of the decodes, and each row's token is known.
static void check_step(const struct step_plan *p, uint32_t most) {
    ck_assert_uint_le(p->n_decode_tokens, most);
    for (uint32_t i = 0; i < p->ranks[0].n_seqs; i++)
        ck_assert_ptr_nonnull(p->ranks[0].seqs[i].tokens);
}

static void run_staged(struct group *g) {
    uint32_t most = (10 + g->depth - 1) / g->depth, n_full = 0, n_steps = 0;
    while (sched_has_work(g->sched)) {
        for (; group_plan(g); n_steps++)
            check_step(&g->plans[(g->first + g->n_flights - 1) % g->depth], most);
        n_full += g->n_flights == (10 + most - 1) / most ? 1 : 0;
        ck_assert(group_answer(g, 0));
        group_check(g);
    }
    ck_assert_uint_ge(n_full * 10, n_steps * 8); // the stages are busy
}

START_TEST(stages_share_the_decodes_and_never_wait_for_a_token) {
    static struct sink sinks[10];
    struct toy_answer answers[10];
    for (uint32_t depth = 2; depth <= DEPTH_TOP; depth++) {
        struct group g;
        uint64_t id = 1;
        group_start_staged(&g, 10, 512, depth);
        group_form(&g, 100);
        for (uint32_t i = 0; i < 10; i++)
            sched_submit(g.sched, group_whole(&sinks[i], &id, 30, &answers[i]), 0);
        run_staged(&g);
        group_expect_all(sinks, answers, 10);
        group_finish(&g);
    }
}
END_TEST

static void crowd_over_stages(uint32_t budget, uint32_t depth) {
    static struct sink sinks[CROWD];
    struct toy_answer answers[CROWD];
    struct group g;
    group_start_staged(&g, 9, budget, depth);
    group_form(&g, 40);
    for (uint32_t i = 0; i < CROWD; i++) {
        struct request *r = group_crowd_request(&sinks[i], i);
        toy_answer(r, VOCAB, &answers[i]);
        sched_submit(g.sched, r, 0);
        if (group_draw(&g, 3) == 0) group_step(&g);
    }
    group_run(&g);
    group_expect_all(sinks, answers, CROWD);
    group_finish(&g);
}

// Also with fewer rows a step than sequences run.
START_TEST(answers_of_a_crowd_are_the_same_over_stages) {
    static const uint32_t budgets[] = {32, 2};
    for (int i = 0; i < 2; i++) {
        for (uint32_t depth = 2; depth <= DEPTH_TOP; depth += 3)
            crowd_over_stages(budgets[i], depth);
    }
}
END_TEST

int main(void) {
    TCase *t = tcase_create("layouts");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, only_ranks_of_one_stage_and_tp_index_must_hold_the_same);
    tcase_add_test(t, what_a_stage_held_stays_pinned_after_a_group_ran);
    tcase_add_test(t, the_ranks_of_a_dp_group_have_as_many_blocks_and_snapshots_as_the_least);
    tcase_add_test(t, a_stage_without_states_costs_the_others_no_snapshots);
    tcase_add_test(t, tokens_of_an_expert_are_counted_for_its_layer_and_once);
    tcase_add_test(t, stages_share_the_decodes_and_never_wait_for_a_token);
    tcase_add_test(t, answers_of_a_crowd_are_the_same_over_stages);
    Suite *s = suite_create("leader_layouts");
    suite_add_tcase(s, t);
    return suite_run(s);
}
