// model_choice.c: which layout is taken for what a person asks for, what its ranks hold, and the
// table that explains it.
#include <stdio.h>
#include <string.h>

#include "common/model/layout_table.h"
#include "common/model/legal.h"
#include "tests/harness/suite.h"
#include "worker/weights.h"

#define SEEDLING SOURCE_ROOT "/models/seedling"
#define SMALL(name) TEST_DATA "/models/" name

static struct model_spec spec;
static struct footprint_model model;

static void open_model(const char *folder, const char *dtype) {
    struct err_text e = {""};
    ck_assert_msg(spec_load(&spec, folder, &e) == 0, "%s: %s", folder, e.text);
    const struct footprint_types types = footprint_types_of(&spec, dtype, "auto");
    footprint_measure(&model, &spec, &types);
}

// --- bytes

// What the worker says it holds, padding and all, is what was reckoned, give or take a twentieth.
START_TEST(weights_are_as_many_bytes_as_a_worker_holds) {
    static const char *const folders[] = {
        SEEDLING,        SMALL("awkward"), SMALL("tiny-qwen3-moe"),
        SMALL("llama4"), SMALL("gpt-oss"), SMALL("deepseek-v3")};
    // Of models with rows of 32 numbers, padding to lines and pages is more than the weights.
    static const double most[] = {1.05, 1.05, 1.3, 6, 6, 6};
    for (int i = 0; i < 6; i++) {
        open_model(folders[i], "auto");
        for (uint32_t n = 1; n <= 3; n += 2) {
            const struct layout layout = layout_even(n);
            struct weights *w = NULL;
            struct err_text e = {""};
            struct weights_config config = {.folder = folders[i],
                                            .spec = &spec,
                                            .layout = &layout,
                                            .rank = n - 1,
                                            .dtype = spec.dtype,
                                            .n_threads = 1};
            struct footprint f;
            ck_assert_msg(weights_load(&w, &config, &e) == 0, "%s", e.text);
            footprint_of(&f, &model, &layout, n - 1);
            double share = (double)w->bytes / (double)f.weight_bytes;
            ck_assert_msg(share > 0.95 && share < most[i], "%s: %llu bytes, %llu reckoned",
                          folders[i], (unsigned long long)w->bytes,
                          (unsigned long long)f.weight_bytes);
            ck_assert_uint_eq(f.n_experts, spec.router.n_experts == 0 ? 0 : w->n_local_experts);
            weights_destroy(w);
        }
    }
}
END_TEST

START_TEST(a_sequence_of_a_recurrent_model_takes_its_states_as_well) {
    const struct layout one = layout_even(1), two = {2, 2, 1, 1, 1, 1};
    struct footprint f;
    open_model(SMALL("qwen3-next"), "auto");
    footprint_of(&f, &model, &one, 0);
    uint64_t states = spec_state_bytes(&spec);
    ck_assert_uint_gt(states, 0);
    ck_assert_uint_eq(footprint_most(&model, &one, 0, 1), f.weight_bytes + states);
    ck_assert_uint_eq(footprint_most(&model, &one, 0, 64), f.weight_bytes + 64 * states);
    uint64_t most = 0; // of two stages, each with its own
    for (uint32_t rank = 0; rank < 2; rank++) {
        footprint_of(&f, &model, &two, rank);
        if (f.weight_bytes > most) most = f.weight_bytes;
    }
    ck_assert_uint_gt(footprint_most(&model, &two, 0, 1), most);
    ck_assert_uint_lt(footprint_most(&model, &two, 0, 1), most + states);
    // A TP group shares heads, and so the state of each.
    const struct layout tensor = {2, 1, 1, 2, 2, 1};
    footprint_of(&f, &model, &tensor, 1);
    ck_assert_uint_eq(footprint_most(&model, &tensor, 0, 1), f.weight_bytes + states / 2);
    ck_assert_uint_eq(f.kv_token_bytes, spec_kv_token_bytes(&spec, DTYPE_BF16) / 2);
}
END_TEST

// Of a layer that a rank has a half of, norms, router and shared expert are whole; all else is not.
START_TEST(half_the_heads_of_recurrent_layers_are_half_their_weights) {
    open_model(SMALL("qwen3-next"), "auto");
    const struct footprint_layer *x = &model.layers[0];
    const struct delta_rows rows = spec_delta_rows(&spec);
    uint64_t values = spec_delta_values(&spec), n = spec.delta.n_v_heads;
    ck_assert(spec_layer_recurrent(&spec, 0));
    ck_assert_uint_eq(x->by_heads, 2 * spec.hidden * (rows.qkv + rows.b + values) +
                                       4 * spec.delta.kernel * spec_delta_channels(&spec) +
                                       4 * 2 * n);
    ck_assert_uint_eq(x->kv, 0);
}
END_TEST

