// worker_layouts.c: one answer in every layout: tokens, log-probabilities, scores and digests of
// one rank, bit by bit, in all legal layouts of up to eight ranks (5 and 7 too; with more than five
// places some have no expert).
#include <stdio.h>

#include "common/model/legal.h"
#include "tests/harness/answers.h"
#include "tests/harness/suite.h"

static void dense_spec(struct model_spec *spec) {
    tiny_spec_split(spec);
    spec->router = (struct router_spec){0};
    spec->shared = (struct shared_spec){0};
    spec->expert_bias = false;
    for (uint32_t layer = 0; layer < spec->n_layers; layer++)
        spec->ffn[layer] = FFN_DENSE;
}

// All numbers of ranks for the model that can be split in every way; some for others.
static const struct {
    void (*spec)(struct model_spec *);
    uint32_t n_ranks;
} cases[] = {
    {tiny_spec_split, 2}, {tiny_spec_split, 3}, {tiny_spec_split, 4},  {tiny_spec_split, 5},
    {tiny_spec_split, 6}, {tiny_spec_split, 7}, {tiny_spec_split, 8},  {tiny_spec_odd, 3},
    {tiny_spec_odd, 6},   {dense_spec, 4},      {tiny_spec_hybrid, 4}, {tiny_spec_hybrid, 8},
};
#define N_CASES (int)(sizeof cases / sizeof *cases)

static void name_layout(char *text, size_t cap, const struct layout *l) {
    snprintf(text, cap, "pp %u dp %u tp %u ep %u etp %u", l->pp, l->dp, l->tp, l->ep, l->etp);
}

// Which chunks a layout is served in does not matter either.
static void expect_answers(const struct answers *expected, struct answers_way way, uint32_t i) {
    char what[64];
    name_layout(what, sizeof what, way.layout);
    way.serve.chunk = i % 2 == 0 ? 0 : 133;
    struct answers got = answers_of(way);
    answers_compare(expected, &got, what);
}

START_TEST(layouts_change_nothing) {
    struct answers_way way = {.spec = cases[_i].spec};
    struct answers expected = answers_of(way);
    struct model_spec spec;
    static struct layout all[LEGAL_LAYOUTS_MAX];
    way.spec(&spec);
    uint32_t n = legal_list(&spec, cases[_i].n_ranks, all);
    for (uint32_t i = 0; i < n; i++) {
        way.layout = &all[i];
        expect_answers(&expected, way, i);
    }
    printf("%u layouts of %u ranks\n", n, all[0].n_ranks);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("layouts");
    TCase *tests = tcase_create("layouts");
    tcase_set_timeout(tests, 800);
    tcase_add_loop_test(tests, layouts_change_nothing, 0, N_CASES);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
