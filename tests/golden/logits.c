// logits.c: the forward pass against Hugging Face transformers in float32: every logit of every
// kept position within 1e-4 of the largest one, the same next token, and the prompt's
// log-probabilities and ranks, whatever the chunks, the ranks and the kernel table. regen.py made
// the data.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/serve.h"
#include "tests/harness/suite.h"

#define TOLERANCE 1e-4
#define RANKS_MOST 4
#define PROMPT_MOST 256

static const char *const names[] = {"tiny-qwen3-moe", "tiny-mixtral", "awkward", "seedling"};
#define N_MODELS (int)(sizeof names / sizeof *names)

struct golden {
    char folder[PATH_BYTES_MAX];
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

static void load(struct loaded *m, const struct golden *g, uint32_t n_ranks) {
    struct err_text e;
    ck_assert_msg(spec_load(&m->spec, g->folder, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(m->spec.vocab, g->vocab);
    ck_assert_int_eq(layout_make(&m->layout, n_ranks, m->spec.router.n_experts, &e), 0);
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        struct weights_config config = {.folder = g->folder,
                                        .spec = &m->spec,
                                        .layout = &m->layout,
                                        .rank = rank,
                                        .dtype = m->spec.dtype,
                                        .n_threads = 1};
        ck_assert_msg(weights_load(&m->weights[rank], &config, &e) == 0, "%s", e.text);
    }
}

static void unload(struct loaded *m) {
    for (uint32_t rank = 0; rank < m->layout.n_ranks; rank++)
        weights_destroy(m->weights[rank]);
}

static double log_sum_exp(const float *x, uint32_t n) {
    double max = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = fmax(max, (double)x[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

// Ids whose logit exceeds this value by more than the slack.
static uint32_t count_above(const float *x, uint32_t n, double value) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += x[i] >= value;
    return count;
}

// Token t of the prompt against row t - 1 of transformers.
static void compare_score(const struct golden *g, uint32_t row, const struct serve_score *score,
                          const char *how) {
    const float *x = g->logits + (size_t)row * g->vocab;
    double lse = log_sum_exp(x, g->vocab), own = x[g->ids[g->first + row + 1]], largest = 0;
    for (uint32_t i = 0; i < g->vocab; i++)
        largest = fmax(largest, fabs((double)x[i]));
    double slack = 2 * TOLERANCE * largest;
    ck_assert_msg(fabs(score->logprob - (own - lse)) <= slack, "%s: row %u: %g, not %g", how, row,
                  (double)score->logprob, own - lse);
    ck_assert_msg(fabs(score->top_logprob - (x[argmax(x, g->vocab)] - lse)) <= slack,
                  "%s: most likely of row %u", how, row);
    ck_assert_uint_eq(score->top_id, argmax(x, g->vocab));
    ck_assert_uint_ge(score->rank, count_above(x, g->vocab, own + slack));
    ck_assert_uint_le(score->rank, count_above(x, g->vocab, own - slack));
}

static void compare_scores(const struct golden *g, const struct serve_score *scores,
                           const char *how) {
    for (uint32_t row = 0; row < g->n_rows && g->first + row + 1 < g->n_ids; row++)
        compare_score(g, row, &scores[g->first + row + 1], how);
}

// Logits of all positions of the prompt, served by a group in the given way.
static float *run(const struct golden *g, const struct loaded *m, const struct kernel_ops *ops,
                  const struct serve_way *way, struct serve_score *scores) {
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
                                    .scored = true,
                                    .n_score_top = 3};
    struct serve_token token;
    float *logits = mem_array((size_t)g->n_ids, g->vocab * sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    serve(ranks, way, &(struct serve_batch){&request, 1, &token, 1, logits, scores});
    ranks_destroy(ranks);
    return logits;
}

static void run_and_compare(const struct golden *g, const struct loaded *m, const char *table,
                            const struct serve_way *way) {
    char how[128];
    snprintf(how, sizeof how, "%s on %u ranks, chunks of %s%u", table, m->layout.n_ranks,
             way->mixed ? "up to " : "", way->chunk);
    struct serve_score scores[PROMPT_MOST];
    float *logits = run(g, m, kernel_ops_select(table), way, scores);
    compare(g, logits, how);
    compare_scores(g, scores, how);
    mem_free(logits);
}

START_TEST(logits_equal_those_of_transformers) {
    static const struct serve_way ways[] = {{.chunk = PROMPT_MOST, .n_together = 1},
                                            {.chunk = 1, .n_together = 1},
                                            {.chunk = 19, .mixed = true, .n_together = 1}};
    struct golden g;
    struct loaded m;
    read_golden(&g, names[_i]);
    printf("%s\n", names[_i]);
    load(&m, &g, 1);
    char tables[256], *rest = tables;
    snprintf(tables, sizeof tables, "%s", kernel_ops_available());
    for (const char *table; (table = strtok_r(rest, ", ", &rest)) != NULL;) {
        for (int way = 0; way < 3; way++)
            run_and_compare(&g, &m, table, &ways[way]);
    }
    unload(&m);
    load(&m, &g, 3);
    run_and_compare(&g, &m, "auto", &ways[2]);
    unload(&m);
    mem_free(g.logits);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("golden logits");
    TCase *tests = tcase_create("golden logits");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, logits_equal_those_of_transformers, 0, N_MODELS);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
