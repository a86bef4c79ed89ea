// net_fabric.c: the fabrics keep one contract: every case runs over memory and over UCX's
// transports.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/harness/fabric_peers.h"
#include "tests/harness/suite.h"

struct variant {
    enum fabric_kind kind;
    const char *transports;
};
static const struct variant variants[] = {
    {FABRIC_MEM, NULL}, {FABRIC_UCX, "tcp"}, {FABRIC_UCX, "shm"}, {FABRIC_UCX, "auto"}};
#define VARIANTS (int)(sizeof variants / sizeof *variants)

static struct fabric_peers all;

static void open_group(int variant, uint32_t n) {
    peers_open(&all, variants[variant].kind, n, variants[variant].transports);
    peers_begin(&all);
    peers_connect(&all);
}

static void close_group(void) {
    peers_end(&all);
    peers_close(&all);
}

// --- patterned messages

static uint8_t pattern(size_t i, uint32_t seed) {
    return (uint8_t)(i * 7 + i / 251 + seed * 31);
}

static void fill(uint8_t *p, size_t bytes, uint32_t seed) {
    for (size_t i = 0; i < bytes; i++)
        p[i] = pattern(i, seed);
}

static bool holds(const struct fabric_msg *m, size_t bytes, uint32_t seed) {
    if (m->bytes != bytes || ((uintptr_t)m->data & 63) != 0) return false;
    for (size_t i = 0; i < bytes; i++) {
        if (m->data[i] != pattern(i, seed)) return false;
    }
    return true;
}

static int send_test(struct fabric_peer *p, uint32_t to, uint64_t step, const void *data,
                     size_t bytes) {
    return fabric_send(p->fabric, to, fabric_tag(FABRIC_TEST, step, 0),
                       &(struct fabric_part){NULL, 0, data, bytes, 0});
}

static int recv_test(struct fabric_peer *p, uint32_t from, uint64_t step, double seconds,
                     struct fabric_msg *m) {
    struct fabric_want want = {.peer = from, .kind = FABRIC_TEST, .step = step};
    return fabric_recv(p->fabric, &want, seconds > 0 ? peer_in(p, seconds) : 0, m);
}

// --- cases

#define ORDER_MESSAGES 400

static void order_body(struct fabric_peer *p) {
    static uint8_t data[ORDER_MESSAGES][2000];
    if (p->index == 0) {
        for (uint32_t i = 0; i < ORDER_MESSAGES; i++) {
            fill(data[i], sizeof data[i], i);
            check(send_test(p, 1, i % 2, data[i], i * 5) == 0);
        }
        check(fabric_flush(p->fabric, peer_in(p, 20)) == 0);
    }
    if (p->index != 1) return;
    for (uint32_t k = 0; k < ORDER_MESSAGES; k++) {
        // All of tag 1 first, then all of tag 0, which waited.
        uint32_t i = k < ORDER_MESSAGES / 2 ? 2 * k + 1 : 2 * (k - ORDER_MESSAGES / 2);
        struct fabric_msg m;
        check(recv_test(p, 0, i % 2, 20, &m) == 0);
        check(m.peer == 0 && holds(&m, i * 5, i));
        fabric_release(p->fabric, &m);
    }
}

START_TEST(messages_of_one_tag_keep_their_order) {
    open_group(_i, 2);
    peers_run(&all, order_body);
    close_group();
}
END_TEST

static void any_body(struct fabric_peer *p) {
    static const char text[4][8] = {"zero", "one", "two", "three"};
    if (p->index != 0) {
        check(fabric_send(p->fabric, 0, fabric_tag(FABRIC_RESULT, 40 + p->index, p->index),
                          &(struct fabric_part){text[p->index], 1, text[p->index] + 1, 7, 0}) == 0);
        check(fabric_flush(p->fabric, peer_in(p, 20)) == 0);
        return;
    }
    struct fabric_want want = {
        .peer = FABRIC_ANY_PEER, .kind = FABRIC_RESULT, .step = FABRIC_ANY_STEP};
    bool seen[4] = {true};
    for (int i = 0; i < 3; i++) {
        struct fabric_msg m;
        check(fabric_recv(p->fabric, &want, peer_in(p, 20), &m) == 0);
        check(m.peer < 4 && !seen[m.peer] && m.bytes == 8 && memcmp(m.data, text[m.peer], 8) == 0);
        check(m.tag == fabric_tag(FABRIC_RESULT, 40 + m.peer, m.peer));
        seen[m.peer] = true;
        fabric_release(p->fabric, &m);
    }
    struct fabric_msg none;
    check(fabric_recv(p->fabric, &want, 0, &none) == ERR_AGAIN);
}

