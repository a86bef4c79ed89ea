// net_room.c: the memory fabric's full queues, which the simulator's storms lean on: what finds no
// room stays with its sender for a while, and whoever changes it meanwhile is found out.
#include <signal.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/harness/fabric_peers.h"
#include "tests/harness/suite.h"

#define MESSAGES 8
#define UNIT_BYTES 512
#define UNITS 9 // in several pieces
#define PASSING_ROUNDS 1000

static struct fabric_peers all;
static uint8_t data[MESSAGES][UNITS * UNIT_BYTES];

static void open_pair(uint32_t full_percent) {
    const struct fabric_mem_options options = {.full_percent = full_percent,
                                               .full_ns_max = NS_PER_MS};
    peers_open_mem(&all, 2, &options);
    peers_begin(&all);
    peers_connect(&all);
}

static void close_pair(void) {
    peers_end(&all);
    peers_close(&all);
}

static void post(uint64_t step, uint32_t i) {
    struct fabric_part part = {NULL, 0, data[i], sizeof data[i], UNIT_BYTES};
    memset(data[i], (int)i + 1, sizeof data[i]);
    ck_assert_int_eq(fabric_send(all.peers[0].fabric, 1, fabric_tag(FABRIC_TEST, step, 0), &part),
                     0);
}

static int take(struct fabric_msg *m, double seconds) {
    struct fabric_peer *p = &all.peers[1];
    struct fabric_want want = {.peer = 0, .kind = FABRIC_TEST, .step = FABRIC_ANY_STEP};
    return fabric_recv(p->fabric, &want, seconds == 0 ? 0 : peer_in(p, seconds), m);
}

static bool holds(const struct fabric_msg *m, uint32_t i) {
    struct fabric_piece first = fabric_pieces(m);
    size_t bytes = 0;
    for (const struct fabric_piece *p = &first; p != NULL; p = p->next) {
        if (p->bytes == 0 || p->data[0] != i + 1 || p->data[p->bytes - 1] != i + 1) return false;
        bytes += p->bytes;
    }
    return bytes == sizeof data[i] && m->rest != NULL;
}

START_TEST(what_finds_no_room_leaves_in_its_order_in_a_later_call_of_its_sender) {
    struct fabric_msg m;
    open_pair(100);
    struct fabric_peer *p = &all.peers[0];
    for (uint32_t i = 0; i < MESSAGES; i++)
        post(i, i);
    ck_assert(!fabric_flushed(p->fabric));
    ck_assert_int_eq(take(&m, 0.01), ERR_PEER_TIMEOUT); // there would be room long since
    ck_assert_int_eq(fabric_flush(p->fabric, peer_in(p, 20)), 0);
    ck_assert(fabric_flushed(p->fabric));
    for (uint32_t i = 0; i < MESSAGES; i++) {
        ck_assert_int_eq(take(&m, 20), 0);
        ck_assert_uint_eq(m.tag, fabric_tag(FABRIC_TEST, i, 0));
        ck_assert(holds(&m, i));
        fabric_release(all.peers[1].fabric, &m);
    }
    close_pair();
}
END_TEST

// Their pieces may mix, and each is whole all the same.
START_TEST(what_is_posted_after_another_call_may_pass) {
    uint32_t n_passed = 0;
    open_pair(20);
    struct fabric_peer *p = &all.peers[0];
    for (uint64_t step = 0; step < PASSING_ROUNDS && n_passed == 0; step += 2) {
        struct fabric_msg m[2];
        post(step, 0);
        int rc = fabric_flush(p->fabric, 0);
        ck_assert(rc == 0 || rc == ERR_AGAIN);
        post(step + 1, 1);
        ck_assert_int_eq(fabric_flush(p->fabric, peer_in(p, 20)), 0);
        ck_assert(take(&m[0], 20) == 0 && take(&m[1], 20) == 0);
        bool passed = m[0].tag == fabric_tag(FABRIC_TEST, step + 1, 0);
        ck_assert(holds(&m[0], passed ? 1 : 0) && holds(&m[1], passed ? 0 : 1));
        n_passed += passed;
        fabric_release(all.peers[1].fabric, &m[0]);
        fabric_release(all.peers[1].fabric, &m[1]);
    }
    ck_assert_uint_gt(n_passed, 0);
    close_pair();
}
END_TEST

START_TEST(memory_that_changes_before_it_has_left_is_found_out) {
    open_pair(100);
    struct fabric_peer *p = &all.peers[0];
    post(0, 0);
    data[0][UNIT_BYTES * 3]++;
    (void)fabric_flush(p->fabric, peer_in(p, 20)); // aborts
}
END_TEST

START_TEST(an_epoch_ends_with_what_did_not_leave) {
    open_pair(100);
    post(0, 0);
    ck_assert(!fabric_flushed(all.peers[0].fabric));
    memset(data, 0, sizeof data);
    peers_end(&all); // its memory is the caller's again
    ck_assert(fabric_flushed(all.peers[0].fabric));
    peers_close(&all);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("room");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, what_finds_no_room_leaves_in_its_order_in_a_later_call_of_its_sender);
    tcase_add_test(tests, what_is_posted_after_another_call_may_pass);
    tcase_add_test_raise_signal(tests, memory_that_changes_before_it_has_left_is_found_out,
                                SIGABRT);
    tcase_add_test(tests, an_epoch_ends_with_what_did_not_leave);
    Suite *suite = suite_create("net_room");
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
