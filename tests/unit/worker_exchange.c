// worker_exchange.c: what a peer sends in dispatch, combine and between stages is data from
// outside: sizes must add up and experts must be here, or the message is refused; and a rank that
// lies in a step is found out.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/fabric_mem.h"
#include "tests/harness/suite.h"
#include "tests/harness/tiny.h"
#include "worker/combine.h"
#include "worker/dispatch.h"
#include "worker/route.h"
#include "worker/rows.h"

static const struct dispatch_rules rules = {
    .hidden = 4, .top_k = 3, .rows_max = 5, .first_expert = 10, .n_local_experts = 6};

// A good message of two rows: row 0 to experts 12 and 10, row 1 to 15.
#define GOOD_BYTES (64 + 2 * 16)
static _Alignas(64) uint32_t message[4096];

static void good_message(void) {
    memset(message, 0, sizeof message);
    const uint32_t words[] = {2, 3, 4, 3, 2, 1, 12, 10, 15};
    memcpy(message, words, sizeof words);
}

// The first bytes of the message, in one piece.
static struct fabric_piece whole(size_t bytes) {
    return (struct fabric_piece){(const uint8_t *)message, bytes, NULL};
}

static int parse(size_t bytes) {
    struct dispatch_view view;
    struct err_text e;
    struct fabric_piece first = whole(bytes);
    int rc = dispatch_parse(&view, &rules, &first, &e);
    if (rc != 0) ck_assert_int_gt(strlen(e.text), 0);
    return rc;
}

START_TEST(a_good_dispatch_is_taken_apart) {
    struct dispatch_view view;
    struct fabric_piece first = whole(GOOD_BYTES);
    const float *rows[2];
    good_message();
    ck_assert_int_eq(dispatch_parse(&view, &rules, &first, NULL), 0);
    ck_assert_uint_eq(view.n_rows, 2);
    ck_assert_uint_eq(view.n_pairs, 3);
    ck_assert_uint_eq(view.row_counts[1], 1);
    ck_assert_uint_eq(view.experts[2], 15);
    rows_find(rows, &first, &view.rows);
    ck_assert_ptr_eq(rows[0], message + 16);
    ck_assert_ptr_eq(rows[1], message + 20);
    memset(message, 0, 64);
    message[2] = 4;
    message[3] = 3;
    ck_assert_int_eq(parse(64), 0); // nothing
}
END_TEST

