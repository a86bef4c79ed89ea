// worker_delta.c: states of recurrent layers live in slots: a run begins anew at position 0 or goes
// on where its slot stands or from a snapshot, anything else is refused; a snapshot is exact;
// memory is counted; checkpoints of either form of experts are one model.
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/serve.h"
#include "tests/harness/suite.h"
#include "worker/batch.h"

#define FOLDER SOURCE_ROOT "/tests/data/models/qwen3-next"

// One rank with 3 slots, 40 rows, 64 positions, 12 pages and 2 snapshots.
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
                                  .n_snapshots = 2,
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

// The run added last begins from one snapshot and is saved to another; 1 + number, 0 = none.
static void with(uint32_t from, uint32_t to) {
    p.seqs[p.plan.n_seqs - 1].from_snapshot = from;
    p.seqs[p.plan.n_seqs - 1].to_snapshot = to;
}

// Text 5 over slot 0's pages, which others read: the blocks before the run are as good as its own.
static uint64_t digest_from(uint32_t slot, uint32_t snapshot, uint32_t position, uint32_t n) {
    add(slot, 5, position, n);
    with(snapshot, 0);
    for (uint32_t b = 0; b < position / KV_BLOCK_TOKENS; b++)
        p.blocks[0][b] = b;
    ck_assert_msg(step() == 0, "%s", error.text);
    return output.seqs[0].digest;
}

START_TEST(who_goes_on_from_a_snapshot_computes_the_same_bits) {
    uint64_t whole = digest(0, 5, 0, 37);
    add(0, 5, 0, 16); // cut where blocks end, and kept there
    with(0, 1);
    ck_assert_int_eq(step(), 0);
    add(0, 5, 16, 16);
    with(0, 2);
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_eq(digest(0, 5, 32, 5), whole);
    digest(1, 9, 0, 40);
    digest(2, 8, 0, 3);
    ck_assert_uint_eq(digest_from(1, 2, 32, 5), whole);
    ck_assert_uint_eq(digest_from(1, 1, 16, 21), whole);
    for (uint32_t i = 0; i < 4; i++)
        digest_from(2, i == 0 ? 2 : 0, 32 + i, 1);
    ck_assert_uint_eq(digest_from(2, 0, 36, 1), whole);
    ck_assert_uint_eq(digest_from(1, 2, 32, 5), whole); // it was read, and stays
}
END_TEST

// One sequence begins from the snapshot that another is saved to in the same plan.
START_TEST(a_plan_reads_its_snapshots_before_it_writes_them) {
    uint64_t whole = digest(0, 5, 0, 20), other = digest(2, 6, 0, 20);
    add(0, 5, 0, 16);
    with(0, 1);
    ck_assert_int_eq(step(), 0);
    add(2, 6, 0, 16);
    with(0, 1);
    add(1, 5, 16, 4);
    with(1, 0);
    p.blocks[1][0] = 0;
    ck_assert_msg(step() == 0, "%s", error.text);
    ck_assert_uint_eq(output.seqs[1].digest, whole);
    add(1, 6, 16, 4);
    with(1, 0);
    p.blocks[0][0] = 8;
    ck_assert_msg(step() == 0, "%s", error.text);
    ck_assert_uint_eq(output.seqs[0].digest, other);
}
END_TEST

