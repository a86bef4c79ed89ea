// worker_delta.c: states of recurrent layers live in slots: a run begins anew at position 0 or goes
// on where its slot stands or from a snapshot, anything else is refused; a snapshot is exact;
// memory is counted; checkpoints of either form of experts are one model.
#include "common/base/mem.h"
#include "tests/harness/steps.h"
#include "tests/harness/suite.h"
#include "worker/batch.h"

#define FOLDER SOURCE_ROOT "/tests/data/models/qwen3-next"

static struct steps m;

static void setup(void) {
    steps_open(&m, &(struct steps_config){.folder = FOLDER,
                                          .rows_max = 40,
                                          .positions = 64,
                                          .n_snapshots = 2,
                                          .kv_dtype = DTYPE_F32});
}

static void teardown(void) {
    steps_close(&m);
}

START_TEST(a_run_that_does_not_continue_its_slots_state_is_refused) {
    steps_add(&m, 1, 0, 16, 3);
    steps_refused(&m, "seqs[0].position 16: the state of slot 1 has come to 0");
    uint64_t whole = steps_digest(&m, 0, 0, 0, 21);
    steps_digest(&m, 1, 0, 0, 20);
    steps_add(&m, 1, 0, 19, 1);
    steps_refused(&m, "seqs[0].position 19: the state of slot 1 has come to 20");
    steps_add(&m, 0, 0, 0, 1);
    steps_add(&m, 1, 0, 21, 1);
    steps_refused(&m, "seqs[1].position 21: the state of slot 1 has come to 20");
    // Nothing of a refused plan stays: the slot goes on.
    ck_assert_uint_eq(steps_digest(&m, 1, 0, 20, 1), whole);
}
END_TEST

START_TEST(a_slot_that_begins_anew_remembers_nothing) {
    uint64_t fresh = steps_digest(&m, 0, 5, 0, 2);
    steps_digest(&m, 1, 6, 0, 30);
    ck_assert_uint_eq(steps_digest(&m, 1, 5, 0, 2), fresh);
    ck_assert_uint_eq(steps_digest(&m, 0, 5, 0, 2), fresh);
    // Shorter than the convolution, longer, and one token after the other.
    uint64_t five = steps_digest(&m, 0, 5, 0, 5);
    steps_digest(&m, 1, 5, 0, 1);
    for (uint32_t i = 1; i < 4; i++)
        steps_digest(&m, 1, 5, i, 1);
    ck_assert_uint_eq(steps_digest(&m, 1, 5, 4, 1), five);
    steps_digest(&m, 2, 5, 0, 2);
    ck_assert_uint_eq(steps_digest(&m, 2, 5, 2, 3), five);
}
END_TEST

START_TEST(sequences_beside_each_other_share_no_state) {
    uint64_t want[3];
    for (uint32_t i = 0; i < 3; i++) {
        steps_digest(&m, i, i, 0, 7 + i);
        want[i] = steps_digest(&m, i, i, 7 + i, 4);
    }
    for (uint32_t i = 0; i < 3; i++)
        steps_add(&m, 2 - i, i, 0, 7 + i);
    ck_assert_int_eq(steps_run(&m), 0);
    for (uint32_t i = 0; i < 3; i++)
        steps_add(&m, 2 - i, i, 7 + i, 4);
    ck_assert_int_eq(steps_run(&m), 0);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(m.output.seqs[i].digest, want[i]);
}
END_TEST

// The run added last begins from one snapshot and is saved to another; 1 + number, 0 = none.
static void with(uint32_t from, uint32_t to) {
    m.seqs[m.plan.n_seqs - 1].from_snapshot = from;
    m.seqs[m.plan.n_seqs - 1].to_snapshot = to;
}

// Text 5 over slot 0's pages, which others read: the blocks before the run are as good as its own.
static uint64_t digest_from(uint32_t slot, uint32_t snapshot, uint32_t position, uint32_t n) {
    steps_add(&m, slot, 5, position, n);
    with(snapshot, 0);
    for (uint32_t b = 0; b < position / KV_BLOCK_TOKENS; b++)
        m.blocks[0][b] = b;
    ck_assert_msg(steps_run(&m) == 0, "%s", m.error.text);
    return m.output.seqs[0].digest;
}

