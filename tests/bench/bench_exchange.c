// bench_exchange.c: what a layer of experts that is spread over two ranks costs beside its
// computing, as one fixed CSV:
// transport,rows,message_bytes,outside_us,skew_us,perftest_us,ratio,both_us,both_ratio.
//
// outside_us is dispatch and combine of one layer, each from when the later rank begins it until
// both have ended it, less what they take on a rank alone, where they only list and add: making
// messages, sending them, receiving the other's (medians over decode steps). Who comes first waits
// for the other besides, because the two never compute equally fast: skew_us is how much of that
// rank 0 has, which no network can take away and which a busy machine makes large.
//
// perftest_us is what UCX alone takes for the two messages that a layer cannot do without, which
// follow each other: ucx_perftest's one-way latencies (ucp_am_lat) of messages of their sizes over
// the same transport; empty where it is not installed. It is no bound: there one rank copies in
// while the other copies out, and nobody looks at what has come, so that it never crosses from one
// core to the other; here both do both at once. both_us is what UCX alone takes for that, for the
// two messages: each rank sends at the same time, and copies out what it gets (bench_ucx.c). Each
// rank has so many rows. The model is random and small, and every row visits every expert, so that
// neither rank waits for the other's computing.
#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "tests/harness/bench_group.h"
#include "tests/harness/tiny.h"

#define SLOTS 64
#define POSITION 128
#define PAGES 16 // of a slot
#define STEPS 200
#define WARM_UP 20
#define CASES 3

static const uint32_t cases[CASES] = {1, 8, 64};
// When a step's two exchanges began and ended, on the clock that all processes share.
struct stamps {
    int64_t dispatch_begin, dispatch_end, combine_begin, combine_end;
};

struct results {
    struct stamps steps[BENCH_RANKS][CASES][STEPS];
    double alone_us[CASES];
    double dispatch_bytes[CASES], combine_bytes[CASES]; // of one message
};

struct rank {
    struct tiny *tiny;
    struct pool *pool;
    struct model *model;
    uint64_t step;
};

