// worker_plan.c: a plan is data from outside: whatever is wrong in it is refused by name before
// anything is computed, and what is right runs without allocating.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/serve.h"
#include "tests/harness/suite.h"
#include "tests/harness/tiny.h"

// One rank with 4 slots, 40 rows, 64 positions (4 pages a sequence) and 12 pages.
static struct tiny *tiny;
static struct ranks *ranks;
static struct model *model;
static struct err_text error;
static struct step_output output;

// A plan of up to 8 sequences that owns its memory.
static struct {
    Moesaic__Step__V1__StepPlan plan;
    Moesaic__Step__V1__PlanSeq seqs[8], *pointers[8];
    Moesaic__Step__V1__Sampling sampling[8];
    uint32_t tokens[8][64], blocks[8][8];
} p;

static void setup(void) {
    struct model_spec spec;
    tiny_spec(&spec);
    tiny = tiny_create(&spec, 1, DTYPE_F32, 3);
    const struct weights *weights = tiny_weights(tiny, 0);
    struct ranks_config config = {
        .weights = &weights,
        .layout = tiny_layout(tiny),
        .n_threads = 1,
        .n_slots = 4,
        .rows_max = 40,
        .max_model_len = 64,
        .kv_blocks = 12,
        .kv_dtype = DTYPE_F32,
    };
    ranks = ranks_create(&config);
    model = ranks_model(ranks, 0);
    memset(&p, 0, sizeof p);
    moesaic__step__v1__step_plan__init(&p.plan);
    p.plan.seqs = p.pointers;
}

static void teardown(void) {
    ranks_destroy(ranks);
    tiny_destroy(tiny);
}

// Adds a run of n tokens with the pages first, first + 1, ... that it needs, sampled.
static Moesaic__Step__V1__PlanSeq *add(uint32_t slot, uint32_t n, uint32_t first) {
    size_t i = p.plan.n_seqs++;
    Moesaic__Step__V1__PlanSeq *seq = p.pointers[i] = &p.seqs[i];
    moesaic__step__v1__plan_seq__init(seq);
    seq->slot = slot;
    seq->tokens = p.tokens[i];
    seq->n_tokens = n;
    seq->blocks = p.blocks[i];
    seq->n_blocks = (n + 15) / 16;
    for (uint32_t t = 0; t < n; t++)
        p.tokens[i][t] = (t * 7 + slot) % 97;
    for (uint32_t b = 0; b < seq->n_blocks; b++)
        p.blocks[i][b] = first + b;
    moesaic__step__v1__sampling__init(&p.sampling[i]);
    p.sampling[i].top_p = 1.0f;
    seq->sampling = &p.sampling[i];
    return seq;
}

static int step(void) {
    int rc = model_step(model, &p.plan, &output, &error);
    p.plan.n_seqs = 0;
    return rc;
}

static void refused(const char *field) {
    uint64_t before = model_expert_tokens(model)[0];
    ck_assert_int_eq(step(), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(error.text, field) != NULL, "'%s' does not name %s", error.text, field);
    ck_assert_uint_eq(model_expert_tokens(model)[0], before);
}

START_TEST(a_good_plan_runs) {
    add(0, 20, 0);
    add(3, 1, 7);
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_eq(output.n_seqs, 2);
    ck_assert_uint_eq(output.seqs[0].slot, 0);
    ck_assert_uint_eq(output.seqs[1].slot, 3);
    ck_assert_uint_ne(output.seqs[0].digest, 0);
}
END_TEST

START_TEST(rows_of_experts_are_counted) {
    uint64_t sums[3] = {0};
    for (int i = 0; i < 2; i++) {
        add(0, 20, 0);
        add(3, 1, 7);
        ck_assert_int_eq(step(), 0);
    }
    for (uint32_t i = 0; i < 3 * 6; i++)
        sums[i / 6] += model_expert_tokens(model)[i];
    ck_assert_uint_eq(sums[0], 2 * 21 * 3); // rows times top_k
    ck_assert_uint_eq(sums[1], 0);          // a dense layer
    ck_assert_uint_eq(sums[2], 2 * 21 * 3);
}
END_TEST

