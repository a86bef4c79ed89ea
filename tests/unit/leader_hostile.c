// leader_hostile.c: what workers and strangers say wrongly is refused by name and loses a worker,
// never the leader.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
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

START_TEST(join_refuses_absurd_fields_by_name) {
    static char long_text[1000];
    static char *many[17];
    memset(long_text, 'x', sizeof long_text - 1);
    for (size_t i = 0; i < 17; i++)
        many[i] = (char *)"base";
    Moesaic__Control__V1__Layout layouts[3];
    for (int i = 0; i < 3; i++)
        layout_pack(&layouts[i], &(struct layout){2, 1, 2, 1, 2, 1});
    layouts[0].dp = UINT32_MAX;
    layouts[1].dp = 0;
    const struct {
        const char *words;
        Moesaic__Control__V1__Hello h;
    } rows[] = {
        {"hello.host has 999 bytes", {.host = long_text}},
        {"hello.name has 999 bytes", {.name = long_text}},
        {"hello.kernels has 999 bytes", {.kernels = long_text}},
        {"hello.n_cores 4294967295", {.n_cores = UINT32_MAX}},
        {"hello.memory_bytes 9223372036854775808", {.memory_bytes = UINT64_C(1) << 63}},
        {"hello.arithmetic_classes 17", {.n_arithmetic_classes = 17, .arithmetic_classes = many}},
        {"hello.held_layout is missing", {.has_weights = true}},
        {"hello.held_layout: pipeline 1 x data 4294967295",
         {.has_weights = true, .held_layout = &layouts[0]}},
        {"hello.held_layout: number of workers 0",
         {.has_weights = true, .held_layout = &layouts[1]}},
        {"hello.held_rank 2 does not exist among 2",
         {.has_weights = true, .held_rank = 2, .held_layout = &layouts[2]}},
    };
    fake_start(&f, 2);
    for (uint64_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Moesaic__Control__V1__Hello h;
        const Moesaic__Control__V1__Hello *bad = &rows[i].h;
        fake_hello_fill(&h, i + 1);
        if (bad->host != NULL) h.host = bad->host;
        if (bad->name != NULL) h.name = bad->name;
        if (bad->kernels != NULL) h.kernels = bad->kernels;
        if (bad->n_cores != 0) h.n_cores = bad->n_cores;
        if (bad->memory_bytes != 0) h.memory_bytes = bad->memory_bytes;
        if (bad->arithmetic_classes != NULL) {
            h.n_arithmetic_classes = bad->n_arithmetic_classes;
            h.arithmetic_classes = bad->arithmetic_classes;
        }
        h.has_weights = bad->has_weights;
        h.held_rank = bad->held_rank;
        h.held_layout = bad->held_layout;
        say_hello(i + 1, &h);
        expect_refused(i + 1, rows[i].words);
    }
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_FREE);
    fake_finish(&f);
}
END_TEST

START_TEST(guests_in_a_flood_make_room_for_those_that_speak) {
    fake_start(&f, 1);
    for (uint64_t p = 1; p < FAKE_PEERS_MAX - 1; p++) {
        fake_open(&f, p);
        fake_pass(&f, NS_PER_MS);
    }
    ck_assert_uint_eq(f.peers[1].n_drop, 1); // the oldest had to go
    ck_assert_ptr_nonnull(strstr(f.peers[1].reason, "too many streams"));
    ck_assert_uint_eq(f.peers[FAKE_PEERS_MAX - 2].n_drop, 0);
    fake_hello(&f, FAKE_PEERS_MAX - 1, -1);
    ck_assert_uint_eq(f.peers[FAKE_PEERS_MAX - 1].n_welcome, 1);
    fake_finish(&f);
}
END_TEST

static void expect_lost(uint64_t peer, const char *words) {
    ck_assert_uint_eq(f.peers[peer].n_drop, 1);
    ck_assert_msg(strstr(f.peers[peer].reason, words) != NULL, "\"%s\" is not in \"%s\"", words,
                  f.peers[peer].reason);
    ck_assert_int_eq(fake_state(&f, 0), MEMBER_LOST);
    fake_finish(&f);
    fake_start(&f, 1);
    fake_hello(&f, 1, -1);
}

