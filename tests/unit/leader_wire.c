// leader_wire.c: Plans and results on the wire: what is asked for comes back checked, and a result
// that lies about any field is refused.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "leader/wire.h"
#include "step.pb-c.h"
#include "tests/harness/suite.h"

#define VOCAB 50
typedef Moesaic__Step__V1__StepResult pb_result;
typedef Moesaic__Step__V1__SeqResult pb_row;

static const struct sched_config shape = {
    .n_ranks = 2, .max_num_seqs = 4, .max_num_batched_tokens = 16, .vocab = VOCAB};
static struct wire *wire;
static struct planned seqs[3];
static struct rank_plan plan;
static const uint32_t tokens[] = {4, 5, 6}, blocks[] = {9};

// One honest answer to the plan, for a test to spoil.
static pb_result result;
static pb_row rows[2], scored, *row_pointers[3];
static uint32_t top_ids[2];
static float top_logprobs[2];

static void setup(void) {
    ck_assert_int_eq(wire_create(&wire, &shape), 0);
    seqs[0] = (struct planned){.slot = 3,
                               .position = 8,
                               .n_tokens = 1,
                               .sample = true,
                               .sampling = {.n_logprobs = 2, .seed = 77}};
    seqs[1] = (struct planned){
        .slot = 1, .n_tokens = 3, .tokens = tokens, .n_blocks = 1, .blocks = blocks};
    seqs[2] =
        (struct planned){.slot = 0, .position = 2, .n_tokens = 1, .tokens = tokens, .sample = true};
    plan = (struct rank_plan){.n_seqs = 3, .n_rows = 5, .n_answered = 2, .seqs = seqs};
    moesaic__step__v1__step_result__init(&result);
    result.epoch = 7;
    result.step = 12;
    result.rank = 1;
    for (int i = 0; i < 2; i++) {
        moesaic__step__v1__seq_result__init(&rows[i]);
        row_pointers[i] = &rows[i];
    }
    rows[0].slot = 3;
    rows[0].token = 49;
    rows[0].logprob = -0.5f;
    rows[0].digest = 99;
    rows[0].n_top_ids = rows[0].n_top_logprobs = 2;
    rows[0].top_ids = top_ids;
    rows[0].top_logprobs = top_logprobs;
    top_ids[0] = 49;
    top_ids[1] = 0;
    rows[1].slot = 0;
    result.n_seqs = 2;
    result.seqs = row_pointers;
}

static void teardown(void) {
    wire_destroy(wire);
}

static int decode_bytes(const uint8_t *data, size_t bytes, struct wire_result *out,
                        struct err_text *e) {
    struct wire_answer answer = {
        .data = data, .bytes = bytes, .epoch = 7, .step = 12, .rank = 1, .plan = &plan};
    return wire_decode(wire, &answer, out, e);
}

static int decode(struct wire_result *out, struct err_text *e) {
    size_t bytes = moesaic__step__v1__step_result__get_packed_size(&result);
    uint8_t *data = malloc(bytes + 1);
    moesaic__step__v1__step_result__pack(&result, data);
    int err = decode_bytes(data, bytes, out, e);
    free(data);
    return err;
}

static void expect_wrong(const char *words) {
    struct wire_result out;
    struct err_text e;
    ck_assert_int_eq(decode(&out, &e), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(e.text, words) != NULL, "\"%s\" is not in \"%s\"", words, e.text);
    wire_destroy(wire);
    setup();
}

START_TEST(wire_encode_says_all_of_a_plan) {
    struct wire_buffer b = {0};
    seqs[1].from_snapshot = 5;
    seqs[1].to_snapshot = 6;
    ck_assert_int_eq(wire_encode(wire, 7, 12, &plan, &b), 0);
    Moesaic__Step__V1__StepPlan *p = moesaic__step__v1__step_plan__unpack(NULL, b.bytes, b.data);
    ck_assert_ptr_nonnull(p);
    ck_assert_uint_eq(p->epoch, 7);
    ck_assert_uint_eq(p->step, 12);
    ck_assert_uint_eq(p->n_seqs, 3);
    ck_assert(p->seqs[0]->token_from_slot);
    ck_assert_uint_eq(p->seqs[0]->n_tokens, 0);
    ck_assert_uint_eq(p->seqs[0]->sampling->seed, 77);
    ck_assert(!p->seqs[1]->token_from_slot);
    ck_assert_uint_eq(p->seqs[1]->tokens[2], 6);
    ck_assert_uint_eq(p->seqs[1]->blocks[0], 9);
    ck_assert_uint_eq(p->seqs[1]->from_snapshot, 5);
    ck_assert_uint_eq(p->seqs[1]->to_snapshot, 6);
    ck_assert_ptr_null(p->seqs[1]->sampling);
    ck_assert_uint_eq(p->seqs[2]->position, 2);
    moesaic__step__v1__step_plan__free_unpacked(p, NULL);
    struct rank_plan idle = {0};
    ck_assert_int_eq(wire_encode(wire, 7, 13, &idle, &b), 0);
    ck_assert_uint_lt(b.bytes, 8);
    mem_free(b.data);
}
END_TEST