START_TEST(an_empty_plan_runs) {
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_eq(output.n_seqs, 0);
}
END_TEST

START_TEST(only_sampled_sequences_answer) {
    add(0, 5, 0)->sampling = NULL;
    add(1, 5, 2);
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_eq(output.n_seqs, 1);
    ck_assert_uint_eq(output.seqs[0].slot, 1);
}
END_TEST

// Scores all rows of a run.
static Moesaic__Step__V1__Scoring *score(Moesaic__Step__V1__PlanSeq *seq, uint32_t n_rows) {
    static Moesaic__Step__V1__Scoring scorings[8];
    Moesaic__Step__V1__Scoring *s = &scorings[seq - p.seqs];
    moesaic__step__v1__scoring__init(s);
    s->n_rows = n_rows;
    seq->scoring = s;
    return s;
}

START_TEST(scored_rows_answer_what_sampled_rows_say) {
    Moesaic__Step__V1__PlanSeq *seq = add(0, 6, 0);
    seq->sampling = NULL;
    score(seq, 6)->next_token = 30;
    seq->scoring->n_top = 3;
    add(1, 1, 2);
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_eq(output.n_seqs, 2);
    ck_assert_uint_eq(output.seqs[0].scores.n_rows, 6);
    ck_assert_uint_eq(output.seqs[0].scores.n_top, 3);
    ck_assert_uint_eq(output.seqs[1].scores.n_rows, 0);
    struct seq_scores s = output.seqs[0].scores;
    float logprobs[6], tops[18];
    uint32_t ids[18], rank = s.ranks[5];
    memcpy(logprobs, s.logprobs, sizeof logprobs);
    memcpy(tops, s.top_logprobs, sizeof tops);
    memcpy(ids, s.top_ids, sizeof ids);
    for (uint32_t n = 1; n <= 6; n++) { // the same prompt up to each of its tokens
        seq = add(2, n, 4);
        for (uint32_t t = 0; t < n; t++)
            p.tokens[0][t] = t * 7 % 97;
        seq->sampling->n_logprobs = 3;
        ck_assert_int_eq(step(), 0);
        ck_assert_mem_eq(output.seqs[0].top_ids, ids + (n - 1) * 3, 12);
        ck_assert_mem_eq(output.seqs[0].top_logprobs, tops + (n - 1) * 3, 12);
    }
    // With that bias the last token is the one that was scored.
    Moesaic__Step__V1__Steering steering = MOESAIC__STEP__V1__STEERING__INIT;
    uint32_t bias_id = 30;
    float bias = 1000;
    steering.n_bias_ids = steering.n_bias = 1;
    steering.bias_ids = &bias_id;
    steering.bias = &bias;
    seq = add(3, 6, 6);
    for (uint32_t t = 0; t < 6; t++)
        p.tokens[0][t] = t * 7 % 97;
    seq->steering = &steering;
    seq->sampling->steered = seq->sampling->want_logprob = true;
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_eq(output.seqs[0].token, 30);
    ck_assert_mem_eq(&output.seqs[0].logprob, &logprobs[5], 4);
    ck_assert(rank >= 1 && rank <= 97);
}
END_TEST

START_TEST(scoring_is_checked) {
    score(add(0, 5, 0), 0);
    refused("scoring.n_rows 0");
    score(add(0, 5, 0), 5); // the last row is sampled
    refused("scoring.n_rows 5");
    Moesaic__Step__V1__PlanSeq *seq = add(0, 5, 0);
    seq->sampling = NULL;
    score(seq, 6);
    refused("scoring.n_rows 6");
    seq = add(0, 5, 0);
    seq->sampling = NULL;
    score(seq, 5)->next_token = 97;
    refused("scoring.next_token 97");
    score(add(0, 5, 0), 4)->n_top = TOP_LOGPROBS_MAX + 1;
    refused("scoring.n_top 21");
    add(0, 5, 0);
    ck_assert_int_eq(step(), 0);
    seq = add(0, 1, 0);
    seq->position = 5;
    seq->token_from_slot = true;
    seq->n_tokens = seq->n_blocks = 0;
    score(seq, 1);
    refused("scoring comes with token_from_slot");
    score(add(0, 5, 0), 4)->next_token = 97; // nobody looks at it
    ck_assert_int_eq(step(), 0);
}
END_TEST

