// bench_fabric.c: latency of the UCX fabric between two pinned processes on this machine, as one
// fixed CSV: transport,op,bytes,one_way_us,perftest_us,ratio.
//
// op is pingpong (half a round trip, median) or exchange (a whole all-to-all of two ranks, median).
// perftest is ucx_perftest's ucp_am_lat over the same transport where it is installed, else empty;
// the ratio is what this layer adds. Busy machines only make numbers worse, and so does a host with
// one core.
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "common/net/fabric.h"

#define PEERS 3 // two ranks and a leader that only listens
#define SIZES 4
#define ROUNDS_MAX 3000
#define WARM_UP 100

static const size_t sizes[SIZES] = {8, 4096, 65536, 1 << 20};

// What the processes share.
struct board {
    uint8_t addresses[PEERS][FABRIC_ADDRESS_MAX];
    size_t address_bytes[PEERS];
    atomic_uint n_begun, n_done;
    double pingpong_us[SIZES], exchange_us[SIZES];
};

struct member {
    struct board *board;
    uint32_t index;
    struct env *env;
    struct waker *waker;
    struct fabric *fabric;
    uint8_t *data;
    double times_us[ROUNDS_MAX];
};

static int64_t limit(const struct member *m) {
    return env_now_ns(m->env) + 20 * NS_PER_S;
}

static int rounds_of(size_t bytes) {
    return bytes > 100000 ? 300 : ROUNDS_MAX;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

static void pass(struct member *m, uint64_t step, size_t bytes) {
    uint64_t tag = fabric_tag(FABRIC_TEST, step, 0);
    check(fabric_send(m->fabric, 1 - m->index, tag, &step, sizeof step, m->data,
                      bytes - sizeof step) == 0);
}

static void take(struct member *m, uint64_t step) {
    struct fabric_want want = {.peer = 1 - m->index, .kind = FABRIC_TEST, .step = step};
    struct fabric_msg msg;
    check(fabric_recv(m->fabric, &want, limit(m), &msg) == 0);
    fabric_release(m->fabric, &msg);
}

static double pingpong(struct member *m, size_t bytes) {
    int n = rounds_of(bytes);
    for (int i = -WARM_UP; i < n; i++) {
        uint64_t step = (uint64_t)(i + WARM_UP);
        int64_t start = env_now_ns(m->env);
        if (m->index == 0) pass(m, step, bytes);
        take(m, step);
        if (m->index == 1) pass(m, step, bytes);
        check(fabric_flush(m->fabric, limit(m)) == 0);
        if (i >= 0) m->times_us[i] = (double)(env_now_ns(m->env) - start) / 2e3;
    }
    return median(m->times_us, n);
}

static double exchange(struct member *m, size_t bytes) {
    int n = rounds_of(bytes);
    for (int i = -WARM_UP; i < n; i++) {
        struct fabric_msg in[PEERS - 1];
        struct fabric_part parts[PEERS - 1] = {{m->data, 8, m->data, bytes - 8},
                                               {m->data, 8, m->data, bytes - 8}};
        int64_t start = env_now_ns(m->env);
        uint64_t tag = fabric_tag(FABRIC_DISPATCH, (uint64_t)(i + WARM_UP), 0);
        check(fabric_exchange(m->fabric, tag, parts, in, limit(m)) == 0);
        fabric_release(m->fabric, &in[1 - m->index]);
        if (i >= 0) m->times_us[i] = (double)(env_now_ns(m->env) - start) / 1e3;
    }
    return median(m->times_us, n);
}

// --- one group

static void pin(uint32_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set); // a hint: without it numbers are only worse
}

static void join(struct member *m, const char *transports) {
    struct err_text e = {""};
    struct board *b = m->board;
    m->env = env_real_create();
    check(m->env != NULL && waker_create(m->env, &m->waker) == 0);
    struct fabric_config config = {.env = m->env,
                                   .waker = m->waker,
                                   .interface = "lo",
                                   .transports = transports,
                                   .message_bytes_max = 2 << 20,
                                   .spin_ns = m->index < 2 ? 50000 : 0};
    if (fabric_open(&m->fabric, FABRIC_UCX, &config, &e) != 0 ||
        fabric_begin(m->fabric, b->addresses[m->index], &b->address_bytes[m->index], &e) != 0) {
        fprintf(stderr, "bench_fabric: %s\n", e.text);
        exit(1);
    }
    atomic_fetch_add(&b->n_begun, 1);
    while (atomic_load(&b->n_begun) < PEERS)
        sched_yield();
    const uint8_t *addresses[PEERS];
    for (int i = 0; i < PEERS; i++)
        addresses[i] = b->addresses[i];
    struct fabric_group group = {.epoch = 1,
                                 .nonce = 1,
                                 .self = m->index,
                                 .n_peers = PEERS,
                                 .addresses = addresses,
                                 .address_bytes = b->address_bytes};
    check(fabric_connect(m->fabric, &group, &e) == 0);
}

