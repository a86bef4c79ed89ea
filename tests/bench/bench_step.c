// bench_step.c: speed of one rank's forward pass as one fixed CSV:
// table,threads,case,rows,context,tokens_per_s,step_us and one column of microseconds for each
// phase.
//
// Arguments: model folder (models/seedling), threads (1), kernel table (auto), the case to run
// alone (all). Each line is the best of many steps, because other programs only ever make a step
// slower. Decode lines sample greedily with log-probabilities off; decode_shared: the first 1,024
// tokens stand in the same pages for all sequences.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/model.h"

#define SLOTS 64
#define ROWS_MAX 512
#define LENGTH_MAX 1280
#define SHARED_BLOCKS 64 // that all sequences begin with in the lines that say so
#define STEPS 60

static const char *const phases[PHASE_COUNT] = {"embed",  "attn",    "route", "dispatch",
                                                "expert", "combine", "dense", "head",
                                                "sample", "tensor",  "stage"};

struct bench {
    struct env *env;
    struct model_spec spec;
    struct layout layout;
    struct weights *weights;
    struct pool *pool;
    const struct kernel_ops *ops;
    struct model *model;
    const char *only; // the case to run; NULL = all
    // The plan, whose memory the sequences point into.
    Moesaic__Step__V1__StepPlan plan;
    Moesaic__Step__V1__PlanSeq seqs[SLOTS], *pointers[SLOTS];
    Moesaic__Step__V1__Sampling sampling;
    uint32_t tokens[ROWS_MAX], blocks[SLOTS][LENGTH_MAX / KV_BLOCK_TOKENS];
};

static void must(int rc, const struct err_text *e) {
    if (rc == 0) return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static void create(struct bench *b, const char *folder, uint32_t n_threads, const char *table) {
    struct err_text e;
    b->env = env_real_create();
    b->ops = kernel_ops_select(table);
    check(b->env != NULL && b->ops != NULL);
    must(spec_load(&b->spec, folder, &e), &e);
    must(layout_make(&b->layout, 1, &e), &e);
    struct weights_config weights = {.folder = folder,
                                     .spec = &b->spec,
                                     .layout = &b->layout,
                                     .dtype = b->spec.dtype,
                                     .n_threads = 1};
    must(weights_load(&b->weights, &weights, &e), &e);
    must(pool_create(&b->pool, n_threads, NULL, n_threads > 1, &e), &e);
    struct model_config config = {
        .env = b->env,
        .weights = b->weights,
        .layout = &b->layout,
        .ops = b->ops,
        .pool = b->pool,
        .n_slots = SLOTS,
        .rows_max = ROWS_MAX,
        .max_model_len = LENGTH_MAX,
        .kv_blocks = SLOTS * (LENGTH_MAX / KV_BLOCK_TOKENS),
        .kv_dtype = DTYPE_BF16,
    };
    must(model_create(&b->model, &config, &e), &e);
}

// Each slot has pages of its own, but for those that all begin with.
static void place_pages(struct bench *b, uint32_t n_shared) {
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        for (uint32_t i = 0; i < LENGTH_MAX / KV_BLOCK_TOKENS; i++)
            b->blocks[slot][i] = i * SLOTS + (i < n_shared ? 0 : slot);
    }
}

static void destroy(struct bench *b) {
    model_destroy(b->model);
    pool_destroy(b->pool);
    weights_destroy(b->weights);
    env_real_destroy(b->env);
}

// n_seqs runs of n_tokens each from position on.
static void fill_plan(struct bench *b, uint32_t n_seqs, uint32_t n_tokens, uint32_t position) {
    moesaic__step__v1__step_plan__init(&b->plan);
    moesaic__step__v1__sampling__init(&b->sampling);
    b->sampling.top_p = 1.0f;
    for (uint32_t i = 0; i < n_seqs * n_tokens; i++)
        b->tokens[i] = (i * 131 + position * 17) % b->spec.vocab;
    for (uint32_t i = 0; i < n_seqs; i++) {
        Moesaic__Step__V1__PlanSeq *seq = b->pointers[i] = &b->seqs[i];
        moesaic__step__v1__plan_seq__init(seq);
        seq->slot = i;
        seq->position = position;
        seq->tokens = b->tokens + i * n_tokens;
        seq->n_tokens = n_tokens;
        seq->blocks = b->blocks[i];
        seq->n_blocks = (position + n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
        seq->sampling = &b->sampling;
    }
    b->plan.seqs = b->pointers;
    b->plan.n_seqs = n_seqs;
}

static void print_line(const struct bench *b, const char *what, uint32_t context,
                       const struct step_output *best) {
    uint32_t rows = 0;
    for (size_t i = 0; i < b->plan.n_seqs; i++)
        rows += (uint32_t)b->seqs[i].n_tokens;
    printf("%s,%u,%s,%u,%u,%.0f,%.1f", b->ops->name, pool_threads(b->pool), what, rows, context,
           rows * 1e9 / (double)best->total_ns, (double)best->total_ns / 1e3);
    for (int phase = 0; phase < PHASE_COUNT; phase++)
        printf(",%.1f", (double)best->phase_ns[phase] / 1e3);
    printf("\n");
    fflush(stdout);
}

static void run(struct bench *b, const char *what, uint32_t n_seqs, uint32_t n_tokens,
                uint32_t context) {
    struct step_output best = {.total_ns = UINT64_MAX};
    if (b->only != NULL && strcmp(b->only, what) != 0) return;
    for (int step = 0; step < STEPS; step++) {
        struct step_output out;
        struct err_text e;
        fill_plan(b, n_seqs, n_tokens, context + (n_tokens == 1 ? (uint32_t)step : 0));
        must(model_step(b->model, &b->plan, &out, &e), &e);
        if (out.total_ns < best.total_ns) best = out;
    }
    print_line(b, what, context, &best);
}

int main(int argc, char **argv) {
    struct bench *b = mem_zalloc(sizeof *b);
    check(b != NULL);
    create(b, argc > 1 ? argv[1] : "models/seedling",
           argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1, argc > 3 ? argv[3] : NULL);
    b->only = argc > 4 ? argv[4] : NULL;
    printf("table,threads,case,rows,context,tokens_per_s,step_us");
    for (int phase = 0; phase < PHASE_COUNT; phase++)
        printf(",%s_us", phases[phase]);
    printf("\n");
    place_pages(b, 0);
    for (uint32_t n_seqs = 1; n_seqs <= SLOTS; n_seqs *= 8) {
        run(b, "decode", n_seqs, 1, 64);
        run(b, "decode", n_seqs, 1, 1100);
    }
    place_pages(b, SHARED_BLOCKS);
    for (uint32_t n_seqs = 8; n_seqs <= SLOTS; n_seqs *= 8)
        run(b, "decode_shared", n_seqs, 1, 1100);
    place_pages(b, 0);
    run(b, "prefill", 1, 64, 0);
    run(b, "prefill", 1, 512, 0);
    run(b, "prefill", 1, 512, 512);
    destroy(b);
    mem_free(b);
    return 0;
}
