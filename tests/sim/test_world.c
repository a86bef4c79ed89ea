// test_world.c: the simulator itself: equal seeds give equal runs, time is virtual, kills are seen,
// deadlocks are found.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/net/channel_mem.h"
#include "common/net/fabric_mem.h"
#include "tests/harness/suite.h"
#include "tests/sim/world.h"

#define PEERS 4

// --- a ring of processes that exchange for some rounds

struct ring {
    struct sim *sim;
    uint8_t addresses[PEERS][FABRIC_ADDRESS_MAX];
    size_t bytes[PEERS];
    uint32_t n_begun, rounds;
    bool last_stays; // until it is killed or loses someone
    int result[PEERS];
    struct ring_member {
        struct ring *ring;
        uint32_t index;
        struct waker *waker;
    } members[PEERS];
};

static void wait_for_all(struct env *env, struct ring_member *m) {
    m->ring->n_begun++;
    for (uint32_t i = 0; i < PEERS; i++) {
        if (m->ring->members[i].waker != NULL) waker_wake(m->ring->members[i].waker);
    }
    while (m->ring->n_begun < PEERS && !env_stopped(env))
        waker_wait(m->waker, NO_DEADLINE);
}

static int exchange_rounds(struct env *env, struct ring_member *m, struct fabric *f) {
    struct ring *ring = m->ring;
    for (uint32_t round = 0; round < ring->rounds; round++) {
        struct fabric_part parts[PEERS - 1];
        struct fabric_msg in[PEERS - 1];
        for (uint32_t i = 0; i < PEERS - 1; i++)
            parts[i] = (struct fabric_part){
                .head = &round, .head_bytes = sizeof round, .data = &m->index, .data_bytes = 4};
        struct fabric_exchange x = {fabric_tag(FABRIC_DISPATCH, round, 0), 0, PEERS - 1, parts, in};
        int rc = fabric_exchange(f, &x, env_now_ns(env) + 5 * NS_PER_S);
        if (rc != 0) return rc;
        for (uint32_t i = 0; i < PEERS - 1; i++) {
            check(i == m->index || (in[i].bytes == 8 && memcmp(in[i].data, &round, 4) == 0));
            fabric_release(f, &in[i]);
        }
    }
    return 0;
}

static void ring_main(struct env *env, void *arg) {
    struct ring_member *m = arg;
    struct ring *ring = m->ring;
    struct fabric *f;
    struct err_text e;
    check(waker_create(env, &m->waker) == 0);
    struct fabric_config config = {
        .env = env, .waker = m->waker, .message_bytes_max = 100, .hub = sim_fabric_hub(ring->sim)};
    check(fabric_open(&f, FABRIC_MEM, &config, &e) == 0);
    check(fabric_begin(f, ring->addresses[m->index], &ring->bytes[m->index], &e) == 0);
    wait_for_all(env, m);
    const uint8_t *addresses[PEERS];
    for (uint32_t i = 0; i < PEERS; i++)
        addresses[i] = ring->addresses[i];
    struct fabric_group group = {.epoch = 1,
                                 .nonce = 9,
                                 .self = m->index,
                                 .n_peers = PEERS,
                                 .addresses = addresses,
                                 .address_bytes = ring->bytes};
    int rc = fabric_connect(f, &group, &e);
    if (rc == 0 && m->index < PEERS - 1) rc = exchange_rounds(env, m, f);
    struct fabric_want want = {
        .peer = FABRIC_ANY_PEER, .kind = FABRIC_PLAN, .step = FABRIC_ANY_STEP};
    struct fabric_msg none;
    if (rc == 0 && m->index == PEERS - 1 && ring->last_stays)
        rc = fabric_recv(f, &want, NO_DEADLINE, &none);
    ring->result[m->index] = rc;
    fabric_close(f);
    waker_destroy(m->waker);
    m->waker = NULL;
}

static void spawn_ring(struct sim *s, struct ring *ring, uint32_t rounds,
                       struct sim_process **out) {
    *ring = (struct ring){.sim = s, .rounds = rounds};
    for (uint32_t i = 0; i < PEERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "member %u", i);
        ring->members[i] = (struct ring_member){.ring = ring, .index = i};
        struct sim_process *p = sim_spawn(s, name, ring_main, &ring->members[i]);
        if (out != NULL) out[i] = p;
    }
}

static uint64_t ring_hash(uint64_t seed, uint64_t *steps) {
    struct sim_config config = sim_config_default(seed);
    struct sim *s = sim_create(&config);
    struct ring ring;
    spawn_ring(s, &ring, 20, NULL);
    enum sim_end end = sim_run(s, NO_DEADLINE);
    ck_assert_int_eq(end, SIM_DONE);
    uint64_t hash = sim_trace_hash(s);
    *steps = sim_steps(s);
    sim_destroy(s);
    return hash;
}

