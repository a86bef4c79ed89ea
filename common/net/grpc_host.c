// grpc_host.c: the life of a gRPC server around its loop (grpc_server.c): made, given methods,
// bound to its port, closed.
//
// Closing has one safe order (anything else aborts inside gRPC or leaks its threads): stop
// accepting, end the calls, cancel what is left, wait for the stop event and the last call's last
// event, then the server, the queue, the library.
#include <errno.h>
#include <grpc/grpc_security.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/channel_impl.h"
#include "common/net/grpc_accept.h"
#include "common/net/grpc_server_state.h"

// --- made

static bool asks_certificates(const struct grpc_server_config *config) {
    return config->tls != NULL && tls_files_peers(config->tls) == TLS_PEERS_REQUIRED;
}

int grpc_server_host_create(struct grpc_server_host **out, const struct grpc_server_config *config,
                            struct err_text *e) {
    if (config->keys == NULL && !asks_certificates(config) && !channel_is_local(config->address))
        return err_set(e, ERR_FATAL_CONFIG,
                       "refusing to listen on %s without a key, a token or clients' certificates: "
                       "beyond loopback anyone could call; set one or listen on 127.0.0.1",
                       config->address);
    struct grpc_server_host *h = mem_zalloc(sizeof *h);
    if (h == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the gRPC server");
    h->env = config->env;
    h->stopped_tag = (struct grpc_tag){OP_STOPPED, h};
    h->message_bytes_max = config->message_bytes_max;
    h->keepalive_ms = config->keepalive_ms;
    h->limits = config->limits;
    h->calls_a_connection = config->calls_a_connection;
    h->address = mem_strdup(config->address);
    h->keys = config->keys;
    h->tls.files = config->tls;
    if (h->address == NULL) {
        mem_free(h);
        return err_set(e, ERR_FATAL_NOMEM, "no memory for the gRPC server");
    }
    pthread_mutex_init(&h->lock, NULL);
    grpc_runtime_start();
    *out = h;
    return 0;
}

void grpc_server_host_register(struct grpc_server_host *h, const struct grpc_method *method) {
    const char *service = method->path + 1, *slash = strchr(service, '/');
    check(!h->started && h->n_methods < GRPC_METHODS_MAX);
    check(method->path[0] == '/' && slash != NULL && slash - service < SERVICE_BYTES_MAX);
    snprintf(h->services[h->n_methods], SERVICE_BYTES_MAX, "%.*s", (int)(slash - service), service);
    struct grpc_method *m = &h->methods[h->n_methods++];
    *m = *method;
    if (m->message_bytes_max == 0)
        m->message_bytes_max =
            h->message_bytes_max > 0 ? (uint32_t)h->message_bytes_max : REQUEST_BYTES_MAX;
}

static bool is_among(const char *const *names, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

size_t grpc_server_host_services(const struct grpc_server_host *h,
                                 const char *out[GRPC_METHODS_MAX]) {
    size_t n = 0;
    for (size_t i = 0; i < h->n_methods; i++) {
        if (!is_among(out, n, h->services[i])) out[n++] = h->services[i];
    }
    return n;
}

void grpc_server_host_look(struct grpc_server_host *h, int (*looks)(void *context), void *context) {
    check(!h->started);
    h->looks = looks;
    h->looks_context = context;
}

// --- bound and started

// gRPC only says that binding failed; binding again without it tells why.
static const char *bind_error(const char *address) {
    char host[256];
    const char *colon = strrchr(address, ':');
    size_t n = colon != NULL ? (size_t)(colon - address) : 0;
    if (n == 0 || n >= sizeof host) return "not of the form host:port";
    bool bracketed = address[0] == '[' && address[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n),
             address + (bracketed ? 1 : 0));
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found;
    int rc = getaddrinfo(host, colon + 1, &hints, &found);
    if (rc != 0) return gai_strerror(rc);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    const char *text = "unknown reason";
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0)
        text = strerrordesc_np(errno);
    if (fd >= 0) close(fd);
    freeaddrinfo(found);
    return text;
}

static int bind_port(struct grpc_server_host *h, uint16_t *port, struct err_text *e) {
    grpc_server_credentials *credentials = grpc_tls_server(&h->tls);
    if (h->tls.files != NULL) grpc_runtime_log_handshakes();
    int bound = grpc_server_add_http2_port(h->server, h->address, credentials);
    grpc_server_credentials_release(credentials);
    if (bound == 0)
        return err_set(e, ERR_FATAL_IO, "cannot listen on %s: %s", h->address,
                       bind_error(h->address));
    *port = strncmp(h->address, "unix:", 5) == 0 ? 0 : (uint16_t)bound;
    h->port = *port;
    grpc_accept_guard(h->port);
    return 0;
}

static int start(struct grpc_server_host *h, uint16_t *port, struct err_text *e) {
    struct grpc_runtime_args args;
    grpc_runtime_server_args(&args, h->message_bytes_max);
    if (h->keepalive_ms != 0) grpc_runtime_keepalive(&args, h->keepalive_ms);
    if (h->calls_a_connection != 0) grpc_runtime_streams_max(&args, h->calls_a_connection);
    h->queue = grpc_completion_queue_create_for_next(NULL);
    grpc_runtime_limit(&args, &h->limits);
    h->server = grpc_server_create(&args.list, NULL);
    grpc_runtime_args_finish(&args);
    grpc_server_register_completion_queue(h->server, h->queue, NULL);
    int rc = bind_port(h, port, e);
    if (rc != 0) return rc;
    grpc_server_start(h->server);
    grpc_server_await_calls(h);
    // A server that has started cannot be taken back without its loop.
    check(grpc_runtime_thread(&h->thread, grpc_server_loop, h) == 0);
    h->started = true;
    return 0;
}

int grpc_server_host_start(struct grpc_server_host *h, uint16_t *port, struct err_text *e) {
    sigset_t old;
    grpc_runtime_block_signals(&old);
    int rc = start(h, port, e);
    grpc_runtime_restore_signals(&old);
    if (rc == 0 && h->keys != NULL && h->tls.files == NULL && !channel_is_local(h->address))
        log_warn("grpc", "keys and tokens travel unencrypted on %s: keep this network private",
                 h->address);
    return rc;
}

// --- closed

void grpc_server_host_drain(struct grpc_server_host *h, int64_t pushback_ms) {
    atomic_store(&h->pushback_ms, pushback_ms);
    atomic_store(&h->draining, true);
}

static void drain(grpc_completion_queue *queue) {
    grpc_completion_queue_shutdown(queue);
    while (grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
           GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(queue);
}

static void stop(struct grpc_server_host *h) {
    if (h->started) {
        h->closing_ns = env_now_ns(h->env);
        atomic_store(&h->closing, true);
        grpc_server_shutdown_and_notify(h->server, h->queue, &h->stopped_tag);
        grpc_server_end_calls(h);
        pthread_join(h->thread, NULL);
    } else {
        grpc_server_shutdown_and_notify(h->server, h->queue, &h->stopped_tag);
        grpc_completion_queue_next(h->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    }
    grpc_server_destroy(h->server);
    drain(h->queue);
}

void grpc_server_host_destroy(struct grpc_server_host *h) {
    if (h == NULL) return;
    if (h->server != NULL) stop(h);
    grpc_accept_unguard(h->port);
    grpc_runtime_stop();
    pthread_mutex_destroy(&h->lock);
    mem_free(h->address);
    mem_free(h);
}
