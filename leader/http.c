// http.c: the MHD side of the server: sockets, routes, request checks, body limits, start and stop.
#include "leader/http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "leader/answer.h"
#include "leader/http_call.h"
#include "leader/http_head.h"

#define LISTEN_BACKLOG 1024
#define STOP_WAIT_NS (2 * NS_PER_S)

// --- errors that HTTP itself finds

static void reply_error(struct http_call *c, const struct api_error *error, const char *allow,
                        bool close_after) {
    struct http_reply reply = {.status = error->status,
                               .content_type = "application/json",
                               .allow = allow,
                               .close = close_after,
                               .retry_after_s = error->status == 503 ? 1 : 0};
    buf_init(&reply.body, 0);
    answer_error(&reply.body, error);
    http_call_reply(c, &reply);
}

// Refused before or instead of reading the body, so the connection cannot be used again.
static void refuse(struct http_call *c, int status, const char *text) {
    struct api_error error;
    api_error_set(&error, status, NULL, "%s", text);
    reply_error(c, &error, NULL, true);
}

// --- request checks

static bool route_matches(const struct http_route *r, const char *path) {
    size_t n = strlen(r->path);
    if (n > 1 && r->path[n - 1] == '/') return strncmp(path, r->path, n) == 0 && path[n] != '\0';
    return strcmp(path, r->path) == 0;
}