START_TEST(any_peer_and_any_step_match_all_of_a_kind) {
    open_group(_i, 4);
    peers_run(&all, any_body);
    close_group();
}
END_TEST

static void size_body(struct fabric_peer *p) {
    static const size_t sizes[] = {0,    1,    61,    92,    93,    4096,   8184,   8185,
                                   8256, 8257, 32768, 65529, 65536, 300001, 1 << 20};
    const uint32_t n = sizeof sizes / sizeof *sizes;
    uint8_t *data = malloc(n << 20);
    check(data != NULL);
    uint32_t other = 1 - p->index;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *at = data + ((size_t)i << 20);
        fill(at, sizes[i], i);
        size_t head = sizes[i] < 40 ? 0 : 40;
        uint64_t tag = fabric_tag(FABRIC_TEST, i, 0);
        check(fabric_send(p->fabric, other, tag,
                          &(struct fabric_part){at, head, at + head, sizes[i] - head, 0}) == 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct fabric_msg m;
        check(recv_test(p, other, i, 20, &m) == 0);
        check(holds(&m, sizes[i], i));
        fabric_release(p->fabric, &m);
    }
    check(fabric_flush(p->fabric, peer_in(p, 20)) == 0);
    check(send_test(p, other, 0, data, (1 << 20) + 1) == ERR_REQ_TOO_LARGE);
    free(data);
}

START_TEST(every_size_arrives_whole_and_aligned_up_to_the_limit) {
    open_group(_i, 2);
    peers_run(&all, size_body);
    close_group();
}
END_TEST

START_TEST(polls_and_deadlines_end_in_time) {
    open_group(_i, 2);
    struct fabric_peer *p = &all.peers[0];
    struct fabric_msg m;
    ck_assert_int_eq(recv_test(p, FABRIC_ANY_PEER, 0, 0, &m), ERR_AGAIN);
    int64_t start = env_now_ns(p->env);
    ck_assert_int_eq(recv_test(p, FABRIC_ANY_PEER, 0, 0.05, &m), ERR_PEER_TIMEOUT);
    ck_assert_int_ge(env_now_ns(p->env) - start, 50 * NS_PER_MS);
    ck_assert_int_eq(fabric_flush(p->fabric, 0), 0);
    close_group();
}
END_TEST

START_TEST(wakes_end_only_waits_that_ask_for_them) {
    open_group(_i, 2);
    struct fabric_peer *p = &all.peers[0];
    struct fabric_msg m;
    struct fabric_want want = {
        .peer = FABRIC_ANY_PEER, .kind = FABRIC_TEST, .step = FABRIC_ANY_STEP, .wait_wakes = true};
    waker_wake(p->waker);
    ck_assert_int_eq(recv_test(p, FABRIC_ANY_PEER, 0, 0.03, &m), ERR_PEER_TIMEOUT);
    ck_assert_int_eq(fabric_recv(p->fabric, &want, peer_in(p, 20), &m), ERR_AGAIN);
    ck_assert_int_eq(fabric_recv(p->fabric, &want, peer_in(p, 0.03), &m), ERR_PEER_TIMEOUT);
    ck_assert(!waker_wait(p->waker, 0));
    close_group();
}
END_TEST

static void woken_body(struct fabric_peer *p) {
    struct fabric_msg m;
    if (p->index == 1) {
        waker_wait(p->waker, peer_in(p, 0.02));
        check(send_test(p, 0, 3, "x", 1) == 0 && fabric_flush(p->fabric, peer_in(p, 20)) == 0);
        check(recv_test(p, 0, 4, 20, &m) == 0);
        return;
    }
    struct fabric_want want = {.peer = 1, .kind = FABRIC_TEST, .step = 3, .wait_wakes = true};
    int rc = ERR_AGAIN;
    while (rc == ERR_AGAIN)
        rc = fabric_recv(p->fabric, &want, peer_in(p, 20), &m);
    check(rc == 0 && m.bytes == 1);
    check(send_test(p, 1, 4, NULL, 0) == 0 && fabric_flush(p->fabric, peer_in(p, 20)) == 0);
}

