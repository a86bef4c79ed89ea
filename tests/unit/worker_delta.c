// worker_delta.c: states of recurrent layers live in slots: a run begins anew at position 0 or goes
// on where its slot stands, anything else is refused; memory is counted; checkpoints of either form
// of experts are one model.
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/serve.h"
#include "tests/harness/suite.h"
#include "worker/kv.h"

#define FOLDER SOURCE_ROOT "/tests/data/models/qwen3-next"

// One rank with 3 slots, 40 rows, 64 positions and 12 pages.
static struct model_spec spec;
static struct layout layout;
static struct weights *weights;
static struct ranks *ranks;
static struct err_text error;
static struct step_output output;

static struct {
    Moesaic__Step__V1__StepPlan plan;
    Moesaic__Step__V1__PlanSeq seqs[3], *pointers[3];
    Moesaic__Step__V1__Sampling sampling[3];
    uint32_t tokens[3][40], blocks[3][4];
} p;

static void make_ranks(void) {
    const struct weights *w = weights;
    struct ranks_config config = {.weights = &w,
                                  .layout = &layout,
                                  .n_threads = 2,
                                  .n_slots = 3,
                                  .rows_max = 40,
                                  .max_model_len = 64,
                                  .kv_blocks = 12,
                                  .kv_dtype = DTYPE_F32};
    ranks = ranks_create(&config);
    memset(&p, 0, sizeof p);
    moesaic__step__v1__step_plan__init(&p.plan);
    p.plan.seqs = p.pointers;
}

static void setup(void) {
    ck_assert_msg(spec_load(&spec, FOLDER, &error) == 0, "%s", error.text);
    ck_assert_int_eq(layout_make(&layout, 1, &error), 0);
    struct weights_config config = {
        .folder = FOLDER, .spec = &spec, .layout = &layout, .dtype = spec.dtype, .n_threads = 1};
    ck_assert_msg(weights_load(&weights, &config, &error) == 0, "%s", error.text);
    make_ranks();
}

static void teardown(void) {
    ranks_destroy(ranks);
    weights_destroy(weights);
}

// Tokens [position, position + n) of one of many texts, in the slot and its four pages.
static void add(uint32_t slot, uint32_t text, uint32_t position, uint32_t n) {
    size_t i = p.plan.n_seqs++;
    Moesaic__Step__V1__PlanSeq *seq = p.pointers[i] = &p.seqs[i];
    moesaic__step__v1__plan_seq__init(seq);
    seq->slot = slot;
    seq->position = position;
    seq->tokens = p.tokens[i];
    seq->n_tokens = n;
    seq->blocks = p.blocks[i];
    seq->n_blocks = 4;
    for (uint32_t t = 0; t < n; t++)
        p.tokens[i][t] = ((position + t) * 11 + text * 37) % spec.vocab;
    for (uint32_t b = 0; b < 4; b++)
        p.blocks[i][b] = slot * 4 + b;
    moesaic__step__v1__sampling__init(&p.sampling[i]);
    p.sampling[i].top_p = 1.0f;
    seq->sampling = &p.sampling[i];
}

static int step(void) {
    int rc = model_step(ranks_model(ranks, 0), &p.plan, &output, &error);
    p.plan.n_seqs = 0;
    return rc;
}

// The digest of the last row of a step with just this run.
static uint64_t digest(uint32_t slot, uint32_t text, uint32_t position, uint32_t n) {
    add(slot, text, position, n);
    ck_assert_msg(step() == 0, "%s", error.text);
    return output.seqs[0].digest;
}

static void refused(const char *words) {
    ck_assert_int_eq(step(), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(error.text, words) != NULL, "'%s' does not say %s", error.text, words);
}

START_TEST(a_run_that_does_not_continue_its_slots_state_is_refused) {
    add(1, 0, 16, 3);
    refused("seqs[0].position 16: the state of slot 1 has come to 0");
    uint64_t whole = digest(0, 0, 0, 21);
    digest(1, 0, 0, 20);
    add(1, 0, 19, 1);
    refused("seqs[0].position 19: the state of slot 1 has come to 20");
    add(0, 0, 0, 1);
    add(1, 0, 21, 1);
    refused("seqs[1].position 21: the state of slot 1 has come to 20");
    // Nothing of a refused plan stays: the slot goes on.
    ck_assert_uint_eq(digest(1, 0, 20, 1), whole);
}
END_TEST

START_TEST(a_slot_that_begins_anew_remembers_nothing) {
    uint64_t fresh = digest(0, 5, 0, 2);
    digest(1, 6, 0, 30);
    ck_assert_uint_eq(digest(1, 5, 0, 2), fresh);
    ck_assert_uint_eq(digest(0, 5, 0, 2), fresh);
    // Shorter than the convolution, longer, and one token after the other.
    uint64_t five = digest(0, 5, 0, 5);
    digest(1, 5, 0, 1);
    for (uint32_t i = 1; i < 4; i++)
        digest(1, 5, i, 1);
    ck_assert_uint_eq(digest(1, 5, 4, 1), five);
    digest(2, 5, 0, 2);
    ck_assert_uint_eq(digest(2, 5, 2, 3), five);
}
END_TEST

START_TEST(sequences_beside_each_other_share_no_state) {
    uint64_t want[3];
    for (uint32_t i = 0; i < 3; i++) {
        digest(i, i, 0, 7 + i);
        want[i] = digest(i, i, 7 + i, 4);
    }
    for (uint32_t i = 0; i < 3; i++)
        add(2 - i, i, 0, 7 + i);
    ck_assert_int_eq(step(), 0);
    for (uint32_t i = 0; i < 3; i++)
        add(2 - i, i, 7 + i, 4);
    ck_assert_int_eq(step(), 0);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(output.seqs[i].digest, want[i]);
}
END_TEST

START_TEST(a_step_of_recurrent_layers_allocates_nothing) {
    digest(0, 1, 0, 20);
    mem_fail_after(1);
    digest(0, 1, 20, 5);
    ck_assert_ptr_null(mem_alloc(1)); // the countdown was still armed
}
END_TEST

START_TEST(memory_counts_pages_of_layers_that_attend_and_states_of_the_others) {
    // Two of four layers are recurrent: 3 inputs of 174 channels, 6 states of 12 by 21.
    ck_assert_uint_eq(spec_recurrent_layers(&spec), 2);
    ck_assert_uint_eq(spec_kv_token_bytes(&spec, DTYPE_F32), 2 * 2 * 2 * 16 * sizeof(float));
    ck_assert_uint_eq(spec_state_bytes(&spec), 2 * (3 * 174 + 6 * 12 * 21) * sizeof(float));
    struct model_config config = {.weights = weights,
                                  .layout = &layout,
                                  .n_slots = 3,
                                  .rows_max = 40,
                                  .max_model_len = 64,
                                  .kv_dtype = DTYPE_F32};
    uint64_t few = model_step_bytes(&config, 1);
    config.n_slots = 1003;
    ck_assert_uint_ge(model_step_bytes(&config, 1), few + 1000 * spec_state_bytes(&spec));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_delta");
    TCase *tests = tcase_create("worker_delta");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_run_that_does_not_continue_its_slots_state_is_refused);
    tcase_add_test(tests, a_slot_that_begins_anew_remembers_nothing);
    tcase_add_test(tests, sequences_beside_each_other_share_no_state);
    tcase_add_test(tests, a_step_of_recurrent_layers_allocates_nothing);
    tcase_add_test(tests, memory_counts_pages_of_layers_that_attend_and_states_of_the_others);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