static bool method_matches(const struct http_route *r, const char *method) {
    if (r->method == HTTP_POST) return strcmp(method, "POST") == 0;
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

// Sets the call's route, or answers 404 or 405.
static void find_route(struct http_call *c, const char *method) {
    const struct http_config *config = &c->http->config;
    const struct http_route *other = NULL;
    for (uint32_t i = 0; i < config->n_routes; i++) {
        const struct http_route *r = &config->routes[i];
        if (!route_matches(r, c->path)) continue;
        other = r;
        if (!method_matches(r, method)) continue;
        c->route = r;
        if (!http_head_decode(c->path)) refuse(c, 400, "a percent escape of the path is wrong");
        return;
    }
    struct api_error error;
    if (other == NULL) {
        api_error_set(&error, 404, NULL, "Unknown request URL: %.20s %.200s", method, c->path);
        api_error_code(&error, 0, "unknown_url");
        reply_error(c, &error, NULL, true);
    } else {
        api_error_set(&error, 405, NULL, "%.20s is not allowed for %.200s", method, c->path);
        api_error_code(&error, 0, "method_not_allowed");
        reply_error(c, &error, other->method == HTTP_POST ? "POST" : "GET, HEAD", true);
    }
}

// The caller's key is judged by the head alone.
static void ask_for_key(struct http_call *c) {
    const char *why = c->http->config.refusal(c->http->config.context, c);
    struct api_error error;
    if (why == NULL) return;
    api_error_set(&error, 401, NULL, "%s", why);
    api_error_code(&error, 0, "invalid_api_key");
    reply_error(c, &error, NULL, true);
}

static void check_route(struct http_call *c, const char *method, const struct http_head *head) {
    c->chunked = head->chunked;
    find_route(c, method);
    if (c->state != CALL_PENDING) return;
    if (head->length_bytes > c->http->config.call_bytes_max)
        refuse(c, 413, "the request body is too large");
    else if (c->route->method == HTTP_GET && (head->chunked || head->length_bytes != 0))
        refuse(c, 400, "only a POST request has a body");
    else if (c->route->guarded)
        ask_for_key(c);
}

// The first look at a request: whatever can be refused is refused before its body is kept. A client
// that sends without waiting could see a reset in place of the refusal, so its body is read and
// thrown away, if the head tells where that ends.
static void check_request(struct http_call *c, const struct http_head_text *text) {
    struct http_head head;
    const char *why = NULL;
    int status = http_head_read(&head, text, &why);
    if (status != 0) {
        refuse(c, status, why);
        return;
    }
    check_route(c, text->method, &head);
    c->unread = c->state == CALL_REPLIED && !head.expects &&
                (head.chunked || head.length_bytes != 0) &&
                head.length_bytes <= c->http->config.call_bytes_max;
}

// --- bodies

// A body over a limit is read and thrown away, so that the client hears the answer; one that goes
// on for ever is cut.
static enum MHD_Result take_body(struct http_call *c, const char *data, size_t *bytes) {
    struct http *h = c->http;
    size_t n = *bytes;
    *bytes = 0;
    c->body_seen += n;
    http_watch_received(h->watch, c->fd, n);
    if (c->unread) return c->body_seen <= h->config.call_bytes_max ? MHD_YES : MHD_NO;
    if (c->body_seen > h->config.call_bytes_max) {
        if (c->body_seen > 2 * h->config.call_bytes_max) return MHD_NO;
        c->body_error = 413;
    } else if (atomic_load(&h->body_bytes) + n > h->config.bodies_bytes_max) {
        c->body_error = 503;
    }
    if (c->body_error != 0) {
        http_call_drop_body(c);
        return MHD_YES;
    }
    buf_add(&c->body, data, n);
    if (c->body.failed) {
        c->body_error = 503;
        return MHD_YES;
    }
    atomic_fetch_add(&h->body_bytes, n);
    return MHD_YES;
}

static bool end_body(struct http_call *c) {
    if (c->body_error == 0) {
        buf_add(&c->body, "", 1); // the terminating zero is not counted
        if (c->body.failed)
            c->body_error = 503;
        else
            c->body.bytes--;
    }
    if (c->body_error == 413) refuse(c, 413, "the request body is too large");
    if (c->body_error == 503) refuse(c, 503, "too many request bodies are held; try again later");
    return c->body_error == 0;
}

// --- the server's list of calls

static struct http_call *enter(struct http *h, struct MHD_Connection *connection,
                               const char *path) {
    struct http_call *c = http_call_create(h, connection, path);
    if (c == NULL) return NULL;
    atomic_fetch_add(&h->requests, 1);
    pthread_mutex_lock(&h->lock);
    c->gone = h->stopping;
    c->late = h->draining;
    h->n_late += c->late;
    c->next = h->calls;
    c->at = &h->calls;
    if (c->next != NULL) c->next->at = &c->next;
    h->calls = c;
    h->n_calls++;
    pthread_mutex_unlock(&h->lock);
    http_watch_set(h->watch, c->fd, c);
    return c;
}

static void leave(struct http *h, struct http_call *c) {
    pthread_mutex_lock(&h->lock);
    *c->at = c->next;
    if (c->next != NULL) c->next->at = c->at;
    h->n_calls--;
    h->n_late -= c->late;
    if (c->dispatched) h->n_dispatched--;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static void mark_dispatched(struct http *h, struct http_call *c) {
    pthread_mutex_lock(&h->lock);
    c->dispatched = true;
    h->n_dispatched++;
    pthread_mutex_unlock(&h->lock);
    http_watch_complete(h->watch, c->fd);
}

// --- MHD's callbacks

static enum MHD_Result begin(struct http_call *c, const struct http_head_text *text) {
    check_request(c, text);
    return c->state == CALL_REPLIED && !c->unread ? http_call_answer(c) : MHD_YES;
}

static enum MHD_Result on_access(void *context, struct MHD_Connection *connection, const char *path,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_bytes, void **state) {
    struct http *h = context;
    struct http_call *c = *state;
    if (c == NULL) {
        c = enter(h, connection, path);
        if (c == NULL) return MHD_NO;
        *state = c;
        return begin(c, &(struct http_head_text){connection, method, path, version});
    }
    if (*upload_bytes != 0) return take_body(c, upload, upload_bytes);
    if (!c->dispatched && !c->unread) {
        mark_dispatched(h, c);
        if (end_body(c)) c->route->handle(h->config.context, c);
    }
    return http_call_answer(c);
}

// The path is compared as it came and decoded behind that, so it has one spelling.
static size_t keep_escapes(void *context, struct MHD_Connection *connection, char *text) {
    (void)context;
    (void)connection;
    return strlen(text);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code) {
    struct http_call *c = *state;
    (void)connection;
    (void)code;
    if (c == NULL) return;
    *state = NULL;
    http_watch_clear(c->http->watch, c->fd);
    http_call_mark_gone(c);
    leave(context, c);
    http_call_release(c);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode code) {
    struct http *h = context;
    int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        http_watch_open(h->watch, fd);
        if (h->tls != NULL) http_tls_open(h->tls, connection, state);
    } else {
        http_watch_close(h->watch, fd);
        if (h->tls != NULL) http_tls_close(h->tls, state);
    }
}

static void on_log(void *context, const char *format, va_list args) {
    char text[256];
    (void)context;
    if (!log_enabled(LOG_DEBUG)) return;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    log_write(LOG_DEBUG, "http", "%s", text);
}

// --- start and stop

// A client whose machine or network died without a word is noticed in two minutes, not never.
static void keep_alive(int fd) {
    int one = 1, idle_s = 60, interval_s = 15, probes = 4;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

// What is set here, the connections that it accepts inherit.
static int bind_one(const struct addrinfo *a) {
    int one = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    keep_alive(fd);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static uint16_t port_of(int fd) {
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    char text[NI_MAXSERV];
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, NULL, 0, text, sizeof text,
                    NI_NUMERICSERV) != 0)
        return 0;
    return (uint16_t)strtoul(text, NULL, 10);
}

static bool is_loopback(const struct addrinfo *a) {
    if (a->ai_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)a->ai_addr;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *v6 = (const void *)a->ai_addr;
    return a->ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

const char *http_host_error(const char *host) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    if (host == NULL || host[0] == '\0') return NULL;
    int rc = getaddrinfo(host, NULL, &hints, &list);
    if (rc != 0) return gai_strerror(rc);
    freeaddrinfo(list);
    return NULL;
}

bool http_host_is_loopback(const char *host) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (host == NULL || host[0] == '\0' || getaddrinfo(host, NULL, &hints, &list) != 0)
        return false;
    bool yes = true;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next)
        yes &= is_loopback(a);
    freeaddrinfo(list);
    return yes;
}

