// net_fabric_kill.c: a member killed with SIGKILL under UCX: the others learn of it within 5 s,
// tear down within a second and form a new epoch.
//
// The program starts itself again for each member; parent and member talk over pipes: the member
// sends its address, the parent answers with the group.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/net/fabric.h"

#define MEMBERS 3
#define EPOCHS 4
#define STORM_BYTES 100000
#define UNIT_BYTES 1000
#define NOTICE_NS_MAX (5 * NS_PER_S)
// Far from what a process has open anyway. UCX logs to the standard output, so that one is no pipe.
#define ORDER_FD 100
#define REPORT_FD 101

struct address {
    uint8_t data[FABRIC_ADDRESS_MAX];
    size_t bytes;
};

struct order { // parent to member
    uint64_t epoch, nonce;
    uint32_t self, n_peers;
    struct address addresses[MEMBERS];
};

struct report { // member to parent, at the end of an epoch
    int rc;
    int64_t ended_ns, teardown_ns;
    char lanes[200];
};

static void put(int fd, const void *data, size_t bytes) {
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = write(fd, p, bytes);
        check(n > 0);
        p += n;
        bytes -= (size_t)n;
    }
}

static bool get(int fd, void *data, size_t bytes) {
    char *p = data;
    while (bytes > 0) {
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        if (poll(&pfd, 1, 15000) <= 0) return false;
        ssize_t n = read(fd, p, bytes);
        if (n <= 0) return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

// --- the member

static int connect_as_told(struct fabric *f, const struct order *o) {
    const uint8_t *addresses[MEMBERS];
    size_t bytes[MEMBERS];
    struct err_text e = {""};
    for (uint32_t i = 0; i < o->n_peers; i++) {
        addresses[i] = o->addresses[i].data;
        bytes[i] = o->addresses[i].bytes;
    }
    struct fabric_group group = {.epoch = o->epoch,
                                 .nonce = o->nonce,
                                 .self = o->self,
                                 .n_peers = o->n_peers,
                                 .addresses = addresses,
                                 .address_bytes = bytes};
    int rc = fabric_connect(f, &group, &e);
    if (rc != 0) fprintf(stderr, "connect: %s\n", e.text);
    return rc;
}

// Every second message may travel in pieces.
static int send_to_all(struct fabric *f, const struct order *o, uint64_t step, const void *data,
                       size_t bytes) {
    struct fabric_part part = {
        .head = &step, .head_bytes = sizeof step, .data = data, .data_bytes = bytes};
    if (step % 2 != 0) {
        part.unit_bytes = UNIT_BYTES;
        part.data_bytes -= bytes % UNIT_BYTES;
    }
    for (uint32_t p = 0; p < o->n_peers; p++) {
        if (p == o->self) continue;
        int rc = fabric_send(f, p, fabric_tag(FABRIC_TEST, step, 0), &part);
        if (rc != 0) return rc;
    }
    return 0;
}

// Everybody floods everybody, round by round, until someone is lost.
static int storm(struct fabric *f, struct env *env, const struct order *o, uint64_t rounds) {
    static const uint8_t data[STORM_BYTES];
    for (uint64_t step = 0; step < rounds; step++) {
        int rc = send_to_all(f, o, step, data, (size_t)(step * 7919 % STORM_BYTES));
        for (uint32_t i = 1; rc == 0 && i < o->n_peers; i++) {
            struct fabric_want want = {.peer = FABRIC_ANY_PEER, .kind = FABRIC_TEST, .step = step};
            struct fabric_msg m;
            rc = fabric_recv(f, &want, env_now_ns(env) + 10 * NS_PER_S, &m);
            if (rc == 0 && step % 16 != 3)
                fabric_release(f, &m); // some are left to the end of the epoch
        }
        if (rc != 0) return rc;
    }
    return 0;
}

static int idle(struct fabric *f, struct env *env) {
    struct fabric_want want = {
        .peer = FABRIC_ANY_PEER, .kind = FABRIC_PLAN, .step = FABRIC_ANY_STEP, .wait_wakes = true};
    struct fabric_msg m;
    return fabric_recv(f, &want, env_now_ns(env) + 10 * NS_PER_S, &m);
}

static int member_main(const char *transports, bool is_idle) {
    struct env *env = env_real_create();
    struct waker *waker;
    struct fabric *f;
    struct err_text e = {""};
    check(waker_create(env, &waker) == 0);
    struct fabric_config config = {.env = env,
                                   .waker = waker,
                                   .interface = "lo",
                                   .transports = transports,
                                   .message_bytes_max = 1 << 20,
                                   .spin_ns = 50000};
    if (fabric_open(&f, FABRIC_UCX, &config, &e) != 0) {
        fprintf(stderr, "open: %s\n", e.text);
        return 1;
    }
    struct order o = {0};
    do {
        struct address own = {.bytes = 0};
        struct report report = {.rc = 0};
        check(fabric_begin(f, own.data, &own.bytes, &e) == 0);
        put(REPORT_FD, &own, sizeof own);
        if (!get(ORDER_FD, &o, sizeof o)) break;
        report.rc = connect_as_told(f, &o);
        fabric_describe(f, report.lanes, sizeof report.lanes);
        // A first exchange of everybody with everybody shows that the epoch works at all; then the
        // wait for the kill.
        if (report.rc == 0) report.rc = storm(f, env, &o, 20);
        put(REPORT_FD, &report, sizeof report);
        if (report.rc == 0 && o.n_peers > 1)
            report.rc = is_idle ? idle(f, env) : storm(f, env, &o, UINT64_MAX);
        report.ended_ns = env_now_ns(env);
        fabric_end(f);
        report.teardown_ns = env_now_ns(env) - report.ended_ns;
        put(REPORT_FD, &report, sizeof report);
    } while (o.n_peers > 2);
    fabric_close(f);
    waker_destroy(waker);
    env_real_destroy(env);
    return 0;
}

// --- the parent

struct member {
    pid_t pid;
    int to, from;
    bool alive;
};

static void start(struct member *m, const char *transports, const char *mode) {
    int to[2], from[2];
    check(pipe2(to, 0x80000) == 0 && pipe2(from, 0x80000) == 0); // O_CLOEXEC
    m->pid = fork();
    check(m->pid >= 0);
    if (m->pid == 0) {
        dup2(to[0], ORDER_FD);
        dup2(from[1], REPORT_FD);
        execl("/proc/self/exe", "member", transports, mode, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    m->to = to[1];
    m->from = from[0];
    m->alive = true;
}

static int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static uint32_t form(struct member *members, uint64_t epoch) {
    struct order o = {.epoch = epoch, .nonce = epoch * 7919};
    for (int i = 0; i < MEMBERS; i++) {
        if (members[i].alive)
            check(get(members[i].from, &o.addresses[o.n_peers++], sizeof(struct address)));
    }
    for (int i = 0; i < MEMBERS; i++) {
        if (!members[i].alive) continue;
        put(members[i].to, &o, sizeof o);
        o.self++;
    }
    return o.n_peers;
}

static void expect_working(struct member *members) {
    struct report r;
    for (int i = 0; i < MEMBERS; i++) {
        if (!members[i].alive) continue;
        check(get(members[i].from, &r, sizeof r));
        check(r.rc == 0);
        fprintf(stderr, "  member %d: %s\n", i, r.lanes);
    }
}

static int kill_one(struct member *members, int victim) {
    struct report r;
    int bad = 0;
    kill(members[victim].pid, SIGKILL);
    int64_t killed = now_ns();
    waitpid(members[victim].pid, NULL, 0); // a zombie still counts as alive
    members[victim].alive = false;
    for (int i = 0; i < MEMBERS; i++) {
        if (!members[i].alive) continue;
        if (!get(members[i].from, &r, sizeof r)) {
            fprintf(stderr, "  member %d died or hangs\n", i);
            return 1;
        }
        fprintf(stderr, "  member %d: %s after %.3f s, teardown %.1f ms\n", i, err_name(r.rc),
                (double)(r.ended_ns - killed) / 1e9, (double)r.teardown_ns / 1e6);
        bad += r.rc != ERR_PEER_LOST || r.ended_ns - killed > NOTICE_NS_MAX ||
               r.teardown_ns > NS_PER_S;
    }
    return bad;
}

static int scenario(const char *transports, const char *mode) {
    struct member members[MEMBERS];
    int bad = 0;
    fprintf(stderr, "%s, %s\n", transports, mode);
    for (int i = 0; i < MEMBERS; i++)
        start(&members[i], transports, mode);
    // Each epoch loses one, until the last is alone.
    for (int round = 0; round < MEMBERS && bad == 0; round++) {
        form(members, (uint64_t)round + 1);
        expect_working(members);
        if (round < MEMBERS - 1) bad += kill_one(members, round == 0 ? 1 : 0);
        if (round == MEMBERS - 2) break; // with two members the survivor's loop ends
    }
    for (int i = 0; i < MEMBERS; i++) {
        int status = 0;
        close(members[i].to);
        if (members[i].alive) {
            waitpid(members[i].pid, &status, 0);
            if (status != 0)
                fprintf(stderr, "  member %d ended with status %x\n", i, (unsigned)status);
            bad += status != 0;
        }
        close(members[i].from);
    }
    return bad;
}

int main(int argc, char **argv) {
    if (argc == 3) return member_main(argv[1], strcmp(argv[2], "idle") == 0);
    static const char *const transports[] = {"tcp", "shm", "auto"};
    static const char *const modes[] = {"storm", "idle"};
    int bad = 0, repeat = getenv("REPEAT") != NULL ? (int)strtol(getenv("REPEAT"), NULL, 10) : 1;
    signal(SIGPIPE, SIG_IGN);
    for (int r = 0; r < repeat; r++) {
        for (int i = 0; i < 6; i++)
            bad += scenario(transports[i / 2], modes[i % 2]);
    }
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
