// bench_exchange.c: what a layer of experts that is spread over two ranks costs beside its
// computing, as one fixed CSV:
// transport,rows,message_bytes,outside_us,perftest_us,ratio.
//
// outside_us is what a rank spends in dispatch and combine, of one layer, beyond what it spends
// there alone, where it only lists and adds: making messages, sending them, waiting for the other
// rank's (medians over decode steps). perftest_us is what UCX alone takes for the two messages that
// a layer cannot do without, which follow each other: ucx_perftest's one-way latencies (ucp_am_lat)
// of messages of their sizes over the same transport; empty where it is not installed. Each rank
// has so many rows. The model is random and small, and every row visits every expert, so that
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
#define LAYERS 4

static const uint32_t cases[CASES] = {1, 8, 64};
// Of one message of each exchange.
struct results {
    double outside_us[CASES], dispatch_bytes[CASES], combine_bytes[CASES];
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

// Four layers of four experts, all of which are chosen; rows as wide as a small model's.
static void fill_spec(struct model_spec *spec) {
    tiny_spec(spec);
    spec->hidden = 1024;
    spec->n_layers = LAYERS;
    for (int i = 0; i < LAYERS; i++)
        spec->ffn[i] = FFN_MOE;
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

// Microseconds in dispatch and combine, of one layer.
static double run_steps(struct rank *r, uint32_t n_rows) {
    static double times_us[STEPS];
    for (int i = -WARM_UP; i < STEPS; i++) {
        Moesaic__Step__V1__StepPlan plan;
        struct step_output out;
        struct err_text e;
        fill_plan(r, &plan, n_rows);
        must(model_step(r->model, &plan, &out, &e), &e);
        uint64_t ns = out.phase_ns[PHASE_DISPATCH] + out.phase_ns[PHASE_COMBINE];
        if (i >= 0) times_us[i] = (double)ns / 1e3 / LAYERS;
    }
    return bench_median(times_us, STEPS);
}

static void destroy(struct rank *r) {
    model_destroy(r->model);
    pool_destroy(r->pool);
    tiny_destroy(r->tiny);
}

static void measure(struct bench_member *m) {
    struct results local = {0};
    struct rank alone = {0}, r = {0};
    create(&alone, m, 1);
    create(&r, m, BENCH_RANKS);
    for (int i = 0; i < CASES; i++) {
        struct fabric_traffic dispatch = fabric_sent(m->fabric, FABRIC_DISPATCH),
                              combine = fabric_sent(m->fabric, FABRIC_COMBINE);
        local.outside_us[i] = run_steps(&r, cases[i]) - run_steps(&alone, cases[i]);
        local.dispatch_bytes[i] = message_bytes(m, FABRIC_DISPATCH, dispatch);
        local.combine_bytes[i] = message_bytes(m, FABRIC_COMBINE, combine);
    }
    if (m->index == 0) *(struct results *)m->shared = local;
    destroy(&alone);
    destroy(&r);
}

static void print_case(const char *transports, const struct results *r, int which, int port) {
    double dispatch = bench_perftest_us(transports, (size_t)r->dispatch_bytes[which], 3000, port),
           combine = bench_perftest_us(transports, (size_t)r->combine_bytes[which], 3000, port + 1);
    printf("%s,%u,%.0f+%.0f,%.2f,", transports, cases[which], r->dispatch_bytes[which],
           r->combine_bytes[which], r->outside_us[which]);
    if (dispatch > 0 && combine > 0)
        printf("%.2f,%.2f\n", dispatch + combine, r->outside_us[which] / (dispatch + combine));
    else
        printf(",\n");
}

int main(void) {
    static const char *const transports[] = {"shm", "tcp"};
    log_set_level(LOG_ERROR); // the end of a group may look like a loss to its last member
    printf("transport,rows,message_bytes,outside_us,perftest_us,ratio\n");
    for (int t = 0; t < 2; t++) {
        struct results *results = bench_shared(sizeof *results);
        if (!bench_group_run(transports[t], measure, results)) return EXIT_FAILURE;
        for (int i = 0; i < CASES; i++)
            print_case(transports[t], results, i, 13420 + 2 * (t * CASES + i));
        bench_unshare(results, sizeof *results);
    }
    return EXIT_SUCCESS;
}
