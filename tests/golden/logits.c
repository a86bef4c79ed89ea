// logits.c: the forward pass against Hugging Face transformers in float32: every logit of every
// kept position within 1e-4 of the largest one, the same next token, and the prompt's
// log-probabilities and ranks, whatever the chunks, the ranks and the kernel table. regen.py made
// the data.
#include "tests/golden/golden.h"

// Two of families.c are here as well, for what else looks at this program: other ways to run it,
// the thread sanitizer.
static const char *const names[] = {"tiny-qwen3-moe", "tiny-mixtral", "awkward",
                                    "seedling",       "gpt-oss",      "deepseek-v3"};
#define N_MODELS (int)(sizeof names / sizeof *names)

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

static void run_and_compare(const struct golden *g, const struct loaded *m, const char *table,
                            const struct serve_way *way) {
    char how[128];
    snprintf(how, sizeof how, "%s in pp %u dp %u tp %u ep %u etp %u, chunks of %s%u", table,
             m->layout.pp, m->layout.dp, m->layout.tp, m->layout.ep, m->layout.etp,
             way->mixed ? "up to " : "", way->chunk);
    struct serve_score scores[PROMPT_MOST];
    float *logits = run(g, m, kernel_ops_select(table), way, &(struct run_notes){how, scores});
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
    struct layout split = {.pp = 1, .dp = 1, .etp = 1};
    split.n_ranks = split.tp = split.ep = legal_tp_max(&m.spec);
    unload(&m);
    load_in(&m, &g, &split, MLA_ABSORBED);
    run_and_compare(&g, &m, "auto", &ways[2]);
    split = (struct layout){.pp = 2, .tp = 1, .ep = 1};
    split.dp = split.etp = legal_etp_max(&m.spec) < 4 ? legal_etp_max(&m.spec) : 4;
    split.n_ranks = 2 * split.dp;
    unload(&m);
    load_in(&m, &g, &split, MLA_ABSORBED);
    run_and_compare(&g, &m, "auto", &ways[2]);
    unload(&m);
    golden_finish(&g);
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
