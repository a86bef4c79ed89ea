// base_layout.c: which rank owns what, for every layout of up to 16 ranks.
#include <string.h>

#include "common/base/layout.h"
#include "common/base/limits.h"
#include "tests/harness/suite.h"

#define RANKS 16

// Calls f with every lawful layout of up to RANKS ranks.
static void each_layout(void (*f)(const struct layout *)) {
    for (uint32_t code = 0; code < RANKS * RANKS * RANKS * RANKS; code++) {
        uint32_t pp = code % RANKS + 1, dp = code / RANKS % RANKS + 1,
                 tp = code / RANKS / RANKS % RANKS + 1, etp = code / RANKS / RANKS / RANKS + 1;
        struct layout l = {pp * dp * tp, pp, dp, tp, dp * tp / etp, etp};
        if (l.n_ranks <= RANKS && dp * tp % etp == 0) f(&l);
    }
}

static void check_places(const struct layout *l) {
    ck_assert_int_eq(layout_check(l, NULL), 0);
    for (uint32_t rank = 0; rank < l->n_ranks; rank++) {
        struct layout_place p = layout_place(l, rank);
        ck_assert(p.stage < l->pp && p.dp < l->dp && p.tp < l->tp && p.ep < l->ep);
        ck_assert_uint_eq(layout_rank(l, p.stage, p.dp, p.tp), rank);
        ck_assert_uint_eq(layout_expert_rank(l, p.stage, p.ep, p.etp), rank);
    }
}

START_TEST(each_rank_has_one_place_among_requests_and_one_among_experts) {
    each_layout(check_places);
}
END_TEST

static void check_experts(const struct layout *l) {
    for (uint32_t n = 0; n <= 2 * RANKS + 1; n++) {
        uint32_t seen = 0, least = UINT32_MAX, most = 0;
        for (uint32_t ep = 0; ep < l->ep; ep++) {
            uint32_t rank = layout_expert_rank(l, l->pp - 1, ep, l->etp - 1);
            uint32_t count = layout_expert_count(l, n, rank);
            ck_assert_uint_eq(layout_expert_first(l, n, rank), seen);
            for (uint32_t x = seen; x < seen + count; x++)
                ck_assert_uint_eq(layout_expert_owner(l, n, x), ep);
            seen += count;
            if (count < least) least = count;
            if (count > most) most = count;
        }
        ck_assert_uint_eq(seen, n);
        ck_assert_uint_le(most - least, 1);
    }
}

START_TEST(experts_are_spread_over_the_places_as_evenly_as_they_go) {
    each_layout(check_experts);
}
END_TEST

static void check_layers_and_rows(const struct layout *l) {
    for (uint32_t n = 1; n <= 2 * RANKS + 1; n++) {
        ck_assert_uint_eq(layout_layer_first(l, n, 0), 0);
        ck_assert_uint_eq(layout_layer_first(l, n, l->pp), n);
        for (uint32_t stage = 0; n >= l->pp && stage < l->pp; stage++)
            ck_assert_uint_ge(layout_layer_count(l, n, stage), 1);
        ck_assert_uint_eq(layout_row_first(l, n, 0), 0);
        ck_assert_uint_eq(layout_row_first(l, n, l->tp), n);
        for (uint32_t tp = 0; tp < l->tp; tp++)
            ck_assert_uint_le(layout_row_first(l, n, tp), layout_row_first(l, n, tp + 1));
    }
}

START_TEST(every_stage_has_a_layer_and_every_row_an_owner) {
    each_layout(check_layers_and_rows);
}
END_TEST

START_TEST(layouts_that_do_not_add_up_are_refused_with_the_rule) {
    static const struct {
        struct layout l;
        const char *words;
    } rows[] = {
        {{0, 1, 0, 1, 0, 1}, "number of workers 0"},
        {{RANKS_MAX + 1, 1, RANKS_MAX + 1, 1, RANKS_MAX + 1, 1}, "number of workers 1025"},
        {{2, 1, 2, 1, 2, 0}, "a parallel size of 0"},
        {{3, 1, 2, 1, 2, 1}, "needs 2 workers, not 3"},
        {{4, 1, 2, 2, 2, 1}, "data 2 x tensor 2 parallel is not expert 2 x expert tensor 1"},
        {{1024, 1024, 1024, 1024, 1024, 1024}, "needs 1073741824 workers, not 1024"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err_text e;
        ck_assert_int_eq(layout_check(&rows[i].l, &e), ERR_FATAL_CONFIG);
        ck_assert_msg(strstr(e.text, rows[i].words) != NULL, "%s", e.text);
    }
}
END_TEST

int main(void) {
    TCase *t = tcase_create("layout");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, each_rank_has_one_place_among_requests_and_one_among_experts);
    tcase_add_test(t, experts_are_spread_over_the_places_as_evenly_as_they_go);
    tcase_add_test(t, every_stage_has_a_layer_and_every_row_an_owner);
    tcase_add_test(t, layouts_that_do_not_add_up_are_refused_with_the_rule);
    Suite *s = suite_create("base_layout");
    suite_add_tcase(s, t);
    return suite_run(s);
}
