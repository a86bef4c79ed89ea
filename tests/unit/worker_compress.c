// worker_compress.c: compressed attention: what windows need of tokens lives in slots, so a run
// begins anew at position 0 or goes on where its slot stands, and anything else is refused; memory
// is counted; pages keep entries of every format; a long request has one answer in all ways.
#include "worker/compress.h"

#include "common/base/mem.h"
#include "tests/harness/steps.h"
#include "tests/harness/suite.h"

// A layer with a window alone, then CSA (4 tokens an entry) and HCA (8) by turns, twice.
#define FOLDER SOURCE_ROOT "/tests/data/models/deepseek-v4"

static struct steps m;

static void setup(void) {
    steps_open(&m, &(struct steps_config){.folder = FOLDER,
                                          .rows_max = STEPS_POSITIONS,
                                          .positions = STEPS_POSITIONS,
                                          .kv_dtype = DTYPE_BF16});
}

static void teardown(void) {
    steps_close(&m);
}

START_TEST(a_run_that_does_not_continue_its_slots_windows_is_refused) {
    steps_add(&m, 1, 0, 16, 3);
    steps_refused(&m, "seqs[0].position 16: the state of slot 1 has come to 0");
    uint64_t whole = steps_digest(&m, 0, 0, 0, 71);
    steps_digest(&m, 1, 0, 0, 70);
    steps_add(&m, 1, 0, 68, 1); // a window's first token
    steps_refused(&m, "seqs[0].position 68: the state of slot 1 has come to 70");
    ck_assert_uint_eq(steps_digest(&m, 1, 0, 70, 1), whole);
}
END_TEST

START_TEST(a_slot_that_begins_anew_remembers_nothing) {
    for (uint32_t n = 1; n <= 70; n += 3) {
        uint64_t fresh = steps_digest(&m, 0, 5, 0, n);
        steps_digest(&m, 1, 6, 0, 100 + n % 7);
        ck_assert_uint_eq(steps_digest(&m, 1, 5, 0, n), fresh);
        steps_digest(&m, 2, 7, 0, 3); // fewer than a window
        ck_assert_uint_eq(steps_digest(&m, 2, 5, 0, n), fresh);
    }
}
END_TEST

START_TEST(cuts_anywhere_in_windows_change_no_bit) {
    uint64_t whole = steps_digest(&m, 0, 3, 0, 90);
    for (uint32_t cut = 1; cut < 90; cut++) {
        steps_digest(&m, 1, 3, 0, cut);
        ck_assert_uint_eq(steps_digest(&m, 1, 3, cut, 90 - cut), whole);
    }
    steps_digest(&m, 2, 3, 0, 1);
    for (uint32_t i = 1; i < 89; i++)
        steps_digest(&m, 2, 3, i, 1);
    ck_assert_uint_eq(steps_digest(&m, 2, 3, 89, 1), whole);
}
END_TEST

START_TEST(sequences_beside_each_other_share_nothing) {
    uint64_t want[STEPS_SLOTS];
    for (uint32_t i = 0; i < STEPS_SLOTS; i++) {
        steps_digest(&m, i, i, 0, 17 + i);
        want[i] = steps_digest(&m, i, i, 17 + i, 20);
    }
    for (uint32_t i = 0; i < STEPS_SLOTS; i++)
        steps_add(&m, 2 - i, i, 0, 17 + i);
    ck_assert_int_eq(steps_run(&m), 0);
    for (uint32_t i = 0; i < STEPS_SLOTS; i++)
        steps_add(&m, 2 - i, i, 17 + i, 20);
    ck_assert_int_eq(steps_run(&m), 0);
    for (uint32_t i = 0; i < STEPS_SLOTS; i++)
        ck_assert_uint_eq(m.output.seqs[i].digest, want[i]);
}
END_TEST

START_TEST(a_step_of_compressed_layers_allocates_nothing) {
    steps_digest(&m, 0, 1, 0, 60);
    mem_fail_after(1);
    steps_digest(&m, 0, 1, 60, 5);
    ck_assert_ptr_null(mem_alloc(1)); // the countdown was still armed
}
END_TEST

START_TEST(memory_counts_entries_and_what_windows_keep) {
    // Heads of 16, and so the index. In CSA 8 tokens are kept, two series and their gates of both;
    // in HCA 8, of one.
    ck_assert_uint_eq(spec_state_layers(&m.spec), 4);
    uint64_t csa = 8 * 2 * 2 * (16 + 16) * sizeof(float), hca = 8 * 2 * 16 * sizeof(float);
    ck_assert_uint_eq(spec_layer_state_bytes(&m.spec, 0, 1), 0);
    ck_assert_uint_eq(spec_layer_state_bytes(&m.spec, 1, 1), csa);
    ck_assert_uint_eq(spec_state_bytes(&m.spec), 2 * csa + 2 * hca);
    // Of 16 tokens: a row each in 5 layers; 4 entries of both kinds in 2, 2 entries in 2.
    ck_assert_uint_eq(spec_kv_token_bytes(&m.spec, DTYPE_F32),
                      (5 * 16 + 2 * 4 * 2 + 2 * 2) * 16 * sizeof(float) / 16);
    ck_assert_uint_eq(spec_page_bytes(&m.spec, 0, DTYPE_I8), 16 * (16 + 8));
    ck_assert_uint_eq(spec_page_bytes(&m.spec, 1, DTYPE_I8), (16 + 4 + 4) * (16 + 8));
    ck_assert_uint_eq(spec_page_bytes(&m.spec, 2, DTYPE_I8), (16 + 2) * (16 + 8));
    struct model_config config = {.weights = m.weights,
                                  .layout = &m.layout,
                                  .n_slots = 3,
                                  .rows_max = 40,
                                  .max_model_len = 64,
                                  .kv_dtype = DTYPE_F32};
    uint64_t few = model_step_bytes(&config, 1);
    config.n_slots = 1003;
    ck_assert_uint_ge(model_step_bytes(&config, 1), few + 1000 * spec_state_bytes(&m.spec));
}
END_TEST

