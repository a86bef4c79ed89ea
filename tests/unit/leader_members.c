// leader_members.c: Who may join, how a group forms, and what each kind of loss does to it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/layout_wire.h"
#include "tests/harness/fake_cluster.h"
#include "tests/harness/suite.h"

static struct fake_cluster f;

static void say_hello(uint64_t peer, Moesaic__Control__V1__Hello *h) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_HELLO;
    up.hello = h;
    fake_open(&f, peer);
    fake_say(&f, peer, &up);
}

static void expect_refused(uint64_t peer, const char *words) {
    ck_assert_uint_eq(f.peers[peer].n_drop, 1);
    ck_assert(f.peers[peer].refused);
    ck_assert_msg(strstr(f.peers[peer].reason, words) != NULL, "\"%s\" is not in \"%s\"", words,
                  f.peers[peer].reason);
}

// --- joining

START_TEST(join_gives_each_worker_a_rank) {
    fake_start(&f, 3);
    fake_hello(&f, 1, 1);
    fake_hello(&f, 2, -1);
    fake_hello(&f, 3, 1); // taken: the next free one
    ck_assert_uint_eq(f.peers[1].rank, 1);
    ck_assert_uint_eq(f.peers[2].rank, 0);
    ck_assert_uint_eq(f.peers[3].rank, 2);
    fake_hello(&f, 4, -1);
    expect_refused(4, "all 3 ranks are taken");
    fake_close(&f, 2, "killed");
    fake_hello(&f, 5, -1); // the place is free again
    ck_assert_uint_eq(f.peers[5].rank, 0);
    fake_finish(&f);
}
END_TEST

START_TEST(join_gives_a_rank_back_to_the_worker_that_holds_its_weights) {
    Moesaic__Control__V1__Hello h;
    Moesaic__Control__V1__Layout held;
    layout_pack(&held, &(struct layout){3, 1, 3, 1, 3, 1});
    fake_start(&f, 3);
    fake_hello_fill(&h, 1);
    h.has_weights = true;
    h.held_rank = 2;
    h.held_layout = &held;
    h.held_model_digest = FAKE_MODEL_DIGEST;
    h.wanted_rank = 0;
    say_hello(1, &h);
    ck_assert_uint_eq(f.peers[1].rank, 2);
    fake_hello_fill(&h, 2); // of another model: worth nothing
    h.has_weights = true;
    h.held_rank = 1;
    h.held_layout = &held;
    h.held_model_digest = 1;
    say_hello(2, &h);
    ck_assert_uint_eq(f.peers[2].rank, 0);
    fake_hello_fill(&h, 3); // of another layout: the same
    layout_pack(&held, &(struct layout){3, 3, 1, 1, 1, 1});
    h.has_weights = true;
    h.held_rank = 2;
    h.held_layout = &held;
    h.held_model_digest = FAKE_MODEL_DIGEST;
    h.wanted_rank = 1;
    say_hello(3, &h);
    ck_assert_uint_eq(f.peers[3].rank, 1);
    fake_finish(&f);
}
END_TEST

static uint32_t join_from(uint64_t peer, const char *host) {
    Moesaic__Control__V1__Hello h;
    fake_hello_fill(&h, peer);
    h.host = (char *)host;
    say_hello(peer, &h);
    return f.peers[peer].rank;
}

START_TEST(join_keeps_the_workers_of_a_host_together) {
    // Two TP groups in one stage, whose hosts take turns.
    fake_start_layout(&f, &(struct layout){4, 1, 2, 2, 4, 1});
    ck_assert_uint_eq(join_from(1, "a"), 0);
    ck_assert_uint_eq(join_from(2, "b"), 2);
    ck_assert_uint_eq(join_from(3, "a"), 1);
    ck_assert_uint_eq(join_from(4, "b"), 3);
    fake_finish(&f);
    // Two stages of two DP groups.
    fake_start_layout(&f, &(struct layout){4, 2, 2, 1, 2, 1});
    ck_assert_uint_eq(join_from(1, "a"), 0);
    ck_assert_uint_eq(join_from(2, "b"), 2);
    ck_assert_uint_eq(join_from(3, "b"), 3);
    ck_assert_uint_eq(join_from(4, "a"), 1);
    fake_finish(&f);
    // A third host takes what is left, however little it suits.
    fake_start_layout(&f, &(struct layout){2, 1, 1, 2, 2, 1});
    ck_assert_uint_eq(join_from(1, "a"), 0);
    ck_assert_uint_eq(join_from(2, "c"), 1);
    fake_finish(&f);
}
END_TEST

