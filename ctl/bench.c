// bench.c: moectl bench: a closed loop of streamed answers at several concurrencies, one row each.
// What is asked for is in bench_load.c. With --rate bench_open.c takes over.
#include <stdio.h>
#include <stdlib.h>

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
    bool first; // of all rows
};

static void count_answer(struct row *r, const struct answer *a) {
    if (a->error[0] != '\0') {
        if (r->errors++ == 0) fprintf(stderr, "moectl: %s\n", a->error);
        return;
    }
    r->prompt_tokens += a->prompt_tokens;
    r->completion_tokens += a->completion_tokens;
    int64_t first_ns = a->first_ns != 0 ? a->first_ns : a->end_ns; // an answer without text
    r->first_ms[r->n_first++] = (double)(first_ns - a->start_ns) / 1e6;
    if (a->first_ns != 0 && a->completion_tokens > 1)
        r->gap_ms[r->n_gap++] =
            (double)(a->last_ns - a->first_ns) / 1e6 / (a->completion_tokens - 1);
}

static void print_row(const struct ctl *c, struct row *r) {
    const struct bench_field fields[] = {
        {"concurrency", 0, r->concurrency},
        {"requests", 0, r->n},
        {"prompt_tokens", 0, (double)r->prompt_tokens},
        {"output_tokens", 0, (double)r->completion_tokens},
        {"seconds", 2, r->seconds},
        {"output_tokens_per_s", 1, (double)r->completion_tokens / r->seconds},
        {"ttft_p50_ms", 1, bench_percentile(r->first_ms, r->n_first, 0.5)},
        {"ttft_p99_ms", 1, bench_percentile(r->first_ms, r->n_first, 0.99)},
        {"token_p50_ms", 2, bench_percentile(r->gap_ms, r->n_gap, 0.5)},
        {"token_p99_ms", 2, bench_percentile(r->gap_ms, r->n_gap, 0.99)},
        {"errors", 0, r->errors},
        {"prompt_tokens_per_s", 1, (double)r->prompt_tokens / r->seconds},
    };
    bench_print(c, fields, sizeof fields / sizeof *fields, r->first);
}

static int run_row(struct ctl *c, struct row *r, struct answer *answers, struct err_text *e) {
    int64_t start = env_now_ns(c->env);
    int err = client_stream(c, answers, r->n, r->concurrency, e);
    if (err != 0) return err;
    r->seconds = (double)(env_now_ns(c->env) - start) / 1e9;
    for (uint32_t i = 0; i < r->n; i++)
        count_answer(r, &answers[i]);
    print_row(c, r);
    return 0;
}

static int bench_row(struct ctl *c, struct bench_load *load, uint32_t concurrency, uint32_t *errors,
                     struct err_text *e) {
    uint32_t n = c->options.requests;
    if (n == 0)
        n = concurrency * 8 > 64 ? concurrency * 8 : 64; // a shorter run measures its own start
    struct row r = {.concurrency = concurrency, .n = n, .first = load->n_asked == 0};
    r.first_ms = mem_array(n, sizeof *r.first_ms);
    r.gap_ms = mem_array(n, sizeof *r.gap_ms);
    struct answer *answers = mem_array(n, sizeof *answers);
    int err = r.first_ms == NULL || r.gap_ms == NULL || answers == NULL
                  ? err_set(e, ERR_FATAL_NOMEM, "out of memory")
                  : 0;
    if (err == 0) {
        bench_plan(c, load, answers, n);
        err = run_row(c, &r, answers, e);
    }
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
    if (err == 0) err = bench_check(c, &e);
    if (err == 0 && o->rate != NULL) return bench_open(c);
    struct bench_load load = {0};
    if (err == 0) err = bench_find(c, &load, &e);
    for (uint32_t i = 0; i < n && err == 0; i++)
        err = bench_row(c, &load, list[i], &errors, &e);
    return bench_exit_code(err, errors, &e);
}