START_TEST(wire_encode_sends_a_steering_once) {
    struct steering steering = {.presence_penalty = 0.5f,
                                .min_tokens = 4,
                                .n_bias = 1,
                                .bias_ids = tokens,
                                .bias = (float[]){-1},
                                .n_words = 1,
                                .n_word_ids = 2,
                                .word_ids = tokens,
                                .word_lengths = (uint32_t[]){2}};
    struct request request = {.n_prompt = 3, .n_stop_ids = 1, .stop_ids = {8}};
    struct wire_buffer b = {0};
    request.steering = steering_copy(&steering);
    seqs[1].steered_by = &request;
    seqs[2].sampling.steered = true;
    ck_assert_int_eq(wire_encode(wire, 7, 12, &plan, &b), 0);
    Moesaic__Step__V1__StepPlan *p = moesaic__step__v1__step_plan__unpack(NULL, b.bytes, b.data);
    ck_assert_ptr_nonnull(p);
    const Moesaic__Step__V1__Steering *s = p->seqs[1]->steering;
    ck_assert_ptr_null(p->seqs[0]->steering);
    ck_assert(p->seqs[2]->sampling->steered && !p->seqs[0]->sampling->steered);
    ck_assert_uint_eq(s->n_prompt, 3);
    ck_assert_float_eq(s->presence_penalty, 0.5f);
    ck_assert_uint_eq(s->stop_ids[0], 8);
    ck_assert_uint_eq(s->bias_ids[0], 4);
    ck_assert_float_eq(s->bias[0], -1);
    ck_assert_uint_eq(s->word_ids[1], 5);
    ck_assert_uint_eq(s->word_lengths[0], 2);
    moesaic__step__v1__step_plan__free_unpacked(p, NULL);
    mem_free(request.steering);
    mem_free(b.data);
}
END_TEST

START_TEST(wire_decode_takes_an_honest_result) {
    struct wire_result out;
    struct err_text e;
    ck_assert_int_eq(decode(&out, &e), 0);
    ck_assert_uint_eq(out.results[0].token, 49);
    ck_assert_uint_eq(out.results[0].digest, 99);
    ck_assert_uint_eq(out.results[0].n_top, 2);
    ck_assert_uint_eq(out.results[0].top_ids[0], 49);
    ck_assert_uint_eq(out.results[1].token, 0);
    rows[1].nonfinite = true;
    rows[1].token = 1u << 31; // says nothing then
    ck_assert_int_eq(decode(&out, &e), 0);
    ck_assert(out.results[1].nonfinite);
}
END_TEST

START_TEST(wire_decode_refuses_every_field_that_lies) {
    result.epoch = 6;
    expect_wrong("epoch 6");
    result.step = 13;
    expect_wrong("step 13");
    result.rank = 0;
    expect_wrong("rank 0");
    result.n_seqs = 1;
    expect_wrong("1 rows");
    rows[0].slot = 2;
    expect_wrong("slot");
    row_pointers[0] = &rows[1];
    expect_wrong("slot");
    rows[1].token = VOCAB;
    expect_wrong("token");
    rows[0].logprob = NAN;
    expect_wrong("logprob");
    rows[0].n_top_logprobs = 1;
    expect_wrong("top_ids");
    rows[1].n_top_ids = rows[1].n_top_logprobs = 1; // none was asked for
    rows[1].top_ids = top_ids;
    rows[1].top_logprobs = top_logprobs;
    expect_wrong("top_ids");
    top_ids[1] = VOCAB;
    expect_wrong("top_logprobs");
    top_ids[1] = 0;
    top_logprobs[1] = INFINITY;
    expect_wrong("top_logprobs");
    top_logprobs[1] = 0;
    uint64_t phases[17] = {0};
    result.n_phase_ns = 17;
    result.phase_ns = phases;
    expect_wrong("17 phases");
}
END_TEST

static float scored_logprobs[2], scored_tops[4];
static uint32_t scored_ranks[2], scored_ids[4];