START_TEST(join_refuses_another_build_protocol_or_class) {
    Moesaic__Control__V1__Hello h;
    static char *classes[] = {(char *)"bf16dot"};
    fake_start(&f, 2);
    fake_hello_fill(&h, 1);
    h.build_id = (char *)"0.9";
    say_hello(1, &h);
    expect_refused(1, "build 0.9 is not the leader's " FAKE_BUILD);
    fake_hello_fill(&h, 2);
    h.protocol = CONTROL_PROTOCOL + 1;
    say_hello(2, &h);
    expect_refused(2, "protocol");
    fake_hello_fill(&h, 3);
    h.n_arithmetic_classes = 1;
    h.arithmetic_classes = classes;
    say_hello(3, &h);
    expect_refused(3, "class base");
    fake_hello_fill(&h, 4);
    h.wanted_rank = 2;
    say_hello(4, &h);
    expect_refused(4, "rank 2 does not exist");
    fake_hello_fill(&h, 5);
    h.wanted_rank = -7;
    say_hello(5, &h);
    expect_refused(5, "rank -7");
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_FREE);
    fake_finish(&f);
}
END_TEST

static void load_as(uint64_t peer, uint64_t model, uint64_t shared, uint64_t experts) {
    Moesaic__Control__V1__Loaded l = MOESAIC__CONTROL__V1__LOADED__INIT;
    l.model_digest = model;
    l.shared_digest = shared;
    l.experts_digest = experts;
    l.kv_blocks = 10;
    fake_loaded_with(&f, peer, &l);
}

START_TEST(join_refuses_weights_that_differ) {
    fake_start(&f, 2);
    fake_hello(&f, 1, -1);
    load_as(1, 5, 11, 100);
    expect_refused(1, "model digest");
    fake_hello(&f, 2, 0);
    load_as(2, FAKE_MODEL_DIGEST, 11, 100);
    fake_hello(&f, 3, 1);
    load_as(3, FAKE_MODEL_DIGEST, 12, 101);
    expect_refused(3, "the same checkpoint");
    fake_hello(&f, 4, 1);
    fake_loaded(&f, 4, 0);
    expect_refused(4, "no room for one KV block");
    fake_finish(&f);
}
END_TEST

START_TEST(join_refuses_changed_weights_after_a_group_ran_with_others) {
    fake_start(&f, 2);
    fake_group(&f);
    fake_close(&f, 2, "killed");
    fake_hello(&f, 3, 1);
    load_as(3, FAKE_MODEL_DIGEST, 11, 999);
    expect_refused(3, "restart the leader");
    fake_close(&f, 1, "killed");
    fake_hello(&f, 4, 0);
    load_as(4, FAKE_MODEL_DIGEST, 12, 100); // nobody else is here, but answers were given
    expect_refused(4, "the same checkpoint");
    fake_hello(&f, 5, 0);
    load_as(5, FAKE_MODEL_DIGEST, 11, 100);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOADED);
    fake_finish(&f);
}
END_TEST

START_TEST(join_replaces_the_old_stream_of_a_worker_that_comes_back) {
    Moesaic__Control__V1__Hello h;
    fake_start(&f, 2);
    fake_group(&f);
    fake_pass(&f, MEMBER_FRESH_NS);
    fake_hello_fill(&h, 1); // the same instance on a new stream
    say_hello(9, &h);
    ck_assert_uint_eq(f.peers[1].n_drop, 1);
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert_uint_eq(f.peers[9].n_welcome, 1);
    ck_assert_uint_eq(f.peers[9].rank, 0);
    fake_finish(&f);
}
END_TEST