START_TEST(hostile_words_in_the_wrong_state_lose_the_worker) {
    fake_start(&f, 1);
    fake_hello(&f, 1, -1);
    fake_bytes(&f, 1, "\x0a\xff\xff", 3);
    expect_lost(1, "malformed");
    fake_bytes(&f, 1, "", 0); // a message without a kind
    expect_lost(1, "no known kind");
    fake_bytes(&f, 1, "\xfa\x01\x00", 3); // a field of a later protocol
    expect_lost(1, "no known kind");
    Moesaic__Control__V1__Hello h;
    fake_hello_fill(&h, 1);
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_HELLO;
    up.hello = &h;
    fake_say(&f, 1, &up);
    expect_lost(1, "Hello twice");
    fake_loaded(&f, 1, 5);
    fake_loaded(&f, 1, 5);
    expect_lost(1, "Loaded twice");
    fake_loaded(&f, 1, 5);
    fake_progress(&f, 1, 1, 2);
    expect_lost(1, "Progress after Loaded");
    fake_progress(&f, 1, 3, 2);
    expect_lost(1, "Progress of 3 bytes out of 2");
    fake_formed(&f, 1, 1, 8); // no epoch is forming
    expect_lost(1, "Formed of epoch 1");
    fake_ready(&f, 1, 1);
    expect_lost(1, "Ready of epoch 1");
    fake_beat(&f, 1, 1);
    expect_lost(1, "epoch 1 to come");
    fake_epoch_closed(&f, 1, 4);
    expect_lost(1, "epoch 4 to come");
    fake_loaded(&f, 1, 5);
    fake_tick(&f);
    fake_formed(&f, 1, 1, 0);
    expect_lost(1, "address of 0 bytes");
    fake_loaded(&f, 1, 5);
    fake_tick(&f);
    fake_formed(&f, 1, 1, FABRIC_ADDRESS_MAX + 1);
    expect_lost(1, "address of 1025 bytes");
    fake_loaded(&f, 1, 5);
    fake_tick(&f);
    fake_ready(&f, 1, 1); // before Connect
    expect_lost(1, "Ready of epoch 1");
    fake_finish(&f);
}
END_TEST

START_TEST(hostile_guests_are_refused) {
    fake_start(&f, 1);
    fake_open(&f, 1);
    fake_bytes(&f, 1, "\xff\xff", 2);
    expect_refused(1, "malformed");
    fake_open(&f, 2);
    fake_beat(&f, 2, 0);
    expect_refused(2, "not Hello");
    uint8_t *big = calloc(1, CONTROL_MESSAGE_BYTES_MAX + 1);
    fake_open(&f, 3);
    fake_bytes(&f, 3, big, CONTROL_MESSAGE_BYTES_MAX + 1);
    expect_refused(3, "malformed");
    free(big);
    fake_bytes(&f, 4, "\x0a\x00", 2); // of a stream that was never opened
    fake_close(&f, 5, "");
    fake_finish(&f);
}
END_TEST

START_TEST(hostile_counters_are_refused_and_right_ones_add_up) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Heartbeat beat = MOESAIC__CONTROL__V1__HEARTBEAT__INIT;
    uint64_t counters[7] = {1, 2, 3, 4, 5, 6, 7};
    fake_start(&f, 2); // 2 layers, 6 experts: 3 a rank
    fake_group(&f);
    beat.epoch = 1;
    beat.n_expert_tokens = 6;
    beat.expert_tokens = counters;
    up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_HEARTBEAT;
    up.heartbeat = &beat;
    fake_say(&f, 2, &up);
    counters[0] = 11;
    fake_say(&f, 2, &up);
    beat.epoch = 0; // of an older epoch: worth nothing
    counters[0] = 5;
    fake_say(&f, 2, &up);
    beat.epoch = 1;
    const uint64_t *tokens = members_expert_tokens(f.members);
    ck_assert_uint_eq(tokens[0], 0);
    ck_assert_uint_eq(tokens[3], 11);
    ck_assert_uint_eq(tokens[4], 2);
    ck_assert_uint_eq(tokens[6 + 3], 4);
    ck_assert_uint_eq(tokens[6 + 5], 6);
    beat.n_expert_tokens = 7;
    fake_say(&f, 2, &up);
    ck_assert_uint_eq(f.peers[2].n_drop, 1);
    ck_assert_ptr_nonnull(strstr(f.peers[2].reason, "7 expert counters, not 6"));
    fake_finish(&f);
}
END_TEST

START_TEST(hostile_counters_that_go_back_or_leap_lose_the_worker) {
    static const uint64_t seconds[] = {9, UINT64_MAX};
    for (int i = 0; i < 2; i++) {
        Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
        Moesaic__Control__V1__Heartbeat beat = MOESAIC__CONTROL__V1__HEARTBEAT__INIT;
        uint64_t counters[6] = {10};
        fake_start(&f, 2);
        fake_group(&f);
        beat.epoch = 1;
        beat.n_expert_tokens = 6;
        beat.expert_tokens = counters;
        up.kind_case = MOESAIC__CONTROL__V1__JOIN_UP__KIND_HEARTBEAT;
        up.heartbeat = &beat;
        fake_say(&f, 2, &up);
        counters[0] = seconds[i];
        fake_say(&f, 2, &up);
        ck_assert_uint_eq(f.peers[2].n_drop, 1);
        ck_assert_ptr_nonnull(strstr(f.peers[2].reason, "expert counter 0 went from 10"));
        ck_assert_uint_eq(members_expert_tokens(f.members)[3], 10);
        fake_finish(&f);
    }
}
END_TEST

int main(void) {
    TCase *t = tcase_create("hostile");
    tcase_add_test(t, join_refuses_absurd_fields_by_name);
    tcase_add_test(t, guests_in_a_flood_make_room_for_those_that_speak);
    tcase_add_test(t, hostile_words_in_the_wrong_state_lose_the_worker);
    tcase_add_test(t, hostile_guests_are_refused);
    tcase_add_test(t, hostile_counters_are_refused_and_right_ones_add_up);
    tcase_add_test(t, hostile_counters_that_go_back_or_leap_lose_the_worker);
    Suite *s = suite_create("leader_hostile");
    suite_add_tcase(s, t);
    return suite_run(s);
}