static void check_sums(const struct layout *l) {
    uint64_t layers = 0, experts = 0, most = 0;
    for (uint32_t rank = 0; rank < l->n_ranks; rank++) {
        struct footprint f;
        footprint_of(&f, &model, l, rank);
        layers += f.n_layers;
        experts += f.n_layers * f.n_experts;
        uint64_t bytes = f.weight_bytes + 10 * f.kv_token_bytes;
        most = bytes > most ? bytes : most;
    }
    ck_assert_uint_eq(layers, (uint64_t)spec.n_layers * l->dp * l->tp);
    ck_assert_uint_eq(experts, (uint64_t)spec.n_layers * 16 * l->etp);
    ck_assert_uint_eq(most, footprint_most(&model, l, 10, 64));
}

// Whatever the layout, each layer and expert is held as often as the sizes say.
START_TEST(ranks_together_hold_what_the_sizes_say) {
    open_model(SEEDLING, "float32");
    for (uint32_t n = 1; n <= 8; n++) {
        struct layout all[LEGAL_LAYOUTS_MAX];
        uint32_t n_all = legal_list(&spec, n, all);
        for (uint32_t i = 0; i < n_all; i++)
            check_sums(&all[i]);
    }
    // 8 heads of 32, 2 KV heads: a token has 2 * 2 * 32 numbers a layer, half of them at tp 2, and
    // no less at tp 4.
    const struct layout one = layout_even(1), two = {2, 1, 1, 2, 2, 1}, four = {4, 1, 1, 4, 4, 1},
                        stages = {4, 4, 1, 1, 1, 1};
    const struct layout *const layouts[] = {&one, &two, &four, &stages};
    const uint64_t bytes[] = {4 * 128 * 4, 4 * 64 * 4, 4 * 64 * 4, 128 * 4};
    for (int i = 0; i < 4; i++) {
        struct footprint f;
        footprint_of(&f, &model, layouts[i], 0);
        ck_assert_uint_eq(f.kv_token_bytes, bytes[i]);
    }
}
END_TEST

// --- the choice

struct row {
    struct layout_wish wish;
    uint64_t memory;
    struct layout layout;
};

static void expect_choice(const struct row *row) {
    struct layout_need need = {.model = &model, .n_tokens = 100, .memory_bytes = row->memory};
    struct layout l = {0};
    struct err_text e = {""};
    char got[LAYOUT_TEXT_MAX], wanted[LAYOUT_TEXT_MAX];
    ck_assert_msg(layout_choose(&l, &row->wish, &need, &e) == 0, "%s", e.text);
    layout_text(got, &l);
    layout_text(wanted, &row->layout);
    ck_assert_msg(layout_equal(&l, &row->layout), "%s, not %s", got, wanted);
}