// The second run is scored: two rows of it, two alternatives each.
static void setup_scored(void) {
    seqs[1].n_scored = seqs[1].n_score_top = 2;
    seqs[1].next_token = 7;
    plan.n_answered = 3;
    moesaic__step__v1__seq_result__init(&scored);
    scored.slot = 1;
    scored.n_scored_logprobs = scored.n_scored_ranks = 2;
    scored.n_scored_top_ids = scored.n_scored_top_logprobs = 4;
    scored.scored_logprobs = scored_logprobs;
    scored.scored_ranks = scored_ranks;
    scored.scored_top_ids = scored_ids;
    scored.scored_top_logprobs = scored_tops;
    for (uint32_t i = 0; i < 4; i++) {
        scored_ids[i] = VOCAB - 1 - i;
        scored_tops[i] = -0.5f - (float)i;
        scored_ranks[i / 2] = VOCAB;
        scored_logprobs[i / 2] = -7;
    }
    row_pointers[2] = row_pointers[1];
    row_pointers[1] = &scored;
    result.n_seqs = 3;
}

static void expect_scored_wrong(const char *words) {
    expect_wrong(words);
    setup_scored();
}

START_TEST(wire_takes_scores_and_refuses_those_that_lie) {
    struct wire_buffer b = {0};
    struct wire_result out;
    struct err_text e;
    setup_scored();
    ck_assert_int_eq(wire_encode(wire, 7, 12, &plan, &b), 0);
    Moesaic__Step__V1__StepPlan *p = moesaic__step__v1__step_plan__unpack(NULL, b.bytes, b.data);
    ck_assert_ptr_null(p->seqs[0]->scoring);
    ck_assert_uint_eq(p->seqs[1]->scoring->n_rows, 2);
    ck_assert_uint_eq(p->seqs[1]->scoring->n_top, 2);
    ck_assert_uint_eq(p->seqs[1]->scoring->next_token, 7);
    moesaic__step__v1__step_plan__free_unpacked(p, NULL);
    mem_free(b.data);
    ck_assert_int_eq(decode(&out, &e), 0);
    ck_assert_uint_eq(out.results[0].scores.n_tokens, 0);
    ck_assert_uint_eq(out.results[1].scores.n_tokens, 2);
    ck_assert_uint_eq(out.results[1].scores.top_ids[3], VOCAB - 4);
    scored.n_scored_logprobs = 1;
    expect_scored_wrong("scored_logprobs");
    scored_logprobs[1] = -INFINITY;
    expect_scored_wrong("scored_logprobs");
    scored.n_scored_ranks = 1;
    expect_scored_wrong("scored_ranks");
    scored_ranks[0] = 0;
    expect_scored_wrong("scored_ranks");
    scored_ranks[1] = VOCAB + 1;
    expect_scored_wrong("scored_ranks");
    scored.n_scored_top_ids = 3;
    expect_scored_wrong("scored_top_ids");
    scored_ids[3] = VOCAB;
    expect_scored_wrong("scored_top_ids");
    scored.n_scored_top_logprobs = 3;
    expect_scored_wrong("scored_top_logprobs");
    scored_tops[2] = NAN;
    expect_scored_wrong("scored_top_logprobs");
    rows[0].n_scored_ranks = 1; // none was asked for
    rows[0].scored_ranks = scored_ranks;
    expect_scored_wrong("scored_ranks");
}
END_TEST

START_TEST(wire_decode_tells_a_failed_step_from_a_lie) {
    struct wire_result out;
    struct err_text e;
    result.error = (char *)"seqs[0].slot 9 is not below 4";
    result.n_seqs = 0;
    ck_assert_int_eq(decode(&out, &e), ERR_PEER_LOST);
    ck_assert_ptr_nonnull(strstr(e.text, "slot 9"));
}
END_TEST

START_TEST(wire_decode_survives_bytes_of_any_kind) {
    struct wire_result out;
    struct err_text e;
    ck_assert_int_eq(decode_bytes((const uint8_t *)"\xff", 1, &out, &e), ERR_PEER_PROTOCOL);
    ck_assert_int_eq(decode_bytes((const uint8_t *)"", 0, &out, &e), ERR_PEER_PROTOCOL);
    // Five million empty rows: two bytes each on the wire, a hundred each in memory, if one let
    // them.
    size_t bytes = 10 << 20;
    uint8_t *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i += 2) {
        data[i] = 0x22;
        data[i + 1] = 0;
    }
    ck_assert_int_eq(decode_bytes(data, bytes, &out, &e), ERR_PEER_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(e.text, "malformed"));
    free(data);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("wire");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, wire_encode_says_all_of_a_plan);
    tcase_add_test(t, wire_encode_sends_a_steering_once);
    tcase_add_test(t, wire_decode_takes_an_honest_result);
    tcase_add_test(t, wire_decode_refuses_every_field_that_lies);
    tcase_add_test(t, wire_takes_scores_and_refuses_those_that_lie);
    tcase_add_test(t, wire_decode_tells_a_failed_step_from_a_lie);
    tcase_add_test(t, wire_decode_survives_bytes_of_any_kind);
    Suite *s = suite_create("leader_wire");
    suite_add_tcase(s, t);
    return suite_run(s);
}
