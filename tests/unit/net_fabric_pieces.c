// net_fabric_pieces.c: messages of units come in pieces that cut none, over memory and over UCX's
// transports.
#include <stdlib.h>

#include "common/base/check.h"
#include "tests/harness/fabric_peers.h"
#include "tests/harness/suite.h"

static const struct {
    enum fabric_kind kind;
    const char *transports;
} variants[] = {{FABRIC_MEM, NULL}, {FABRIC_UCX, "tcp"}, {FABRIC_UCX, "shm"}, {FABRIC_UCX, "auto"}};
#define TCP_VARIANT 1
#define VARIANTS (int)(sizeof variants / sizeof *variants)

static struct fabric_peers all;

static void run_units(int variant, void (*body)(struct fabric_peer *p)) {
    peers_open(&all, variants[variant].kind, 2, variants[variant].transports);
    peers_begin(&all);
    peers_connect(&all);
    peers_run(&all, body);
    peers_end(&all);
    peers_close(&all);
}

static uint8_t pattern(size_t i, uint32_t seed) {
    return (uint8_t)(i * 7 + i / 251 + seed * 31);
}

#define UNIT_BYTES 200
#define UNITS_MAX 5200 // the limit of a message holds a few more

// Returns how many there are.
static uint32_t check_pieces(const struct fabric_msg *m, uint32_t seed, size_t n_units) {
    size_t at = 0, bytes = 72 + n_units * UNIT_BYTES;
    uint32_t n = 0;
    struct fabric_piece first = fabric_pieces(m);
    for (const struct fabric_piece *p = &first; p != NULL; p = p->next) {
        check(((uintptr_t)p->data & 63) == 0 && p->bytes <= bytes - at);
        check((p->bytes - (p == &first ? 72 : 0)) % UNIT_BYTES == 0);
        for (size_t i = 0; i < p->bytes; i++)
            check(p->data[i] == pattern(at + i, seed));
        at += p->bytes;
        n++;
    }
    check(at == bytes);
    return n;
}

// Whether messages longer than a segment are cut. The fabric in memory cuts as it likes.
static enum { CUT_AT_WILL, CUT, WHOLE } expected;

static void check_count(const struct fabric_msg *m, uint32_t n, size_t bytes) {
    // A segment of TCP, the longer one, holds a little less than 64 KiB.
    if (expected == CUT && bytes > 65536) check(m->rest != NULL && n > bytes >> 16);
    if (expected == WHOLE) check(m->rest == NULL && n == 1);
}

static void units_body(struct fabric_peer *p) {
    static const size_t sizes[] = {0, 1, 4, 5, 300, 2000, UNITS_MAX / 2, UNITS_MAX};
    static uint8_t data[PEERS_MAX][72 + UNITS_MAX * UNIT_BYTES];
    uint8_t *own = data[p->index];
    uint32_t other = 1 - p->index;
    for (size_t i = 0; i < sizeof data[0]; i++)
        own[i] = pattern(i, p->index);
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct fabric_part part = {own, 72, own + 72, sizes[i] * UNIT_BYTES, UNIT_BYTES};
        uint64_t tag = fabric_tag(FABRIC_TEST, i, 0);
        struct fabric_msg m;
        check(fabric_send(p->fabric, other, tag, &part) == 0);
        struct fabric_want want = {.peer = other, .kind = FABRIC_TEST, .step = i};
        check(fabric_recv(p->fabric, &want, peer_in(p, 20), &m) == 0);
        check_count(&m, check_pieces(&m, other, sizes[i]), sizes[i] * UNIT_BYTES);
        fabric_release(p->fabric, &m);
        check(fabric_flush(p->fabric, peer_in(p, 20)) == 0);
    }
}

START_TEST(messages_of_units_arrive_in_pieces_that_cut_none) {
    expected = variants[_i].kind == FABRIC_UCX ? CUT : CUT_AT_WILL;
    run_units(_i, units_body);
}
END_TEST

// What a segment holds is the user's then, in whatever unit: nothing is cut to fit it.
START_TEST(messages_of_units_go_whole_over_tcp_with_segments_of_another_size) {
    expected = WHOLE;
    ck_assert_int_eq(setenv("UCX_TCP_TX_SEG_SIZE", "8k", 1), 0);
    run_units(TCP_VARIANT, units_body);
    unsetenv("UCX_TCP_TX_SEG_SIZE");
}
END_TEST

int main(void) {
    Suite *s = suite_create("fabric pieces");
    TCase *t = tcase_create("pieces");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, messages_of_units_arrive_in_pieces_that_cut_none, 0, VARIANTS);
    tcase_add_test(t, messages_of_units_go_whole_over_tcp_with_segments_of_another_size);
    suite_add_tcase(s, t);
    return suite_run(s);
}
