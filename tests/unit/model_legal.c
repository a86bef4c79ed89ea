// model_legal.c: which layouts each model can run in, and what people are told about the others.
#include <stdio.h>
#include <string.h>

#include "common/model/legal.h"
#include "tests/harness/suite.h"

#define RANKS 16
#define SEEDLING SOURCE_ROOT "/models/seedling"
#define SMALL(name) TEST_DATA "/models/" name

static struct model_spec load(const char *folder) {
    struct model_spec spec;
    struct err_text e = {""};
    ck_assert_msg(spec_load(&spec, folder, &e) == 0, "%s: %s", folder, e.text);
    return spec;
}

// What follows from the numbers in each config.json: heads, KV heads, and the experts' inner width.
static const struct {
    const char *folder;
    uint32_t pp_max, tp_max, etp_max;
} models[] = {
    {SEEDLING, 4, 8, 8},         // 8 heads, 2 KV heads, inner 128
    {SMALL("awkward"), 2, 1, 2}, // 2 ranks would cut one of its 3 KV heads
    {SMALL("dbrx"), 2, 4, 2},
    {SMALL("deepseek-moe"), 2, 4, 1},
    {SMALL("deepseek-v2"), 2, 4, 1},
    {SMALL("deepseek-v2-lite"), 2, 4, 1},
    {SMALL("deepseek-v3"), 2, 4, 1},
    {SMALL("deepseek-v32"), 2, 4, 1},
    {SMALL("deepseek-v4"), 5, 2, 2}, // two groups of heads
    {SMALL("ernie4-5-moe"), 3, 4, 1},
    {SMALL("glm4-moe"), 3, 4, 1},
    {SMALL("gpt-oss"), 2, 4, 4},
    {SMALL("granitemoe"), 2, 4, 2},
    {SMALL("granitemoeshared"), 2, 4, 1},
    {SMALL("grok-1"), 2, 4, 1}, // inner 24 is no whole number of blocks
    {SMALL("grok-2"), 2, 4, 1},
    {SMALL("kimi-k25"), 2, 4, 1},
    {SMALL("llama"), 2, 4, 1},
    {SMALL("llama4"), 4, 4, 1},
    {SMALL("llama4-nested"), 2, 4, 2},
    {SMALL("minimax-m2"), 2, 4, 1},
    {SMALL("mistral"), 2, 4, 1},
    {SMALL("olmoe"), 2, 4, 1},
    {SMALL("phimoe"), 2, 4, 1},
    {SMALL("qwen2"), 2, 4, 1},
    {SMALL("qwen2-moe"), 3, 4, 1},
    {SMALL("qwen3"), 2, 4, 1},
    {SMALL("tiny-mixtral"), 2, 4, 1}, // inner 80 is 5 blocks
    {SMALL("tiny-qwen3-moe"), 3, 4, 1},
};
#define N_MODELS ((int)(sizeof models / sizeof *models))

START_TEST(the_largest_sizes_of_each_model_follow_from_its_numbers) {
    struct model_spec s = load(models[_i].folder);
    ck_assert_uint_eq(s.n_layers, models[_i].pp_max);
    ck_assert_uint_eq(legal_tp_max(&s), models[_i].tp_max);
    ck_assert_uint_eq(legal_etp_max(&s), models[_i].etp_max);
}
END_TEST

// GLM-5's layer 2 takes over what layer 1 chose.
START_TEST(a_stage_does_not_begin_with_a_layer_that_shares_a_choice) {
    struct model_spec s = load(SMALL("glm5"));
    struct err_text e = {""};
    struct layout l = {.n_ranks = 2, .pp = 2, .dp = 1, .tp = 1, .ep = 1, .etp = 1};
    ck_assert_int_eq(legal_check(&s, &l, &e), ERR_FATAL_CONFIG);
    ck_assert_msg(strstr(e.text, "begin with layer 2") != NULL, "%s", e.text);
    s.layer_flags[2] = 0;
    ck_assert_msg(legal_check(&s, &l, &e) == 0, "%s", e.text);
}
END_TEST

static bool divides_a_power_of_two(uint32_t n, uint32_t most) {
    return (n & (n - 1)) == 0 && n <= most;
}

// Every combination of sizes is asked for; those that answer 0 are those of the list.
START_TEST(the_list_has_exactly_the_layouts_that_pass_the_check) {
    struct model_spec s = load(models[_i].folder);
    for (uint32_t n = 1; n <= RANKS; n++) {
        struct layout all[LEGAL_LAYOUTS_MAX];
        uint32_t n_all = legal_list(&s, n, all), n_legal = 0;
        for (uint32_t code = 0; code < RANKS * RANKS * RANKS; code++) {
            struct layout l = {.pp = code % RANKS + 1,
                               .tp = code / RANKS % RANKS + 1,
                               .etp = code / RANKS / RANKS + 1};
            if (n % (l.pp * l.tp) != 0 || n / l.pp % l.etp != 0) continue;
            l.n_ranks = n;
            l.dp = n / l.pp / l.tp;
            l.ep = n / l.pp / l.etp;
            bool legal = l.pp <= s.n_layers && divides_a_power_of_two(l.tp, models[_i].tp_max) &&
                         divides_a_power_of_two(l.etp, models[_i].etp_max);
            ck_assert_int_eq(legal_check(&s, &l, NULL), legal ? 0 : ERR_FATAL_CONFIG);
            n_legal += legal;
        }
        ck_assert_uint_eq(n_all, n_legal);
        for (uint32_t i = 0; i < n_all; i++) {
            ck_assert_int_eq(legal_check(&s, &all[i], NULL), 0);
            ck_assert(i == 0 || !layout_equal(&all[i], &all[i - 1]));
        }
    }
}
END_TEST