START_TEST(a_message_ends_a_wait_that_also_waits_for_wakes) {
    open_group(_i, 2);
    peers_run(&all, woken_body);
    close_group();
}
END_TEST

#define ROUNDS 30

static void exchange_body(struct fabric_peer *p) {
    uint32_t n_ranks = p->all->n - 1;
    if (p->index == n_ranks) return; // the leader takes no part
    static uint8_t data[PEERS_MAX][PEERS_MAX][70000];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct fabric_part parts[PEERS_MAX] = {{0}};
        struct fabric_msg in[PEERS_MAX];
        uint32_t shape[2] = {round, p->index};
        for (uint32_t r = 0; r < n_ranks; r++) {
            size_t bytes = (size_t)(round * 1000 + r) * (round % 3);
            fill(data[p->index][r], bytes, round + p->index * 10 + r);
            parts[r] = (struct fabric_part){shape, sizeof shape, data[p->index][r], bytes, 0};
        }
        struct fabric_exchange x = {fabric_tag(FABRIC_DISPATCH, 9, round), 0, n_ranks, parts, in};
        check(fabric_exchange(p->fabric, &x, peer_in(p, 20)) == 0);
        check(in[p->index].impl == NULL);
        for (uint32_t r = 0; r < n_ranks; r++) {
            if (r == p->index) continue;
            size_t bytes = (size_t)(round * 1000 + p->index) * (round % 3);
            uint32_t got[2];
            check(in[r].bytes == bytes + sizeof got);
            memcpy(got, in[r].data, sizeof got);
            check(got[0] == round && got[1] == r);
            for (size_t i = 0; i < bytes; i += 97)
                check(in[r].data[sizeof got + i] == pattern(i, round + r * 10 + p->index));
            fabric_release(p->fabric, &in[r]);
        }
    }
}

// Three messages to the other: a head alone, data alone, both. One to itself, which is no traffic.
START_TEST(traffic_is_counted_by_kind_and_rows_apart_from_heads) {
    static const uint8_t data[100];
    const uint64_t tag = fabric_tag(FABRIC_DISPATCH, 1, 0);
    open_group(_i, 2);
    struct fabric *f = all.peers[0].fabric;
    const struct fabric_part parts[] = {
        {data, 8, NULL, 0, 0}, {NULL, 0, data, 100, 0}, {data, 8, data, 50, 0}};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(fabric_send(f, 1, tag, &parts[i]), 0);
    ck_assert_int_eq(fabric_send(f, 0, tag, &parts[2]), 0);
    struct fabric_traffic t = fabric_sent(f, FABRIC_DISPATCH);
    ck_assert_uint_eq(t.messages, 3);
    ck_assert_uint_eq(t.bytes, 166);
    ck_assert_uint_eq(t.data_messages, 2);
    ck_assert_uint_eq(t.data_bytes, 150);
    ck_assert_uint_eq(fabric_sent(f, FABRIC_COMBINE).messages, 0);
    close_group();
}
END_TEST

START_TEST(traffic_within_a_tp_group_is_rows_only) {
    static const uint8_t data[100];
    static const enum fabric_message kinds[] = {FABRIC_GATHER, FABRIC_REDUCE, FABRIC_HEADS,
                                                FABRIC_LOGITS, FABRIC_TOKENS};
    const struct fabric_part part = {data, 8, data, 50, 0};
    open_group(_i, 2);
    struct fabric *f = all.peers[0].fabric;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ck_assert_int_eq(fabric_send(f, 1, fabric_tag(kinds[i], 1, 0), &part), 0);
        struct fabric_traffic t = fabric_sent(f, kinds[i]);
        ck_assert_uint_eq(t.bytes, 58);
        ck_assert_uint_eq(t.data_messages, 1);
        ck_assert_uint_eq(t.data_bytes, 58);
    }
    ck_assert_int_eq(fabric_send(f, 1, fabric_tag(FABRIC_STAGE, 1, 0), &part), 0);
    ck_assert_uint_eq(fabric_sent(f, FABRIC_STAGE).data_bytes, 50);
    close_group();
}
END_TEST

