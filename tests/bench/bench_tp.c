// bench_tp.c: what a block that a TP group of two splits costs beside its computing, as one fixed
// CSV: transport,rows,message_bytes,exchanges_us,perftest_us,ratio,both_us,both_ratio.
//
// exchanges_us is tp_gather and tp_reduce of one block, each from when the later rank begins it
// until both have ended it (medians), with the adding of the partial rows. Both ranks have waited
// for each other before, so that nobody's computing is measured. perftest_us is what UCX alone
// takes for the two messages that follow each other; bench_exchange.c says what that leaves out,
// and what both_us is. The group shares so many rows: one row goes only one way at a time, so that
// there both_us has twice its bytes.
#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "tests/harness/bench_group.h"
#include "worker/forward.h"

#define HIDDEN 1024
#define ROWS_MAX 64
#define ROUNDS 1000
#define WARM_UP 100
#define CASES 3

static const uint32_t cases[CASES] = {1, 8, 64};

struct stamps {
    int64_t gather_begin, gather_end, reduce_begin, reduce_end;
};

struct results {
    atomic_uint n_there; // ranks that have come to a barrier, since the start
    struct stamps rounds[BENCH_RANKS][CASES][ROUNDS];
};

static void must(int rc, const struct err_text *e) {
    if (rc == 0) return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

// Ranks come in pairs, so that each pair ends with an even number.
static void meet(struct results *r) {
    unsigned turn = atomic_fetch_add(&r->n_there, 1) / BENCH_RANKS;
    while (atomic_load(&r->n_there) / BENCH_RANKS == turn)
        __builtin_ia32_pause();
}

// As much of a forward pass as exchanges of a TP group use.
static void lay(struct forward *f, struct scratch *s) {
    f->x = scratch_take(s, ROWS_MAX, HIDDEN * sizeof(float));
    f->all_normed = scratch_take(s, ROWS_MAX, HIDDEN * sizeof(float));
    f->partial = scratch_take(s, ROWS_MAX, HIDDEN * sizeof(float));
    tp_lay(f, s);
}

static void begin_rows(struct forward *f, uint32_t n_rows) {
    f->batch.n_rows = n_rows;
    tp_begin(f);
    f->own_first = f->tp.row_first[f->tp.index];
    f->n_own = f->tp.row_first[f->tp.index + 1] - f->own_first;
}

static void run_round(struct forward *f, struct results *r, struct stamps *stamps) {
    struct err_text e;
    f->step++;
    meet(r);
    stamps->gather_begin = env_now_ns(f->config.env);
    must(tp_gather(f, 0, f->tp.row_first, &e), &e);
    stamps->gather_end = env_now_ns(f->config.env);
    meet(r);
    stamps->reduce_begin = env_now_ns(f->config.env);
    must(tp_reduce(f, 0, &(struct tp_after){NULL, NULL}, &e), &e);
    stamps->reduce_end = env_now_ns(f->config.env);
}

static void measure(struct bench_member *m) {
    static const struct layout layout = {
        .n_ranks = 2, .pp = 1, .dp = 1, .tp = 2, .ep = 2, .etp = 1};
    static const struct model_spec spec = {.hidden = HIDDEN};
    struct results *r = m->shared;
    struct scratch scratch = {0};
    struct forward f = {.config = {.env = m->env,
                                   .layout = &layout,
                                   .fabric = m->fabric,
                                   .exchange_timeout_ns = 20 * NS_PER_S},
                        .spec = &spec,
                        .ops = kernel_ops_select(NULL),
                        .n_threads = 1,
                        .rank = m->index,
                        .place = layout_place(&layout, m->index),
                        .own_max = ROWS_MAX};
    struct err_text e;
    must(pool_create(&f.pool, 1, NULL, false, &e), &e);
    lay(&f, &scratch);
    must(scratch_allocate(&scratch, &e), &e);
    lay(&f, &scratch);
    for (int c = 0; c < CASES; c++) {
        begin_rows(&f, cases[c]);
        for (int i = -WARM_UP; i < ROUNDS; i++)
            run_round(&f, r, &r->rounds[m->index][c][i < 0 ? 0 : i]);
    }
    scratch_finish(&scratch);
    pool_destroy(f.pool);
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static double exchanges_us(const struct stamps *a, const struct stamps *b) {
    static double times_us[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        int64_t ns =
            later(a[i].gather_end, b[i].gather_end) - later(a[i].gather_begin, b[i].gather_begin) +
            later(a[i].reduce_end, b[i].reduce_end) - later(a[i].reduce_begin, b[i].reduce_begin);
        times_us[i] = (double)ns / 1e3;
    }
    return bench_median(times_us, ROUNDS);
}

static void print_case(const char *transports, const struct results *r, int which, int port) {
    uint32_t rows = (cases[which] + 1) / 2; // in the larger message
    size_t bytes = rows * HIDDEN * sizeof(float);
    double us = exchanges_us(r->rounds[0][which], r->rounds[1][which]),
           perftest = 2 * bench_perftest_us(transports, bytes, 3000, port),
           both = 2 * bench_both_us(transports, bytes, 3000);
    printf("%s,%u,%zu+%zu,%.2f,", transports, cases[which], bytes, bytes, us);
    if (perftest > 0)
        printf("%.2f,%.2f,", perftest, us / perftest);
    else
        printf(",,");
    printf("%.2f,%.2f\n", both, us / both);
}

int main(void) {
    static const char *const transports[] = {"shm", "tcp"};
    log_set_level(LOG_ERROR); // the end of a group may look like a loss to its last member
    printf("transport,rows,message_bytes,exchanges_us,perftest_us,ratio,both_us,both_ratio\n");
    for (int t = 0; t < 2; t++) {
        struct results *results = bench_shared(sizeof *results);
        if (!bench_group_run(transports[t], measure, results)) return EXIT_FAILURE;
        for (int i = 0; i < CASES; i++)
            print_case(transports[t], results, i, 13440 + t * CASES + i);
        bench_unshare(results, sizeof *results);
    }
    return EXIT_SUCCESS;
}