START_TEST(who_goes_on_from_a_snapshot_computes_the_same_bits) {
    uint64_t whole = steps_digest(&m, 0, 5, 0, 37);
    steps_add(&m, 0, 5, 0, 16); // cut where blocks end, and kept there
    with(0, 1);
    ck_assert_int_eq(steps_run(&m), 0);
    steps_add(&m, 0, 5, 16, 16);
    with(0, 2);
    ck_assert_int_eq(steps_run(&m), 0);
    ck_assert_uint_eq(steps_digest(&m, 0, 5, 32, 5), whole);
    steps_digest(&m, 1, 9, 0, 40);
    steps_digest(&m, 2, 8, 0, 3);
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
    uint64_t whole = steps_digest(&m, 0, 5, 0, 20), other = steps_digest(&m, 2, 6, 0, 20);
    steps_add(&m, 0, 5, 0, 16);
    with(0, 1);
    ck_assert_int_eq(steps_run(&m), 0);
    steps_add(&m, 2, 6, 0, 16);
    with(0, 1);
    steps_add(&m, 1, 5, 16, 4);
    with(1, 0);
    m.blocks[1][0] = 0;
    ck_assert_msg(steps_run(&m) == 0, "%s", m.error.text);
    ck_assert_uint_eq(m.output.seqs[1].digest, whole);
    steps_add(&m, 1, 6, 16, 4);
    with(1, 0);
    m.blocks[0][0] = 8;
    ck_assert_msg(steps_run(&m) == 0, "%s", m.error.text);
    ck_assert_uint_eq(m.output.seqs[0].digest, other);
}
END_TEST

START_TEST(a_plan_with_a_wrong_snapshot_is_refused_and_changes_nothing) {
    steps_add(&m, 0, 5, 0, 16);
    with(0, 1);
    ck_assert_int_eq(steps_run(&m), 0);
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
        steps_add(&m, 1, 5, cases[i].position, cases[i].n);
        with(cases[i].from, cases[i].to);
        steps_refused(&m, cases[i].words);
    }
    for (uint32_t i = 0; i < 2; i++) {
        steps_add(&m, 1 + i, 5, 0, 16);
        with(0, 2);
    }
    steps_refused(&m, "seqs[1].to_snapshot 2 is written by this plan twice");
    steps_add(&m, 1, 5, 0, 16); // nor did any of these write the second
    with(2, 0);
    steps_refused(&m, "snapshot 2 has come to 0");
    uint64_t whole = steps_digest(&m, 2, 5, 0, 20);
    ck_assert_uint_eq(digest_from(1, 1, 16, 4), whole);
}
END_TEST

START_TEST(a_step_of_recurrent_layers_allocates_nothing) {
    steps_digest(&m, 0, 1, 0, 20);
    mem_fail_after(1);
    steps_digest(&m, 0, 1, 20, 5);
    steps_add(&m, 0, 1, 25, 7);
    with(0, 1);
    ck_assert_int_eq(steps_run(&m), 0);
    steps_add(&m, 1, 1, 32, 1);
    with(1, 0);
    ck_assert_int_eq(steps_run(&m), 0);
    ck_assert_ptr_null(mem_alloc(1)); // the countdown was still armed
}
END_TEST

START_TEST(memory_counts_pages_of_layers_that_attend_and_states_of_the_others) {
    // Two of four layers are recurrent: 3 inputs of 174 channels, 6 states of 12 by 21.
    ck_assert_uint_eq(spec_recurrent_layers(&m.spec), 2);
    ck_assert_uint_eq(spec_kv_token_bytes(&m.spec, DTYPE_F32), 2 * 2 * 2 * 16 * sizeof(float));
    ck_assert_uint_eq(spec_state_bytes(&m.spec), 2 * (3 * 174 + 6 * 12 * 21) * sizeof(float));
    struct model_config config = {.weights = m.weights,
                                  .layout = &m.layout,
                                  .n_slots = 3,
                                  .rows_max = 40,
                                  .max_model_len = 64,
                                  .kv_dtype = DTYPE_F32};
    uint64_t few = model_step_bytes(&config, 1);
    config.n_slots = 1003;
    ck_assert_uint_ge(model_step_bytes(&config, 1), few + 1000 * spec_state_bytes(&m.spec));
    ck_assert_uint_eq(model_state_bytes(&config), spec_state_bytes(&m.spec));
    uint64_t each = spec_state_bytes(&m.spec) + sizeof(struct batch_snapshot);
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
    struct model_config config = {.weights = m.weights,
                                  .n_slots = 3,
                                  .rows_max = 40,
                                  .max_model_len = 64,
                                  .kv_dtype = DTYPE_F32};
    ck_assert_uint_eq(spec_layer_state_bytes(&m.spec, 0, 1),
                      (3 * 174 + 6 * 12 * 21) * sizeof(float));
    ck_assert_uint_eq(spec_layer_state_bytes(&m.spec, 0, 2),
                      (3 * 174 + 6 * 12 * 21) / 2 * sizeof(float));
    const struct layout *const layouts[] = {&m.layout, &two};
    uint64_t more[2]; // of a thousand slots more
    for (int i = 0; i < 2; i++) {
        config.layout = layouts[i];
        config.n_slots = 3;
        more[i] = model_step_bytes(&config, 1);
        config.n_slots = 1003;
        more[i] = model_step_bytes(&config, 1) - more[i];
    }
    uint64_t half = 1000 * spec_state_bytes(&m.spec) / 2;
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