START_TEST(exchange_brings_every_part_to_its_rank) {
    for (uint32_t n_ranks = 1; n_ranks <= 4; n_ranks++) {
        open_group(_i, n_ranks + 1);
        peers_run(&all, exchange_body);
        close_group();
    }
}
END_TEST

// Ranks 0 and 1, and 2 to 4, exchange under the same tags and never meet.
static void part_body(struct fabric_peer *p) {
    if (p->index == p->all->n - 1) return;
    uint32_t first = p->index < 2 ? 0 : 2, n = p->index < 2 ? 2 : 3;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct fabric_part parts[3];
        struct fabric_msg in[3];
        uint32_t words[3][2];
        for (uint32_t i = 0; i < n; i++) {
            words[i][0] = p->index * 100 + round;
            words[i][1] = first + i;
            parts[i] = (struct fabric_part){.head = words[i], .head_bytes = sizeof words[i]};
        }
        struct fabric_exchange x = {fabric_tag(FABRIC_DISPATCH, 9, round), first, n, parts, in};
        check(fabric_exchange(p->fabric, &x, peer_in(p, 20)) == 0);
        for (uint32_t i = 0; i < n; i++) {
            if (first + i == p->index) continue;
            uint32_t want[2] = {(first + i) * 100 + round, p->index};
            check(in[i].peer == first + i && in[i].bytes == sizeof want);
            check(memcmp(in[i].data, want, sizeof want) == 0);
            fabric_release(p->fabric, &in[i]);
        }
    }
}

START_TEST(parts_of_a_group_exchange_at_the_same_time) {
    open_group(_i, 6);
    peers_run(&all, part_body);
    close_group();
}
END_TEST

// Rank 0 exchanges with rank 1 when rank 2 sends a message of that exchange.
static void stranger_body(struct fabric_peer *p) {
    struct fabric_part parts[2] = {{0}};
    struct fabric_msg in[2];
    uint64_t tag = fabric_tag(FABRIC_DISPATCH, 1, 0);
    struct fabric_exchange x = {tag, 0, 2, parts, in};
    if (p->index == 2) {
        check(fabric_send(p->fabric, 0, tag, &(struct fabric_part){"x", 1, NULL, 0, 0}) == 0);
        fabric_flush(p->fabric, peer_in(p, 20)); // may end because rank 0 gave up
    }
    if (p->index == 0) check(fabric_exchange(p->fabric, &x, peer_in(p, 20)) == ERR_PEER_PROTOCOL);
}

START_TEST(a_message_from_outside_of_an_exchange_ends_the_epoch) {
    open_group(_i, 4);
    peers_run(&all, stranger_body);
    close_group();
}
END_TEST

