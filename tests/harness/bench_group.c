// bench_group.c: see bench_group.h.
#include "tests/harness/bench_group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"

#define WARM_UP 100
#define MESSAGE_BYTES_MAX (4 << 20)

// What the processes tell each other to get connected.
struct board {
    uint8_t addresses[BENCH_PEERS][FABRIC_ADDRESS_MAX];
    size_t address_bytes[BENCH_PEERS];
    atomic_uint n_begun, n_done;
};

void *bench_shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED);
    return p;
}

void bench_unshare(void *shared, size_t bytes) {
    munmap(shared, bytes);
}

int64_t bench_deadline(const struct bench_member *m) {
    return env_now_ns(m->env) + 20 * NS_PER_S;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

void bench_pin(uint32_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set); // a hint: without it numbers are only worse
}

static void join(struct bench_member *m, struct board *b, const char *transports) {
    struct err_text e = {""};
    m->env = env_real_create();
    check(m->env != NULL && waker_create(m->env, &m->waker) == 0);
    struct fabric_config config = {.env = m->env,
                                   .waker = m->waker,
                                   .interface = "lo",
                                   .transports = transports,
                                   .message_bytes_max = MESSAGE_BYTES_MAX,
                                   .spin_ns = m->index < BENCH_RANKS ? 50000 : 0};
    if (fabric_open(&m->fabric, FABRIC_UCX, &config, &e) != 0 ||
        fabric_begin(m->fabric, b->addresses[m->index], &b->address_bytes[m->index], &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    atomic_fetch_add(&b->n_begun, 1);
    while (atomic_load(&b->n_begun) < BENCH_PEERS)
        sched_yield();
    const uint8_t *addresses[BENCH_PEERS];
    for (int i = 0; i < BENCH_PEERS; i++)
        addresses[i] = b->addresses[i];
    struct fabric_group group = {.epoch = 1,
                                 .nonce = 1,
                                 .self = m->index,
                                 .n_peers = BENCH_PEERS,
                                 .addresses = addresses,
                                 .address_bytes = b->address_bytes};
    check(fabric_connect(m->fabric, &group, &e) == 0);
}

// Everybody stays until all are done, because an end may look like a loss to the others.
static void leave(struct bench_member *m, struct board *b) {
    struct fabric_want none = {
        .peer = FABRIC_ANY_PEER, .kind = FABRIC_PLAN, .step = FABRIC_ANY_STEP};
    struct fabric_msg msg;
    atomic_fetch_add(&b->n_done, 1);
    while (atomic_load(&b->n_done) < BENCH_PEERS)
        fabric_recv(m->fabric, &none, env_now_ns(m->env) + 5 * NS_PER_MS, &msg);
    fabric_close(m->fabric);
    waker_destroy(m->waker);
    env_real_destroy(m->env);
}

bool bench_group_run(const char *transports, void (*body)(struct bench_member *), void *shared) {
    struct board *board = bench_shared(sizeof *board);
    pid_t pids[BENCH_PEERS];
    fflush(stdout);
    for (uint32_t i = 0; i < BENCH_PEERS; i++) {
        pids[i] = fork();
        check(pids[i] >= 0);
        if (pids[i] != 0) continue;
        struct bench_member m = {.index = i, .shared = shared};
        if (i < BENCH_RANKS) bench_pin(i);
        join(&m, board, transports);
        if (i < BENCH_RANKS) body(&m);
        leave(&m, board);
        exit(0);
    }
    bool ok = true;
    for (int i = 0; i < BENCH_PEERS; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        ok = ok && status == 0;
    }
    bench_unshare(board, sizeof *board);
    return ok;
}

// As fabric_ucx_setup.c has them. UCX warns of those that its transport does not know.
void bench_ucx_settings(const char *transports) {
    static const char *const shm[][2] = {{"UCX_TLS", "sysv,self"},
                                         {"UCX_MM_SEG_SIZE", "36864"},
                                         {"UCX_MM_FIFO_SIZE", "16"},
                                         {"UCX_MM_FIFO_RELEASE_FACTOR", "0.1"}};
    static const char *const tcp[][2] = {{"UCX_TLS", "tcp"},
                                         {"UCX_NET_DEVICES", "lo"},
                                         {"UCX_TCP_TX_SEG_SIZE", "65536"},
                                         {"UCX_TCP_RX_SEG_SIZE", "131072"}};
    bool is_tcp = strcmp(transports, "tcp") == 0;
    setenv("UCX_RNDV_THRESH", "inf", 1);
    setenv("UCX_ZCOPY_THRESH", "inf", 1);
    for (size_t i = 0; is_tcp && i < sizeof tcp / sizeof *tcp; i++)
        setenv(tcp[i][0], tcp[i][1], 1);
    for (size_t i = 0; !is_tcp && i < sizeof shm / sizeof *shm; i++)
        setenv(shm[i][0], shm[i][1], 1);
}

static double perftest_us(size_t bytes, int rounds, int port) {
    char command[600], line[400];
    double us = 0;
    snprintf(command, sizeof command,
             "command -v ucx_perftest >/dev/null || exit 0; "
             "timeout 30 ucx_perftest -p %d -c 0 >/dev/null 2>&1 & sleep 0.5; "
             "timeout 30 ucx_perftest 127.0.0.1 -p %d -c 1 -t ucp_am_lat -s %zu -n %d -w %d -f -v "
             "2>/dev/null; wait",
             port, port, bytes, rounds, WARM_UP);
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

// In a process of its own, whose settings end with it.
double bench_perftest_us(const char *transports, size_t bytes, int rounds, int port) {
    double *us = bench_shared(sizeof *us);
    fflush(stdout);
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        bench_ucx_settings(transports);
        *us = perftest_us(bytes, rounds, port);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    double result = *us;
    bench_unshare(us, sizeof *us);
    return result;
}