START_TEST(equal_seeds_give_equal_runs_and_others_differ) {
    uint64_t seed = sim_seed(1), steps, again_steps, other_steps, n_differ = 0;
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t hash = ring_hash(seed + i, &steps);
        ck_assert_uint_eq(ring_hash(seed + i, &again_steps), hash);
        ck_assert_uint_eq(steps, again_steps);
        n_differ += ring_hash(seed + i + 1000, &other_steps) != hash;
    }
    ck_assert_uint_eq(n_differ, 20);
}
END_TEST

START_TEST(an_exchange_ends_well_or_by_the_loss_of_a_member_that_left) {
    // The last member leaves at once, and a clean end may look like a loss.
    int n_lost = 0, n_well = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct sim_config config = sim_config_default(seed);
        struct sim *s = sim_create(&config);
        struct ring ring;
        spawn_ring(s, &ring, 200, NULL);
        ck_assert_int_eq(sim_run(s, NO_DEADLINE), SIM_DONE);
        for (uint32_t i = 0; i < PEERS - 1; i++) {
            ck_assert(ring.result[i] == 0 || ring.result[i] == ERR_PEER_LOST ||
                      ring.result[i] == ERR_PEER_TIMEOUT);
            n_lost += ring.result[i] == ERR_PEER_LOST;
            n_well += ring.result[i] == 0;
        }
        sim_destroy(s);
    }
    ck_assert_int_gt(n_lost, 0);
    ck_assert_int_gt(n_well, 0);
}
END_TEST

START_TEST(a_killed_process_is_noticed_within_the_detection_time) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct sim_config config = sim_config_default(seed);
        struct sim *s = sim_create(&config);
        struct ring ring;
        struct sim_process *members[PEERS];
        spawn_ring(s, &ring, UINT32_MAX, members);
        ring.last_stays = true;
        ck_assert_int_eq(sim_run(s, NS_PER_S + 20 * NS_PER_MS), SIM_TIME);
        sim_kill(s, members[1]);
        int64_t killed_at = sim_now_ns(s);
        ck_assert_int_eq(sim_run(s, NO_DEADLINE), SIM_DONE);
        ck_assert_int_eq(ring.result[1], ERR_FATAL_STOPPED);
        ck_assert_int_eq(ring.result[0], ERR_PEER_LOST);
        ck_assert_int_eq(ring.result[2], ERR_PEER_LOST);
        ck_assert_int_eq(ring.result[3], ERR_PEER_LOST);
        ck_assert_int_le(sim_now_ns(s) - killed_at, config.detect_ns_max * 2);
        sim_destroy(s);
    }
}
END_TEST

// --- time, deadlock, livelock

static void sleeper_main(struct env *env, void *arg) {
    struct waker *w;
    check(waker_create(env, &w) == 0);
    int64_t start = env_now_ns(env);
    check(!waker_wait(w, start + 3600 * NS_PER_S));
    *(int64_t *)arg = env_now_ns(env) - start;
    waker_destroy(w);
}

START_TEST(virtual_time_jumps_to_the_next_deadline) {
    struct sim_config config = sim_config_default(1);
    struct sim *s = sim_create(&config);
    int64_t slept = 0;
    struct sim_process *p = sim_spawn(s, "sleeper", sleeper_main, &slept);
    ck_assert_int_eq(sim_run(s, sim_now_ns(s) + 10 * NS_PER_S), SIM_TIME);
    ck_assert(!sim_done(p));
    sim_pause(s, p, 7200 * NS_PER_S);
    ck_assert_int_eq(sim_run(s, NO_DEADLINE), SIM_DONE);
    ck_assert(sim_done(p));
    ck_assert_int_eq(slept, 7210 * NS_PER_S); // it was paused past its deadline
    ck_assert_uint_lt(sim_steps(s), 20);
    sim_destroy(s);
}
END_TEST

static void forever_main(struct env *env, void *arg) {
    struct waker *w;
    (void)arg;
    check(waker_create(env, &w) == 0);
    while (!env_stopped(env))
        waker_wait(w, NO_DEADLINE);
    waker_destroy(w);
}

static void poll_main(struct env *env, void *arg) {
    struct waker *w;
    (void)arg;
    check(waker_create(env, &w) == 0);
    while (!env_stopped(env))
        waker_wait(w, 0);
    waker_destroy(w);
}

