// bench_load.c: what moectl bench asks for, in either loop, and how a row is printed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "ctl/bench.h"

static const char *prompt(uint32_t i) {
    static const char *const prompts[] = {
        "What is the capital of Kenya?",   "Tell me a story about a fox.",
        "What is expert prefetch?",        "Count from three to nine.",
        "What is the opposite of bright?", "Who are you?",
    };
    return prompts[i % (sizeof prompts / sizeof prompts[0])];
}

// Answers of one length that begin together also end together: prompts then come in one step, and
// equal ones go to the same experts, as no group of strangers does.
void bench_plan(const struct ctl *c, struct bench_load *load, struct answer *answers, uint32_t n) {
    bool drawn = strcmp(c->options.lengths, "drawn") == 0;
    uint32_t mean = c->options.max_tokens;
    uint64_t state = ~(uint64_t)c->options.seed; // not that of the arrivals
    for (uint32_t i = 0; i < n; i++)
        answers[i] = (struct answer){
            .prompt = prompt(i),
            .drawn = load->is_drawn ? &load->drawn : NULL,
            .number = load->n_asked + i,
            .seed = c->options.seed + i,
            .max_tokens =
                drawn ? 1 + (uint32_t)(drawn_next(&state) % (2 * (uint64_t)mean - 1)) : mean};
    load->n_asked += n;
}

int bench_check(const struct ctl *c, struct err_text *e) {
    const struct ctl_options *o = &c->options;
    if (o->random_input_len == 0 && (o->random_prefix_len != 0 || o->vocab_size != 0))
        return err_set(e, ERR_FATAL_CONFIG, "--%s: only with --random-input-len",
                       o->random_prefix_len != 0 ? "random-prefix-len" : "vocab-size");
    if ((uint64_t)o->random_prefix_len + o->random_input_len + o->max_tokens > POSITIONS_MAX)
        return err_set(
            e, ERR_FATAL_CONFIG,
            "--random-prefix-len %u, --random-input-len %u and --max-tokens %u: together "
            "more than %d",
            o->random_prefix_len, o->random_input_len, o->max_tokens, POSITIONS_MAX);
    return 0;
}

int bench_find(struct ctl *c, struct bench_load *load, struct err_text *e) {
    const struct ctl_options *o = &c->options;
    load->is_drawn = o->random_input_len != 0;
    load->drawn = (struct drawn){.prefix_tokens = o->random_prefix_len,
                                 .input_tokens = o->random_input_len,
                                 .vocab = o->vocab_size,
                                 .seed = o->seed};
    int err = client_find_model(c, e);
    if (err != 0 || !load->is_drawn || o->vocab_size != 0) return err;
    return client_find_vocab(c, &load->drawn.vocab, e);
}

// --- rows

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(double *values, uint32_t n, double p) {
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, compare_doubles);
    return values[(uint32_t)((double)(n - 1) * p + 0.5)];
}

static void print_number(const struct bench_field *f) {
    if (f->decimals == BENCH_SHORTEST)
        printf("%.6g", f->value);
    else
        printf("%.*f", f->decimals, f->value);
}

static void print_object(const struct bench_field *fields, size_t n) {
    for (size_t i = 0; i < n; i++) {
        printf("%c\"%s\":", i == 0 ? '{' : ',', fields[i].name);
        print_number(&fields[i]);
    }
    printf("}\n");
}

static void print_line(const struct bench_field *fields, size_t n, bool first) {
    for (size_t i = 0; first && i < n; i++)
        printf("%s%c", fields[i].name, i + 1 == n ? '\n' : ',');
    for (size_t i = 0; i < n; i++) {
        print_number(&fields[i]);
        putchar(i + 1 == n ? '\n' : ',');
    }
}

void bench_print(const struct ctl *c, const struct bench_field *fields, size_t n, bool first) {
    if (c->options.json)
        print_object(fields, n);
    else
        print_line(fields, n, first);
    fflush(stdout);
}