START_TEST(slots_are_checked) {
    add(4, 1, 0);
    refused("slot 4");
    add(2, 1, 0);
    add(2, 1, 1);
    refused("seqs[1].slot 2");
    for (uint32_t i = 0; i < 5; i++)
        add(i % 4, 1, i);
    refused("seqs: 5");
}
END_TEST

START_TEST(tokens_are_checked) {
    add(0, 3, 0)->tokens[2] = 97;
    refused("tokens[2]");
    add(0, 3, 0)->tokens[1] = UINT32_MAX;
    refused("tokens[1]");
    add(0, 0, 0);
    refused("tokens is empty");
    add(0, 41, 0);
    refused("tokens: 41");
    add(0, 30, 0);
    add(1, 30, 4);
    refused("60");
}
END_TEST

START_TEST(positions_are_checked) {
    Moesaic__Step__V1__PlanSeq *seq = add(0, 20, 0);
    seq->position = 45;
    refused("position 45");
    seq = add(0, 1, 0);
    seq->position = UINT32_MAX;
    refused("position 4294967295");
    seq = add(0, 20, 0);
    seq->position = UINT32_MAX - 10;
    refused("position");
    seq = add(0, 1, 0);
    seq->position = 63;
    refused("blocks");
    seq = add(0, 1, 0);
    seq->position = 63;
    seq->n_blocks = 4;
    p.blocks[0][1] = p.blocks[0][2] = p.blocks[0][3] = 5;
    ck_assert_int_eq(step(), 0); // never written pages are read as they are
}
END_TEST

START_TEST(blocks_are_checked) {
    add(0, 1, 12);
    refused("blocks[0] 12");
    add(0, 20, 0)->n_blocks = 1;
    refused("blocks: 1");
    add(0, 1, 0)->block_offset = 1;
    refused("block_offset 1");
    add(0, 1, 0)->block_offset = UINT32_MAX;
    refused("block_offset");
    add(0, 1, 0)->n_blocks = 5;
    refused("blocks: 5");
    add(0, 5, 0);
    ck_assert_int_eq(step(), 0);
    Moesaic__Step__V1__PlanSeq *seq = add(0, 1, 1);
    seq->block_offset = 1;
    seq->n_blocks = 4;
    refused("blocks: 4");
}
END_TEST

START_TEST(one_page_is_not_written_twice) {
    add(0, 5, 3);
    add(1, 5, 3);
    refused("page 3");
    add(0, 20, 3)->blocks[1] = 3;
    refused("page 3");
}
END_TEST

START_TEST(one_page_may_be_read_by_two) {
    add(0, 20, 0);
    ck_assert_int_eq(step(), 0);
    add(1, 20, 4);
    ck_assert_int_eq(step(), 0);
    for (uint32_t slot = 0; slot < 2; slot++) {
        Moesaic__Step__V1__PlanSeq *seq = add(slot, 1, 0);
        seq->position = 20;
        seq->n_blocks = 0;
    }
    ck_assert_int_eq(step(), 0);
    // Slot 1 gets slot 0's first page; the page that it writes stays its own.
    Moesaic__Step__V1__PlanSeq *seq = add(1, 1, 0);
    seq->position = 21;
    seq->n_blocks = 2;
    p.blocks[0][1] = 5;
    add(0, 1, 0)->position = 21;
    p.pointers[1]->n_blocks = 0;
    ck_assert_int_eq(step(), 0);
}
END_TEST