START_TEST(join_refuses_the_double_of_a_worker_that_is_there) {
    Moesaic__Control__V1__Hello h;
    fake_start(&f, 2);
    fake_group(&f);
    fake_hello_fill(&h, 1);
    for (uint64_t p = 8; p < 12; p++) {
        fake_pass(&f, NS_PER_S);
        fake_beat(&f, 1, 1);
        fake_beat(&f, 2, 1);
        say_hello(p, &h);
        ck_assert_uint_eq(f.peers[p].n_drop, 1);
        ck_assert(!f.peers[p].refused); // it may be the worker itself, on a stream that broke
        ck_assert_ptr_nonnull(strstr(f.peers[p].reason, "has joined as rank 0"));
    }
    ck_assert_uint_eq(f.n_lost, 0);
    fake_finish(&f);
}
END_TEST

START_TEST(join_gives_up_on_a_worker_that_never_loads) {
    fake_start(&f, 2);
    fake_hello(&f, 1, -1);
    fake_hello(&f, 2, -1);
    for (int64_t t = 0; t < MEMBER_STALL_NS; t += 10 * NS_PER_S) {
        fake_progress(&f, 1, 1, 100);
        fake_progress(&f, 2, (uint64_t)t, UINT64_MAX); // slow, but it moves
        ck_assert_uint_eq(f.peers[1].n_drop, 0);
        fake_pass(&f, 10 * NS_PER_S);
        fake_beat(&f, 1, 0);
        fake_beat(&f, 2, 0);
        fake_tick(&f);
    }
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOST);
    ck_assert_int_eq(fake_state(&f, 1), MEMBER_LOADING);
    ck_assert_ptr_nonnull(strstr(f.peers[1].reason, "has read nothing"));
    fake_hello(&f, 3, -1); // another takes the place
    ck_assert_uint_eq(f.peers[3].rank, 0);
    fake_finish(&f);
}
END_TEST

// --- forming

START_TEST(form_begins_when_all_are_loaded_and_shares_machines) {
    Moesaic__Control__V1__Hello h;
    fake_start(&f, 3);
    for (uint64_t p = 1; p <= 3; p++) {
        fake_hello_fill(&h, p);
        h.host = (char *)(p == 2 ? "other" : "host");
        say_hello(p, &h);
        ck_assert_uint_eq(f.n_begin, 0);
        fake_tick(&f);
        fake_progress(&f, p, 1, 2);
        fake_loaded(&f, p, p == 1 ? 40 : 60);
    }
    fake_tick(&f);
    ck_assert_uint_eq(f.n_begin, 1);
    ck_assert_uint_eq(f.peers[1].host_index, 0);
    ck_assert_uint_eq(f.peers[1].n_on_host, 2);
    ck_assert_uint_eq(f.peers[3].host_index, 1);
    ck_assert_uint_eq(f.peers[2].n_on_host, 1);
    ck_assert_uint_eq(f.peers[1].kv_blocks,
                      20); // per cent of one machine's memory: the least, divided
    ck_assert_uint_eq(f.peers[3].kv_blocks, 20);
    ck_assert_uint_eq(f.peers[2].kv_blocks, 60);
    ck_assert_uint_eq(f.peers[1].snapshots, 5); // so are those
    ck_assert_uint_eq(f.peers[2].snapshots, 15);
    for (uint64_t p = 1; p <= 3; p++) {
        ck_assert_uint_eq(f.peers[1].n_connect, 0);
        fake_formed(&f, p, 1, 8);
    }
    for (uint64_t p = 1; p <= 3; p++) {
        ck_assert(!members_ready(f.members));
        ck_assert_uint_eq(f.peers[p].n_connect, 1);
        fake_ready(&f, p, 1);
    }
    ck_assert(members_ready(f.members));
    ck_assert_uint_eq(f.kv_blocks[1], 60);
    ck_assert_uint_eq(f.snapshots[2], 5);
    fake_finish(&f);
}
END_TEST

