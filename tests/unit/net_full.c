// net_full.c: tests of queues of shared memory: a process waits while what it sends finds no room,
// because the receiver is busy elsewhere; and both must have them of one size.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"
#include "tests/harness/fabric_peers.h"
#include "tests/harness/suite.h"

static const char *const transports[] = {"shm", "auto"};
#define N_TRANSPORTS (int)(sizeof transports / sizeof *transports)

#define MESSAGES 64 // more than a queue of shared memory holds
#define MESSAGE_BYTES 1000

static struct fabric_peers all;
static uint8_t data[MESSAGES][MESSAGE_BYTES];

static int post(struct fabric_peer *p, uint64_t step, const void *bytes, size_t n) {
    return fabric_send(p->fabric, 1 - p->index, fabric_tag(FABRIC_TEST, step, 0),
                       &(struct fabric_part){NULL, 0, bytes, n, 0});
}

static void take(struct fabric_peer *p, uint64_t step, const void *bytes, size_t n) {
    struct fabric_want want = {.peer = 1 - p->index, .kind = FABRIC_TEST, .step = step};
    struct fabric_msg m;
    check(fabric_recv(p->fabric, &want, peer_in(p, 20), &m) == 0);
    check(m.bytes == n && memcmp(m.data, bytes, n) == 0);
    fabric_release(p->fabric, &m);
}

// The first message that is not tiny connects the two, for which both must move.
static void greet(struct fabric_peer *p) {
    static uint8_t hello[2][MESSAGE_BYTES];
    for (uint64_t step = 100; step < 120; step++) {
        check(post(p, step, hello[p->index], MESSAGE_BYTES) == 0);
        take(p, step, hello[p->index], MESSAGE_BYTES);
        check(fabric_flush(p->fabric, peer_in(p, 20)) == 0);
    }
}

static void catch_up(struct fabric_peer *p) {
    if (p->index == 0) check(fabric_flush(p->fabric, peer_in(p, 20)) == 0);
    for (uint32_t i = 0; p->index == 1 && i < MESSAGES; i++)
        take(p, 2, data[i], sizeof data[i]);
}

static int64_t processor_ns(void) {
    struct timespec t;
    check(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

START_TEST(a_wait_with_sends_that_find_no_room_sleeps_and_sees_wakes) {
    peers_open(&all, FABRIC_UCX, 2, transports[_i]);
    peers_begin(&all);
    peers_connect(&all);
    peers_run(&all, greet);
    struct fabric_peer *p = &all.peers[0];
    for (uint32_t i = 0; i < MESSAGES; i++) {
        memset(data[i], (int)i + 1, sizeof data[i]);
        ck_assert_int_eq(post(p, 2, data[i], sizeof data[i]), 0);
    }
    struct fabric_msg m;
    struct fabric_want want = {
        .peer = FABRIC_ANY_PEER, .kind = FABRIC_TEST, .step = FABRIC_ANY_STEP, .wait_wakes = true};
    waker_wake(p->waker);
    ck_assert_int_eq(fabric_recv(p->fabric, &want, peer_in(p, 20), &m), ERR_AGAIN);
    int64_t began_ns = processor_ns();
    ck_assert_int_eq(fabric_recv(p->fabric, &want, peer_in(p, 0.3), &m), ERR_PEER_TIMEOUT);
    ck_assert_int_lt(processor_ns() - began_ns, 150 * NS_PER_MS);
    ck_assert(!fabric_flushed(p->fabric));
    peers_run(&all, catch_up);
    peers_end(&all);
    peers_close(&all);
}
END_TEST

// Each writes into the other's memory by its own sizes.
START_TEST(other_sizes_of_shared_memory_are_refused_by_name) {
    static const char *const names[] = {"UCX_MM_FIFO_SIZE", "UCX_SYSV_SEG_SIZE",
                                        "UCX_POSIX_FIFO_ELEM_SIZE"};
    struct err_text e = {""};
    peers_open(&all, FABRIC_UCX, 2, "shm");
    peers_begin(&all);
    const struct fabric_peer *p = &all.peers[1];
    ck_assert_int_eq(fabric_address_check(all.peers[0].fabric, p->address, p->address_bytes, &e),
                     0);
    for (int size = 1; size < 2000; size++) { // as if the address came from elsewhere
        char value[16];
        snprintf(value, sizeof value, "%d.5k", size);
        ck_assert_int_eq(setenv(names[_i], value, 1), 0);
        int rc = fabric_address_check(all.peers[0].fabric, p->address, p->address_bytes, &e);
        ck_assert_msg(rc == ERR_PEER_REFUSED, "%s=%s is taken for the own one", names[_i], value);
        ck_assert_msg(strstr(e.text, "another UCX_MM_FIFO_SIZE") != NULL, "%s", e.text);
    }
    peers_end(&all);
    peers_close(&all);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("full");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, a_wait_with_sends_that_find_no_room_sleeps_and_sees_wakes, 0,
                        N_TRANSPORTS);
    tcase_add_loop_test(tests, other_sizes_of_shared_memory_are_refused_by_name, 0, 3);
    Suite *suite = suite_create("net_full");
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