START_TEST(token_from_slot_is_checked) {
    Moesaic__Step__V1__PlanSeq *seq = add(0, 0, 0);
    seq->token_from_slot = true;
    seq->n_blocks = 1;
    refused("token_from_slot");
    add(0, 3, 0);
    ck_assert_int_eq(step(), 0);
    seq = add(0, 1, 0);
    seq->token_from_slot = true;
    refused("tokens come with");
    seq = add(0, 0, 0);
    seq->token_from_slot = true;
    seq->position = 3;
    ck_assert_int_eq(step(), 0);
}
END_TEST

START_TEST(sampling_is_checked) {
    static const float bad[] = {-0.1f, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        add(0, 1, 0)->sampling->temperature = bad[i];
        refused("temperature");
        add(0, 1, 0)->sampling->top_p = bad[i];
        refused("top_p");
        add(0, 1, 0)->sampling->min_p = bad[i];
        refused("min_p");
    }
    add(0, 1, 0)->sampling->top_p = 1.001f;
    refused("top_p");
    add(0, 1, 0)->sampling->n_logprobs = TOP_LOGPROBS_MAX + 1;
    refused("n_logprobs");
}
END_TEST

// The slot keeps what a plan told it once; the next steps only say that it applies.
START_TEST(steering_stays_with_its_slot) {
    Moesaic__Step__V1__Steering only_five;
    moesaic__step__v1__steering__init(&only_five);
    only_five.n_allowed_ids = 1;
    only_five.allowed_ids = (uint32_t[]){5};
    add(1, 3, 0)->sampling->steered = true;
    refused("seqs[0].sampling.steered");
    Moesaic__Step__V1__PlanSeq *first = add(1, 3, 0);
    first->steering = &only_five;
    first->sampling->steered = true;
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_eq(output.seqs[0].token, 5);
    for (uint32_t position = 3; position < 6; position++) {
        Moesaic__Step__V1__PlanSeq *next = add(1, 0, 0);
        next->position = position;
        next->token_from_slot = next->sampling->steered = true;
        ck_assert_int_eq(step(), 0);
        ck_assert_uint_eq(output.seqs[0].token, 5);
    }
    add(1, 3, 0); // the slot's next sequence has none
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_ne(output.seqs[0].token, 5);
    only_five.allowed_ids = (uint32_t[]){97};
    add(1, 3, 0)->steering = &only_five;
    refused("seqs[0].steering: id 97");
}
END_TEST

START_TEST(a_refused_plan_leaves_the_slots_as_they_were) {
    add(0, 20, 0);
    ck_assert_int_eq(step(), 0);
    Moesaic__Step__V1__PlanSeq *seq = add(0, 1, 9); // good by itself, would move slot 0 to page 9
    seq->position = 20;
    seq->block_offset = 1;
    add(4, 1, 0);
    refused("slot 4");
    add(0, 1, 0);
    p.seqs[0].position = 20;
    p.seqs[0].n_blocks = 0;
    p.seqs[0].sampling->want_logprob = true;
    ck_assert_int_eq(step(), 0);
    uint64_t digest = output.seqs[0].digest;
    add(1, 21, 3)->tokens[20] = p.tokens[0][0];
    p.tokens[0][20] = 0;
    for (uint32_t t = 0; t < 20; t++)
        p.tokens[0][t] = t * 7 % 97;
    ck_assert_int_eq(step(), 0);
    ck_assert_uint_eq(output.seqs[0].digest, digest);
}
END_TEST

START_TEST(a_step_allocates_nothing) {
    add(0, 20, 0);
    ck_assert_int_eq(step(), 0);
    mem_fail_after(1);
    for (uint32_t i = 0; i < 20; i++) {
        Moesaic__Step__V1__PlanSeq *seq = add(0, 1, 0);
        seq->position = 20 + i;
        seq->sampling->temperature = 0.7f;
        seq->sampling->n_logprobs = 5;
        p.blocks[0][0] = 1;
        if (i < 12) seq->block_offset = 1;
        if (i == 12) seq->block_offset = 2, p.blocks[0][0] = 2;
        if (i > 12) seq->n_blocks = 0;
        add(1, 15, 4)->sampling = NULL;
        ck_assert_int_eq(step(), 0);
    }
    ck_assert_ptr_null(mem_alloc(1)); // the countdown was still armed
}
END_TEST