START_TEST(sizes_that_are_not_given_are_chosen_by_the_rule) {
    open_model(SEEDLING, "bfloat16");
    static const struct row rows[] = {
        {{.n_ranks = 1}, 0, {1, 1, 1, 1, 1, 1}},
        {{.n_ranks = 8}, 0, {8, 1, 8, 1, 8, 1}},
        {{.n_ranks = 7}, 0, {7, 1, 7, 1, 7, 1}},
        {{.n_ranks = 32}, 0, {32, 1, 32, 1, 16, 2}}, // of 16 experts every worker has half of one
        {{.n_ranks = 8, .tp = 2}, 0, {8, 1, 4, 2, 8, 1}},
        {{.n_ranks = 8, .dp = 2}, 0, {8, 1, 2, 4, 8, 1}},
        {{.n_ranks = 8, .pp = 2}, 0, {8, 2, 4, 1, 4, 1}},
        {{.n_ranks = 8, .etp = 4}, 0, {8, 1, 8, 1, 2, 4}},
        {{.n_ranks = 8, .ep = 4}, 0, {8, 1, 8, 1, 4, 2}},
        {{.n_ranks = 12, .pp = 3, .tp = 2, .ep = 2}, 0, {12, 3, 2, 2, 2, 2}},
        {{.n_ranks = 4, .dp = 2, .ep = 2, .etp = 2}, 0, {4, 1, 2, 2, 2, 2}},
        {{.n_ranks = 4}, 100 << 20, {4, 1, 4, 1, 4, 1}},
        {{.n_ranks = 4}, 6 << 20, {4, 1, 2, 2, 4, 1}},
        {{.n_ranks = 4}, 1, {4, 4, 1, 1, 1, 1}}, // nothing fits: the least
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_choice(&rows[i]);
}
END_TEST

START_TEST(a_choice_that_cannot_be_is_refused_with_flags_rule_and_neighbours) {
    static const struct {
        struct layout_wish wish;
        const char *words;
    } rows[] = {
        {{.n_ranks = 3, .tp = 2},
         "--workers 3 --tensor-parallel-size 2: pipeline 1 x data 1 x tensor 2 parallel needs 2 "
         "workers, not 3; the nearest layouts are"},
        {{.n_ranks = 4, .tp = 3}, "--workers 4 --tensor-parallel-size 3: "},
        {{.n_ranks = 5, .pp = 5}, "--workers 5 --pipeline-parallel-size 5: pipeline parallel 5"},
        {{.n_ranks = 2, .dp = 2, .ep = 4},
         "--workers 2 --data-parallel-size 2 --expert-parallel-size 4: data 2 x tensor 1 parallel "
         "is not expert 4 x expert tensor 1 parallel"},
        {{.n_ranks = RANKS_MAX + 1}, "--workers 1025: more than 1024 workers are not possible"},
        {{.n_ranks = RANKS_MAX + 1, .derived = true, .pp = 1024, .dp = 1024},
         "--pipeline-parallel-size 1024 --data-parallel-size 1024: more than 1024 workers are not "
         "possible"},
        {{.n_ranks = 2, .derived = true, .dp = 2, .ep = 2, .etp = 2},
         "--data-parallel-size 2 --expert-parallel-size 2 --expert-tensor-parallel-size 2: data 2"},
        {{.n_ranks = 2, .pp = RANKS_MAX, .dp = RANKS_MAX, .tp = RANKS_MAX}, "--workers 2 "},
        {{.n_ranks = 2, .ep = RANKS_MAX, .etp = RANKS_MAX}, "--workers 2 "},
    };
    open_model(SEEDLING, "auto");
    struct layout_need need = {.model = &model};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct layout l;
        struct err_text e = {""};
        ck_assert_int_eq(layout_choose(&l, &rows[i].wish, &need, &e), ERR_FATAL_CONFIG);
        ck_assert_msg(strstr(e.text, rows[i].words) == e.text, "%s", e.text);
    }
}
END_TEST