START_TEST(a_number_of_workers_with_many_divisors_has_room_in_the_list) {
    struct model_spec s = load(SEEDLING);
    s.n_layers = LAYERS_MAX;
    struct layout all[LEGAL_LAYOUTS_MAX];
    for (uint32_t n = 1; n <= RANKS_MAX; n++)
        ck_assert_uint_le(legal_list(&s, n, all), LEGAL_LAYOUTS_MAX);
}
END_TEST

START_TEST(kv_heads_are_split_evenly_or_held_by_several) {
    struct model_spec s = load(SEEDLING);
    const struct layout l = {4, 1, 1, 4, 4, 1};
    const uint32_t fits[] = {1, 2, 4, 8, 12}, not [] = {3, 5, 6};
    for (int i = 0; i < 5; i++) {
        s.n_kv_heads = fits[i];
        ck_assert_int_eq(legal_check(&s, &l, NULL), 0);
    }
    for (int i = 0; i < 3; i++) {
        struct err_text e;
        s.n_kv_heads = not [i];
        ck_assert_int_eq(legal_check(&s, &l, &e), ERR_FATAL_CONFIG);
        ck_assert_msg(strstr(e.text, "KV heads nor is a multiple") != NULL, "%s", e.text);
    }
    s.mla.kv_rank = 16; // latents are whole everywhere
    ck_assert_int_eq(legal_check(&s, &l, NULL), 0);
}
END_TEST

START_TEST(what_is_not_legal_is_refused_with_the_rule_and_the_nearest_ones) {
    static const struct {
        const char *folder;
        struct layout l;
        const char *words;
    } rows[] = {
        {SEEDLING,
         {5, 5, 1, 1, 1, 1},
         "pipeline parallel 5: every stage needs a layer, and the model has 4; the nearest layouts "
         "are pp 1 dp 5 tp 1 ep 5 etp 1 with 5 workers, and pp 4 dp 1 tp 1 ep 1 etp 1 with 4"},
        {SEEDLING,
         {3, 1, 1, 3, 3, 1},
         "tensor parallel 3 does not divide the 8 segments in which the output of the model's 8 "
         "heads is summed; the nearest layouts are pp 1 dp 3 tp 1 ep 3 etp 1 with 3 workers, and "
         "pp 1 dp 1 tp 4 ep 4 etp 1 with 4"},
        {SEEDLING, {16, 1, 1, 16, 16, 1}, "tensor parallel 16 does not divide"},
        {SMALL("awkward"),
         {4, 1, 4, 1, 1, 4},
         "expert tensor parallel 4 does not divide the 2 segments in which the inner width 160 of "
         "an expert is summed; the nearest layouts are pp 1 dp 4 tp 1 ep 2 etp 2 with 4"},
        {SMALL("llama"), {2, 1, 2, 1, 1, 2}, "expert tensor parallel 2: the model has no experts"},
        {SEEDLING,
         {4, 1, 3, 2, 6, 1},
         "pipeline 1 x data 3 x tensor 2 parallel needs 6 workers, not 4; the nearest layouts are "
         "pp 1 dp 2 tp 2 ep 4 etp 1 with 4 workers, and pp 1 dp 3 tp 2 ep 6 etp 1 with 6"},
        {SEEDLING, {0, 1, 1, 1, 1, 1}, "number of workers 0"},
        {SEEDLING, {2, 1, 2, 1, 0, 1}, "a parallel size of 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_spec s = load(rows[i].folder);
        struct err_text e;
        ck_assert_int_eq(legal_check(&s, &rows[i].l, &e), ERR_FATAL_CONFIG);
        ck_assert_msg(strstr(e.text, rows[i].words) == e.text, "%s", e.text);
    }
}
END_TEST

START_TEST(more_places_than_experts_are_legal) {
    struct model_spec s = load(SMALL("awkward"));
    const struct layout l = {16, 1, 16, 1, 16, 1};
    ck_assert_uint_eq(s.router.n_experts, 7);
    ck_assert_int_eq(legal_check(&s, &l, NULL), 0);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("legal");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, the_largest_sizes_of_each_model_follow_from_its_numbers, 0, N_MODELS);
    tcase_add_loop_test(t, the_list_has_exactly_the_layouts_that_pass_the_check, 0, N_MODELS);
    tcase_add_test(t, a_number_of_workers_with_many_divisors_has_room_in_the_list);
    tcase_add_test(t, kv_heads_are_split_evenly_or_held_by_several);
    tcase_add_test(t, what_is_not_legal_is_refused_with_the_rule_and_the_nearest_ones);
    tcase_add_test(t, more_places_than_experts_are_legal);
    tcase_add_test(t, a_stage_does_not_begin_with_a_layer_that_shares_a_choice);
    Suite *s = suite_create("model_legal");
    suite_add_tcase(s, t);
    return suite_run(s);
}