static void must(int rc, const struct err_text *e) {
    if (rc == 0) return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

// One layer of four experts, all of which are chosen; rows as wide as a small model's.
static void fill_spec(struct model_spec *spec) {
    tiny_spec(spec);
    spec->hidden = 1024;
    spec->n_layers = 1;
    spec->ffn[0] = FFN_MOE;
    spec->router.n_experts = spec->router.top_k = 4;
}

static void create(struct rank *r, const struct bench_member *m, uint32_t n_ranks) {
    uint32_t index = n_ranks == 1 ? 0 : m->index;
    struct model_spec spec;
    struct err_text e;
    fill_spec(&spec);
    r->tiny = tiny_create(&spec, n_ranks, DTYPE_BF16, 1);
    must(pool_create(&r->pool, 1, NULL, false, &e), &e);
    struct model_config config = {
        .env = m->env,
        .weights = tiny_weights(r->tiny, index),
        .layout = tiny_layout(r->tiny),
        .ops = kernel_ops_select(NULL),
        .pool = r->pool,
        .fabric = m->fabric,
        .rank = index,
        .n_slots = SLOTS,
        .rows_max = SLOTS,
        .max_model_len = PAGES * KV_BLOCK_TOKENS,
        .kv_blocks = SLOTS * PAGES,
        .kv_dtype = DTYPE_BF16,
        .exchange_timeout_ns = 20 * NS_PER_S,
    };
    must(model_create(&r->model, &config, &e), &e);
}

static void fill_plan(struct rank *r, Moesaic__Step__V1__StepPlan *plan, uint32_t n_rows) {
    static Moesaic__Step__V1__PlanSeq seqs[SLOTS], *pointers[SLOTS];
    static uint32_t tokens[SLOTS], blocks[SLOTS][PAGES];
    moesaic__step__v1__step_plan__init(plan);
    for (uint32_t i = 0; i < n_rows; i++) {
        Moesaic__Step__V1__PlanSeq *seq = pointers[i] = &seqs[i];
        for (uint32_t b = 0; b < PAGES; b++)
            blocks[i][b] = i * PAGES + b;
        tokens[i] = (uint32_t)(r->step + i) % 97;
        moesaic__step__v1__plan_seq__init(seq);
        seq->slot = i;
        seq->position = POSITION;
        seq->tokens = &tokens[i];
        seq->n_tokens = 1;
        seq->blocks = blocks[i];
        seq->n_blocks = PAGES;
    }
    plan->step = r->step++;
    plan->seqs = pointers;
    plan->n_seqs = n_rows;
}

// Of one message since before.
static double message_bytes(const struct bench_member *m, enum fabric_message kind,
                            struct fabric_traffic before) {
    struct fabric_traffic now = fabric_sent(m->fabric, kind);
    return (double)(now.bytes - before.bytes) / (double)(now.messages - before.messages);
}

// The phases of the only layer follow each other, so their lengths say when each began.
static struct stamps find_stamps(const struct step_output *out, int64_t ended_ns) {
    static const enum step_phase before[] = {PHASE_EMBED,  PHASE_STAGE, PHASE_ATTN,
                                             PHASE_TENSOR, PHASE_ROUTE, PHASE_DENSE};
    struct stamps s;
    s.dispatch_begin = ended_ns - (int64_t)out->total_ns;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        s.dispatch_begin += (int64_t)out->phase_ns[before[i]];
    s.dispatch_end = s.dispatch_begin + (int64_t)out->phase_ns[PHASE_DISPATCH];
    s.combine_begin = s.dispatch_end + (int64_t)out->phase_ns[PHASE_EXPERT];
    s.combine_end = s.combine_begin + (int64_t)out->phase_ns[PHASE_COMBINE];
    return s;
}

static void run_steps(struct rank *r, uint32_t n_rows, struct env *env, struct stamps *stamps) {
    for (int i = -WARM_UP; i < STEPS; i++) {
        Moesaic__Step__V1__StepPlan plan;
        struct step_output out;
        struct err_text e;
        fill_plan(r, &plan, n_rows);
        must(model_step(r->model, &plan, &out, &e), &e);
        if (i >= 0) stamps[i] = find_stamps(&out, env_now_ns(env));
    }
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// Microseconds in dispatch and combine as one rank sees them (a and b the same), or from when both
// are there.
static double median_us(const struct stamps *a, const struct stamps *b) {
    static double times_us[STEPS];
    for (int i = 0; i < STEPS; i++) {
        int64_t ns = later(a[i].dispatch_end, b[i].dispatch_end) -
                     later(a[i].dispatch_begin, b[i].dispatch_begin) +
                     later(a[i].combine_end, b[i].combine_end) -
                     later(a[i].combine_begin, b[i].combine_begin);
        times_us[i] = (double)ns / 1e3;
    }
    return bench_median(times_us, STEPS);
}

static void destroy(struct rank *r) {
    model_destroy(r->model);
    pool_destroy(r->pool);
    tiny_destroy(r->tiny);
}

static void measure(struct bench_member *m) {
    static struct stamps alone_steps[STEPS];
    struct results *results = m->shared;
    struct rank alone = {0}, r = {0};
    create(&alone, m, 1);
    create(&r, m, BENCH_RANKS);
    for (int i = 0; i < CASES; i++) {
        struct fabric_traffic dispatch = fabric_sent(m->fabric, FABRIC_DISPATCH),
                              combine = fabric_sent(m->fabric, FABRIC_COMBINE);
        run_steps(&r, cases[i], m->env, results->steps[m->index][i]);
        run_steps(&alone, cases[i], m->env, alone_steps);
        if (m->index != 0) continue;
        results->alone_us[i] = median_us(alone_steps, alone_steps);
        results->dispatch_bytes[i] = message_bytes(m, FABRIC_DISPATCH, dispatch);
        results->combine_bytes[i] = message_bytes(m, FABRIC_COMBINE, combine);
    }
    destroy(&alone);
    destroy(&r);
}

static void print_case(const char *transports, const struct results *r, int which, int port) {
    double dispatch = bench_perftest_us(transports, (size_t)r->dispatch_bytes[which], 3000, port),
           combine = bench_perftest_us(transports, (size_t)r->combine_bytes[which], 3000, port + 1),
           both = bench_both_us(transports, (size_t)r->dispatch_bytes[which], 3000) +
                  bench_both_us(transports, (size_t)r->combine_bytes[which], 3000);
    const struct stamps *first = r->steps[0][which], *second = r->steps[1][which];
    double together = median_us(first, second), outside = together - r->alone_us[which];
    printf("%s,%u,%.0f+%.0f,%.2f,%.2f,", transports, cases[which], r->dispatch_bytes[which],
           r->combine_bytes[which], outside, median_us(first, first) - together);
    if (dispatch > 0 && combine > 0)
        printf("%.2f,%.2f,", dispatch + combine, outside / (dispatch + combine));
    else
        printf(",,");
    printf("%.2f,%.2f\n", both, outside / both);
}

int main(void) {
    static const char *const transports[] = {"shm", "tcp"};
    log_set_level(LOG_ERROR); // the end of a group may look like a loss to its last member
    printf(
        "transport,rows,message_bytes,outside_us,skew_us,perftest_us,ratio,both_us,both_ratio\n");
    for (int t = 0; t < 2; t++) {
        struct results *results = bench_shared(sizeof *results);
        if (!bench_group_run(transports[t], measure, results)) return EXIT_FAILURE;
        for (int i = 0; i < CASES; i++)
            print_case(transports[t], results, i, 13420 + 2 * (t * CASES + i));
        bench_unshare(results, sizeof *results);
    }
    return EXIT_SUCCESS;
}