START_TEST(deadlocks_and_livelocks_are_found) {
    struct sim_config config = sim_config_default(1);
    config.steps_max = 5000;
    struct sim *s = sim_create(&config);
    sim_spawn(s, "a", forever_main, NULL);
    sim_spawn(s, "b", forever_main, NULL);
    ck_assert_int_eq(sim_run(s, NO_DEADLINE), SIM_DEADLOCK);
    sim_spawn(s, "c", poll_main, NULL);
    ck_assert_int_eq(sim_run(s, NO_DEADLINE), SIM_STEPS);
    sim_destroy(s);
}
END_TEST

// --- the script as a channel's owner

struct echo {
    struct sim *sim;
    int n_closed;
};

static void echo_main(struct env *env, void *arg) {
    struct echo *echo = arg;
    struct waker *w;
    struct channel *c;
    struct channel_event ev;
    check(waker_create(env, &w) == 0);
    struct channel_config config = {
        .env = env, .waker = w, .address = "leader", .hub = sim_channel_hub(echo->sim)};
    check(channel_listen_mem(&c, &config, NULL) == 0);
    while (!env_stopped(env)) {
        while (channel_next(c, &ev) == 0) {
            if (ev.kind == CHANNEL_MESSAGE) channel_send(c, ev.peer, ev.data, ev.bytes);
            echo->n_closed += ev.kind == CHANNEL_CLOSED;
            channel_event_finish(&ev);
        }
        waker_wait(w, NO_DEADLINE);
    }
    channel_close(c);
    waker_destroy(w);
}

static void expect(struct sim *s, struct channel *c, struct waker *w, enum channel_event_kind kind,
                   const char *data) {
    struct channel_event ev;
    int64_t limit = sim_now_ns(s) + 60 * NS_PER_S;
    while (channel_next(c, &ev) == ERR_AGAIN)
        ck_assert(waker_wait(w, limit));
    ck_assert_int_eq(ev.kind, kind);
    if (data != NULL) ck_assert_mem_eq(ev.data, data, ev.bytes);
    channel_event_finish(&ev);
}

START_TEST(the_script_can_own_a_channel_and_a_restarted_server_is_found_again) {
    struct sim_config config = sim_config_default(sim_seed(5));
    struct sim *s = sim_create(&config);
    struct echo echo = {.sim = s}, second = {.sim = s};
    struct env *env = sim_script_env(s);
    struct waker *w;
    struct channel *c;
    ck_assert_int_eq(waker_create(env, &w), 0);
    struct channel_config dial = {
        .env = env, .waker = w, .address = "leader", .hub = sim_channel_hub(s)};
    ck_assert_int_eq(channel_dial_mem(&c, &dial, NULL), 0);
    struct sim_process *server = sim_spawn(s, "echo", echo_main, &echo);
    expect(s, c, w, CHANNEL_OPENED, NULL);
    for (int i = 0; i < 10; i++) {
        char text[8] = "hello 0";
        text[6] = (char)('0' + i);
        ck_assert_int_eq(channel_send(c, 1, text, 7), 0);
        if (i % 2 == 1) {
            text[6]--;
            expect(s, c, w, CHANNEL_MESSAGE, text);
            text[6]++;
            expect(s, c, w, CHANNEL_MESSAGE, text);
        }
    }
    sim_kill(s, server);
    expect(s, c, w, CHANNEL_CLOSED, NULL);
    ck_assert_int_eq(channel_send(c, 1, "x", 1), ERR_PEER_LOST);
    sim_spawn(s, "echo again", echo_main, &second);
    expect(s, c, w, CHANNEL_OPENED, NULL);
    channel_drop(c, 1, false, "enough");
    expect(s, c, w, CHANNEL_CLOSED, NULL);
    expect(s, c, w, CHANNEL_OPENED, NULL);
    ck_assert_int_eq(second.n_closed, 1);
    channel_close(c);
    waker_destroy(w);
    sim_destroy(s);
}
END_TEST

int main(void) {
    Suite *s = suite_create("world");
    TCase *t = tcase_create("world");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, equal_seeds_give_equal_runs_and_others_differ);
    tcase_add_test(t, an_exchange_ends_well_or_by_the_loss_of_a_member_that_left);
    tcase_add_test(t, a_killed_process_is_noticed_within_the_detection_time);
    tcase_add_test(t, virtual_time_jumps_to_the_next_deadline);
    tcase_add_test(t, deadlocks_and_livelocks_are_found);
    tcase_add_test(t, the_script_can_own_a_channel_and_a_restarted_server_is_found_again);
    suite_add_tcase(s, t);
    return suite_run(s);
}
