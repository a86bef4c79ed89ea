// net_pieces.c: pieces of messages as they arrive, from members that send them rightly and from
// those that do not: what does not add up ends the epoch, and nothing of it is given to anybody.
#include <string.h>

#include "common/base/mem.h"
#include "common/net/fabric_impl.h"
#include "tests/harness/suite.h"

#define EPOCH 5
#define NONCE 6
#define BYTES_MAX 1000
#define FROM 1

static struct env *env;
static struct waker *waker;
static struct fabric *fabric;

static void connect_group(void) {
    static const uint8_t address[1] = {0};
    const uint8_t *addresses[3] = {address, address, address};
    const size_t address_bytes[3] = {1, 1, 1};
    struct fabric_group group = {EPOCH, NONCE, 0, 3, addresses, address_bytes};
    ck_assert_int_eq(fabric_connect(fabric, &group, NULL), 0);
}

static void begin(void) {
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes;
    env = env_real_create();
    ck_assert_int_eq(waker_create(env, &waker), 0);
    struct fabric_config config = {.env = env, .waker = waker, .message_bytes_max = BYTES_MAX};
    ck_assert_int_eq(fabric_open(&fabric, FABRIC_SELF, &config, NULL), 0);
    ck_assert_int_eq(fabric_begin(fabric, address, &address_bytes, NULL), 0);
}

static void end(void) {
    fabric_close(fabric);
    waker_destroy(waker);
    env_real_destroy(env);
}

// One piece from rank FROM, every byte of which is its number.
struct arrival {
    enum fabric_message kind;
    uint64_t step;
    uint8_t piece, n_pieces;
    size_t bytes;
};

static bool arrive(struct arrival a) {
    struct fabric_header h = {EPOCH,      NONCE,       fabric_tag(a.kind, a.step, 0), FROM, a.piece,
                              a.n_pieces, FABRIC_MAGIC};
    uint8_t *data = mem_pages(a.bytes, FABRIC_DATA_ALIGN);
    memset(data, a.piece, a.bytes);
    struct fabric_arrival arrival = {
        .header = &h, .header_bytes = sizeof h, .data = data, .bytes = a.bytes};
    bool kept = fabric_arrived(fabric, &arrival);
    if (!kept) mem_pages_free(data, a.bytes);
    return kept;
}

static int take(uint64_t step, struct fabric_msg *m) {
    struct fabric_want want = {.peer = FROM, .kind = FABRIC_COMBINE, .step = step};
    return fabric_recv(fabric, &want, 0, m);
}

static bool combine(uint64_t step, uint8_t piece, uint8_t n_pieces, size_t bytes) {
    return arrive((struct arrival){FABRIC_COMBINE, step, piece, n_pieces, bytes});
}

START_TEST(a_message_is_there_when_its_last_piece_is) {
    struct fabric_msg m;
    begin();
    connect_group();
    for (uint8_t piece = 0; piece < 3; piece++) {
        ck_assert(combine(7, piece, 3, 10u + piece));
        ck_assert(combine(8, piece, 4, 20)); // another message, between
        ck_assert_int_eq(take(7, &m), piece < 2 ? ERR_AGAIN : 0);
    }
    struct fabric_piece first = fabric_pieces(&m);
    const struct fabric_piece *p = &first;
    for (uint8_t piece = 0; piece < 3; piece++, p = p->next) {
        ck_assert_uint_eq(p->bytes, 10u + piece);
        ck_assert_uint_eq(p->data[0], piece);
    }
    ck_assert_ptr_null(p);
    ck_assert_int_eq(take(8, &m), ERR_AGAIN);
    end(); // with one message given, and one of which a piece is missing
}
END_TEST

START_TEST(pieces_that_come_before_the_group_is_known_are_kept) {
    struct fabric_msg m;
    begin();
    ck_assert(combine(7, 0, 2, 10));
    ck_assert(!combine(7, 0, 0, 10)); // no piece of anything
    ck_assert(!combine(9, 1, 2, 10)); // its message never began
    connect_group();
    ck_assert(combine(7, 1, 2, 11));
    ck_assert_int_eq(take(7, &m), 0);
    ck_assert_uint_eq(m.rest->bytes, 11);
    fabric_release(fabric, &m);
    end();
}
END_TEST

// Behind the first of three pieces of 400 bytes.
START_TEST(a_piece_out_of_place_ends_the_epoch) {
    static const struct arrival wrong[] = {
        {FABRIC_COMBINE, 7, 2, 3, 10},  // the second is missing
        {FABRIC_COMBINE, 7, 1, 4, 10},  // of a message of another length
        {FABRIC_COMBINE, 8, 1, 3, 10},  // of a message that did not begin
        {FABRIC_COMBINE, 7, 1, 3, 601}, // all together are above the limit
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct fabric_msg m;
        begin();
        connect_group();
        ck_assert(combine(7, 0, 3, 400));
        ck_assert_msg(!arrive(wrong[i]), "piece %zu", i);
        ck_assert_int_eq(take(7, &m), ERR_PEER_PROTOCOL);
        end();
    }
    struct fabric_msg m;
    begin();
    connect_group();
    ck_assert(combine(7, 0, 3, 400) && combine(7, 1, 3, 600) && combine(7, 2, 3, 0));
    ck_assert_int_eq(take(7, &m), 0);
    end();
}
END_TEST

START_TEST(only_rows_come_in_pieces) {
    begin();
    connect_group();
    for (int kind = FABRIC_PLAN; kind < FABRIC_KINDS; kind++) {
        bool rows = kind == FABRIC_DISPATCH || kind == FABRIC_COMBINE || kind == FABRIC_GATHER ||
                    kind == FABRIC_REDUCE || kind == FABRIC_STAGE || kind == FABRIC_TEST;
        struct arrival a = {(enum fabric_message)kind, 3, 0, 2, 10};
        ck_assert_msg(arrive(a) == rows, "kind %d", kind);
    }
    ck_assert(!combine(4, 0, FABRIC_PIECES_MAX + 1, 10));
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pieces");
    TCase *tests = tcase_create("pieces");
    tcase_add_test(tests, a_message_is_there_when_its_last_piece_is);
    tcase_add_test(tests, pieces_that_come_before_the_group_is_known_are_kept);
    tcase_add_test(tests, a_piece_out_of_place_ends_the_epoch);
    tcase_add_test(tests, only_rows_come_in_pieces);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