START_TEST(form_retries_after_the_leaders_own_fabric_failed) {
    fake_start(&f, 1);
    f.begin_error = ERR_FATAL_IO;
    fake_hello(&f, 1, -1);
    fake_loaded(&f, 1, 10);
    fake_tick(&f);
    ck_assert_uint_eq(f.peers[1].n_form, 0);
    f.begin_error = 0;
    f.connect_error = ERR_PEER_LOST;
    ck_assert_int_lt(members_deadline(f.members), NO_DEADLINE);
    fake_pass(&f, MEMBER_RETRY_NS);
    fake_tick(&f);
    fake_formed(&f, 1, 1, 8);
    ck_assert_uint_eq(f.peers[1].n_close, 1);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOADED);
    f.connect_error = 0;
    f.ready_error = ERR_FATAL_NOMEM;
    fake_pass(&f, MEMBER_RETRY_NS);
    fake_tick(&f);
    fake_formed(&f, 1, 2, 8);
    fake_ready(&f, 1, 2);
    ck_assert(!members_ready(f.members));
    f.ready_error = 0;
    fake_pass(&f, MEMBER_RETRY_NS);
    fake_tick(&f);
    fake_formed(&f, 1, 3, 8);
    fake_ready(&f, 1, 3);
    ck_assert(members_ready(f.members));
    fake_finish(&f);
}
END_TEST

START_TEST(form_drops_who_does_not_answer_and_keeps_the_others) {
    fake_start(&f, 2);
    for (uint64_t p = 1; p <= 2; p++) {
        fake_hello(&f, p, -1);
        fake_loaded(&f, p, 10);
    }
    fake_tick(&f);
    fake_formed(&f, 1, 1, 8);
    for (int64_t t = 0; t < MEMBER_FORM_NS; t += NS_PER_S) {
        fake_pass(&f, NS_PER_S);
        fake_beat(&f, 1, 1);
        fake_beat(&f, 2, 0); // alive, but it does not form
        fake_tick(&f);
    }
    ck_assert_uint_eq(f.peers[2].n_drop, 1);
    ck_assert_int_eq(fake_state(&f, 1), MEMBER_LOST);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOADED);
    ck_assert_uint_eq(f.peers[1].n_close, 1);
    ck_assert(!f.open);
    fake_finish(&f);
}
END_TEST

START_TEST(form_closes_an_epoch_whose_workers_do_not_connect) {
    fake_start(&f, 2);
    for (uint64_t p = 1; p <= 2; p++) {
        fake_hello(&f, p, -1);
        fake_loaded(&f, p, 10);
    }
    fake_tick(&f);
    fake_formed(&f, 1, 1, 8);
    fake_formed(&f, 2, 1, 8);
    fake_ready(&f, 1, 1);
    for (int64_t t = 0; t < MEMBER_CONNECT_NS; t += NS_PER_S) {
        fake_pass(&f, NS_PER_S);
        fake_beat(&f, 1, 1);
        fake_beat(&f, 2, 1);
        fake_tick(&f);
    }
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOADED);
    ck_assert_int_eq(fake_state(&f, 1), MEMBER_LOADED);
    ck_assert_uint_eq(f.peers[1].n_close, 1);
    ck_assert_uint_eq(f.peers[2].n_close, 1);
    fake_finish(&f);
}
END_TEST

// --- losing

START_TEST(loss_of_a_stream_closes_the_epoch_and_the_group_forms_again) {
    fake_start(&f, 2);
    fake_group(&f);
    fake_close(&f, 2, "Socket closed");
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert_ptr_nonnull(strstr(f.lost_reason, "rank 1"));
    ck_assert_ptr_nonnull(strstr(f.lost_reason, "Socket closed"));
    ck_assert_uint_eq(f.peers[1].n_close, 1);
    ck_assert_uint_eq(f.peers[2].n_close, 0);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOADED); // keeps its weights
    ck_assert(!f.open);
    fake_epoch_closed(&f, 1, 1); // its answer to CloseEpoch says nothing new
    fake_tick(&f);
    fake_hello(&f, 3, -1);
    fake_loaded(&f, 3, 50);
    fake_pass(&f, MEMBER_SETTLE_NS);
    fake_tick(&f);
    ck_assert_uint_eq(f.peers[1].epoch, 2);
    ck_assert_uint_eq(f.peers[1].n_welcome, 1); // no second loading
    fake_beat(&f, 1, 1);                        // still of the old epoch
    fake_formed(&f, 1, 1, 8);                   // likewise
    fake_formed(&f, 1, 2, 8);
    fake_formed(&f, 3, 2, 8);
    fake_ready(&f, 1, 2);
    fake_ready(&f, 3, 2);
    ck_assert(members_ready(f.members));
    ck_assert_uint_eq(f.n_ready, 2);
    fake_finish(&f);
}
END_TEST

