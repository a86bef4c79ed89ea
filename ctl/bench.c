// bench.c: moectl bench: a closed loop of streamed chats at several concurrencies, one CSV row
// each. With --rate bench_open.c takes over.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "ctl/bench.h"

#define CONCURRENCY_MAX 1024
#define CONCURRENCIES "1,8,64" // when none are asked for
#define ROWS_MAX 64

struct row {
    uint32_t concurrency, n, errors;
    uint64_t prompt_tokens, completion_tokens;
    double seconds;
    double *first_ms, *gap_ms; // [n]: time to first token; mean time between tokens of one answer
    uint32_t n_first, n_gap;
};

static const char *prompt(uint32_t i) {
    static const char *const prompts[] = {
        "What is the capital of Kenya?",   "Tell me a story about a fox.",
        "What is expert prefetch?",        "Count from three to nine.",
        "What is the opposite of bright?", "Who are you?",
    };
    return prompts[i % (sizeof prompts / sizeof prompts[0])];
}

uint64_t bench_draw(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// Answers of one length that begin together also end together: prompts then come in one step, and
// equal ones go to the same experts, as no group of strangers does.
void bench_plan(const struct ctl *c, struct answer *answers, uint32_t n) {
    bool drawn = strcmp(c->options.lengths, "drawn") == 0;
    uint32_t mean = c->options.max_tokens;
    uint64_t state = ~(uint64_t)c->options.seed; // not that of the arrivals
    for (uint32_t i = 0; i < n; i++)
        answers[i] = (struct answer){
            .prompt = prompt(i),
            .seed = c->options.seed + i,
            .max_tokens =
                drawn ? 1 + (uint32_t)(bench_draw(&state) % (2 * (uint64_t)mean - 1)) : mean};
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(double *values, uint32_t n, double p) {
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, compare_doubles);
    return values[(uint32_t)((double)(n - 1) * p + 0.5)];
}

static void count_answer(struct row *r, const struct answer *a) {
    if (a->error[0] != '\0') {
        if (r->errors++ == 0) fprintf(stderr, "moectl: %s\n", a->error);
        return;
    }
    r->prompt_tokens += a->prompt_tokens;
    r->completion_tokens += a->completion_tokens;
    if (a->first_ns == 0) return;
    r->first_ms[r->n_first++] = (double)(a->first_ns - a->start_ns) / 1e6;
    if (a->completion_tokens > 1)
        r->gap_ms[r->n_gap++] =
            (double)(a->last_ns - a->first_ns) / 1e6 / (a->completion_tokens - 1);
}

static void print_row(struct row *r) {
    printf(
        "%u,%u,%llu,%llu,%.2f,%.1f,%.1f,%.1f,%.2f,%.2f,%u\n", r->concurrency, r->n,
        (unsigned long long)r->prompt_tokens, (unsigned long long)r->completion_tokens, r->seconds,
        (double)r->completion_tokens / r->seconds, bench_percentile(r->first_ms, r->n_first, 0.5),
        bench_percentile(r->first_ms, r->n_first, 0.99), bench_percentile(r->gap_ms, r->n_gap, 0.5),
        bench_percentile(r->gap_ms, r->n_gap, 0.99), r->errors);
    fflush(stdout);
}

static int run_row(struct ctl *c, struct row *r, struct answer *answers, struct err_text *e) {
    bench_plan(c, answers, r->n);
    int64_t start = env_now_ns(c->env);
    int err = client_stream(c, answers, r->n, r->concurrency, e);
    if (err != 0) return err;
    r->seconds = (double)(env_now_ns(c->env) - start) / 1e9;
    for (uint32_t i = 0; i < r->n; i++)
        count_answer(r, &answers[i]);
    print_row(r);
    return 0;
}

static int bench_row(struct ctl *c, uint32_t concurrency, uint32_t *errors, struct err_text *e) {
    uint32_t n = c->options.requests;
    if (n == 0)
        n = concurrency * 8 > 64 ? concurrency * 8 : 64; // a shorter run measures its own start
    struct row r = {.concurrency = concurrency, .n = n};
    r.first_ms = mem_array(n, sizeof *r.first_ms);
    r.gap_ms = mem_array(n, sizeof *r.gap_ms);
    struct answer *answers = mem_array(n, sizeof *answers);
    int err = r.first_ms == NULL || r.gap_ms == NULL || answers == NULL
                  ? err_set(e, ERR_FATAL_NOMEM, "out of memory")
                  : run_row(c, &r, answers, e);
    mem_free(answers);
    mem_free(r.first_ms);
    mem_free(r.gap_ms);
    *errors += r.errors;
    return err;
}

// All of them before the first one runs: a slip is not to be found out after minutes.
static int parse_concurrencies(const char *text, uint32_t *list, uint32_t *n, struct err_text *e) {
    for (const char *at = text; *at != '\0';) {
        char *end;
        unsigned long x = strtoul(at, &end, 10);
        if (end == at || x == 0 || x > CONCURRENCY_MAX || (*end != ',' && *end != '\0'))
            return err_set(e, ERR_FATAL_CONFIG,
                           "--concurrency: \"%.100s\" is not a list of numbers within 1 to %d",
                           text, CONCURRENCY_MAX);
        if (*n == ROWS_MAX)
            return err_set(e, ERR_FATAL_CONFIG, "--concurrency: more than %d numbers", ROWS_MAX);
        list[(*n)++] = (uint32_t)x;
        at = *end == ',' ? end + 1 : end;
    }
    return *n != 0 ? 0 : err_set(e, ERR_FATAL_CONFIG, "--concurrency: no number");
}

int bench_exit_code(int err, uint32_t n_failures, const struct err_text *e) {
    if (err != 0) fprintf(stderr, "moectl: %s\n", e->text);
    return err == ERR_FATAL_CONFIG ? 2 : err != 0 || n_failures > 0;
}

int bench_command(struct ctl *c) {
    const struct ctl_options *o = &c->options;
    struct err_text e;
    uint32_t errors = 0, n = 0, list[ROWS_MAX];
    int err = 0;
    if (o->rate != NULL && o->concurrency != NULL)
        err =
            err_set(&e, ERR_FATAL_CONFIG,
                    "--rate and --concurrency: only one of them; --rate does not wait for answers");
    else if (o->rate == NULL)
        err = parse_concurrencies(o->concurrency != NULL ? o->concurrency : CONCURRENCIES, list, &n,
                                  &e);
    if (err == 0 && o->rate != NULL) return bench_open(c);
    if (err == 0) err = client_find_model(c, &e);
    if (err == 0)
        printf("concurrency,requests,prompt_tokens,output_tokens,seconds,output_tokens_per_s,"
               "ttft_p50_ms,ttft_p99_ms,token_p50_ms,token_p99_ms,errors\n");
    for (uint32_t i = 0; i < n && err == 0; i++)
        err = bench_row(c, list[i], &errors, &e);
    return bench_exit_code(err, errors, &e);
}
