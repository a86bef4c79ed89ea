// families.c: every model family against Hugging Face transformers in float32: logits within 1e-4
// of the largest, the same next tokens, the same chosen experts; and one answer, bit for bit,
// whatever the chunks, the ranks and the kernel table. regen_families.py made the data.
#include "tests/golden/golden.h"

static const char *const names[] = {
    "qwen2-moe",
    "olmoe",
    "granitemoe",
    "granitemoeshared",
    "glm4-moe",
    "minimax-m2",
    "ernie4-5-moe",
    "dbrx",
    "phimoe",
    "gpt-oss",
    "llama4",
    "llama4-nested",
    "deepseek-moe",
    "deepseek-v2",
    "deepseek-v2-lite",
    "deepseek-v3",
    "deepseek-v32",
    "glm5",
    "kimi-k25",
    "grok-1",
    "grok-2",
    "llama",
    "qwen3-next",
    "qwen3-5-moe",
    "qwen3-5-moe-text",
    "qwen3-5",
    "mistral",
    "qwen2",
    "qwen3",
    "deepseek-v4-sliding",
    "deepseek-v4",
    "deepseek-v4-128",
};
#define N_MODELS (int)(sizeof names / sizeof *names)

// The same bits as the first way, which was compared with transformers.
static void expect_same(const struct golden *g, const struct loaded *m, const float *first,
                        const char *table, const struct serve_way *way) {
    char how[128];
    snprintf(how, sizeof how, "%s in pp %u dp %u tp %u ep %u etp %u, chunks of %u", table,
             m->layout.pp, m->layout.dp, m->layout.tp, m->layout.ep, m->layout.etp, way->chunk);
    float *logits = run(g, m, kernel_ops_select(table), way, &(struct run_notes){.how = how});
    size_t n = (size_t)g->n_ids * g->vocab, at = 0;
    while (at < n && f32_to_bits(logits[at]) == f32_to_bits(first[at]))
        at++;
    ck_assert_msg(at == n, "%s: row %zu token %zu is %a, must be %a", how, at / g->vocab,
                  at % g->vocab, logits[at % n], first[at % n]);
    mem_free(logits);
}

// Attention, dense layers and the head over 2, 4 and 8 ranks, where the model's heads allow it, and
// over two DP groups of 2.
static void expect_same_split(const struct golden *g, const float *first, enum mla_form form) {
    static const struct serve_way whole = {.chunk = PROMPT_MOST, .n_together = 1},
                                  mixed = {.chunk = 19, .mixed = true, .n_together = 1};
    struct model_spec spec;
    struct loaded m;
    struct err_text e;
    ck_assert_msg(spec_load(&spec, g->folder, &e) == 0, "%s", e.text);
    for (uint32_t tp = 2; tp <= legal_tp_max(&spec); tp *= 2) {
        uint32_t dp = tp == 2 ? 2 : 1;
        const struct layout l = {
            .n_ranks = dp * tp, .pp = 1, .dp = dp, .tp = tp, .ep = dp * tp, .etp = 1};
        load_in(&m, g, &l, form);
        expect_same(g, &m, first, "auto", tp == 4 ? &whole : &mixed);
        unload(&m);
    }
}

// Layers in stages, experts in parts, and both with all else that a layout has, where the model
// allows it.
static void expect_same_stages_and_parts(const struct golden *g, const float *first,
                                         enum mla_form form) {
    static const struct serve_way mixed = {.chunk = 19, .mixed = true, .n_together = 1};
    static const struct layout layouts[] = {
        {.n_ranks = 4, .pp = 2, .dp = 2, .tp = 1, .ep = 2, .etp = 1},
        {.n_ranks = 6, .pp = 3, .dp = 1, .tp = 2, .ep = 2, .etp = 1},
        {.n_ranks = 4, .pp = 1, .dp = 4, .tp = 1, .ep = 2, .etp = 2},
        {.n_ranks = 4, .pp = 1, .dp = 4, .tp = 1, .ep = 1, .etp = 4},
        {.n_ranks = 8, .pp = 2, .dp = 2, .tp = 2, .ep = 2, .etp = 2},
        {.n_ranks = 8, .pp = 2, .dp = 1, .tp = 4, .ep = 1, .etp = 4},
    };
    struct model_spec spec;
    struct loaded m;
    struct err_text e;
    ck_assert_msg(spec_load(&spec, g->folder, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (legal_check(&spec, &layouts[i], &e) != 0) continue;
        load_in(&m, g, &layouts[i], form);
        expect_same(g, &m, first, "auto", &mixed);
        unload(&m);
    }
}

static void answers_as_transformers(const char *name, enum mla_form form) {
    static const struct serve_way whole = {.chunk = PROMPT_MOST, .n_together = 1},
                                  single = {.chunk = 1, .n_together = 1},
                                  mixed = {.chunk = 19, .mixed = true, .n_together = 1};
    struct golden g;
    struct loaded m;
    read_golden(&g, name);
    load_form(&m, &g, 1, form);
    float *first = run(&g, &m, kernel_ops_select(NULL), &whole, &(struct run_notes){.how = name});
    compare(&g, first, name);
    expect_same(&g, &m, first, "auto", &single);
    expect_same(&g, &m, first, "ref", &mixed);
    unload(&m);
    load_form(&m, &g, 2, form);
    expect_same(&g, &m, first, "auto", &mixed);
    unload(&m);
    expect_same_split(&g, first, form);
    expect_same_stages_and_parts(&g, first, form);
    mem_free(first);
    golden_finish(&g);
}

START_TEST(a_family_answers_as_transformers_does) {
    answers_as_transformers(names[_i], MLA_ABSORBED);
}
END_TEST

static const char *const latent_names[] = {"deepseek-v2", "deepseek-v2-lite", "deepseek-v3"};

START_TEST(expanded_latent_attention_answers_as_transformers_does) {
    answers_as_transformers(latent_names[_i], MLA_EXPANDED);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("golden families");
    TCase *tests = tcase_create("golden families");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, a_family_answers_as_transformers_does, 0, N_MODELS);
    tcase_add_loop_test(tests, expanded_latent_attention_answers_as_transformers_does, 0, 3);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
