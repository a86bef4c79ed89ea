// bench_open.c: moectl bench --rate: requests come at a rate that does not care how the server is
// doing, as from many users. One CSV row a rate.
//
// Times count from when a request was due, not from when it could be sent: what a busy client hides
// is part of the answer. Refusals (429) are counted apart, and are no errors here.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/mem.h"
#include "ctl/bench.h"

#define ANSWERS_MAX 1000000
#define RATE_MAX 100000.0
#define RATES_MAX 64
#define OPEN_MAX 16384u        // answers awaited at once
#define DESCRIPTORS_SPARE 32u  // of the process, beside connections
#define DESCRIPTORS_LEAST 256u // when the system does not say how many

struct open_row {
    double rate, seconds; // seconds: of sending
    uint32_t n, open_max;
    int64_t start_ns;
    struct answer *answers;                   // [n]
    double *first_ms, *total_ms, *refusal_ms; // [n]
    double *late_ms;                          // [n] from due to sent
    uint32_t n_answered, n_refused, n_errors;
    double tokens; // that came while requests were sent
    bool first;    // of all rows
};

// --- arrivals

// Uniform within 0 (excluded) to 1.
static double draw_part(uint64_t *state) {
    return (double)((drawn_next(state) >> 11) + 1) / 9007199254740992.0;
}

static void plan_arrivals(const struct ctl *c, struct bench_load *load, struct open_row *r) {
    bool even = strcmp(c->options.arrivals, "even") == 0;
    uint64_t state = c->options.seed;
    double at_s = 0;
    r->first = load->n_asked == 0;
    bench_plan(c, load, r->answers, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        at_s += (even ? 1 : -log(draw_part(&state))) / r->rate;
        r->answers[i].due_ns = r->start_ns + (int64_t)(at_s * 1e9);
    }
    r->seconds = even ? (double)r->n / r->rate : at_s;
}

// --- what came of them

static double ms_between(int64_t from_ns, int64_t to_ns) {
    return (double)(to_ns - from_ns) / 1e6;
}

// How many of an answer's tokens came before until_ns, if they came evenly.
static double tokens_until(const struct answer *a, int64_t until_ns) {
    if (a->first_ns == 0 || a->first_ns >= until_ns) return 0;
    if (a->last_ns <= until_ns || a->last_ns == a->first_ns) return a->completion_tokens;
    return a->completion_tokens * ms_between(a->first_ns, until_ns) /
           ms_between(a->first_ns, a->last_ns);
}

static void count_one(struct open_row *r, const struct answer *a) {
    if (a->status == 429) {
        r->refusal_ms[r->n_refused++] = ms_between(a->due_ns, a->end_ns);
        return;
    }
    r->tokens += tokens_until(a, r->start_ns + (int64_t)(r->seconds * 1e9));
    if (a->error[0] != '\0') {
        if (r->n_errors++ == 0) fprintf(stderr, "moectl: %s\n", a->error);
        return;
    }
    int64_t first_ns = a->first_ns != 0 ? a->first_ns : a->end_ns; // an answer without text
    r->first_ms[r->n_answered] = ms_between(a->due_ns, first_ns);
    r->total_ms[r->n_answered++] = ms_between(a->due_ns, a->end_ns);
}

static void print_row(const struct ctl *c, struct open_row *r) {
    double *first = r->first_ms, *total = r->total_ms, *refusal = r->refusal_ms;
    uint32_t n = r->n_answered, n_refused = r->n_refused;
    const struct bench_field fields[] = {
        {"rate", BENCH_SHORTEST, r->rate},
        {"requests", 0, r->n},
        {"answered", 0, n},
        {"refused", 0, n_refused},
        {"errors", 0, r->n_errors},
        {"seconds", 2, r->seconds},
        {"output_tokens_per_s", 1, r->tokens / r->seconds},
        {"ttft_p50_ms", 1, bench_percentile(first, n, 0.5)},
        {"ttft_p95_ms", 1, bench_percentile(first, n, 0.95)},
        {"ttft_p99_ms", 1, bench_percentile(first, n, 0.99)},
        {"total_p50_ms", 1, bench_percentile(total, n, 0.5)},
        {"total_p95_ms", 1, bench_percentile(total, n, 0.95)},
        {"total_p99_ms", 1, bench_percentile(total, n, 0.99)},
        {"refusal_p50_ms", 1, bench_percentile(refusal, n_refused, 0.5)},
        {"refusal_p95_ms", 1, bench_percentile(refusal, n_refused, 0.95)},
        {"refusal_p99_ms", 1, bench_percentile(refusal, n_refused, 0.99)},
        {"late_p99_ms", 1, bench_percentile(r->late_ms, r->n, 0.99)},
    };
    bench_print(c, fields, sizeof fields / sizeof *fields, r->first);
}

