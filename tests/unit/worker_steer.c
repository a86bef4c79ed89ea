// worker_steer.c: penalties, biases and bans on one row, against numbers worked out by hand.
#include <math.h>
#include <string.h>

#include "common/base/limits.h"
#include "tests/harness/suite.h"
#include "worker/steer.h"

#define VOCAB 12
#define SLOT 1
#define POSITIONS 40

static struct scratch memory;
static struct kv kv;
static struct steer_slot steering;
static struct steer_scratch scratch;
static Moesaic__Step__V1__Steering pb;
static float logits[VOCAB];
static struct err_text error;

static void lay(void) {
    struct model_spec spec = {.n_layers = 1, .head_dim = 4, .n_kv_heads = 1};
    struct kv_sizes sizes = {.spec = &spec,
                             .dtype = DTYPE_F32,
                             .n_layers = 1,
                             .n_heads = 1,
                             .n_slots = 2,
                             .n_blocks = 4,
                             .max_model_len = POSITIONS};
    kv_lay(&kv, &sizes, &memory, &memory);
    steer_lay(&steering, &memory);
    steer_scratch_lay(&scratch, VOCAB, &memory);
}

// Pages out of order, so that a position is not a place.
static void setup(void) {
    static const uint32_t blocks[] = {3, 0, 2};
    memory = (struct scratch){0};
    steering = (struct steer_slot){0};
    lay();
    ck_assert_int_eq(scratch_allocate(&memory, NULL), 0);
    lay();
    kv_set_blocks(&kv, SLOT, 0, blocks, 3);
    moesaic__step__v1__steering__init(&pb);
    for (uint32_t id = 0; id < VOCAB; id++)
        logits[id] = (float)id - 4.0f; // -4 to 7
}

static void teardown(void) {
    scratch_finish(&memory);
}

static void write_tokens(const uint32_t *tokens, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        kv_set_token(&kv, SLOT, i, tokens[i]);
}

static const float *steer(uint32_t n_known) {
    ck_assert_int_eq(steer_check(&pb, VOCAB, &error), 0);
    steer_set(&steering, &pb);
    struct steer_row row = {logits, VOCAB, SLOT, n_known - 1};
    const float *x = steer_row(&steering, &kv, &row, &scratch);
    for (uint32_t id = 0; id < VOCAB; id++)
        ck_assert_uint_eq(scratch.counts[id], 0);
    return x;
}

static void assert_only_changed(const float *x, uint32_t id, float value) {
    for (uint32_t i = 0; i < VOCAB; i++)
        ck_assert_float_eq(x[i], i == id ? value : logits[i]);
}

START_TEST(a_bias_is_added_to_its_id_alone) {
    pb.n_bias_ids = pb.n_bias = 1;
    pb.bias_ids = (uint32_t[]){5};
    pb.bias = (float[]){-2.5f};
    assert_only_changed(steer(1), 5, -1.5f);
}
END_TEST

START_TEST(allowed_ids_leave_nothing_else) {
    pb.n_allowed_ids = 2;
    pb.allowed_ids = (uint32_t[]){0, 9};
    const float *x = steer(1);
    for (uint32_t id = 0; id < VOCAB; id++)
        ck_assert_float_eq(x[id], id == 0 || id == 9 ? logits[id] : -INFINITY);
}
END_TEST

// Over a page's end: 20 tokens of prompt, then 2, 2, 3.
START_TEST(penalties_count_generated_tokens_and_repetition_counts_the_prompt_too) {
    uint32_t tokens[23] = {0};
    for (int i = 0; i < 20; i++)
        tokens[i] = i % 2 == 0 ? 1 : 11;
    tokens[20] = tokens[21] = 2;
    tokens[22] = 3;
    write_tokens(tokens, 23);
    pb.n_prompt = 20;
    pb.presence_penalty = 0.5f;
    pb.frequency_penalty = 0.25f;
    pb.repetition_penalty = 2.0f;
    const float *x = steer(23);
    ck_assert_float_eq(x[1], -6.0f);                   // -3 * 2
    ck_assert_float_eq(x[11], 3.5f);                   // 7 / 2
    ck_assert_float_eq(x[2], -2.0f * 2 - 0.5f - 0.5f); // twice generated
    ck_assert_float_eq(x[3], -1.0f * 2 - 0.25f - 0.5f);
    ck_assert_float_eq(x[4], logits[4]);
    ck_assert_float_eq(x[10], logits[10]);
}
END_TEST