START_TEST(creation_refuses_what_does_not_fit) {
    struct model_spec spec;
    tiny_spec(&spec);
    struct pool *pool;
    ck_assert_int_eq(pool_create(&pool, 1, NULL, false, &error), 0);
    struct model_config good = {.weights = tiny_weights(tiny, 0),
                                .layout = tiny_layout(tiny),
                                .ops = kernel_ops_ref(),
                                .pool = pool,
                                .n_slots = 1,
                                .rows_max = 16,
                                .max_model_len = 64,
                                .kv_blocks = 4,
                                .kv_dtype = DTYPE_F32};
    struct model_config bad[] = {good, good, good, good, good};
    bad[0].n_slots = 0;
    bad[1].rows_max = BATCHED_TOKENS_MAX + 1;
    bad[2].max_model_len = 2049;
    bad[3].kv_blocks = 0;
    bad[4].kv_dtype = DTYPE_F16;
    static const char *const fields[] = {"max_num_seqs", "max_num_batched_tokens", "max_model_len",
                                         "KV", "kv_cache_dtype"};
    struct model *made;
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(model_create(&made, &bad[i], &error), ERR_FATAL_CONFIG);
        ck_assert_msg(strstr(error.text, fields[i]) != NULL, "%s", error.text);
    }
    for (long n = 1; n <= 2; n++) {
        mem_fail_after(n);
        ck_assert_int_eq(model_create(&made, &good, &error), ERR_FATAL_NOMEM);
    }
    mem_fail_after(0);
    ck_assert_int_eq(model_create(&made, &good, &error), 0);
    model_destroy(made);
    model_destroy(NULL);
    pool_destroy(pool);
}
END_TEST

START_TEST(pages_that_fit_are_counted_with_all_they_cost) {
    struct model_spec spec;
    tiny_spec(&spec);
    uint64_t page = 2ull * 16 * 16 * 4 * 2 * 3; // K and V, tokens, head_dim, float32, heads, layers
    struct layout layout;
    ck_assert_int_eq(layout_make(&layout, 1, NULL), 0);
    struct weights weights = {.spec = &spec};
    struct model_config config = {.weights = &weights, .layout = &layout, .kv_dtype = DTYPE_F32};
    uint32_t fits = model_kv_blocks_fit(&config, 100 * page);
    ck_assert(fits <= 100 && fits >= 99);
    ck_assert_uint_eq(model_kv_blocks_fit(&config, page - 1), 0);
    config.kv_dtype = DTYPE_BF16;
    ck_assert_uint_ge(model_kv_blocks_fit(&config, 100 * page), 196);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("plan");
    TCase *tests = tcase_create("plan");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_good_plan_runs);
    tcase_add_test(tests, rows_of_experts_are_counted);
    tcase_add_test(tests, an_empty_plan_runs);
    tcase_add_test(tests, only_sampled_sequences_answer);
    tcase_add_test(tests, scored_rows_answer_what_sampled_rows_say);
    tcase_add_test(tests, scoring_is_checked);
    tcase_add_test(tests, slots_are_checked);
    tcase_add_test(tests, tokens_are_checked);
    tcase_add_test(tests, positions_are_checked);
    tcase_add_test(tests, blocks_are_checked);
    tcase_add_test(tests, one_page_is_not_written_twice);
    tcase_add_test(tests, one_page_may_be_read_by_two);
    tcase_add_test(tests, token_from_slot_is_checked);
    tcase_add_test(tests, sampling_is_checked);
    tcase_add_test(tests, steering_stays_with_its_slot);
    tcase_add_test(tests, a_refused_plan_leaves_the_slots_as_they_were);
    tcase_add_test(tests, a_step_allocates_nothing);
    tcase_add_test(tests, creation_refuses_what_does_not_fit);
    tcase_add_test(tests, pages_that_fit_are_counted_with_all_they_cost);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
