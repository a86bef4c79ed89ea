// worker_tp_exchange.c: what the ranks of a TP group send each other: no message where there is
// nothing to send, and none of another size or with another model's tokens is believed.
#include <string.h>

#include "tests/harness/fabric_peers.h"
#include "tests/harness/suite.h"
#include "tests/harness/tiny.h"
#include "worker/tp.h"

#define HIDDEN 64
#define N_TOKENS 48 // of 97: rank 0 has three of the seven panels
#define STEP 7
#define ROWS 4

// A dense layer with norms over all heads: every kind of message.
static void one_layer(struct model_spec *spec) {
    tiny_spec(spec);
    spec->n_layers = 1;
    spec->router = (struct router_spec){0};
    spec->ffn[0] = FFN_DENSE;
    spec->inner_dense = 64;
    spec->qk_norm = QK_NORM_WIDE;
}

// What a peer sends in a step of four rows, of which each rank has two. The last row is sampled.
struct script {
    enum fabric_message kind;
    uint32_t block;
    size_t bytes; // 0: does not come
    const char *what;
};
static const struct script from_peer[] = {
    {FABRIC_GATHER, 0, 2 * HIDDEN * 4, "gather of layer 0, attention, from rank 1: "},
    {FABRIC_HEADS, 0, ROWS *(32 + 16) * 4, "heads of layer 0, attention, from rank 1: "},
    {FABRIC_REDUCE, 0, 2 * HIDDEN * 4, "reduce of layer 0, attention, from rank 1: "},
    {FABRIC_GATHER, 1, 2 * HIDDEN * 4, "gather of layer 0, dense, from rank 1: "},
    {FABRIC_REDUCE, 1, 2 * HIDDEN * 4, "reduce of layer 0, dense, from rank 1: "},
    {FABRIC_GATHER, 2, 1 * HIDDEN * 4, "gather of head, from rank 1: "},
    {FABRIC_LOGITS, 0, (97 - N_TOKENS) * 4, "logits of tile 0, from rank 1: "},
};
#define N_FROM_PEER (sizeof from_peer / sizeof *from_peer)

static struct fabric_peers peers;
static struct model_spec spec;
static struct tiny *tiny;
static struct pool *pool;
static struct model *model;
static uint32_t self;
static _Alignas(64) float numbers[ROWS * HIDDEN];

// A group of two in which this test is the rank that self is not.
static void open_group(uint32_t rank) {
    const struct layout layout = {.n_ranks = 2, .pp = 1, .dp = 1, .tp = 2, .ep = 2, .etp = 1};
    self = rank;
    peers_open(&peers, FABRIC_MEM, 3, NULL);
    peers_begin(&peers);
    peers_connect(&peers);
    one_layer(&spec);
    tiny = tiny_create_in(&spec, &layout, DTYPE_F32, 1);
    ck_assert_int_eq(pool_create(&pool, 1, NULL, false, NULL), 0);
    struct model_config config = {
        .env = peers.peers[self].env,
        .weights = tiny_weights(tiny, self),
        .layout = tiny_layout(tiny),
        .ops = kernel_ops_ref(),
        .pool = pool,
        .fabric = peers.peers[self].fabric,
        .rank = self,
        .n_slots = 1,
        .rows_max = 8,
        .max_model_len = 64,
        .kv_blocks = 4,
        .kv_dtype = DTYPE_F32,
        .exchange_timeout_ns = 50 * NS_PER_MS,
    };
    ck_assert_int_eq(model_create(&model, &config, NULL), 0);
}

static void close_group(void) {
    peers_end(&peers);
    model_destroy(model);
    pool_destroy(pool);
    tiny_destroy(tiny);
    peers_close(&peers);
}

static void send(enum fabric_message kind, uint64_t step, uint32_t block, const void *data,
                 size_t bytes) {
    ck_assert_int_eq(fabric_send(peers.peers[1 - self].fabric, self, fabric_tag(kind, step, block),
                                 &(struct fabric_part){.data = data, .data_bytes = bytes}),
                     0);
}

static int run(uint64_t step, bool from_slot, uint32_t n_tokens, struct err_text *e) {
    uint32_t tokens[ROWS] = {5, 6, 7, 8}, block = 0;
    struct step_output out;
    Moesaic__Step__V1__Sampling sampling = MOESAIC__STEP__V1__SAMPLING__INIT;
    Moesaic__Step__V1__PlanSeq seq = MOESAIC__STEP__V1__PLAN_SEQ__INIT, *seqs = &seq;
    Moesaic__Step__V1__StepPlan plan = MOESAIC__STEP__V1__STEP_PLAN__INIT;
    sampling.top_p = 1.0f;
    seq.tokens = tokens;
    seq.n_tokens = from_slot ? 0 : n_tokens;
    seq.token_from_slot = from_slot;
    seq.blocks = &block;
    seq.n_blocks = plan.n_seqs = 1;
    seq.sampling = &sampling;
    plan.seqs = &seqs;
    plan.step = step;
    int rc = model_step(model, &plan, &out, e);
    if (rc == 0) ck_assert_uint_eq(out.n_seqs, self == 0 ? 1 : 0);
    return rc;
}

