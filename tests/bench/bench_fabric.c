// bench_fabric.c: latency of the UCX fabric between two pinned processes on this machine, as one
// fixed CSV: transport,op,bytes,one_way_us,perftest_us,ratio.
//
// op is pingpong (half a round trip, median) or exchange (a whole all-to-all of two ranks, median).
// perftest is ucx_perftest's ucp_am_lat over the same transport where it is installed, else empty;
// the ratio is what this layer adds. Busy machines only make numbers worse, and so does a host with
// one core.
#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "tests/harness/bench_group.h"

#define SIZES 4
#define ROUNDS_MAX 3000
#define WARM_UP 100

static const size_t sizes[SIZES] = {8, 4096, 65536, 1 << 20};
static uint8_t data[2 << 20];
static double times_us[ROUNDS_MAX];

struct results {
    double pingpong_us[SIZES], exchange_us[SIZES];
};

static int rounds_of(size_t bytes) {
    return bytes > 100000 ? 300 : ROUNDS_MAX;
}

static void pass(struct bench_member *m, uint64_t step, size_t bytes) {
    uint64_t tag = fabric_tag(FABRIC_TEST, step, 0);
    check(fabric_send(m->fabric, 1 - m->index, tag,
                      &(struct fabric_part){.head = &step,
                                            .head_bytes = sizeof step,
                                            .data = data,
                                            .data_bytes = bytes - sizeof step}) == 0);
}

static void take(struct bench_member *m, uint64_t step) {
    struct fabric_want want = {.peer = 1 - m->index, .kind = FABRIC_TEST, .step = step};
    struct fabric_msg msg;
    check(fabric_recv(m->fabric, &want, bench_deadline(m), &msg) == 0);
    fabric_release(m->fabric, &msg);
}

static double pingpong(struct bench_member *m, size_t bytes) {
    int n = rounds_of(bytes);
    for (int i = -WARM_UP; i < n; i++) {
        uint64_t step = (uint64_t)(i + WARM_UP);
        int64_t start = env_now_ns(m->env);
        if (m->index == 0) pass(m, step, bytes);
        take(m, step);
        if (m->index == 1) pass(m, step, bytes);
        check(fabric_flush(m->fabric, bench_deadline(m)) == 0);
        if (i >= 0) times_us[i] = (double)(env_now_ns(m->env) - start) / 2e3;
    }
    return bench_median(times_us, n);
}

static double exchange(struct bench_member *m, size_t bytes) {
    int n = rounds_of(bytes);
    for (int i = -WARM_UP; i < n; i++) {
        struct fabric_msg in[BENCH_RANKS];
        const struct fabric_part part = {
            .head = data, .head_bytes = 8, .data = data, .data_bytes = bytes - 8};
        struct fabric_part parts[BENCH_RANKS] = {part, part};
        int64_t start = env_now_ns(m->env);
        uint64_t tag = fabric_tag(FABRIC_DISPATCH, (uint64_t)(i + WARM_UP), 0);
        struct fabric_exchange x = {tag, 0, BENCH_RANKS, parts, in};
        check(fabric_exchange(m->fabric, &x, bench_deadline(m)) == 0);
        fabric_release(m->fabric, &in[1 - m->index]);
        if (i >= 0) times_us[i] = (double)(env_now_ns(m->env) - start) / 1e3;
    }
    return bench_median(times_us, n);
}

static void measure(struct bench_member *m) {
    struct results *results = m->shared;
    for (int i = 0; i < SIZES; i++) {
        double a = pingpong(m, sizes[i]), b = exchange(m, sizes[i]);
        if (m->index == 0) results->pingpong_us[i] = a;
        if (m->index == 0) results->exchange_us[i] = b;
    }
}

static void print_row(const char *transports, const char *op, size_t bytes, double us,
                      double reference) {
    printf("%s,%s,%zu,%.2f,", transports, op, bytes, us);
    if (reference > 0)
        printf("%.2f,%.2f\n", reference, us / reference);
    else
        printf(",\n");
}

int main(void) {
    static const char *const transports[] = {"shm", "tcp"};
    log_set_level(LOG_ERROR); // the end of a group may look like a loss to its last member
    printf("transport,op,bytes,one_way_us,perftest_us,ratio\n");
    for (int t = 0; t < 2; t++) {
        struct results *results = bench_shared(sizeof *results);
        if (!bench_group_run(transports[t], measure, results)) return EXIT_FAILURE;
        for (int i = 0; i < SIZES; i++) {
            double reference = bench_perftest_us(transports[t], sizes[i], rounds_of(sizes[i]),
                                                 13400 + t * SIZES + i);
            print_row(transports[t], "pingpong", sizes[i], results->pingpong_us[i], reference);
            print_row(transports[t], "exchange", sizes[i], results->exchange_us[i], 0);
        }
        bench_unshare(results, sizeof *results);
    }
    return EXIT_SUCCESS;
}