START_TEST(every_wrong_word_of_a_dispatch_is_refused) {
    // Offset of a word and a value that it must not have.
    static const uint32_t wrong[][2] = {
        {0, 0},          {0, 1}, {0, 3},          {0, 6},  {0, UINT32_MAX}, {1, 0}, {1, 2},
        {1, 4},          {1, 7}, {1, UINT32_MAX}, {2, 3},  {2, 0},          {3, 2}, {3, 4},
        {4, 0},          {4, 1}, {4, 3},          {4, 4},  {4, UINT32_MAX}, {5, 0}, {5, 2},
        {5, UINT32_MAX}, {6, 9}, {6, 16},         {6, 10}, {7, 12},         {7, 0}, {8, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        good_message();
        message[wrong[i][0]] = wrong[i][1];
        ck_assert_msg(parse(GOOD_BYTES) == ERR_PEER_PROTOCOL, "word %u = %u", wrong[i][0],
                      wrong[i][1]);
    }
}
END_TEST

START_TEST(every_wrong_size_is_refused) {
    good_message();
    for (size_t bytes = 0; bytes < sizeof message; bytes++) {
        if (bytes != GOOD_BYTES) ck_assert_int_eq(parse(bytes), ERR_PEER_PROTOCOL);
    }
    ck_assert_int_eq(parse(GOOD_BYTES), 0);
}
END_TEST

// What answers to rows, and rows between stages.
static const struct rows_rules three_rows = {.n_rows = 3, .hidden = 4};
#define THREE_BYTES (64 + 3 * 16)

static int parse_rows(const struct fabric_piece *first, const struct rows_rules *expected) {
    struct rows_shape shape;
    struct err_text e = {""};
    int rc = rows_parse(&shape, first, expected, &e);
    if (rc != 0) ck_assert_int_gt(strlen(e.text), 0);
    return rc;
}

static int parse_three(size_t bytes) {
    struct fabric_piece first = whole(bytes);
    return parse_rows(&first, &three_rows);
}

static void three_good_rows(void) {
    memset(message, 0, sizeof message);
    message[0] = 3;
    message[1] = 4;
}

START_TEST(every_wrong_message_of_rows_is_refused) {
    three_good_rows();
    for (size_t bytes = 0; bytes < sizeof message; bytes++)
        ck_assert_int_eq(parse_three(bytes), bytes == THREE_BYTES ? 0 : ERR_PEER_PROTOCOL);
    struct fabric_piece first = whole(THREE_BYTES);
    ck_assert_int_eq(parse_rows(&first, &(struct rows_rules){2, 4}), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(parse_rows(&first, &(struct rows_rules){3, 8}), ERR_PEER_PROTOCOL);
    static const uint32_t wrong[][2] = {{0, 0}, {0, 2}, {0, UINT32_MAX}, {1, 0}, {1, UINT32_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        three_good_rows();
        message[wrong[i][0]] = wrong[i][1];
        ck_assert_int_eq(parse_three(THREE_BYTES), ERR_PEER_PROTOCOL);
    }
}
END_TEST

// The same bytes, cut behind the first and again behind the second of two places.
static int parse_cut(size_t one, size_t two, size_t end) {
    const uint8_t *data = (const uint8_t *)message;
    struct fabric_piece third = {data + two, end - two, NULL},
                        second = {data + one, two - one, &third}, first = {data, one, &second};
    return parse_rows(&first, &three_rows);
}

START_TEST(pieces_are_taken_only_where_no_row_is_cut) {
    three_good_rows();
    for (size_t one = 0; one <= THREE_BYTES; one++) {
        for (size_t two = one; two <= THREE_BYTES; two++) {
            bool good = one >= 64 && one % 16 == 0 && two % 16 == 0;
            ck_assert_msg(parse_cut(one, two, THREE_BYTES) == (good ? 0 : ERR_PEER_PROTOCOL),
                          "cut at %zu and %zu", one, two);
        }
    }
    for (size_t end = 96; end <= 256; end++)
        ck_assert_int_eq(parse_cut(80, 96, end), end == THREE_BYTES ? 0 : ERR_PEER_PROTOCOL);
}
END_TEST

START_TEST(rows_are_found_and_copied_out_of_pieces) {
    float *numbers = (float *)message + 16;
    for (int i = 0; i < 12; i++)
        numbers[i] = (float)i;
    struct fabric_piece last = {(const uint8_t *)(numbers + 4), 32, NULL}, none = {NULL, 0, &last},
                        first = {(const uint8_t *)message, 80, &none};
    const struct rows_shape shape = {64, 16, 3};
    const float *rows[3];
    float copy[12];
    rows_find(rows, &first, &shape);
    rows_copy(copy, &first, &shape);
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_eq(rows[i], numbers + 4 * i);
    ck_assert_mem_eq(copy, numbers, sizeof copy);
}
END_TEST

START_TEST(a_rank_without_experts_takes_no_rows) {
    struct dispatch_rules none = rules;
    none.n_local_experts = 0;
    good_message();
    struct fabric_piece first = whole(GOOD_BYTES);
    ck_assert_int_eq(dispatch_parse(&(struct dispatch_view){0}, &none, &first, NULL),
                     ERR_PEER_PROTOCOL);
}
END_TEST

// Both rows want one expert alone, the first as often as it may.
START_TEST(a_row_may_want_an_expert_twice_where_a_table_says_so) {
    static const uint32_t words[] = {2, 4, 4, 3, 3, 1, 11, 11, 11, 11};
    struct dispatch_rules table = rules;
    struct dispatch_view view;
    table.may_repeat = true;
    struct fabric_piece first = whole(GOOD_BYTES);
    memset(message, 0, sizeof message);
    memcpy(message, words, sizeof words);
    ck_assert_int_eq(dispatch_parse(&view, &rules, &first, NULL), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(dispatch_parse(&view, &table, &first, NULL), 0);
    ck_assert_uint_eq(view.n_pairs, 4);
    table.n_local_experts = 2;
    ck_assert_int_eq(dispatch_parse(&view, &table, &first, NULL), 0);
    message[7] = 12;
    ck_assert_int_eq(dispatch_parse(&view, &table, &first, NULL), ERR_PEER_PROTOCOL);
    message[7] = 11;
    message[1] = 7;
    ck_assert_int_eq(dispatch_parse(&view, &table, &first, NULL), ERR_PEER_PROTOCOL);
    table.n_local_experts = 0;
    ck_assert_int_eq(dispatch_parse(&view, &table, &first, NULL), ERR_PEER_PROTOCOL);
}
END_TEST

START_TEST(random_dispatches_never_pass_unchecked) {
    uint64_t state = 1;
    for (int round = 0; round < 200000; round++) {
        good_message();
        for (int change = 0; change < 3; change++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            message[(state >> 33) % 9] = (uint32_t)(state >> 40) % 20;
        }
        struct dispatch_view view;
        struct fabric_piece first = whole(GOOD_BYTES);
        if (dispatch_parse(&view, &rules, &first, NULL) != 0) continue;
        uint32_t n = 0;
        for (uint32_t row = 0; row < view.n_rows; row++)
            n += view.row_counts[row];
        ck_assert_uint_eq(n, view.n_pairs);
        for (uint32_t i = 0; i < n; i++)
            ck_assert(view.experts[i] >= 10 && view.experts[i] < 16);
        ck_assert_uint_eq(view.rows.n_rows, view.n_rows);
        ck_assert_uint_eq(view.rows.head_bytes + view.n_rows * view.rows.row_bytes, GOOD_BYTES);
    }
}
END_TEST

// --- a group of two in which rank 1 is this test

static struct env *env;
static struct fabric_mem_hub *hub;
static struct waker *wakers[3];
static struct fabric *fabrics[3];

static void open_group(void) {
    static uint8_t address[3][FABRIC_ADDRESS_MAX];
    const uint8_t *addresses[3];
    size_t bytes[3];
    env = env_real_create();
    hub = fabric_mem_hub_create(NULL);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(waker_create(env, &wakers[i]), 0);
        struct fabric_config config = {
            .env = env, .waker = wakers[i], .hub = hub, .message_bytes_max = 1 << 20};
        ck_assert_int_eq(fabric_open(&fabrics[i], FABRIC_MEM, &config, NULL), 0);
        bytes[i] = sizeof address[i];
        ck_assert_int_eq(fabric_begin(fabrics[i], address[i], &bytes[i], NULL), 0);
        addresses[i] = address[i];
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct fabric_group group = {1, 2, i, 3, addresses, bytes};
        ck_assert_int_eq(fabric_connect(fabrics[i], &group, NULL), 0);
    }
}

static void close_group(void) {
    for (uint32_t i = 0; i < 3; i++) {
        fabric_end(fabrics[i]);
        fabric_close(fabrics[i]);
        waker_destroy(wakers[i]);
    }
    fabric_mem_hub_destroy(hub);
    env_real_destroy(env);
}

static bool from_slot; // the next step's token

// One rank of a layout of two runs one step of one token on the fabric; the other is this test.
static int run_step(const struct layout *layout, uint32_t rank, struct err_text *e) {
    struct model_spec spec;
    tiny_spec_split(&spec);
    struct tiny *tiny = tiny_create_in(&spec, layout, DTYPE_F32, 1);
    struct pool *pool;
    struct model *model;
    struct step_output out;
    ck_assert_int_eq(pool_create(&pool, 1, NULL, false, NULL), 0);
    struct model_config config = {
        .env = env,
        .weights = tiny_weights(tiny, rank),
        .layout = layout,
        .ops = kernel_ops_ref(),
        .pool = pool,
        .fabric = fabrics[rank],
        .rank = rank,
        .n_slots = 1,
        .rows_max = 8,
        .max_model_len = 64,
        .kv_blocks = 4,
        .kv_dtype = DTYPE_F32,
        .exchange_timeout_ns = 50 * NS_PER_MS,
    };
    ck_assert_int_eq(model_create(&model, &config, NULL), 0);
    uint32_t token = 5, block = 0;
    Moesaic__Step__V1__PlanSeq seq = MOESAIC__STEP__V1__PLAN_SEQ__INIT, *seqs = &seq;
    Moesaic__Step__V1__StepPlan plan = MOESAIC__STEP__V1__STEP_PLAN__INIT;
    seq.tokens = &token;
    seq.blocks = &block;
    seq.n_blocks = plan.n_seqs = 1;
    seq.n_tokens = from_slot ? 0 : 1;
    seq.token_from_slot = from_slot;
    plan.seqs = &seqs;
    plan.step = 7;
    int rc = model_step(model, &plan, &out, e);
    model_destroy(model);
    pool_destroy(pool);
    tiny_destroy(tiny);
    return rc;
}

static const struct layout apart = {.n_ranks = 2, .pp = 1, .dp = 2, .tp = 1, .ep = 2, .etp = 1},
                           shared = {.n_ranks = 2, .pp = 1, .dp = 2, .tp = 1, .ep = 1, .etp = 2},
                           stages = {.n_ranks = 2, .pp = 2, .dp = 1, .tp = 1, .ep = 1, .etp = 1};

static void tell(uint32_t from, uint32_t to, uint64_t tag, const void *data, size_t bytes) {
    ck_assert_int_eq(fabric_send(fabrics[from], to, tag,
                                 &(struct fabric_part){.head = data, .head_bytes = bytes}),
                     0);
}

// Rank 0 of a layout; rank 1 has sent what is given before.
static int step_in(const struct layout *layout, const void *dispatch, size_t dispatch_bytes,
                   const void *combine, struct err_text *e) {
    tell(1, 0, fabric_tag(FABRIC_DISPATCH, 7, 0), dispatch, dispatch_bytes);
    if (combine != NULL) tell(1, 0, fabric_tag(FABRIC_COMBINE, 7, 0), combine, 64);
    return run_step(layout, 0, e);
}

static int step_against(const void *dispatch, size_t dispatch_bytes, const void *combine,
                        struct err_text *e) {
    return step_in(&apart, dispatch, dispatch_bytes, combine, e);
}

static const uint32_t empty_dispatch[16] = {0, 0, 64, 3};

START_TEST(a_peer_that_dispatches_nonsense_ends_the_step) {
    struct err_text e;
    uint32_t words[16] = {1, 1, 64,
                          3, 1, 3}; // expert 3 lives on rank 1 itself, and the row is missing
    open_group();
    ck_assert_int_eq(step_against(words, sizeof words, NULL, &e), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(e.text, "dispatch of layer 0 from rank 1") != NULL, "%s", e.text);
    close_group();
}
END_TEST

START_TEST(a_peer_that_answers_nonsense_ends_the_step) {
    struct err_text e;
    uint32_t words[16] = {77, 64};
    open_group();
    ck_assert_int_eq(step_against(empty_dispatch, sizeof empty_dispatch, words, &e),
                     ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(e.text, "combine of layer 0 from rank 1") != NULL, "%s", e.text);
    close_group();
}
END_TEST

START_TEST(a_peer_that_falls_silent_ends_the_step_in_time) {
    struct err_text e;
    open_group();
    ck_assert_int_eq(step_against(empty_dispatch, sizeof empty_dispatch, NULL, &e),
                     ERR_PEER_TIMEOUT);
    close_group();
}
END_TEST

// Who shares experts gets a row's three pairs whole; fewer answers than that are a lie.
START_TEST(a_rank_of_the_same_experts_that_answers_nonsense_ends_the_step) {
    struct err_text e;
    uint32_t words[16] = {2, 64};
    open_group();
    ck_assert_int_eq(step_in(&shared, empty_dispatch, sizeof empty_dispatch, words, &e),
                     ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(e.text, "combine of layer 0 from rank 1: n_rows 2 and hidden 64 instead "
                                 "of 3 and 64") != NULL,
                  "%s", e.text);
    close_group();
}
END_TEST

START_TEST(a_stage_that_hands_on_nonsense_ends_the_step) {
    struct err_text e;
    uint32_t words[16 + 64] = {2, 64}; // the plan has one row
    open_group();
    tell(0, 1, fabric_tag(FABRIC_STAGE, 7, 2), words, sizeof words);
    ck_assert_int_eq(run_step(&stages, 1, &e), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(e.text, "stage 1 from rank 0: n_rows 2") != NULL, "%s", e.text);
    close_group();
}
END_TEST

START_TEST(a_stage_that_hands_on_its_rows_is_answered) {
    struct err_text e;
    uint32_t words[16 + 64] = {1, 64};
    open_group();
    tell(0, 1, fabric_tag(FABRIC_STAGE, 7, 2), words, sizeof words);
    ck_assert_msg(run_step(&stages, 1, &e) == 0, "%s", e.text);
    close_group();
}
END_TEST

START_TEST(a_stage_that_hands_on_nothing_ends_the_step_in_time) {
    struct err_text e;
    uint32_t words[16 + 64] = {1, 64};
    open_group();
    tell(0, 1, fabric_tag(FABRIC_STAGE, 6, 2), words, sizeof words); // of another step
    tell(2, 1, fabric_tag(FABRIC_STAGE, 7, 2), words, sizeof words); // not the stage before
    ck_assert_int_eq(run_step(&stages, 1, &e), ERR_PEER_TIMEOUT);
    ck_assert_msg(strstr(e.text, "stage 1 from rank 0") != NULL, "%s", e.text);
    close_group();
}
END_TEST

// Only the last stage knows what a slot sampled.
START_TEST(a_pipeline_refuses_a_token_from_a_slot) {
    struct err_text e;
    open_group();
    from_slot = true;
    for (uint32_t rank = 0; rank < 2; rank++) {
        ck_assert_int_eq(run_step(&stages, rank, &e), ERR_PEER_PROTOCOL);
        ck_assert_msg(strstr(e.text, "seqs[0].token_from_slot: the group is a pipeline") != NULL,
                      "%s", e.text);
    }
    from_slot = false;
    close_group();
}
END_TEST

// Rows go to top_k different peers each, 7 to every peer: heads that round up the most.
START_TEST(heads_of_any_number_of_peers_fit_their_memory) {
    for (uint32_t n_ranks = 2; n_ranks <= 200; n_ranks++) {
        for (uint32_t top_k = 1; top_k < n_ranks && top_k <= TOP_K_MAX; top_k++) {
            uint32_t rows = (n_ranks - 1) * 7 / top_k, copies = rows * top_k;
            size_t bytes = 0;
            for (uint32_t peer = 1; peer < n_ranks; peer++) {
                uint32_t n = peer + 1 < n_ranks && copies >= 7 ? 7 : copies;
                bytes += dispatch_head_bytes(n, n);
                copies -= n;
            }
            ck_assert_uint_le(bytes, dispatch_heads_bytes(n_ranks - 1, rows, top_k));
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("exchange");
    TCase *tests = tcase_create("exchange");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, heads_of_any_number_of_peers_fit_their_memory);
    tcase_add_test(tests, a_good_dispatch_is_taken_apart);
    tcase_add_test(tests, every_wrong_word_of_a_dispatch_is_refused);
    tcase_add_test(tests, every_wrong_size_is_refused);
    tcase_add_test(tests, every_wrong_message_of_rows_is_refused);
    tcase_add_test(tests, pieces_are_taken_only_where_no_row_is_cut);
    tcase_add_test(tests, rows_are_found_and_copied_out_of_pieces);
    tcase_add_test(tests, a_rank_without_experts_takes_no_rows);
    tcase_add_test(tests, a_row_may_want_an_expert_twice_where_a_table_says_so);
    tcase_add_test(tests, random_dispatches_never_pass_unchecked);
    tcase_add_test(tests, a_peer_that_dispatches_nonsense_ends_the_step);
    tcase_add_test(tests, a_peer_that_answers_nonsense_ends_the_step);
    tcase_add_test(tests, a_peer_that_falls_silent_ends_the_step_in_time);
    tcase_add_test(tests, a_rank_of_the_same_experts_that_answers_nonsense_ends_the_step);
    tcase_add_test(tests, a_stage_that_hands_on_nonsense_ends_the_step);
    tcase_add_test(tests, a_stage_that_hands_on_its_rows_is_answered);
    tcase_add_test(tests, a_stage_that_hands_on_nothing_ends_the_step_in_time);
    tcase_add_test(tests, a_pipeline_refuses_a_token_from_a_slot);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
