// rpc.c: see rpc.h. The server and its callbacks, which run on gRPC's thread and never wait: a
// complete message goes to the render pool.
#include "leader/rpc.h"

#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/grpc_reflection.h"
#include "leader/grpc_health.h"
#include "leader/rpc_call.h"

#define GENERATE_PATH "/moesaic.v1.Generate/Generate"
// As long as HTTP's connections may idle: for a request's message, and for reading an answer's end.
#define IDLE_NS (75 * NS_PER_S)
// A silent host is lost after twice this. Longer than between leader and workers: clients are
// farther away, and nobody waits for their end.
#define KEEPALIVE_MS 5000
// Clients are told to ping every 10 s at most; half of it forgives their timers.
#define PING_INTERVAL_MS 5000
// Of gRPC's own buffers: eight of the longest requests on their way, or 25,000 idle connections.
#define MEMORY_BYTES (UINT64_C(512) << 20)
#define METADATA_BYTES 16384 // keys that are signed tokens have some thousand
#define CALLS_A_CONNECTION 4096
// A balancer has other servers at once; one that has only this waits for its successor.
#define DRAIN_PUSHBACK_MS 1000

// --- callbacks; a call that could not be opened has no state

static void opened(void *context, struct grpc_server_call *grpc, void **state) {
    struct rpc *r = context;
    bool full = atomic_fetch_add(&r->n_calls, 1) >= r->config.calls_max;
    *state = full ? NULL : rpc_call_create(r, grpc);
    if (*state != NULL) return;
    counter_add(&r->by_code[GRPC_STATUS_RESOURCE_EXHAUSTED], 1);
    grpc_server_call_end_pushback(
        grpc, GRPC_STATUS_RESOURCE_EXHAUSTED,
        full ? "too many calls are open; try again later" : "memory is out", RPC_PUSHBACK_MS);
}

static bool keep_message(struct rpc_call *c, const uint8_t *data, size_t bytes) {
    struct rpc *r = c->rpc;
    if (atomic_fetch_add(&r->body_bytes, bytes) + bytes > r->config.bodies_bytes_max) {
        atomic_fetch_sub(&r->body_bytes, bytes);
        return false;
    }
    c->message_bytes = bytes;
    c->message = mem_alloc(bytes);
    if (c->message == NULL) {
        rpc_call_drop_message(c);
        return false;
    }
    if (bytes != 0) memcpy(c->message, data, bytes);
    return true;
}

static void take(struct rpc *r, struct rpc_call *c, const uint8_t *data, size_t bytes) {
    c->asked = true;
    c->arrived_ns = env_now_ns(r->config.serving->env);
    atomic_fetch_add(&r->n_asked, 1);
    if (!keep_message(c, data, bytes))
        rpc_call_end(c, GRPC_STATUS_RESOURCE_EXHAUSTED,
                     "too many bytes of requests are waiting; try again later");
    else if (!render_take(r->config.render, rpc_call_client(c)))
        rpc_call_end(c, GRPC_STATUS_RESOURCE_EXHAUSTED, "memory is out");
}

static void message(void *context, void *state, const uint8_t *data, size_t bytes) {
    struct rpc_call *c = state;
    if (c == NULL) return;
    if (!c->asked)
        take(context, c, data, bytes);
    else
        rpc_call_end(c, GRPC_STATUS_INVALID_ARGUMENT, "a call has one request");
}

static void half_closed(void *context, void *state) {
    struct rpc_call *c = state;
    (void)context;
    if (c != NULL && !c->asked)
        rpc_call_end(c, GRPC_STATUS_INVALID_ARGUMENT, "the call ended without a request");
}

static void sent(void *context, void *state) {
    (void)context;
    if (state != NULL) rpc_call_sent(state);
}

static void closed(void *context, void *state, bool connection_lost) {
    struct rpc *r = context;
    struct rpc_call *c = state;
    (void)connection_lost;
    atomic_fetch_sub(&r->n_calls, 1);
    if (c == NULL) return;
    rpc_call_mark_gone(c);
    if (c->asked) atomic_fetch_sub(&r->n_asked, 1);
    rpc_call_release(c);
}

// --- life

