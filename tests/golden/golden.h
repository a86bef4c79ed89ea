// golden.h: what the programs of this folder share: golden logits from files, a group of ranks that
// serves their prompt, and the comparison.
#ifndef MOESAIC_TESTS_GOLDEN_GOLDEN_H
#define MOESAIC_TESTS_GOLDEN_GOLDEN_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/legal.h"
#include "tests/harness/serve.h"
#include "tests/harness/suite.h"

#define TOLERANCE 1e-4
#define RANKS_MOST 8
#define PROMPT_MOST 256

struct golden {
    char folder[PATH_BYTES_MAX];
    json_t *expert_tokens; // [MoE layer][expert] rows of the prompt, or NULL; owned
    uint32_t ids[PROMPT_MOST], n_ids, first, n_rows, vocab;
    float *logits; // [n_rows, vocab], owned
};

static void read_logits(struct golden *g, const char *name) {
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, SOURCE_ROOT "/tests/golden/%s.bin", name);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    size_t n = (size_t)g->n_rows * g->vocab;
    g->logits = mem_array(n, sizeof *g->logits);
    ck_assert_uint_eq(fread(g->logits, sizeof *g->logits, n, file), n);
    fclose(file);
}

static void read_golden(struct golden *g, const char *name) {
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, SOURCE_ROOT "/tests/golden/%s.json", name);
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why);
    ck_assert_msg(root != NULL, "%s: %s", path, why.text);
    const json_t *ids = json_object_get(root, "ids"), *shape = json_object_get(root, "shape");
    snprintf(g->folder, sizeof g->folder, SOURCE_ROOT "/%s",
             json_string_value(json_object_get(root, "model")));
    g->n_ids = (uint32_t)json_array_size(ids);
    ck_assert_uint_le(g->n_ids, PROMPT_MOST);
    for (uint32_t i = 0; i < g->n_ids; i++)
        g->ids[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    g->first = (uint32_t)json_integer_value(json_object_get(root, "first_position"));
    g->n_rows = (uint32_t)json_integer_value(json_array_get(shape, 0));
    g->vocab = (uint32_t)json_integer_value(json_array_get(shape, 1));
    g->expert_tokens = json_incref(json_object_get(root, "expert_tokens"));
    json_decref(root);
    ck_assert_uint_le(g->first + g->n_rows, g->n_ids);
    read_logits(g, name);
}

