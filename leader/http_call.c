// http_call.c: one call as the threads behind HTTP see it. Everything they change is under the
// call's lock; MHD is suspended while it has nothing to do and resumed, under the same lock, when
// it has.
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/keys.h"
#include "leader/http_call.h"

static void set_request_id(struct http_call *c) {
    const char *id = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "X-Request-Id");
    c->named = id != NULL && client_id_ok(id);
    if (c->named)
        snprintf(c->request_id, sizeof c->request_id, "%s", id);
    else
        client_id_draw(c->request_id, c->http->config.env);
}

struct http_call *http_call_create(struct http *h, struct MHD_Connection *connection,
                                   const char *path) {
    struct http_call *c = mem_zalloc(sizeof *c);
    if (c == NULL) return NULL;
    c->path = mem_strdup(path);
    if (c->path == NULL) {
        mem_free(c);
        return NULL;
    }
    c->refs = 1;
    c->key = KEY_NONE;
    c->http = h;
    c->connection = connection;
    c->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->arrived_ns = env_now_ns(h->config.env);
    set_request_id(c);
    buf_init(&c->body, 0);
    buf_init(&c->out, 0);
    check(pthread_mutex_init(&c->lock, NULL) == 0);
    return c;
}

void http_call_hold(struct http_call *c) {
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

void http_call_release(struct http_call *c) {
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    http_call_drop_body(c);
    atomic_fetch_sub_explicit(&c->http->body_bytes, c->charged_bytes, memory_order_relaxed);
    buf_finish(&c->reply.body);
    buf_finish(&c->out);
    pthread_mutex_destroy(&c->lock);
    mem_free(c->path);
    mem_free(c);
}

const char *http_call_path(const struct http_call *c) {
    return c->path;
}

const char *http_call_request_id(const struct http_call *c) {
    return c->request_id;
}

void http_call_name(struct http_call *c, const char *request_id) {
    if (!c->named) snprintf(c->request_id, sizeof c->request_id, "%s", request_id);
}

int64_t http_call_arrived_ns(const struct http_call *c) {
    return c->arrived_ns;
}

int32_t http_call_key(const struct http_call *c) {
    return c->key;
}

void http_call_set_key(struct http_call *c, int32_t key) {
    c->key = key;
}

const char *http_call_header(const struct http_call *c, const char *name) {
    return MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, name);
}