START_TEST(loss_after_three_missed_heartbeats) {
    fake_start(&f, 2);
    fake_group(&f);
    for (int i = 0; i < 10; i++) { // both beat: nothing happens
        fake_pass(&f, NS_PER_S);
        fake_beat(&f, 1, 1);
        fake_beat(&f, 2, 1);
        fake_tick(&f);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(f.n_lost, 0);
        fake_pass(&f, NS_PER_S);
        fake_beat(&f, 1, 1);
        fake_tick(&f);
    }
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert_uint_eq(f.peers[2].n_drop, 1);
    ck_assert(!f.peers[2].refused); // it may come back
    fake_finish(&f);
}
END_TEST

START_TEST(loss_is_not_seen_in_the_leaders_own_pause) {
    fake_start(&f, 2);
    fake_group(&f);
    fake_tick(&f);
    ck_assert_int_eq(members_deadline(f.members), f.env.now_ns + MEMBER_SILENCE_NS);
    fake_pass(&f, 60 * NS_PER_S); // the leader was stopped, not the workers
    fake_tick(&f);
    ck_assert_uint_eq(f.n_lost, 0);
    fake_finish(&f);
}
END_TEST

START_TEST(loss_when_an_engine_stands_still_in_a_step) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Heartbeat beat = MOESAIC__CONTROL__V1__HEARTBEAT__INIT;
    fake_start(&f, 2);
    fake_group(&f);
    beat.epoch = 1;
    beat.engine_age_ms = 10000;
    up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_HEARTBEAT;
    up.heartbeat = &beat;
    fake_say(&f, 2, &up);
    members_tick(f.members, false);
    ck_assert_uint_eq(f.n_lost, 0);
    members_tick(f.members, true);
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert_ptr_nonnull(strstr(f.lost_reason, "no progress"));
    fake_finish(&f);
}
END_TEST

START_TEST(an_engine_outside_of_a_group_is_in_no_step) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Heartbeat beat = MOESAIC__CONTROL__V1__HEARTBEAT__INIT;
    struct member_view view;
    fake_start(&f, 2);
    fake_group(&f);
    beat.epoch = 1;
    beat.engine_age_ms = 1000;
    up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_HEARTBEAT;
    up.heartbeat = &beat;
    fake_say(&f, 2, &up);
    members_view(f.members, 1, &view);
    ck_assert_uint_eq(view.engine_age_ms, 1000);
    fake_epoch_closed(&f, 1, 1);
    fake_tick(&f);
    members_view(f.members, 1, &view);
    ck_assert_uint_eq(view.engine_age_ms, 0);
    fake_finish(&f);
}
END_TEST

START_TEST(loss_told_by_a_worker_or_by_the_drive_keeps_all_workers) {
    fake_start(&f, 2);
    fake_group(&f);
    fake_epoch_closed(&f, 1, 1);
    ck_assert_uint_eq(f.n_lost, 1);
    ck_assert_uint_eq(f.peers[2].n_close, 1);
    fake_tick(&f);
    ck_assert_uint_eq(f.peers[2].epoch, 1);
    ck_assert_int_eq(members_deadline(f.members), f.env.now_ns + MEMBER_SETTLE_NS);
    fake_pass(&f, MEMBER_SETTLE_NS);
    fake_tick(&f);
    ck_assert_uint_eq(f.peers[2].epoch, 2);
    fake_epoch_closed(&f, 1, 1); // late
    fake_formed(&f, 1, 2, 8);
    fake_formed(&f, 2, 2, 8);
    fake_ready(&f, 1, 2);
    fake_ready(&f, 2, 2);
    ck_assert(members_ready(f.members));
    members_break(f.members, "step 7 did not return");
    ck_assert_uint_eq(f.n_lost, 2);
    ck_assert_uint_eq(f.peers[1].n_drop, 0);
    fake_finish(&f);
}
END_TEST