START_TEST(a_plan_with_a_wrong_snapshot_is_refused_and_changes_nothing) {
    add(0, 5, 0, 16);
    with(0, 1);
    ck_assert_int_eq(step(), 0);
    const struct {
        uint32_t position, n, from, to;
        const char *words;
    } cases[] = {
        {16, 4, 3, 0, "seqs[0].from_snapshot 3 is above the 2 snapshots"},
        {16, 4, UINT32_MAX, 0, "seqs[0].from_snapshot 4294967295 is above the 2 snapshots"},
        {16, 4, 2, 0, "seqs[0].position 16: snapshot 2 has come to 0"},
        {0, 4, 2, 0, "seqs[0].position 0: snapshot 2 has come to 0"},
        {0, 4, 1, 0, "seqs[0].position 0: snapshot 1 has come to 16"},
        {20, 4, 1, 0, "seqs[0].position 20: snapshot 1 has come to 16"},
        {0, 16, 0, 3, "seqs[0].to_snapshot 3 is above the 2 snapshots"},
        {0, 17, 0, 1, "seqs[0].to_snapshot 1: the run ends at 17, where no block does"},
        {0, 0, 0, 1, "seqs[0].tokens is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        add(1, 5, cases[i].position, cases[i].n);
        with(cases[i].from, cases[i].to);
        refused(cases[i].words);
    }
    for (uint32_t i = 0; i < 2; i++) {
        add(1 + i, 5, 0, 16);
        with(0, 2);
    }
    refused("seqs[1].to_snapshot 2 is written by this plan twice");
    add(1, 5, 0, 16); // nor did any of these write the second
    with(2, 0);
    refused("snapshot 2 has come to 0");
    uint64_t whole = digest(2, 5, 0, 20);
    ck_assert_uint_eq(digest_from(1, 1, 16, 4), whole);
}
END_TEST

START_TEST(a_step_of_recurrent_layers_allocates_nothing) {
    digest(0, 1, 0, 20);
    mem_fail_after(1);
    digest(0, 1, 20, 5);
    add(0, 1, 25, 7);
    with(0, 1);
    ck_assert_int_eq(step(), 0);
    add(1, 1, 32, 1);
    with(1, 0);
    ck_assert_int_eq(step(), 0);
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
    ck_assert_uint_eq(model_state_bytes(&config), spec_state_bytes(&spec));
    uint64_t each = spec_state_bytes(&spec) + sizeof(struct batch_snapshot);
    ck_assert_uint_eq(model_snapshots_fit(&config, 5 * each), 5);
    ck_assert_uint_eq(model_snapshots_fit(&config, 5 * each - 1), 4);
    ck_assert_uint_eq(model_snapshots_fit(&config, UINT64_MAX), SNAPSHOTS_MAX);
    uint64_t bytes = model_step_bytes(&config, 1);
    config.n_snapshots = 100; // counted elsewhere, as pages are
    ck_assert_uint_eq(model_step_bytes(&config, 1), bytes);
}
END_TEST

START_TEST(a_rank_of_a_group_sets_aside_the_states_of_its_own_heads) {
    const struct layout two = {.n_ranks = 2, .pp = 1, .dp = 1, .tp = 2, .ep = 2, .etp = 1};
    struct model_config config = {.weights = weights,
                                  .n_slots = 3,
                                  .rows_max = 40,
                                  .max_model_len = 64,
                                  .kv_dtype = DTYPE_F32};
    ck_assert_uint_eq(spec_layer_state_bytes(&spec, 0, 1), (3 * 174 + 6 * 12 * 21) * sizeof(float));
    ck_assert_uint_eq(spec_layer_state_bytes(&spec, 0, 2),
                      (3 * 174 + 6 * 12 * 21) / 2 * sizeof(float));
    const struct layout *const layouts[] = {&layout, &two};
    uint64_t more[2]; // of a thousand slots more
    for (int i = 0; i < 2; i++) {
        config.layout = layouts[i];
        config.n_slots = 3;
        more[i] = model_step_bytes(&config, 1);
        config.n_slots = 1003;
        more[i] = model_step_bytes(&config, 1) - more[i];
    }
    uint64_t half = 1000 * spec_state_bytes(&spec) / 2;
    ck_assert_uint_ge(more[0] - more[1], half);
    ck_assert_uint_le(more[0] - more[1], half + 1000);
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
    tcase_add_test(tests, who_goes_on_from_a_snapshot_computes_the_same_bits);
    tcase_add_test(tests, a_plan_reads_its_snapshots_before_it_writes_them);
    tcase_add_test(tests, a_plan_with_a_wrong_snapshot_is_refused_and_changes_nothing);
    tcase_add_test(tests, a_step_of_recurrent_layers_allocates_nothing);
    tcase_add_test(tests, memory_counts_pages_of_layers_that_attend_and_states_of_the_others);
    tcase_add_test(tests, a_rank_of_a_group_sets_aside_the_states_of_its_own_heads);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