// Everybody stays until all are done, because an end may look like a loss to the others.
static void leave(struct member *m) {
    struct fabric_want none = {
        .peer = FABRIC_ANY_PEER, .kind = FABRIC_PLAN, .step = FABRIC_ANY_STEP};
    struct fabric_msg msg;
    atomic_fetch_add(&m->board->n_done, 1);
    while (atomic_load(&m->board->n_done) < PEERS)
        fabric_recv(m->fabric, &none, env_now_ns(m->env) + 5 * NS_PER_MS, &msg);
    fabric_close(m->fabric);
    waker_destroy(m->waker);
    env_real_destroy(m->env);
}

static void rank_main(struct board *board, uint32_t index, const char *transports) {
    static struct member m;
    static uint8_t data[2 << 20];
    m.board = board;
    m.index = index;
    m.data = data;
    pin(index);
    join(&m, transports);
    for (int i = 0; i < SIZES; i++) {
        double a = pingpong(&m, sizes[i]), b = exchange(&m, sizes[i]);
        if (index == 0) board->pingpong_us[i] = a;
        if (index == 0) board->exchange_us[i] = b;
    }
    leave(&m);
    exit(0);
}

static bool run_group(struct board *board, const char *transports) {
    pid_t pids[2];
    for (uint32_t i = 0; i < 2; i++) {
        pids[i] = fork();
        check(pids[i] >= 0);
        if (pids[i] == 0) rank_main(board, i, transports);
    }
    pid_t leader = fork();
    check(leader >= 0);
    if (leader == 0) {
        struct member m = {.board = board, .index = 2};
        join(&m, transports);
        leave(&m);
        exit(0);
    }
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        int status;
        waitpid(i < 2 ? pids[i] : leader, &status, 0);
        ok = ok && status == 0;
    }
    return ok;
}

// --- ucx_perftest beside it

// Half a round trip in microseconds, or 0 when it cannot be had.
static double perftest_us(const char *transports, size_t bytes, int port) {
    char command[600], line[400];
    const char *tls = strcmp(transports, "tcp") == 0 ? "tcp UCX_NET_DEVICES=lo" : "sysv,self";
    double us = 0;
    snprintf(command, sizeof command,
             "export UCX_TLS=%s UCX_RNDV_THRESH=inf UCX_ZCOPY_THRESH=inf UCX_TCP_TX_SEG_SIZE=65536 "
             "UCX_TCP_RX_SEG_SIZE=131072 "
             "UCX_MM_SEG_SIZE=32768 UCX_WARN_UNUSED_ENV_VARS=n; command -v ucx_perftest >/dev/null "
             "|| exit 0; "
             "timeout 30 ucx_perftest -p %d -c 0 >/dev/null 2>&1 & sleep 0.5; "
             "timeout 30 ucx_perftest 127.0.0.1 -p %d -c 1 -t ucp_am_lat -s %zu -n %d -w %d -f -v "
             "2>/dev/null; wait",
             tls, port, port, bytes, rounds_of(bytes), WARM_UP);
    FILE *f = popen(command, "r");
    if (f == NULL) return 0;
    while (fgets(line, sizeof line, f) != NULL) {
        double typical;
        if (sscanf(line, "%*d,%lf", &typical) == 1)
            us = typical; // -v: iterations,50th percentile,...
    }
    pclose(f);
    return us;
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
        struct board *board =
            mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        check(board != MAP_FAILED);
        fflush(stdout);
        if (!run_group(board, transports[t])) return EXIT_FAILURE;
        for (int i = 0; i < SIZES; i++) {
            double reference = perftest_us(transports[t], sizes[i], 13400 + t * SIZES + i);
            print_row(transports[t], "pingpong", sizes[i], board->pingpong_us[i], reference);
            print_row(transports[t], "exchange", sizes[i], board->exchange_us[i], 0);
        }
        munmap(board, sizeof *board);
    }
    return EXIT_SUCCESS;
}