START_TEST(loss_of_a_guest_without_hello) {
    fake_start(&f, 1);
    fake_open(&f, 1);
    fake_tick(&f);
    ck_assert_int_le(members_deadline(f.members), f.env.now_ns + MEMBER_HELLO_NS);
    fake_pass(&f, MEMBER_HELLO_NS);
    fake_tick(&f);
    expect_refused(1, "no hello");
    fake_finish(&f);
}
END_TEST

START_TEST(member_moves_only_along_its_table) {
    ck_assert(member_may_move(MEMBER_FREE, MEMBER_JOINED));
    ck_assert(member_may_move(MEMBER_READY, MEMBER_LOADED));
    ck_assert(!member_may_move(MEMBER_FREE, MEMBER_READY));
    ck_assert(!member_may_move(MEMBER_LOADED, MEMBER_READY));
    ck_assert(!member_may_move(MEMBER_LOADED, MEMBER_LOADING));
    ck_assert(!member_may_move(MEMBER_LOST, MEMBER_READY));
    for (int to = MEMBER_FREE; to <= MEMBER_LOST; to++)
        ck_assert_int_eq(member_may_move(MEMBER_FREE, (enum member_state)to), to == MEMBER_JOINED);
}
END_TEST

START_TEST(members_say_what_they_wait_for) {
    char text[160];
    struct member_view v;
    fake_start(&f, 2);
    members_sentence(f.members, text, sizeof text);
    ck_assert_str_eq(text, "waiting for 2 of 2 workers");
    fake_hello(&f, 1, -1);
    fake_hello(&f, 2, -1);
    fake_progress(&f, 1, 512 << 10, 1024 << 10);
    fake_progress(&f, 2, 1024 << 10, 1024 << 10);
    members_sentence(f.members, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "2 of 2 workers load weights, 7"));
    members_view(f.members, 0, &v);
    ck_assert_int_eq(v.state, MEMBER_LOADING);
    ck_assert_str_eq(v.kernels, "ref");
    fake_finish(&f);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("members");
    tcase_add_test(t, join_gives_each_worker_a_rank);
    tcase_add_test(t, join_gives_a_rank_back_to_the_worker_that_holds_its_weights);
    tcase_add_test(t, join_keeps_the_workers_of_a_host_together);
    tcase_add_test(t, join_refuses_another_build_protocol_or_class);
    tcase_add_test(t, join_refuses_weights_that_differ);
    tcase_add_test(t, join_refuses_changed_weights_after_a_group_ran_with_others);
    tcase_add_test(t, join_replaces_the_old_stream_of_a_worker_that_comes_back);
    tcase_add_test(t, join_refuses_the_double_of_a_worker_that_is_there);
    tcase_add_test(t, join_gives_up_on_a_worker_that_never_loads);
    tcase_add_test(t, form_begins_when_all_are_loaded_and_shares_machines);
    tcase_add_test(t, form_retries_after_the_leaders_own_fabric_failed);
    tcase_add_test(t, form_drops_who_does_not_answer_and_keeps_the_others);
    tcase_add_test(t, form_closes_an_epoch_whose_workers_do_not_connect);
    tcase_add_test(t, loss_of_a_stream_closes_the_epoch_and_the_group_forms_again);
    tcase_add_test(t, loss_after_three_missed_heartbeats);
    tcase_add_test(t, loss_is_not_seen_in_the_leaders_own_pause);
    tcase_add_test(t, loss_when_an_engine_stands_still_in_a_step);
    tcase_add_test(t, an_engine_outside_of_a_group_is_in_no_step);
    tcase_add_test(t, loss_told_by_a_worker_or_by_the_drive_keeps_all_workers);
    tcase_add_test(t, loss_of_a_guest_without_hello);
    tcase_add_test(t, member_moves_only_along_its_table);
    tcase_add_test(t, members_say_what_they_wait_for);
    Suite *s = suite_create("leader_members");
    suite_add_tcase(s, t);
    return suite_run(s);
}
