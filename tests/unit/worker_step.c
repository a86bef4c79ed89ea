// worker_step.c: tests of one step's way in and out: good plans are answered, wrong ones are
// answered with their fault.
#include <stdlib.h>
#include <string.h>

#include "tests/harness/fabric_peers.h"
#include "tests/harness/suite.h"
#include "tests/harness/tiny.h"
#include "worker/step.h"

#define N_SLOTS 3
#define ROWS_MAX 8
#define KV_BLOCKS 8
#define LEADER 1

typedef Moesaic__Step__V1__StepPlan step_plan;
typedef Moesaic__Step__V1__PlanSeq plan_seq;
typedef Moesaic__Step__V1__StepResult step_result;

static struct fabric_peers peers;
static struct tiny *tiny;
static struct pool *pool;
static struct model *model;
static struct step *step;
static uint8_t bytes[1 << 20];

static void set_up(void) {
    struct err_text e = {0};
    struct model_spec spec;
    tiny_spec(&spec);
    tiny = tiny_create(&spec, 1, DTYPE_F32, 3);
    peers_open(&peers, FABRIC_MEM, 2, NULL);
    peers_begin(&peers);
    peers_connect(&peers);
    ck_assert_int_eq(pool_create(&pool, 1, NULL, false, &e), 0);
    struct model_config config = {.env = peers.peers[0].env,
                                  .weights = tiny_weights(tiny, 0),
                                  .layout = tiny_layout(tiny),
                                  .ops = kernel_ops_select(NULL),
                                  .pool = pool,
                                  .fabric = peers.peers[0].fabric,
                                  .n_slots = N_SLOTS,
                                  .rows_max = ROWS_MAX,
                                  .max_model_len = 64,
                                  .kv_blocks = KV_BLOCKS,
                                  .kv_dtype = DTYPE_F32,
                                  .digest = true,
                                  .exchange_timeout_ns = NS_PER_S};
    ck_assert_int_eq(model_create(&model, &config, &e), 0);
    struct step_config step_config = {.env = config.env,
                                      .fabric = config.fabric,
                                      .model = model,
                                      .epoch = peers.epoch,
                                      .n_ranks = 1,
                                      .n_slots = N_SLOTS,
                                      .rows_max = ROWS_MAX,
                                      .kv_blocks = KV_BLOCKS,
                                      .send_timeout_ns = NS_PER_S};
    ck_assert_int_eq(step_create(&step, &step_config, &e), 0);
}

static void tear_down(void) {
    peers_end(&peers);
    step_destroy(step);
    model_destroy(model);
    pool_destroy(pool);
    peers_close(&peers);
    tiny_destroy(tiny);
}

// The leader sends the bytes, the rank serves them.
static int serve_bytes(uint64_t number, const void *data, size_t n, struct err_text *e) {
    struct fabric_msg message;
    struct fabric_want want = {.peer = LEADER, .kind = FABRIC_PLAN, .step = FABRIC_ANY_STEP};
    int rc = fabric_send(peers.peers[LEADER].fabric, 0, fabric_tag(FABRIC_PLAN, number, 0),
                         &(struct fabric_part){.data = data, .data_bytes = n});
    ck_assert_int_eq(rc, 0);
    ck_assert_int_eq(
        fabric_recv(peers.peers[0].fabric, &want, peer_in(&peers.peers[0], 5), &message), 0);
    return step_serve(step, &message, e);
}

static int serve_plan(const step_plan *plan, struct err_text *e) {
    ck_assert_uint_le(moesaic__step__v1__step_plan__get_packed_size(plan), sizeof bytes);
    return serve_bytes(plan->step, bytes, moesaic__step__v1__step_plan__pack(plan, bytes), e);
}

static step_result *take_result(uint64_t number) {
    struct fabric_msg message;
    struct fabric_want want = {.peer = 0, .kind = FABRIC_RESULT, .step = number};
    ck_assert_int_eq(
        fabric_recv(peers.peers[LEADER].fabric, &want, peer_in(&peers.peers[LEADER], 5), &message),
        0);
    step_result *result = moesaic__step__v1__step_result__unpack(NULL, message.bytes, message.data);
    fabric_release(peers.peers[LEADER].fabric, &message);
    ck_assert_ptr_nonnull(result);
    return result;
}

static void expect_refusal(int rc, uint64_t number, const char *word) {
    ck_assert_int_eq(rc, ERR_PEER_PROTOCOL);
    step_result *result = take_result(number);
    ck_assert_uint_eq(result->n_seqs, 0);
    ck_assert_msg(strstr(result->error, word) != NULL, "%s", result->error);
    moesaic__step__v1__step_result__free_unpacked(result, NULL);
}

// A plan of one prompt of three tokens in slot 1 whose last row is sampled with two alternatives.
struct one_prompt {
    step_plan plan;
    plan_seq seq, *seqs[1];
    Moesaic__Step__V1__Sampling sampling;
    uint32_t tokens[3], blocks[1];
};