void http_call_peer(const struct http_call *c, char out[HTTP_PEER_BYTES]) {
    char host[HTTP_PEER_BYTES - 8], port[8];
    const struct sockaddr *a =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    bool v6 = a->sa_family == AF_INET6;
    socklen_t bytes = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (getnameinfo(a, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(out, HTTP_PEER_BYTES, "unknown");
    else
        snprintf(out, HTTP_PEER_BYTES, v6 ? "[%s]:%s" : "%s:%s", host, port);
}

const char *http_call_body(const struct http_call *c, size_t *bytes) {
    *bytes = c->body.bytes;
    return c->body.bytes != 0 ? c->body.data : "";
}

void http_call_drop_body(struct http_call *c) {
    atomic_fetch_sub_explicit(&c->http->body_bytes, c->body.bytes, memory_order_relaxed);
    buf_finish(&c->body);
}

bool http_call_charge(struct http_call *c, uint64_t bytes) {
    struct http *h = c->http;
    if (atomic_fetch_add(&h->body_bytes, bytes) + bytes > h->config.bodies_bytes_max) {
        atomic_fetch_sub(&h->body_bytes, bytes);
        return false;
    }
    c->charged_bytes += bytes;
    return true;
}

// Under the lock.
static void resume(struct http_call *c) {
    if (!c->suspended) return;
    c->suspended = false;
    MHD_resume_connection(c->connection);
}

void http_call_reply(struct http_call *c, struct http_reply *reply) {
    pthread_mutex_lock(&c->lock);
    check(c->state == CALL_PENDING);
    c->state = CALL_REPLIED;
    c->reply = *reply;
    c->ended = true;
    http_watch_answered(c->http->watch, c->fd, c, reply->body.bytes);
    resume(c);
    pthread_mutex_unlock(&c->lock);
    *reply = (struct http_reply){0};
}

void http_call_stream(struct http_call *c) {
    pthread_mutex_lock(&c->lock);
    check(c->state == CALL_PENDING);
    c->state = CALL_STREAMING;
    resume(c);
    pthread_mutex_unlock(&c->lock);
}

// Under the lock. Nothing of a stream that cannot be continued is of use to its client.
static int cut(struct http_call *c) {
    c->gone = true;
    buf_finish(&c->out);
    http_watch_cut(c->http->watch, c->fd, c);
    resume(c);
    return ERR_REQ_TOO_LARGE;
}

void http_call_cut(struct http_call *c) {
    pthread_mutex_lock(&c->lock);
    if (!c->gone) cut(c);
    pthread_mutex_unlock(&c->lock);
}

int http_call_write(struct http_call *c, const void *data, size_t bytes) {
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    check(!c->ended);
    size_t waiting = c->out.bytes - c->out_sent;
    if (c->gone) {
        rc = ERR_REQ_ABORTED;
    } else if (waiting > STREAM_BUFFER_BYTES_MAX ||
               (waiting != 0 && bytes > STREAM_BUFFER_BYTES_MAX)) {
        rc = cut(c);
    } else {
        buf_add(&c->out, data, bytes);
        if (c->out.failed)
            rc = cut(c);
        else
            resume(c);
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void http_call_end(struct http_call *c) {
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    http_watch_answered(c->http->watch, c->fd, c, c->out.bytes - c->out_sent);
    resume(c);
    pthread_mutex_unlock(&c->lock);
}

bool http_call_gone(struct http_call *c) {
    pthread_mutex_lock(&c->lock);
    bool gone = c->gone;
    pthread_mutex_unlock(&c->lock);
    return gone;
}

bool http_call_on_gone(struct http_call *c, void (*gone)(void *context), void *context) {
    pthread_mutex_lock(&c->lock);
    bool here = !c->gone;
    c->on_gone = here ? gone : NULL;
    c->gone_context = context;
    pthread_mutex_unlock(&c->lock);
    return here;
}

void http_call_mark_gone(struct http_call *c) {
    pthread_mutex_lock(&c->lock);
    bool first = !c->gone;
    c->gone = true;
    if (c->on_gone != NULL) c->on_gone(c->gone_context);
    c->on_gone = NULL;
    if (first && !c->ended) atomic_fetch_add(&c->http->disconnects, 1);
    resume(c);
    pthread_mutex_unlock(&c->lock);
}

// --- MHD thread

static ssize_t read_stream(void *context, uint64_t position, char *data, size_t max) {
    struct http_call *c = context;
    ssize_t n = 0;
    (void)position;
    pthread_mutex_lock(&c->lock);
    size_t waiting = c->out.bytes - c->out_sent;
    if (c->gone) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (waiting != 0) {
        size_t taken = waiting < max ? waiting : max;
        memcpy(data, c->out.data + c->out_sent, taken);
        c->out_sent += taken;
        if (c->out_sent == c->out.bytes || c->out_sent > STREAM_BUFFER_BYTES_MAX / 4) {
            buf_drop(&c->out, c->out_sent);
            c->out_sent = 0;
        }
        n = (ssize_t)taken;
    } else if (c->ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        c->suspended = true;
        MHD_suspend_connection(c->connection);
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}

static void free_stream(void *context) {
    http_call_release(context);
}

static void add_headers(struct http_call *c, struct MHD_Response *response,
                        const struct http_reply *reply) {
    char seconds[16];
    MHD_add_response_header(response, "Content-Type", reply->content_type);
    MHD_add_response_header(response, "X-Request-Id", c->request_id);
    if (reply->retry_after_s != 0) {
        snprintf(seconds, sizeof seconds, "%u", reply->retry_after_s);
        MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (reply->status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (reply->allow != NULL) MHD_add_response_header(response, "Allow", reply->allow);
    // Where a chunked body ends is read too leniently below: nothing may follow on its connection.
    if (reply->close || c->chunked || c->http->draining)
        MHD_add_response_header(response, "Connection", "close");
}

static enum MHD_Result queue(struct http_call *c, int status, struct MHD_Response *response) {
    atomic_fetch_add(&c->http->by_status[status / 100 % 6], 1);
    enum MHD_Result rc = MHD_queue_response(c->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result queue_reply(struct http_call *c) {
    struct http_reply *reply = &c->reply;
    if (reply->body.failed) return MHD_NO; // memory is out: the connection closes
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(
        reply->body.bytes, reply->body.data, mem_free);
    if (response == NULL) return MHD_NO;
    reply->body = (struct buf){0}; // now the response's
    add_headers(c, response, reply);
    return queue(c, reply->status, response);
}

static enum MHD_Result queue_stream(struct http_call *c) {
    static const struct http_reply stream = {.content_type = "text/event-stream; charset=utf-8"};
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, c, free_stream);
    if (response == NULL) return MHD_NO;
    http_call_hold(c);
    add_headers(c, response, &stream);
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); // proxies must not collect tokens
    return queue(c, 200, response);
}

enum MHD_Result http_call_answer(struct http_call *c) {
    pthread_mutex_lock(&c->lock);
    enum call_state state = c->state;
    bool wait = state == CALL_PENDING && !c->gone;
    if (wait) {
        c->suspended = true;
        MHD_suspend_connection(c->connection);
    }
    pthread_mutex_unlock(&c->lock);
    if (wait) return MHD_YES;
    if (state == CALL_REPLIED) return queue_reply(c);
    return state == CALL_STREAMING ? queue_stream(c) : MHD_NO;
}