START_TEST(messages_sent_before_the_other_connects_are_kept) {
    peers_open(&all, variants[_i].kind, 2, variants[_i].transports);
    peers_begin(&all);
    struct fabric_peer *early = &all.peers[0], *late = &all.peers[1];
    ck_assert_int_eq(peer_connect(early), 0);
    ck_assert_int_eq(send_test(early, 1, 0, "early", 5), 0);
    fabric_flush(early->fabric,
                 peer_in(early, 0.05)); // the other does not move yet: may well time out
    ck_assert_int_eq(peer_connect(late), 0);
    struct fabric_msg m;
    int rc = ERR_AGAIN;
    for (int i = 0; i < 2000 && rc == ERR_AGAIN; i++) {
        fabric_flush(early->fabric, peer_in(early, 0.001));
        rc = recv_test(late, 0, 0, 0, &m);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_mem_eq(m.data, "early", 5);
    fabric_release(late->fabric, &m);
    close_group();
}
END_TEST

// A stranger that knows the address but sends another epoch, nonce or source, and then the real
// peer.
static void forge(uint64_t epoch, uint64_t nonce, uint32_t index) {
    struct fabric_peer *stranger = &all.peers[index];
    all.epoch = epoch;
    all.nonce = nonce;
    ck_assert_int_eq(peer_connect(stranger), 0);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(send_test(stranger, 0, 0, "forged", 6), 0);
}

START_TEST(old_epochs_and_forged_nonces_are_dropped) {
    peers_open(&all, variants[_i].kind, 4, variants[_i].transports);
    peers_begin(&all);
    ck_assert_int_eq(peer_connect(&all.peers[0]), 0);
    ck_assert_int_eq(peer_connect(&all.peers[3]), 0);
    forge(all.epoch - 1, 77, 1);
    forge(all.epoch + 1, 78, 2);
    struct fabric_counters count = {0};
    struct fabric_msg m;
    for (int i = 0; i < 5000 && count.messages_dropped < 10; i++) {
        for (uint32_t k = 1; k < 3; k++)
            fabric_flush(all.peers[k].fabric, peer_in(&all.peers[k], 0.001));
        ck_assert_int_eq(recv_test(&all.peers[0], FABRIC_ANY_PEER, 0, 0, &m), ERR_AGAIN);
        fabric_count(all.peers[0].fabric, &count);
    }
    ck_assert_int_eq((int)count.messages_dropped, 10);
    ck_assert_int_eq((int)count.messages_received, 0);
    ck_assert_int_eq(send_test(&all.peers[3], 0, 0, "real", 4), 0);
    int rc = ERR_AGAIN;
    for (int i = 0; i < 5000 && rc == ERR_AGAIN; i++) {
        fabric_flush(all.peers[3].fabric, peer_in(&all.peers[3], 0.001));
        rc = recv_test(&all.peers[0], FABRIC_ANY_PEER, 0, 0, &m);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_mem_eq(m.data, "real", 4);
    close_group();
}
END_TEST

START_TEST(a_message_to_oneself_arrives) {
    open_group(_i, 2);
    struct fabric_peer *p = &all.peers[1];
    struct fabric_msg m;
    ck_assert_int_eq(send_test(p, 1, 5, "me", 3), 0);
    ck_assert_int_eq(recv_test(p, 1, 5, 1, &m), 0);
    ck_assert_str_eq((const char *)m.data, "me");
    ck_assert_int_eq((int)((uintptr_t)m.data & 63), 0);
    fabric_release(p->fabric, &m);
    close_group();
}
END_TEST

static void *interrupt_soon(void *arg) {
    struct fabric_peer *p = arg;
    usleep(20000); // lets the other thread go to sleep, which the test does not rely on
    fabric_interrupt(p->fabric);
    return NULL;
}

START_TEST(interrupt_ends_a_wait_and_every_later_call) {
    open_group(_i, 3);
    struct fabric_peer *p = &all.peers[0];
    struct fabric_part parts[2] = {{0}};
    struct fabric_msg in[2], m;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, interrupt_soon, p), 0);
    struct fabric_exchange x = {fabric_tag(FABRIC_DISPATCH, 1, 1), 0, 2, parts, in};
    ck_assert_int_eq(fabric_exchange(p->fabric, &x, peer_in(p, 20)), ERR_PEER_EPOCH);
    pthread_join(thread, NULL);
    ck_assert_int_eq(recv_test(p, 1, 0, 1, &m), ERR_PEER_EPOCH);
    ck_assert_int_eq(send_test(p, 1, 0, NULL, 0), ERR_PEER_EPOCH);
    ck_assert_int_eq(fabric_flush(p->fabric, peer_in(p, 1)), ERR_PEER_EPOCH);
    peers_end(&all);
    all.epoch++;
    peers_begin(&all);
    peers_connect(&all);
    ck_assert_int_eq(recv_test(p, 1, 0, 0, &m), ERR_AGAIN);
    close_group();
}
END_TEST

static int count_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static long resident_kb(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f != NULL) fclose(f);
    return pages * 4;
}

static void traffic_body(struct fabric_peer *p) {
    exchange_body(p);
    // What is still under way or not released when the epoch ends must neither leak nor crash.
    static const uint8_t rest[50000];
    for (uint32_t peer = 0; peer < p->all->n; peer++) {
        for (int i = 0; i < 3; i++)
            check(send_test(p, peer, 7, rest, sizeof rest) == 0);
    }
    struct fabric_msg m;
    check(recv_test(p, p->index, 7, 1, &m) == 0);
}

START_TEST(twenty_epochs_in_a_row_leave_nothing_behind) {
    peers_open(&all, variants[_i].kind, 3, variants[_i].transports);
    int fds = 0;
    long kb = 0;
    for (int epoch = 1; epoch <= 20; epoch++) {
        all.epoch = (uint64_t)epoch;
        all.nonce = (uint64_t)epoch * 1000003;
        peers_begin(&all);
        peers_connect(&all);
        peers_run(&all, traffic_body);
        peers_end(&all);
        if (epoch == 4) {
            fds = count_fds();
            kb = resident_kb();
        }
    }
    ck_assert_int_eq(count_fds(), fds);
#if !defined(__SANITIZE_ADDRESS__) &&                                                              \
    !defined(__SANITIZE_THREAD__) // those keep freed memory, and find leaks themselves
    ck_assert_int_lt(resident_kb() - kb, 16 << 10);
#endif
    ck_assert_int_gt(kb, 0);
    peers_close(&all);
}
END_TEST