static void make_plan(struct one_prompt *p, uint64_t number) {
    moesaic__step__v1__step_plan__init(&p->plan);
    moesaic__step__v1__plan_seq__init(&p->seq);
    moesaic__step__v1__sampling__init(&p->sampling);
    p->sampling.top_p = 1.0f;
    p->sampling.want_logprob = true;
    p->sampling.n_logprobs = 2;
    memcpy(p->tokens, (uint32_t[]){5, 6, 7}, sizeof p->tokens);
    p->blocks[0] = 4;
    p->seq.slot = 1;
    p->seq.n_tokens = 3;
    p->seq.tokens = p->tokens;
    p->seq.n_blocks = 1;
    p->seq.blocks = p->blocks;
    p->seq.sampling = &p->sampling;
    p->seqs[0] = &p->seq;
    p->plan.epoch = peers.epoch;
    p->plan.step = number;
    p->plan.n_seqs = 1;
    p->plan.seqs = p->seqs;
}

START_TEST(step_answers_each_sampled_sequence_and_idle_plans) {
    struct err_text e;
    struct one_prompt p;
    make_plan(&p, 10);
    ck_assert_int_eq(serve_plan(&p.plan, &e), 0);
    step_result *result = take_result(10);
    ck_assert_str_eq(result->error, "");
    ck_assert_uint_eq(result->epoch, peers.epoch);
    ck_assert_uint_eq(result->n_seqs, 1);
    ck_assert_uint_eq(result->seqs[0]->slot, 1);
    ck_assert_uint_eq(result->seqs[0]->n_top_ids, 2);
    ck_assert_uint_eq(result->seqs[0]->n_top_logprobs, 2);
    ck_assert_uint_eq(result->seqs[0]->top_ids[0], result->seqs[0]->token); // greedy
    ck_assert_uint_ne(result->seqs[0]->digest, 0);
    ck_assert_uint_eq(result->n_phase_ns, PHASE_COUNT);
    moesaic__step__v1__step_result__free_unpacked(result, NULL);
    p.plan.step = 11;
    p.plan.n_seqs = 0;
    ck_assert_int_eq(serve_plan(&p.plan, &e), 0);
    result = take_result(11);
    ck_assert_uint_eq(result->n_seqs, 0);
    moesaic__step__v1__step_result__free_unpacked(result, NULL);
    ck_assert_uint_eq(step_count(step), 2);
}
END_TEST

START_TEST(step_refuses_another_epoch_by_name) {
    struct err_text e;
    struct one_prompt p;
    make_plan(&p, 10);
    p.plan.epoch++;
    expect_refusal(serve_plan(&p.plan, &e), 10, "epoch");
}
END_TEST

START_TEST(step_refuses_a_step_that_does_not_follow) {
    struct err_text e;
    struct one_prompt p;
    make_plan(&p, 10);
    p.plan.n_seqs = 0;
    ck_assert_int_eq(serve_plan(&p.plan, &e), 0);
    moesaic__step__v1__step_result__free_unpacked(take_result(10), NULL);
    p.plan.step = 12;
    expect_refusal(serve_plan(&p.plan, &e), 12, "does not follow 10");
}
END_TEST

START_TEST(step_refuses_what_the_model_refuses) {
    struct err_text e;
    struct one_prompt p;
    make_plan(&p, 1);
    p.tokens[1] = 1000000;
    expect_refusal(serve_plan(&p.plan, &e), 1, "token");
}
END_TEST

START_TEST(step_refuses_bytes_that_are_no_plan) {
    struct err_text e;
    expect_refusal(serve_bytes(7, "\xff\xff\xff\xff", 4, &e), 7, "malformed");
}
END_TEST

START_TEST(step_refuses_a_plan_larger_than_its_block) {
    struct err_text e;
    // Half a million empty sequences in a megabyte: unpacked they would take a hundred.
    for (size_t i = 0; i + 1 < sizeof bytes; i += 2)
        memcpy(bytes + i, "\x1a\x00", 2);
    expect_refusal(serve_bytes(7, bytes, sizeof bytes, &e), 7, "malformed or larger");
}
END_TEST

START_TEST(step_takes_the_largest_plan_that_its_slots_allow) {
    struct err_text e;
    struct one_prompt p[N_SLOTS];
    plan_seq *seqs[N_SLOTS];
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        make_plan(&p[i], 1);
        p[i].seq.slot = i;
        p[i].seq.n_tokens = i == 0 ? 2 : 3; // ROWS_MAX together
        p[i].blocks[0] = i;
        p[i].sampling.n_logprobs = TOP_LOGPROBS_MAX;
        seqs[i] = &p[i].seq;
    }
    p[0].plan.seqs = seqs;
    p[0].plan.n_seqs = N_SLOTS;
    ck_assert_int_eq(serve_plan(&p[0].plan, &e), 0);
    step_result *result = take_result(1);
    ck_assert_uint_eq(result->n_seqs, N_SLOTS);
    for (uint32_t i = 0; i < N_SLOTS; i++)
        ck_assert_uint_eq(result->seqs[i]->n_top_ids, TOP_LOGPROBS_MAX);
    moesaic__step__v1__step_result__free_unpacked(result, NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_step");
    TCase *tcase = tcase_create("step");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, step_answers_each_sampled_sequence_and_idle_plans);
    tcase_add_test(tcase, step_refuses_another_epoch_by_name);
    tcase_add_test(tcase, step_refuses_a_step_that_does_not_follow);
    tcase_add_test(tcase, step_refuses_what_the_model_refuses);
    tcase_add_test(tcase, step_refuses_bytes_that_are_no_plan);
    tcase_add_test(tcase, step_refuses_a_plan_larger_than_its_block);
    tcase_add_test(tcase, step_takes_the_largest_plan_that_its_slots_allow);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