// --- rows

static int run_row(struct ctl *c, struct bench_load *load, struct open_row *r, struct err_text *e) {
    r->start_ns = env_now_ns(c->env);
    plan_arrivals(c, load, r);
    int err = client_stream(c, r->answers, r->n, r->open_max, e);
    if (err != 0) return err;
    for (uint32_t i = 0; i < r->n; i++) {
        r->late_ms[i] = ms_between(r->answers[i].due_ns, r->answers[i].start_ns);
        count_one(r, &r->answers[i]);
    }
    print_row(c, r);
    return 0;
}

static uint32_t descriptors_of_use(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return DESCRIPTORS_LEAST;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < DESCRIPTORS_LEAST)
        return DESCRIPTORS_LEAST - DESCRIPTORS_SPARE;
    limit.rlim_cur -= DESCRIPTORS_SPARE;
    return limit.rlim_cur < OPEN_MAX ? (uint32_t)limit.rlim_cur : OPEN_MAX;
}

static int bench_rate(struct ctl *c, struct bench_load *load, double rate, uint32_t *errors,
                      struct err_text *e) {
    double n = rate * (double)c->options.duration / 1e9;
    if (n < 1 || n > ANSWERS_MAX)
        return err_set(e, ERR_FATAL_CONFIG,
                       "--rate %g for --duration %g: %.0f requests are not within 1 to %d", rate,
                       (double)c->options.duration / 1e9, n, ANSWERS_MAX);
    struct open_row r = {.rate = rate, .n = (uint32_t)n, .open_max = descriptors_of_use()};
    r.answers = mem_array(r.n, sizeof *r.answers);
    double *numbers = mem_array((size_t)r.n * 4, sizeof *numbers);
    int err =
        r.answers == NULL || numbers == NULL ? err_set(e, ERR_FATAL_NOMEM, "out of memory") : 0;
    if (err == 0) {
        r.first_ms = numbers;
        r.total_ms = numbers + r.n;
        r.refusal_ms = numbers + (size_t)r.n * 2;
        r.late_ms = numbers + (size_t)r.n * 3;
        err = run_row(c, load, &r, e);
    }
    mem_free(r.answers);
    mem_free(numbers);
    *errors += r.n_errors + (r.n_answered == 0);
    return err;
}

// All of them before the first one runs: a slip is not to be found out after minutes.
static int parse_rates(const char *text, double *rates, uint32_t *n, struct err_text *e) {
    for (const char *at = text; *at != '\0';) {
        char *end;
        double rate = strtod(at, &end);
        if (end == at || !(rate > 0) || rate > RATE_MAX || (*end != ',' && *end != '\0'))
            return err_set(e, ERR_FATAL_CONFIG,
                           "--rate: \"%.100s\" is not a list of numbers above 0, up to %g", text,
                           RATE_MAX);
        if (*n == RATES_MAX)
            return err_set(e, ERR_FATAL_CONFIG, "--rate: more than %d numbers", RATES_MAX);
        rates[(*n)++] = rate;
        at = *end == ',' ? end + 1 : end;
    }
    return *n != 0 ? 0 : err_set(e, ERR_FATAL_CONFIG, "--rate: no number");
}

int bench_open(struct ctl *c) {
    struct err_text e;
    double rates[RATES_MAX];
    uint32_t errors = 0, n = 0;
    int err = parse_rates(c->options.rate, rates, &n, &e);
    struct bench_load load = {0};
    if (err == 0) err = bench_find(c, &load, &e);
    for (uint32_t i = 0; i < n && err == 0; i++)
        err = bench_rate(c, &load, rates[i], &errors, &e);
    return bench_exit_code(err, errors, &e);
}
