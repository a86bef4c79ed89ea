// bench_sample.c: what it takes to choose one token, on one core, as one fixed CSV:
// table,logits,filters,vocab,microseconds.
//
// Arguments: a table's name (default: the best that this CPU runs). Each line is the best of
// several timed runs, because other programs only ever make a run slower. Logits are sums of four
// uniform numbers: near ones lie so close together that each of them may be drawn, most far ones
// cannot be.
#include <math.h>
#include <stdio.h>

#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/mem.h"
#include "worker/sample.h"

#define RUNS 40
#define RUN_NS (2 * NS_PER_MS)
#define VOCAB_LARGEST 151936

struct bench {
    struct env *env;
    const struct kernel_ops *ops;
    struct scratch memory;
    struct sample_scratch sample;
    float *logits;
};

static void lay(struct bench *b) {
    b->logits = scratch_take(&b->memory, VOCAB_LARGEST, sizeof *b->logits);
    sample_lay(&b->sample, VOCAB_LARGEST, &b->memory);
}

static void fill(float *x, uint32_t n, float spread) {
    uint32_t state = 1;
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) * 0x1p-24f;
        }
        x[i] = (sum / 4 - 0.25f) * spread;
    }
}

// Nanoseconds of one token: the best of RUNS, over many positions.
static double best_ns(struct bench *b, struct sample_row *row) {
    double best = INFINITY;
    uint32_t position = 0;
    for (int run = 0; run < RUNS; run++) {
        int64_t start = env_now_ns(b->env), now, calls = 0;
        do {
            struct seq_result out;
            row->position = position++;
            sample_row(b->ops, row, &b->sample, &out);
            calls++;
            now = env_now_ns(b->env);
        } while (now - start < RUN_NS);
        double ns = (double)(now - start) / (double)calls;
        best = ns < best ? ns : best;
    }
    return best;
}

static const struct filters {
    const char *name;
    float temperature, top_p, min_p;
    uint32_t top_k, n_logprobs;
} filters[] = {
    {"greedy", 0, 1, 0, 0, 0},
    {"none", 1, 1, 0, 0, 0},
    {"temperature_0.7", 0.7f, 1, 0, 0, 0},
    {"top_k_50", 1, 1, 0, 50, 0},
    {"top_p_0.95", 1, 0.95f, 0, 0, 0},
    {"top_k_50_top_p_0.95", 1, 0.95f, 0, 50, 0},
    {"min_p_0.05", 1, 1, 0.05f, 0, 0},
    {"greedy_top_logprobs_20", 0, 1, 0, 0, 20},
};

static void run(struct bench *b, const char *logits, uint32_t vocab) {
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        Moesaic__Step__V1__Sampling p = MOESAIC__STEP__V1__SAMPLING__INIT;
        p.temperature = filters[i].temperature;
        p.top_p = filters[i].top_p;
        p.min_p = filters[i].min_p;
        p.top_k = filters[i].top_k;
        p.n_logprobs = filters[i].n_logprobs;
        struct sample_row row = {b->logits, b->logits, vocab, 0, &p};
        printf("%s,%s,%s,%u,%.2f\n", b->ops->name, logits, filters[i].name, vocab,
               best_ns(b, &row) / 1e3);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    static const uint32_t vocabs[] = {2048, 32000, VOCAB_LARGEST};
    struct bench b = {.env = env_real_create(),
                      .ops = kernel_ops_select(argc > 1 ? argv[1] : NULL)};
    check(b.env != NULL && b.ops != NULL);
    lay(&b);
    check(scratch_allocate(&b.memory, NULL) == 0);
    lay(&b);
    printf("table,logits,filters,vocab,microseconds\n");
    for (int i = 0; i < 3; i++) {
        fill(b.logits, vocabs[i], 16);
        run(&b, "near", vocabs[i]);
        fill(b.logits, vocabs[i], 80);
        run(&b, "far", vocabs[i]);
    }
    scratch_finish(&b.memory);
    env_real_destroy(b.env);
    return 0;
}