START_TEST(a_killed_process_is_lost_to_its_peers_and_sends_nothing) {
    open_group(_i, 3);
    struct fabric_peer *p = &all.peers[0];
    struct fabric_msg m;
    env_real_stop(all.peers[1].env);
    fabric_mem_kill(all.hub, all.peers[1].env);
    ck_assert_int_eq(send_test(&all.peers[1], 0, 0, "x", 1), ERR_FATAL_STOPPED);
    ck_assert_int_eq(recv_test(p, 2, 0, 20, &m), ERR_PEER_LOST);
    ck_assert_int_eq(send_test(p, 2, 0, NULL, 0), ERR_PEER_LOST);
    ck_assert_int_eq(recv_test(&all.peers[2], FABRIC_ANY_PEER, 0, 20, &m), ERR_PEER_LOST);
    close_group();
}
END_TEST

START_TEST(a_group_of_one_talks_to_itself_only) {
    peers_open(&all, FABRIC_SELF, 1, NULL);
    peers_begin(&all);
    peers_connect(&all);
    struct fabric_peer *p = &all.peers[0];
    struct fabric_msg m;
    char text[64] = "";
    ck_assert_int_eq(send_test(p, 0, 1, "self", 5), 0);
    ck_assert_int_eq(recv_test(p, FABRIC_ANY_PEER, 1, 1, &m), 0);
    ck_assert_str_eq((const char *)m.data, "self");
    ck_assert_int_eq(recv_test(p, FABRIC_ANY_PEER, 1, 0.02, &m), ERR_PEER_TIMEOUT);
    fabric_describe(p->fabric, text, sizeof text);
    ck_assert_str_ne(text, "");
    close_group();
}
END_TEST

int main(void) {
    Suite *s = suite_create("fabric");
    TCase *t = tcase_create("contract");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, messages_of_one_tag_keep_their_order, 0, VARIANTS);
    tcase_add_loop_test(t, any_peer_and_any_step_match_all_of_a_kind, 0, VARIANTS);
    tcase_add_loop_test(t, every_size_arrives_whole_and_aligned_up_to_the_limit, 0, VARIANTS);
    tcase_add_loop_test(t, polls_and_deadlines_end_in_time, 0, VARIANTS);
    tcase_add_loop_test(t, wakes_end_only_waits_that_ask_for_them, 0, VARIANTS);
    tcase_add_loop_test(t, a_message_ends_a_wait_that_also_waits_for_wakes, 0, VARIANTS);
    tcase_add_loop_test(t, exchange_brings_every_part_to_its_rank, 0, VARIANTS);
    tcase_add_loop_test(t, traffic_is_counted_by_kind_and_rows_apart_from_heads, 0, VARIANTS);
    tcase_add_loop_test(t, traffic_within_a_tp_group_is_rows_only, 0, VARIANTS);
    tcase_add_loop_test(t, parts_of_a_group_exchange_at_the_same_time, 0, VARIANTS);
    tcase_add_loop_test(t, a_message_from_outside_of_an_exchange_ends_the_epoch, 0, VARIANTS);
    tcase_add_loop_test(t, messages_sent_before_the_other_connects_are_kept, 0, VARIANTS);
    tcase_add_loop_test(t, old_epochs_and_forged_nonces_are_dropped, 0, VARIANTS);
    tcase_add_loop_test(t, a_message_to_oneself_arrives, 0, VARIANTS);
    tcase_add_loop_test(t, interrupt_ends_a_wait_and_every_later_call, 0, VARIANTS);
    tcase_add_loop_test(t, twenty_epochs_in_a_row_leave_nothing_behind, 0, VARIANTS);
    tcase_add_test(t, a_killed_process_is_lost_to_its_peers_and_sends_nothing);
    tcase_add_test(t, a_group_of_one_talks_to_itself_only);
    suite_add_tcase(s, t);
    return suite_run(s);
}