static void make_address(char *out, size_t bytes, const struct rpc_config *config) {
    const char *host = config->host != NULL && config->host[0] != '\0' ? config->host : "::";
    channel_address_make(out, bytes, host, config->port);
}

int rpc_start(struct rpc **out, const struct rpc_config *config, uint16_t *port,
              struct err_text *e) {
    static const struct grpc_method generate = {.path = GENERATE_PATH,
                                                .first_ns = IDLE_NS,
                                                .end_ns = IDLE_NS,
                                                .opened = opened,
                                                .message = message,
                                                .half_closed = half_closed,
                                                .sent = sent,
                                                .closed = closed};
    char address[300];
    struct rpc *r = mem_zalloc(sizeof *r);
    if (r == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the gRPC service");
    r->config = *config;
    rpc_names_init(&r->names);
    make_address(address, sizeof address, config);
    struct grpc_server_config server = {.env = config->serving->env,
                                        .address = address,
                                        .keys = config->serving->keys,
                                        .tls = config->tls,
                                        .message_bytes_max = REQUEST_BYTES_MAX,
                                        .calls_a_connection = CALLS_A_CONNECTION,
                                        .limits = {.memory_bytes = MEMORY_BYTES,
                                                   .ping_interval_ms = PING_INTERVAL_MS,
                                                   .metadata_bytes = METADATA_BYTES,
                                                   .connection_age_ms = config->connection_age_ms},
                                        .keepalive_ms = KEEPALIVE_MS};
    struct grpc_method method = generate;
    method.context = r;
    if (config->idle_ns != 0) method.first_ns = method.end_ns = config->idle_ns;
    int rc = grpc_server_host_create(&r->host, &server, e);
    if (rc == 0) grpc_server_host_register(r->host, &method);
    if (rc == 0) rpc_unary_register(r);
    if (rc == 0) rpc_tokens_register(r);
    if (rc == 0) rc = grpc_health_create(&r->health, r->host, config->serving, e);
    if (rc == 0) rc = grpc_reflection_create(&r->reflection, r->host, e);
    *out = r; // a call may come before this returns
    if (rc == 0) rc = grpc_server_host_start(r->host, port, e);
    if (rc == 0) return 0;
    *out = NULL;
    rpc_destroy(r);
    return rc;
}

uint32_t rpc_n_calls(const struct rpc *r) {
    return atomic_load(&r->n_asked);
}

void rpc_metrics(const struct rpc *r, struct buf *page) {
    metrics_family(page, "moesaic_grpc_calls_in_flight", "gauge", "gRPC calls that wait or stream");
    metrics_count(page, "moesaic_grpc_calls_in_flight", NULL, rpc_n_calls(r));
    metrics_family(page, "moesaic_grpc_disconnects_total", "counter",
                   "gRPC calls whose client left before the end");
    metrics_count(page, "moesaic_grpc_disconnects_total", NULL, counter_get(&r->disconnects));
    metrics_family(page, "moesaic_grpc_calls_total", "counter", "gRPC calls by status");
    for (int code = 0; code < RPC_CODES; code++) {
        uint64_t n = counter_get(&r->by_code[code]);
        char number[16];
        struct buf labels;
        if (n == 0) continue;
        buf_init(&labels, 0);
        snprintf(number, sizeof number, "%d", code);
        metrics_label(&labels, "code", number);
        metrics_count(page, "moesaic_grpc_calls_total", &labels, n);
        page->failed |= labels.failed;
        buf_finish(&labels);
    }
}

void rpc_drain(struct rpc *r) {
    if (r->host == NULL) return; // it was stopped
    grpc_health_refresh(r->health);
    grpc_server_host_drain(r->host, DRAIN_PUSHBACK_MS);
}

void rpc_stop(struct rpc *r) {
    if (r == NULL) return;
    grpc_server_host_destroy(r->host);
    r->host = NULL;
    check(r->n_calls == 0);
}

void rpc_destroy(struct rpc *r) {
    if (r == NULL) return;
    rpc_stop(r);
    grpc_health_destroy(r->health);
    grpc_reflection_destroy(r->reflection);
    check(r->body_bytes == 0);
    rpc_names_finish(&r->names);
    mem_free(r);
}