static uint64_t messages_sent(void) {
    struct fabric_counters counters;
    fabric_count(peers.peers[self].fabric, &counters);
    return counters.messages_sent;
}

static void send_script(size_t wrong, size_t bytes) {
    for (size_t i = 0; i < N_FROM_PEER; i++) {
        const struct script *s = &from_peer[i];
        size_t n = i == wrong ? bytes : s->bytes;
        if (n > 0) send(s->kind, STEP, s->block, numbers, n);
    }
}

START_TEST(a_step_takes_two_exchanges_a_block) {
    struct err_text e = {""};
    open_group(0);
    send_script(SIZE_MAX, 0);
    ck_assert_msg(run(STEP, false, ROWS, &e) == 0, "%s", e.text);
    // A gather and a reduction of each of two blocks, heads, and the token.
    ck_assert_uint_eq(messages_sent(), 2 * 2 + 1 + 1);
    close_group();
}
END_TEST

// A single row belongs to the last rank.
START_TEST(a_rank_without_rows_sends_and_wants_none) {
    struct err_text e = {""};
    open_group(0);
    send(FABRIC_GATHER, STEP, 0, numbers, HIDDEN * 4);
    send(FABRIC_HEADS, STEP, 0, numbers, (32 + 16) * 4);
    send(FABRIC_GATHER, STEP, 1, numbers, HIDDEN * 4);
    send(FABRIC_GATHER, STEP, 2, numbers, HIDDEN * 4);
    send(FABRIC_LOGITS, STEP, 0, numbers, (97 - N_TOKENS) * 4);
    ck_assert_msg(run(STEP, false, 1, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(messages_sent(), 2 + 1 + 1); // the reductions, heads, the token
    close_group();
}
END_TEST

START_TEST(a_message_of_another_size_ends_the_step) {
    const struct script *s = &from_peer[_i / 2];
    struct err_text e = {""};
    open_group(0);
    send_script((size_t)_i / 2, _i % 2 == 0 ? s->bytes - 4 : s->bytes + 4);
    ck_assert_int_eq(run(STEP, false, ROWS, &e), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(e.text, s->what) != NULL && strstr(e.text, " instead of ") != NULL, "%s",
                  e.text);
    close_group();
}
END_TEST

START_TEST(a_peer_that_falls_silent_ends_the_step_in_time) {
    struct err_text e = {""};
    open_group(0);
    send_script((size_t)_i, 0);
    ck_assert_int_eq(run(STEP, false, ROWS, &e), ERR_PEER_TIMEOUT);
    ck_assert_msg(strstr(e.text, from_peer[_i].what) != NULL, "%s", e.text);
    close_group();
}
END_TEST

// The other side: what rank 0 sends to rank 1, whose two rows are the last ones.
static int run_with_tokens(const uint32_t *words, size_t bytes, struct err_text *e) {
    for (size_t i = 0; i < 5; i++)
        send(from_peer[i].kind, STEP, from_peer[i].block, numbers, from_peer[i].bytes);
    send(FABRIC_TOKENS, STEP, 0, words, bytes);
    return run(STEP, false, ROWS, e);
}

START_TEST(tokens_are_remembered_by_slot) {
    static const uint32_t words[] = {1, 96};
    struct err_text e = {""};
    open_group(1);
    ck_assert_int_eq(run(1, true, 1, &e), ERR_PEER_PROTOCOL); // nothing was sampled yet
    ck_assert_msg(run_with_tokens(words, sizeof words, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(messages_sent(), N_FROM_PEER);
    // The next step goes on with it, as far as its peer answers.
    ck_assert_int_eq(run(STEP + 1, true, 1, &e), ERR_PEER_TIMEOUT);
    close_group();
}
END_TEST

START_TEST(tokens_that_cannot_be_are_refused) {
    static const struct {
        uint32_t words[3];
        size_t bytes;
        const char *what;
    } wrong[] = {
        {{1, 97, 0}, 8, "97 is not below 97"},    {{1, UINT32_MAX, 0}, 8, "is not below 97"},
        {{0, 5, 0}, 8, "0 instead of 1"},         {{2, 5, 0}, 8, "2 instead of 1"},
        {{1, 5, 5}, 12, "12 bytes instead of 8"}, {{1, 5, 5}, 4, "4 bytes instead of 8"},
    };
    struct err_text e = {""};
    open_group(1);
    ck_assert_int_eq(run_with_tokens(wrong[_i].words, wrong[_i].bytes, &e), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(e.text, wrong[_i].what) != NULL && strstr(e.text, "rank 0") != NULL, "%s",
                  e.text);
    close_group();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tp exchange");
    TCase *tests = tcase_create("tp exchange");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_step_takes_two_exchanges_a_block);
    tcase_add_test(tests, a_rank_without_rows_sends_and_wants_none);
    tcase_add_loop_test(tests, a_message_of_another_size_ends_the_step, 0, 2 * (int)N_FROM_PEER);
    tcase_add_loop_test(tests, a_peer_that_falls_silent_ends_the_step_in_time, 0, (int)N_FROM_PEER);
    tcase_add_test(tests, tokens_are_remembered_by_slot);
    tcase_add_loop_test(tests, tokens_that_cannot_be_are_refused, 0, 6);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
