// kv_types.c: what the formats of KV pages cost on the embedded model: logits and greedy choices
// against those with float32 pages, on texts that the model itself wrote behind the golden prompts'
// beginnings. Prints the table of docs/kv-types.md, and fails when a format is worse than it says.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/serve.h"
#include "tests/harness/suite.h"

#define N_TEXTS 4
#define PROMPT_TOKENS 12 // of each text; the model writes the rest
#define TEXT_TOKENS 400
#define CHUNK 50

static struct model_spec spec;
static struct layout layout;
static struct weights *weights;
static uint32_t texts[N_TEXTS][TEXT_TOKENS];

static void set_up(void) {
    struct err_text e;
    const char *folder = SOURCE_ROOT "/models/seedling";
    ck_assert_msg(spec_load(&spec, folder, &e) == 0, "%s", e.text);
    ck_assert_int_eq(layout_make(&layout, 1, &e), 0);
    struct weights_config config = {
        .folder = folder, .spec = &spec, .layout = &layout, .dtype = spec.dtype, .n_threads = 1};
    ck_assert_msg(weights_load(&weights, &config, &e) == 0, "%s", e.text);
    json_t *root = json_load_file(SOURCE_ROOT "/tests/golden/seedling.json", 0, NULL);
    const json_t *ids = json_object_get(root, "ids");
    ck_assert_uint_ge(json_array_size(ids), N_TEXTS * PROMPT_TOKENS);
    for (size_t i = 0; i < N_TEXTS * PROMPT_TOKENS; i++)
        texts[i / PROMPT_TOKENS][i % PROMPT_TOKENS] =
            (uint32_t)json_integer_value(json_array_get(ids, i));
    json_decref(root);
}

static struct ranks *group_of(enum dtype kv_dtype) {
    static const struct weights *held[1];
    held[0] = weights;
    struct ranks_config config = {
        .weights = held,
        .layout = &layout,
        .n_threads = 1,
        .n_slots = 1,
        .rows_max = TEXT_TOKENS,
        .max_model_len = TEXT_TOKENS,
        .kv_blocks = TEXT_TOKENS / KV_BLOCK_TOKENS + 1,
        .kv_dtype = kv_dtype,
        .keep_logits = true,
    };
    return ranks_create(&config);
}

// Sampled, so that it goes on being text, and the same on every machine: there is one answer.
static void write_text(uint32_t text) {
    struct ranks *ranks = group_of(DTYPE_F32);
    static struct serve_token tokens[TEXT_TOKENS];
    struct serve_way way = {.chunk = CHUNK, .n_together = 1};
    struct serve_request request = {.prompt = texts[text],
                                    .n_prompt = PROMPT_TOKENS,
                                    .n_generate = TEXT_TOKENS - PROMPT_TOKENS,
                                    .sampling = MOESAIC__STEP__V1__SAMPLING__INIT};
    request.sampling.temperature = 0.7f;
    request.sampling.seed = text + 1;
    request.sampling.top_p = 1.0f;
    serve(ranks, &way, &(struct serve_batch){&request, 1, tokens, TEXT_TOKENS, NULL, NULL});
    for (uint32_t i = PROMPT_TOKENS; i < TEXT_TOKENS; i++)
        texts[text][i] = tokens[i - PROMPT_TOKENS].token;
    ranks_destroy(ranks);
}

// Logits of every position.
static void read_text(float *logits, uint32_t text, enum dtype kv_dtype) {
    struct ranks *ranks = group_of(kv_dtype);
    struct serve_token token;
    struct serve_way way = {.chunk = CHUNK, .n_together = 1};
    struct serve_request request = {.prompt = texts[text],
                                    .n_prompt = TEXT_TOKENS,
                                    .n_generate = 1,
                                    .sampling = MOESAIC__STEP__V1__SAMPLING__INIT};
    serve(ranks, &way, &(struct serve_batch){&request, 1, &token, 1, logits, NULL});
    ranks_destroy(ranks);
}

struct cost {
    double largest, squares, own_squares; // of the differences; of the logits from their mean
    double divergence;                    // KL
    uint32_t agree, n;
};

static uint32_t argmax(const float *x) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < spec.vocab; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static double log_sum(const float *x) {
    double top = x[argmax(x)], sum = 0;
    for (uint32_t i = 0; i < spec.vocab; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum);
}

static void compare_row(struct cost *c, const float *got, const float *want) {
    double lse = log_sum(want), lse_got = log_sum(got), mean = 0;
    for (uint32_t i = 0; i < spec.vocab; i++)
        mean += (double)want[i] / spec.vocab;
    for (uint32_t i = 0; i < spec.vocab; i++) {
        double difference = (double)got[i] - (double)want[i], p = (double)want[i] - lse;
        c->largest = fmax(c->largest, fabs(difference));
        c->squares += difference * difference;
        c->own_squares += ((double)want[i] - mean) * ((double)want[i] - mean);
        c->divergence += exp(p) * (p - ((double)got[i] - lse_got));
    }
    c->agree += argmax(got) == argmax(want);
    c->n++;
}

static const struct {
    enum dtype dtype;
    // What was measured, and half of it again (E4M3: a third); where no token differed, one of the
    // 1,552 may.
    double off_most, agree_least;
} formats[] = {
    {DTYPE_BF16, 0.003, 0.9993},
    {DTYPE_E4M3, 0.075, 0.994},
    {DTYPE_I8, 0.025, 0.9993},
};

static void report(enum dtype dtype, const struct cost *c, double *off, double *agree) {
    *off = sqrt(c->squares / c->own_squares);
    *agree = (double)c->agree / c->n;
    printf("| %s | %llu | %.2f %% | %.2f | %.6f | %.2f %% |\n", dtype_name(dtype),
           (unsigned long long)spec_kv_token_bytes(&spec, dtype), 100 * *off, c->largest,
           c->divergence / c->n, 100 * *agree);
}

START_TEST(formats_cost_no_more_than_the_page_says) {
    struct cost costs[3] = {0};
    set_up();
    size_t n = (size_t)TEXT_TOKENS * spec.vocab;
    float *got = mem_array(n, sizeof *got), *exact = mem_array(n, sizeof *exact);
    ck_assert(got != NULL && exact != NULL);
    for (uint32_t text = 0; text < N_TEXTS; text++) {
        write_text(text);
        read_text(exact, text, DTYPE_F32);
        for (int f = 0; f < 3; f++) {
            read_text(got, text, formats[f].dtype);
            for (uint32_t row = PROMPT_TOKENS; row < TEXT_TOKENS; row++)
                compare_row(&costs[f], got + (size_t)row * spec.vocab,
                            exact + (size_t)row * spec.vocab);
        }
    }
    printf("| pages | bytes a token | logits off by (rms) | at most | KL divergence | same next "
           "token |\n");
    for (int f = 0; f < 3; f++) {
        double off, agree;
        report(formats[f].dtype, &costs[f], &off, &agree);
        ck_assert_double_gt(off, 0.0); // else these pages were not what was read
        ck_assert_double_le(off, formats[f].off_most);
        ck_assert_double_ge(agree, formats[f].agree_least);
    }
    mem_free(exact);
    mem_free(got);
    weights_destroy(weights);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kv types");
    TCase *tests = tcase_create("kv types");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, formats_cost_no_more_than_the_page_says);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