static int open_socket(const struct http_config *config, int *out, struct err_text *e) {
    const char *host = config->host != NULL && config->host[0] != '\0' ? config->host : NULL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", config->port);
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0)
        return err_set(e, ERR_FATAL_CONFIG, "--host %s: %s", host ? host : "*", gai_strerror(rc));
    int fd = -1;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next)
        fd = bind_one(a);
    int error = errno;
    freeaddrinfo(list);
    if (fd < 0)
        return err_set(e, ERR_FATAL_IO, "--port %u: cannot listen for HTTP on %s: %s", config->port,
                       host ? host : "*", strerror(error));
    *out = fd;
    return 0;
}

static struct MHD_Daemon *start_daemon(struct http *h) {
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    // The last element of an empty list ends it.
    struct MHD_OptionItem tls[] = {{MHD_OPTION_END, 0, NULL}, {0}, {0}, {MHD_OPTION_END, 0, NULL}};
    if (h->tls != NULL) {
        const struct tls_pem *pem = http_tls_pem(h->tls);
        flags |= MHD_USE_TLS;
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, pem->cert};
        tls[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, pem->key};
        tls[2] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0,
                                         (void *)(uintptr_t)HTTP_TLS_PRIORITIES};
    }
    return MHD_start_daemon(flags, 0, NULL, NULL, on_access, h, //
                            MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET,
                            h->listen_fd, //
                            MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,                    //
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->config.connections_max,  //
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->config.idle_timeout_s, //
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES_MAX,        //
                            MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,                  //
                            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

static void http_free(struct http *h) {
    if (h->listen_fd >= 0) close(h->listen_fd);
    http_watch_destroy(h->watch);
    http_tls_destroy(h->tls);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    mem_free(h);
}

// MHD stops accepting at its limit, so room is made a little below it.
static int start_watch(struct http *h, struct err_text *e) {
    struct http_watch_config watch = {.env = h->config.env,
                                      .patience_ns = h->config.idle_timeout_s * NS_PER_S,
                                      .connections_max = h->config.connections_max -
                                                         h->config.connections_max / 8 - 1};
    return http_watch_create(&h->watch, &watch, e);
}

int http_start(struct http **out, const struct http_config *config, uint16_t *port,
               struct err_text *e) {
    struct http *h = mem_zalloc(sizeof *h);
    if (h == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the HTTP server");
    h->config = *config;
    h->listen_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_t monotonic; // or a step of the wall clock would cut the wait, or stretch it
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int rc = open_socket(config, &h->listen_fd, e);
    if (rc == 0) rc = start_watch(h, e);
    if (rc == 0 && config->tls != NULL) rc = http_tls_create(&h->tls, config->tls, e);
    if (rc != 0) {
        http_free(h);
        return rc;
    }
    *port = port_of(h->listen_fd);
    *out = h; // a handler may run before this returns
    h->daemon = start_daemon(h);
    if (h->daemon == NULL) {
        *out = NULL;
        http_free(h);
        return err_set(e, ERR_FATAL_IO, "libmicrohttpd does not start");
    }
    h->listen_fd = -1; // MHD's
    return 0;
}

void http_drain(struct http *h) {
    pthread_mutex_lock(&h->lock);
    h->draining = true;
    pthread_mutex_unlock(&h->lock);
}

bool http_drained(struct http *h) {
    pthread_mutex_lock(&h->lock);
    bool drained = h->n_calls == h->n_late;
    pthread_mutex_unlock(&h->lock);
    return drained;
}

// Accepts no more connections.
static void quiesce(struct http *h) {
    if (atomic_exchange(&h->quiesced, true)) return;
    // MHD's thread may be about to take the socket out of its epoll set: it is closed only after
    // that thread ended, lest the number means another file by then. Until then it refuses.
    h->listen_fd = MHD_quiesce_daemon(h->daemon);
    if (h->listen_fd >= 0) shutdown(h->listen_fd, SHUT_RDWR);
}

static void close_socket(struct http *h) {
    if (h->listen_fd >= 0) close(h->listen_fd);
    h->listen_fd = -1;
}

static bool all_left(struct http *h) {
    int64_t end = env_now_ns(h->config.env) + STOP_WAIT_NS;
    struct timespec until = {.tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S};
    int rc = 0;
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    for (struct http_call *c = h->calls; c != NULL; c = c->next)
        http_call_mark_gone(c);
    while (h->n_dispatched != 0 && rc == 0)
        rc = pthread_cond_timedwait(&h->changed, &h->lock, &until);
    bool left = h->n_dispatched == 0;
    pthread_mutex_unlock(&h->lock);
    return left;
}

// MHD aborts the process when it is stopped with a suspended connection, so every call is ended
// first.
void http_stop(struct http *h) {
    http_drain(h);
    quiesce(h);
    if (!all_left(h)) log_warn("http", "calls in flight did not end; stopping anyway");
    MHD_stop_daemon(h->daemon);
    h->daemon = NULL;
    close_socket(h);
}

void http_destroy(struct http *h) {
    if (h == NULL) return;
    check(h->daemon == NULL);
    http_free(h);
}

void http_count(struct http *h, struct http_counters *out) {
    *out = (struct http_counters){.requests = h->requests, .disconnects = h->disconnects};
    for (int i = 0; i < 6; i++)
        out->by_status[i] = h->by_status[i];
    http_watch_count(h->watch, &out->late, &out->evicted);
    pthread_mutex_lock(&h->lock);
    out->n_calls = h->n_calls;
    pthread_mutex_unlock(&h->lock);
}
