// worker_tp.c: one answer in a TP group of 2, 4 and 8 ranks: tokens, log-probabilities, scores and
// digests of one rank, bit by bit, with what models and requests have that a split could change
// (worker_layouts.c goes over all layouts).
#include "tests/harness/answers.h"
#include "tests/harness/suite.h"

// The tiny models with more heads, so that TP can go to 8, with KV heads split and copied.
static void even_spec(struct model_spec *spec) {
    tiny_spec(spec);
    spec->n_heads = 8;
    spec->head_dim = 8;
    spec->rope.dim = 8;
    spec->inner_dense = 128;
}

static void odd_spec(struct model_spec *spec) {
    tiny_spec_odd(spec);
    spec->n_heads = spec->n_kv_heads = 8;
}

// All layers dense, and norms over all heads together.
static void wide_spec(struct model_spec *spec) {
    even_spec(spec);
    spec->qk_norm = QK_NORM_WIDE;
    spec->router = (struct router_spec){0};
    for (uint32_t layer = 0; layer < spec->n_layers; layer++)
        spec->ffn[layer] = FFN_DENSE;
}

static void (*const specs[])(struct model_spec *) = {even_spec, odd_spec, wide_spec};
#define N_SPECS 3

// So many ranks that share their requests.
static struct layout tp_alone(uint32_t tp) {
    return (struct layout){.n_ranks = tp, .pp = 1, .dp = 1, .tp = tp, .ep = tp, .etp = 1};
}

START_TEST(a_tp_group_changes_nothing) {
    struct answers_way way = {.spec = specs[_i]};
    struct answers expected = answers_of(way);
    for (uint32_t tp = 2; tp <= 8; tp *= 2) {
        const struct layout l = tp_alone(tp);
        way.layout = &l;
        struct answers got = answers_of(way);
        answers_compare(&expected, &got, "tp");
    }
}
END_TEST

// 2 ranks split the KV heads, of 8 some hold copies of one.
START_TEST(narrow_pages_and_weights_change_nothing_more) {
    static const enum dtype kvs[] = {DTYPE_BF16, DTYPE_E4M3, DTYPE_I8};
    const struct layout l = tp_alone(_i % 2 == 0 ? 2 : 8);
    struct answers_way one = {.spec = specs[_i % 2], .kv = kvs[_i], .weights = DTYPE_BF16},
                       split = one;
    split.layout = &l;
    split.serve.chunk = 100;
    answers_expect_same(one, split, "narrow pages");
}
END_TEST

START_TEST(a_token_is_known_to_all_ranks_of_its_slot) {
    const struct layout l = tp_alone(4);
    answers_expect_same(
        (struct answers_way){.spec = specs[_i]},
        (struct answers_way){.spec = specs[_i], .layout = &l, .serve.from_slot = true},
        "from slot");
}
END_TEST

START_TEST(threads_and_kernel_tables_change_nothing_more) {
    const struct layout l = tp_alone(4);
    answers_expect_same((struct answers_way){.spec = specs[_i]},
                        (struct answers_way){.spec = specs[_i],
                                             .layout = &l,
                                             .ops = kernel_ops_ref(),
                                             .n_threads = 2,
                                             .serve = {.chunk = 40, .mixed = true}},
                        "threads");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tp");
    TCase *tests = tcase_create("one answer");
    tcase_set_timeout(tests, 800);
    tcase_add_loop_test(tests, a_tp_group_changes_nothing, 0, N_SPECS);
    tcase_add_loop_test(tests, narrow_pages_and_weights_change_nothing_more, 0, 3);
    tcase_add_loop_test(tests, a_token_is_known_to_all_ranks_of_its_slot, 0, N_SPECS);
    tcase_add_loop_test(tests, threads_and_kernel_tables_change_nothing_more, 0, N_SPECS);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
