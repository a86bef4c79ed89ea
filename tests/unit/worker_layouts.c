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

static void (*const specs[])(struct model_spec *) = {tiny_spec_split, tiny_spec_odd, dense_spec};

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
    struct answers_way way = {.spec = specs[_i / 7]};
    struct answers expected = answers_of(way);
    struct model_spec spec;
    static struct layout all[LEGAL_LAYOUTS_MAX];
    way.spec(&spec);
    uint32_t n = legal_list(&spec, 2 + (uint32_t)(_i % 7), all);
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
    tcase_add_loop_test(tests, layouts_change_nothing, 0, 3 * 7);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
