// bench_ucx.c: UCX without this project: two processes that send each other a message at the same
// time, and copy out what has come. What an exchange of two ranks can cost at best.
//
// ucx_perftest knows only one message at a time, and never looks at what it received.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/harness/bench_group.h"

#define ADDRESS_MAX 1024
#define WARM_UP 100
#define ROUNDS_MAX 3000

struct both {
    atomic_uint n_there;
    size_t address_bytes[2];
    uint8_t address[2][ADDRESS_MAX];
    int64_t begin_ns[2][ROUNDS_MAX], end_ns[2][ROUNDS_MAX];
};

struct side {
    struct both *both;
    uint32_t index;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h endpoint;
    uint8_t *out, *in;
    size_t bytes;
    uint32_t n_received;
};

static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
                               size_t bytes, const ucp_am_recv_param_t *param) {
    struct side *s = arg;
    (void)header, (void)header_bytes, (void)param;
    check(bytes == s->bytes);
    memcpy(s->in, data, bytes);
    s->n_received++;
    return UCS_OK;
}

static void meet(struct both *b) {
    unsigned turn = atomic_fetch_add(&b->n_there, 1) / 2;
    while (atomic_load(&b->n_there) / 2 == turn)
        __builtin_ia32_pause();
}

static void open_worker(struct side *s) {
    ucp_config_t *config;
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = 1,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_message,
        .arg = s};
    check(ucp_config_read(NULL, NULL, &config) == UCS_OK);
    check(ucp_init(&params, config, &s->context) == UCS_OK);
    ucp_config_release(config);
    check(ucp_worker_create(s->context, &worker, &s->worker) == UCS_OK);
    check(ucp_worker_set_am_recv_handler(s->worker, &handler) == UCS_OK);
}

static void connect_sides(struct side *s) {
    struct both *b = s->both;
    ucp_address_t *own;
    check(ucp_worker_get_address(s->worker, &own, &b->address_bytes[s->index]) == UCS_OK &&
          b->address_bytes[s->index] <= ADDRESS_MAX);
    memcpy(b->address[s->index], own, b->address_bytes[s->index]);
    ucp_worker_release_address(s->worker, own);
    meet(b);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = (const ucp_address_t *)b->address[1 - s->index]};
    check(ucp_ep_create(s->worker, &params, &s->endpoint) == UCS_OK);
}

static void exchange(struct side *s, uint32_t round) {
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t request = ucp_am_send_nbx(s->endpoint, 1, NULL, 0, s->out, s->bytes, &param);
    check(!UCS_PTR_IS_ERR(request));
    while (s->n_received <= round ||
           (request != NULL && ucp_request_check_status(request) == UCS_INPROGRESS))
        ucp_worker_progress(s->worker);
    if (request != NULL) ucp_request_free(request);
}

static void run_side(struct side *s, int rounds) {
    struct env *env = env_real_create();
    check(env != NULL);
    open_worker(s);
    connect_sides(s);
    for (int i = -WARM_UP; i < rounds; i++) {
        int at = i < 0 ? 0 : i;
        meet(s->both);
        s->both->begin_ns[s->index][at] = env_now_ns(env);
        exchange(s, (uint32_t)(i + WARM_UP));
        s->both->end_ns[s->index][at] = env_now_ns(env);
    }
    meet(s->both);
    ucp_worker_destroy(s->worker);
    ucp_cleanup(s->context);
    env_real_destroy(env);
}

static pid_t start_side(struct both *b, uint32_t index, const char *transports, size_t bytes,
                        int rounds) {
    pid_t pid = fork();
    check(pid >= 0);
    if (pid != 0) return pid;
    bench_ucx_settings(transports);
    struct side s = {.both = b, .index = index, .bytes = bytes};
    s.out = bench_shared(bytes);
    s.in = bench_shared(bytes);
    memset(s.out, 1, bytes);
    bench_pin(index);
    run_side(&s, rounds);
    exit(0);
}

static double median_us(const struct both *b, int rounds) {
    static double times_us[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++) {
        int64_t begin =
                    b->begin_ns[0][i] > b->begin_ns[1][i] ? b->begin_ns[0][i] : b->begin_ns[1][i],
                end = b->end_ns[0][i] > b->end_ns[1][i] ? b->end_ns[0][i] : b->end_ns[1][i];
        times_us[i] = (double)(end - begin) / 1e3;
    }
    return bench_median(times_us, rounds);
}

double bench_both_us(const char *transports, size_t bytes, int rounds) {
    struct both *b = bench_shared(sizeof *b);
    pid_t pids[2];
    check(rounds <= ROUNDS_MAX);
    fflush(stdout);
    for (uint32_t i = 0; i < 2; i++)
        pids[i] = start_side(b, i, transports, bytes, rounds);
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        ok = ok && status == 0;
    }
    double us = ok ? median_us(b, rounds) : 0;
    bench_unshare(b, sizeof *b);
    return us;
}