// --- a long request: more entries than one item of work scores, more than two partitions of them

#define PROMPT 4300
#define ANSWER 6

struct way {
    const char *table;
    uint32_t n_ranks, pp, n_threads;
    struct serve_way serve;
};

static void answer(struct serve_token *out, const struct way *way, enum dtype kv_dtype) {
    static struct model_spec spec;
    struct weights *parts[2];
    struct err_text error;
    static uint32_t prompt[PROMPT];
    ck_assert_msg(spec_load(&spec, FOLDER, &error) == 0, "%s", error.text);
    spec.max_position = PROMPT + ANSWER;
    const struct layout layout = {.n_ranks = way->n_ranks,
                                  .pp = way->pp,
                                  .dp = way->n_ranks / way->pp,
                                  .tp = 1,
                                  .ep = way->n_ranks / way->pp,
                                  .etp = 1};
    for (uint32_t rank = 0; rank < way->n_ranks; rank++) {
        struct weights_config config = {.folder = FOLDER,
                                        .spec = &spec,
                                        .layout = &layout,
                                        .rank = rank,
                                        .dtype = spec.dtype,
                                        .n_threads = 1};
        ck_assert_msg(weights_load(&parts[rank], &config, &error) == 0, "%s", error.text);
    }
    struct ranks *group = ranks_create(&(struct ranks_config){
        .weights = (const struct weights *const *)parts,
        .layout = &layout,
        .ops = kernel_ops_select(way->table),
        .n_threads = way->n_threads,
        .n_slots = 2,
        .rows_max = PROMPT,
        .max_model_len = PROMPT + ANSWER,
        .kv_blocks = (PROMPT + ANSWER) / KV_BLOCK_TOKENS + 1,
        .kv_dtype = kv_dtype,
    });
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = i * 37 % 101 + i % 11;
    struct serve_request request = {.prompt = prompt,
                                    .n_prompt = PROMPT,
                                    .n_generate = ANSWER,
                                    .sampling = MOESAIC__STEP__V1__SAMPLING__INIT};
    serve(group, &way->serve, &(struct serve_batch){&request, 1, out, ANSWER, NULL, NULL});
    ranks_destroy(group);
    for (uint32_t rank = 0; rank < way->n_ranks; rank++)
        weights_destroy(parts[rank]);
}

START_TEST(a_long_request_has_one_answer_with_pages_of_every_format) {
    static const struct way ways[] = {
        {"auto", 1, 1, 1, {.chunk = PROMPT, .n_together = 1}},
        {"auto", 2, 1, 2, {.chunk = 297, .mixed = true, .n_together = 1, .page_seed = 5}},
        {"avx2", 2, 2, 2, {.chunk = 650, .n_together = 1}},
    };
    const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_E4M3, DTYPE_I8};
    struct serve_token first[ANSWER], other[ANSWER];
    answer(first, &ways[0], types[_i]);
    for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
        if (kernel_ops_select(ways[i].table) == NULL) continue;
        answer(other, &ways[i], types[_i]);
        for (int t = 0; t < ANSWER; t++)
            ck_assert_msg(first[t].token == other[t].token && first[t].digest == other[t].digest,
                          "way %zu token %d", i, t);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_compress");
    TCase *slots = tcase_create("slots"), *whole = tcase_create("long");
    tcase_set_timeout(slots, 120);
    tcase_add_checked_fixture(slots, setup, teardown);
    tcase_add_test(slots, a_run_that_does_not_continue_its_slots_windows_is_refused);
    tcase_add_test(slots, a_slot_that_begins_anew_remembers_nothing);
    tcase_add_test(slots, cuts_anywhere_in_windows_change_no_bit);
    tcase_add_test(slots, sequences_beside_each_other_share_nothing);
    tcase_add_test(slots, a_step_of_compressed_layers_allocates_nothing);
    tcase_add_test(slots, memory_counts_entries_and_what_windows_keep);
    suite_add_tcase(suite, slots);
    tcase_set_timeout(whole, 300);
    tcase_add_loop_test(whole, a_long_request_has_one_answer_with_pages_of_every_format, 0, 4);
    suite_add_tcase(suite, whole);
    return suite_run(suite);
}