static uint32_t argmax(const float *x, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void compare(const struct golden *g, const float *got, const char *how) {
    double largest = 0, worst = 0;
    const float *rows = got + (size_t)g->first * g->vocab;
    for (size_t i = 0; i < (size_t)g->n_rows * g->vocab; i++) {
        double difference = fabs((double)rows[i] - g->logits[i]);
        ck_assert_msg(isfinite(rows[i]), "%s: not finite", how);
        largest = fmax(largest, fabs((double)g->logits[i]));
        worst = fmax(worst, difference);
    }
    ck_assert_msg(worst <= TOLERANCE * largest, "%s: off by %g of %g", how, worst, largest);
    for (uint32_t row = 0; row < g->n_rows; row++) {
        size_t at = (size_t)row * g->vocab;
        ck_assert_msg(argmax(rows + at, g->vocab) == argmax(g->logits + at, g->vocab),
                      "%s: next token of row %u", how, row);
    }
    printf("%s: off by %.2g of the largest logit\n", how, worst / largest);
}

struct loaded {
    struct model_spec spec;
    struct layout layout;
    struct weights *weights[RANKS_MOST];
};

static void load_in(struct loaded *m, const struct golden *g, const struct layout *layout,
                    enum mla_form form) {
    struct err_text e;
    ck_assert_msg(spec_load(&m->spec, g->folder, &e) == 0, "%s", e.text);
    ck_assert_msg(spec_take_mla_form(&m->spec, form, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(m->spec.vocab, g->vocab);
    ck_assert_msg(legal_check(&m->spec, layout, &e) == 0, "%s", e.text);
    ck_assert_uint_le(layout->n_ranks, RANKS_MOST);
    m->layout = *layout;
    for (uint32_t rank = 0; rank < layout->n_ranks; rank++) {
        struct weights_config config = {.folder = g->folder,
                                        .spec = &m->spec,
                                        .layout = &m->layout,
                                        .rank = rank,
                                        .dtype = m->spec.dtype,
                                        .n_threads = 1};
        ck_assert_msg(weights_load(&m->weights[rank], &config, &e) == 0, "%s", e.text);
    }
}

// So many ranks, each with all but the experts.
static void load_form(struct loaded *m, const struct golden *g, uint32_t n_ranks,
                      enum mla_form form) {
    struct layout layout;
    ck_assert_int_eq(layout_make(&layout, n_ranks, NULL), 0);
    load_in(m, g, &layout, form);
}

static inline void load(struct loaded *m, const struct golden *g, uint32_t n_ranks) {
    load_form(m, g, n_ranks, MLA_ABSORBED);
}

static void unload(struct loaded *m) {
    for (uint32_t rank = 0; rank < m->layout.n_ranks; rank++)
        weights_destroy(m->weights[rank]);
}

// Rows that came to an expert of a layer: of the ranks that share it the first one counts.
static inline uint64_t expert_rows(const struct loaded *m, struct ranks *ranks, uint32_t layer,
                                   uint32_t expert) {
    const struct layout *l = &m->layout;
    uint32_t stage = 0, n_layers = m->spec.n_layers, n_experts = m->spec.router.n_experts;
    while (layer >= layout_layer_first(l, n_layers, stage + 1))
        stage++;
    uint32_t ep = layout_expert_owner(l, n_experts, expert);
    for (uint32_t etp = 1; etp < l->etp; etp++) {
        const struct model *other = ranks_model(ranks, layout_expert_rank(l, stage, ep, etp));
        for (uint32_t i = 0; i < model_expert_counters(other); i++)
            ck_assert_uint_eq(model_expert_tokens(other)[i], 0);
    }
    uint32_t rank = layout_expert_rank(l, stage, ep, 0);
    const struct weights *w = m->weights[rank];
    uint32_t first = layout_layer_first(l, n_layers, stage);
    return model_expert_tokens(
        ranks_model(ranks, rank))[(layer - first) * w->n_local_experts + expert - w->first_expert];
}

// Every expert was chosen as often as in transformers.
static inline void compare_experts(const struct golden *g, const struct loaded *m,
                                   struct ranks *ranks, const char *how) {
    size_t moe = 0;
    for (uint32_t layer = 0; g->expert_tokens != NULL && layer < m->spec.n_layers; layer++) {
        if (m->spec.ffn[layer] != FFN_MOE) continue;
        const json_t *want = json_array_get(g->expert_tokens, moe++);
        for (uint32_t e = 0; e < m->spec.router.n_experts; e++) {
            uint64_t got = expert_rows(m, ranks, layer, e);
            ck_assert_msg(got == (uint64_t)json_integer_value(json_array_get(want, e)),
                          "%s: layer %u expert %u has %llu rows", how, layer, e,
                          (unsigned long long)got);
        }
    }
    ck_assert_uint_eq(moe, json_array_size(g->expert_tokens));
}

static void golden_finish(struct golden *g) {
    mem_free(g->logits);
    json_decref(g->expert_tokens);
}

// What a run is called in messages, and where the prompt's scores go (or NULL).
struct run_notes {
    const char *how;
    struct serve_score *scores;
};

// Logits of all positions of the prompt, served by a group in the given way.
static float *run(const struct golden *g, const struct loaded *m, const struct kernel_ops *ops,
                  const struct serve_way *way, const struct run_notes *notes) {
    struct ranks_config config = {
        .weights = (const struct weights *const *)m->weights,
        .layout = &m->layout,
        .ops = ops,
        .n_threads = 2,
        .n_slots = 2,
        .rows_max = PROMPT_MOST,
        .max_model_len = PROMPT_MOST,
        .kv_blocks = PROMPT_MOST / KV_BLOCK_TOKENS,
        .kv_dtype = DTYPE_F32,
        .keep_logits = true,
    };
    struct ranks *ranks = ranks_create(&config);
    struct serve_request request = {.prompt = g->ids,
                                    .n_prompt = g->n_ids,
                                    .n_generate = 1,
                                    .sampling = MOESAIC__STEP__V1__SAMPLING__INIT,
                                    .scored = notes->scores != NULL,
                                    .n_score_top = 3};
    struct serve_token token;
    float *logits = mem_array((size_t)g->n_ids, g->vocab * sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    serve(ranks, way, &(struct serve_batch){&request, 1, &token, 1, logits, notes->scores});
    compare_experts(g, m, ranks, notes->how);
    ranks_destroy(ranks);
    return logits;
}

#endif