START_TEST(stop_ids_are_banned_until_enough_was_generated) {
    write_tokens((uint32_t[]){1, 1, 1, 4, 4}, 5);
    pb.n_prompt = 3;
    pb.min_tokens = 2;
    pb.n_stop_ids = 1;
    pb.stop_ids = (uint32_t[]){11};
    assert_only_changed(steer(4), 11, -INFINITY);
    assert_only_changed(steer(5), 11, logits[11]);
}
END_TEST

START_TEST(the_last_token_of_a_banned_word_is_banned_after_the_others) {
    write_tokens((uint32_t[]){7, 8, 7, 8}, 4);
    pb.n_word_ids = 3;
    pb.word_ids = (uint32_t[]){7, 8, 9};
    pb.n_word_lengths = 1;
    pb.word_lengths = (uint32_t[]){3};
    pb.n_prompt = 2;
    assert_only_changed(steer(4), 9, -INFINITY);
    pb.n_prompt = 3; // then the first of them belongs to the prompt
    assert_only_changed(steer(4), 9, logits[9]);
}
END_TEST

START_TEST(bans_that_leave_nothing_are_lifted) {
    pb.n_allowed_ids = 1;
    pb.allowed_ids = (uint32_t[]){6};
    pb.n_word_ids = pb.n_word_lengths = 1;
    pb.word_ids = (uint32_t[]){6};
    pb.word_lengths = (uint32_t[]){1};
    const float *x = steer(1);
    ck_assert_float_eq(x[6], logits[6]);
    ck_assert_float_eq(x[5], -INFINITY);
}
END_TEST

static void assert_refused(const char *field) {
    ck_assert_int_eq(steer_check(&pb, VOCAB, &error), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(error.text, field) != NULL, "%s", error.text);
    moesaic__step__v1__steering__init(&pb);
}

START_TEST(a_wrong_steering_is_refused_by_its_field) {
    static uint32_t many[STEERING_ITEMS_MAX + 1];
    pb.n_allowed_ids = STEERING_ITEMS_MAX + 1;
    pb.allowed_ids = many;
    assert_refused("items");
    pb.n_allowed_ids = 1;
    pb.allowed_ids = (uint32_t[]){VOCAB};
    assert_refused("id 12");
    pb.n_bias = 1;
    pb.bias = (float[]){1};
    assert_refused("bias");
    pb.n_bias = pb.n_bias_ids = 1;
    pb.bias = (float[]){NAN};
    pb.bias_ids = (uint32_t[]){1};
    assert_refused("bias[0]");
    // Finite, but what is made of them need not be.
    pb.n_bias = pb.n_bias_ids = 1;
    pb.bias = (float[]){-3e38f};
    pb.bias_ids = (uint32_t[]){1};
    assert_refused("bias[0]");
    pb.presence_penalty = INFINITY;
    assert_refused("penalty");
    pb.frequency_penalty = 3e38f;
    assert_refused("penalty");
    pb.repetition_penalty = -1;
    assert_refused("repetition_penalty");
    pb.repetition_penalty = NAN;
    assert_refused("repetition_penalty");
    pb.n_word_lengths = 1;
    pb.word_lengths = (uint32_t[]){0};
    assert_refused("word_lengths[0]");
    pb.n_word_ids = 2;
    pb.word_ids = (uint32_t[]){1, 2};
    pb.n_word_lengths = 1;
    pb.word_lengths = (uint32_t[]){3};
    assert_refused("word_lengths[0]");
    pb.n_word_ids = 1;
    pb.word_ids = (uint32_t[]){1};
    assert_refused("word_ids");
}
END_TEST

int main(void) {
    Suite *s = suite_create("worker_steer");
    TCase *c = tcase_create("steer");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_bias_is_added_to_its_id_alone);
    tcase_add_test(c, allowed_ids_leave_nothing_else);
    tcase_add_test(c, penalties_count_generated_tokens_and_repetition_counts_the_prompt_too);
    tcase_add_test(c, stop_ids_are_banned_until_enough_was_generated);
    tcase_add_test(c, the_last_token_of_a_banned_word_is_banned_after_the_others);
    tcase_add_test(c, bans_that_leave_nothing_are_lifted);
    tcase_add_test(c, a_wrong_steering_is_refused_by_its_field);
    suite_add_tcase(s, c);
    return suite_run(s);
}