START_TEST(sizes_say_how_many_workers_they_need) {
    static const struct {
        struct layout_wish wish;
        uint32_t n;
    } rows[] = {{{0}, 1},
                {{.dp = 3}, 3},
                {{.pp = 2, .tp = 4}, 8},
                {{.pp = 2, .ep = 4, .etp = 2}, 16},
                {{.dp = 2, .ep = 4}, 4},
                {{.dp = 2, .ep = 2, .etp = 2}, 4},
                {{.pp = 2, .tp = 2, .ep = 4}, 8},
                {{.tp = 4, .ep = 2}, 4},
                {{.dp = 2, .tp = 2, .ep = 8}, 4},
                {{.ep = 1024, .etp = 1024}, RANKS_MAX + 1},
                {{.dp = 1024, .tp = 1024}, RANKS_MAX + 1},
                {{.pp = 1024, .dp = 1024, .tp = 1024}, RANKS_MAX + 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_uint_eq(wish_workers(&rows[i].wish), rows[i].n);
}
END_TEST

// --- the table

static void check_table(const struct layout *l) {
    const struct layout_table table = {&model, l, 1, 0};
    const struct layout_need need = {.model = &model,
                                     .n_tokens = spec.max_position,
                                     .n_slots = UINT32_MAX,
                                     .memory_bytes = UINT64_MAX / 2,
                                     .snapshot_bytes = UINT64_MAX / 4};
    struct buf out;
    uint32_t n_rows = 0;
    buf_init(&out, 0);
    layout_table_write(&out, &table);
    layout_need_write(&out, l, &need);
    buf_add(&out, "", 1);
    ck_assert(!out.failed);
    for (char *line = out.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        ck_assert_msg(end - line <= 80, "%.*s", (int)(end - line), line);
        *end = '\0';
        n_rows += strstr(line, " cpu ") != NULL;
    }
    ck_assert_uint_eq(n_rows, l->n_ranks);
    buf_finish(&out);
}

static void expect_need(const struct layout_need *need, const char *words, bool there) {
    const struct layout one = layout_even(1);
    struct buf out;
    buf_init(&out, 0);
    layout_need_write(&out, &one, need);
    buf_add(&out, "", 1);
    ck_assert(!out.failed && (strstr(out.data, words) != NULL) == there);
    buf_finish(&out);
}

START_TEST(states_are_told_of_models_that_keep_one) {
    struct layout_need need = {.model = &model, .n_tokens = 100};
    open_model(SMALL("qwen3-next"), "auto");
    need.n_slots = 20;
    expect_need(&need, "Of that are 317.8 KiB states: up to 15.9 KiB for each of 20 sequences.\n",
                true);
    need.snapshot_bytes = 10 * spec_state_bytes(&spec);
    expect_need(&need, "sequences,\nbeside 158.9 KiB of copies for the prefix cache: at most 10.\n",
                true);
    check_table(&(struct layout){8, 2, 4, 1, 4, 1});
    open_model(SEEDLING, "auto");
    expect_need(&need, "state", false);
}
END_TEST

// What a worker sets aside when it starts: a layout that holds the states of one sequence alone is
// none to choose.
START_TEST(a_layout_fits_only_with_the_states_of_all_slots) {
    open_model(SMALL("qwen3-next"), "auto");
    const struct layout whole = {2, 1, 2, 1, 2, 1}, shared = {2, 1, 1, 2, 2, 1};
    struct layout_need need = {.model = &model, .n_tokens = 100, .n_slots = 1};
    const struct layout_wish wish = {.n_ranks = 2, .pp = 1};
    struct layout l;
    need.memory_bytes = layout_need_bytes(&whole, &need);
    ck_assert_int_eq(layout_choose(&l, &wish, &need, NULL), 0);
    ck_assert(layout_equal(&l, &whole));
    need.n_slots = 64;
    ck_assert(!layout_fits(&whole, &need));
    need.memory_bytes = layout_need_bytes(&shared, &need);
    ck_assert_int_eq(layout_choose(&l, &wish, &need, NULL), 0);
    ck_assert(layout_equal(&l, &shared) && layout_fits(&l, &need));
}
END_TEST

START_TEST(the_table_has_a_row_for_each_rank_within_80_columns) {
    open_model(SEEDLING, "auto");
    for (uint32_t n = 1; n <= 1024; n = n < 16 ? n + 1 : n * 8) {
        struct layout all[LEGAL_LAYOUTS_MAX];
        uint32_t n_all = legal_list(&spec, n, all);
        for (uint32_t i = 0; i < n_all; i++)
            check_table(&all[i]);
    }
}
END_TEST

START_TEST(large_sizes_stand_apart_from_their_meaning) {
    open_model(SEEDLING, "auto");
    const struct layout layout = layout_even(1024);
    const struct layout_table table = {&model, &layout, 0, 1};
    struct buf out;
    buf_init(&out, 0);
    layout_table_write(&out, &table);
    buf_add(&out, "", 1);
    ck_assert_msg(strstr(out.data, "  dp 1024 1024 groups with") != NULL, "%s", out.data);
    buf_finish(&out);
}
END_TEST

START_TEST(a_row_says_who_holds_what) {
    open_model(SEEDLING, "auto");
    const struct layout layout = {8, 2, 2, 2, 2, 2};
    const struct layout_table table = {&model, &layout, 8, 7};
    struct buf out;
    buf_init(&out, 0);
    layout_table_write(&out, &table);
    buf_add(&out, "", 1);
    ck_assert_msg(
        strstr(out.data, "layout of 8 workers: pp 2 dp 2 tp 2 ep 2 etp 2\n") != NULL &&
            strstr(out.data, "\n   6  local  cpu        1     1    0  2-3     8-15 1/2") != NULL &&
            strstr(out.data, "      and 1 more\n") != NULL,
        "%s", out.data);
    buf_finish(&out);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("choice");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, weights_are_as_many_bytes_as_a_worker_holds);
    tcase_add_test(t, a_sequence_of_a_recurrent_model_takes_its_states_as_well);
    tcase_add_test(t, half_the_heads_of_recurrent_layers_are_half_their_weights);
    tcase_add_test(t, ranks_together_hold_what_the_sizes_say);
    tcase_add_test(t, sizes_that_are_not_given_are_chosen_by_the_rule);
    tcase_add_test(t, a_choice_that_cannot_be_is_refused_with_flags_rule_and_neighbours);
    tcase_add_test(t, sizes_say_how_many_workers_they_need);
    tcase_add_test(t, states_are_told_of_models_that_keep_one);
    tcase_add_test(t, a_layout_fits_only_with_the_states_of_all_slots);
    tcase_add_test(t, the_table_has_a_row_for_each_rank_within_80_columns);
    tcase_add_test(t, large_sizes_stand_apart_from_their_meaning);
    tcase_add_test(t, a_row_says_who_holds_what);
    Suite *s = suite_create("model_choice");
    suite_add_tcase(s, t);
    return suite_run(s);
}
