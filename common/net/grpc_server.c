// grpc_server.c: the completion-queue loop: takes calls, checks path and key, hands messages to
// the methods. grpc_host.c starts it and ends it.
#include "common/net/grpc_server.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/grpc_accept.h"
#include "common/net/grpc_server_state.h"

#define TICK_MS 250               // how often the loop looks at late calls
#define END_NS NS_PER_S           // what an ending call gets to be read, if its method does not say
#define CLOSING_NS (NS_PER_S / 2) // what calls get to end well when the server closes

struct grpc_server_call {
    struct grpc_server_call *next, *previous; // in the host's list
    struct grpc_server_host *host;
    struct grpc_stream *stream;          // owned reference
    const struct grpc_method *method;    // NULL: refused
    const grpc_metadata_array *metadata; // what came with it; NULL outside opened
    void *state;
    int32_t key; // of the host's keys, or KEY_NONE
    int64_t opened_ns;
    atomic_bool asked; // a message came
    int was_cancelled; // written by gRPC
    atomic_uint refs;
};

// --- calls

int32_t grpc_server_call_key(const struct grpc_server_call *call) {
    return call->key;
}

void grpc_server_call_ref(struct grpc_server_call *call) {
    atomic_fetch_add(&call->refs, 1);
}

void grpc_server_call_unref(struct grpc_server_call *call) {
    if (call == NULL || atomic_fetch_sub(&call->refs, 1) != 1) return;
    grpc_stream_unref(call->stream);
    mem_free(call);
}

int grpc_server_call_send(struct grpc_server_call *call, const void *data, size_t bytes) {
    return grpc_stream_send(call->stream, data, bytes);
}

void grpc_server_call_end(struct grpc_server_call *call, int code, const char *text) {
    grpc_stream_end(call->stream, (grpc_status_code)code, text, env_now_ns(call->host->env));
}

void grpc_server_call_end_pushback(struct grpc_server_call *call, int code, const char *text,
                                   int64_t pushback_ms) {
    struct grpc_stream_status status = {(grpc_status_code)code, text, pushback_ms};
    grpc_stream_end_with(call->stream, &status, env_now_ns(call->host->env));
}

bool grpc_server_call_add_metadata(struct grpc_server_call *call, const char *key,
                                   const char *value) {
    return grpc_stream_add_metadata(call->stream, key, value);
}

bool grpc_server_call_metadata(const struct grpc_server_call *call, const char *key, char *out,
                               size_t bytes) {
    for (size_t i = 0; call->metadata != NULL && i < call->metadata->count; i++) {
        const grpc_metadata *m = &call->metadata->metadata[i];
        size_t n = GRPC_SLICE_LENGTH(m->value);
        if (grpc_slice_str_cmp(m->key, key) != 0) continue;
        if (n >= bytes) return false;
        memcpy(out, GRPC_SLICE_START_PTR(m->value), n);
        out[n] = '\0';
        return true;
    }
    return false;
}

void grpc_server_call_peer(const struct grpc_server_call *call, char out[GRPC_PEER_BYTES]) {
    grpc_stream_peer(call->stream, out);
}

void grpc_server_call_cancel(struct grpc_server_call *call, int code, const char *text) {
    grpc_stream_cancel(call->stream, (grpc_status_code)code, text);
}

static void list_add(struct grpc_server_host *h, struct grpc_server_call *call) {
    pthread_mutex_lock(&h->lock);
    call->next = h->calls;
    if (h->calls != NULL) h->calls->previous = call;
    h->calls = call;
    pthread_mutex_unlock(&h->lock);
}

static void list_remove(struct grpc_server_host *h, struct grpc_server_call *call) {
    pthread_mutex_lock(&h->lock);
    if (call->next != NULL) call->next->previous = call->previous;
    if (call->previous != NULL)
        call->previous->next = call->next;
    else
        h->calls = call->next;
    pthread_mutex_unlock(&h->lock);
}

// --- accepting

static void wait_for_call(struct grpc_server_host *h, struct grpc_server_request *r) {
    grpc_call_details_init(&r->details);
    grpc_metadata_array_init(&r->metadata);
    r->call = NULL;
    r->tag = (struct grpc_tag){OP_REQUEST, r};
    grpc_call_error rc = grpc_server_request_call(h->server, &r->call, &r->details, &r->metadata,
                                                  h->queue, h->queue, &r->tag);
    check(rc == GRPC_CALL_OK);
    h->n_requests++;
}

void grpc_server_await_calls(struct grpc_server_host *h) {
    for (size_t i = 0; i < REQUESTS_WAITING; i++)
        wait_for_call(h, &h->requests[i]);
}

static void request_finish(struct grpc_server_request *r) {
    grpc_call_details_destroy(&r->details);
    grpc_metadata_array_destroy(&r->metadata);
}

static int32_t key_of(const struct grpc_server_host *h, const grpc_metadata_array *metadata) {
    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_metadata *m = &metadata->metadata[i];
        if (grpc_slice_str_cmp(m->key, "authorization") == 0)
            return keys_find(h->keys, GRPC_SLICE_START_PTR(m->value), GRPC_SLICE_LENGTH(m->value));
    }
    return KEY_NONE;
}

static const struct grpc_method *find_method(const struct grpc_server_host *h,
                                             const grpc_call_details *details) {
    for (size_t i = 0; i < h->n_methods; i++) {
        if (grpc_slice_str_cmp(details->method, h->methods[i].path) == 0) return &h->methods[i];
    }
    return NULL;
}

static void watch_close(struct grpc_server_call *call) {
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &call->was_cancelled;
    grpc_stream_start(call->stream, OP_CLOSE, &op, 1);
}

static void send_early_header(struct grpc_server_call *call) {
    grpc_metadata accept = {.key = grpc_slice_from_static_string(GRPC_ACCEPT_KEY),
                            .value = grpc_slice_from_static_string("1")};
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    op.data.send_initial_metadata.count = 1;
    op.data.send_initial_metadata.metadata = &accept;
    grpc_stream_start(call->stream, OP_OPEN, &op, 1);
    grpc_stream_set_writable(call->stream);
}

static void refuse(struct grpc_server_call *call, grpc_status_code code, const char *text) {
    grpc_stream_set_late_header(call->stream);
    grpc_server_call_end(call, code, text);
}

static void send_away(struct grpc_server_host *h, struct grpc_server_call *call) {
    grpc_stream_set_late_header(call->stream);
    grpc_server_call_end_pushback(call, GRPC_STATUS_UNAVAILABLE, "the server is shutting down",
                                  atomic_load(&h->pushback_ms));
}

// A stranger at the door is worth a line, but must not be able to fill the disk with them.
static void log_refusal(struct grpc_server_host *h, const struct grpc_server_call *call,
                        const char *reason) {
    char peer[GRPC_PEER_BYTES];
    if (!log_gate_pass(&h->refusals, call->opened_ns)) return;
    grpc_stream_peer(call->stream, peer);
    log_event(LOG_WARN, "grpc", "call refused", log_text("address", h->address),
              log_text("peer", peer), log_text("reason", reason));
}

static void log_more_refusals(struct grpc_server_host *h) {
    uint32_t n = log_gate_hidden(&h->refusals, env_now_ns(h->env));
    if (n > 0)
        log_event(LOG_WARN, "grpc", "more calls refused", log_text("address", h->address),
                  log_uint("count", n));
}

// One line a span, as each of them is like the other: the number is what matters.
static void log_closed(struct grpc_server_host *h) {
    h->n_closed += grpc_accept_take_closed(h->port);
    int64_t now_ns = env_now_ns(h->env);
    if (h->n_closed == 0 || now_ns < h->log_closed_ns) return;
    log_event(LOG_WARN, "grpc", "connections closed", log_uint("port", h->port),
              log_uint("count", h->n_closed),
              log_text("reason", "too few descriptors are left; raise the process's limit"));
    h->n_closed = 0;
    h->log_closed_ns = now_ns + LOG_GATE_SPAN_NS;
}

static void refuse_stranger(struct grpc_server_host *h, struct grpc_server_call *call) {
    log_refusal(h, call, "the key or token is missing or wrong");
    refuse(call, GRPC_STATUS_UNAUTHENTICATED, "the key or token is missing or wrong");
}

static bool is_full(const struct grpc_server_host *h, const struct grpc_method *method) {
    return method->calls_max != 0 && h->n_calls[method - h->methods] >= method->calls_max;
}

static void open_call(struct grpc_server_call *call, const struct grpc_method *method,
                      const grpc_metadata_array *metadata) {
    call->method = method;
    call->host->n_calls[method - call->host->methods]++;
    call->metadata = metadata;
    if (method->early_header)
        send_early_header(call);
    else
        grpc_stream_set_late_header(call->stream);
    method->opened(method->context, call, &call->state);
    call->metadata = NULL;
    grpc_stream_receive(call->stream);
}

static void accept_call(struct grpc_server_host *h, struct grpc_server_request *r) {
    struct grpc_server_call *call = mem_zalloc(sizeof *call);
    if (call == NULL) {
        grpc_call_cancel(r->call, NULL);
        grpc_call_unref(r->call);
        return;
    }
    call->host = h;
    call->opened_ns = env_now_ns(h->env);
    atomic_init(&call->refs, 1);
    atomic_init(&call->asked, false);
    call->stream = grpc_stream_create(r->call, true, call);
    if (call->stream == NULL) {
        mem_free(call);
        return;
    }
    list_add(h, call);
    watch_close(call);
    call->key = h->keys != NULL ? key_of(h, &r->metadata) : KEY_NONE;
    const struct grpc_method *method = find_method(h, &r->details);
    if (atomic_load(&h->closing))
        refuse(call, GRPC_STATUS_UNAVAILABLE, "the server is closing");
    else if (atomic_load(&h->draining) && (method == NULL || !method->while_draining))
        send_away(h, call);
    else if (method == NULL)
        refuse(call, GRPC_STATUS_UNIMPLEMENTED, "no such method here");
    else if (h->keys != NULL && !method->without_token && call->key == KEY_NONE)
        refuse_stranger(h, call);
    else if (is_full(h, method)) {
        log_refusal(h, call, "too many streams are open");
        refuse(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "too many streams are open");
    } else {
        open_call(call, method, &r->metadata);
    }
}

static void on_request(struct grpc_server_host *h, struct grpc_server_request *r, bool ok) {
    h->n_requests--;
    if (ok) accept_call(h, r);
    request_finish(r);
    if (ok && !atomic_load(&h->closing)) wait_for_call(h, r);
}

// --- events of calls

static void on_message(struct grpc_server_call *call, bool ok) {
    const struct grpc_method *m = call->method;
    uint8_t *data;
    size_t bytes;
    int rc = grpc_stream_take(call->stream, ok, m->message_bytes_max, &data, &bytes);
    if (rc == 0) {
        atomic_store(&call->asked, true);
        m->message(m->context, call->state, data, bytes);
        mem_free(data);
        grpc_stream_receive(call->stream);
    } else if (rc == ERR_AGAIN) {
        if (ok && m->half_closed != NULL) m->half_closed(m->context, call->state);
    } else {
        int code = rc == ERR_PEER_PROTOCOL ? GRPC_STATUS_INTERNAL : GRPC_STATUS_RESOURCE_EXHAUSTED;
        grpc_server_call_end(call, code, grpc_unpack_error(rc));
    }
}

static void on_call_event(struct grpc_server_host *h, struct grpc_server_call *call,
                          enum stream_op op, bool ok) {
    const struct grpc_method *m = call->method;
    grpc_stream_completed(call->stream, op, ok);
    if (op == OP_RECEIVE) on_message(call, ok);
    if (op == OP_SEND && ok && m->sent != NULL) m->sent(m->context, call->state);
    if (!grpc_stream_finished(call->stream)) return;
    if (m != NULL) {
        h->n_calls[m - h->methods]--;
        m->closed(m->context, call->state, call->was_cancelled != 0);
    }
    list_remove(h, call);
    grpc_server_call_unref(call);
}

// --- the loop

typedef void (*call_visitor)(struct grpc_server_call *call, int64_t now_ns);

static void visit_calls(struct grpc_server_host *h, call_visitor visit) {
    int64_t now = env_now_ns(h->env);
    pthread_mutex_lock(&h->lock);
    for (struct grpc_server_call *c = h->calls; c != NULL; c = c->next)
        visit(c, now);
    pthread_mutex_unlock(&h->lock);
}

static void cancel_late(struct grpc_server_call *call, int64_t now_ns) {
    const struct grpc_method *m = call->method;
    int64_t end_ns = m != NULL && m->end_ns != 0 ? m->end_ns : END_NS;
    if (grpc_stream_late(call->stream, now_ns, end_ns))
        grpc_stream_cancel(call->stream, GRPC_STATUS_CANCELLED, "it does not read its messages");
    if (m != NULL && m->first_ns != 0 && !atomic_load(&call->asked) &&
        now_ns - call->opened_ns > m->first_ns)
        grpc_stream_cancel(call->stream, GRPC_STATUS_DEADLINE_EXCEEDED, "no message came");
}

static void end_for_closing(struct grpc_server_call *call, int64_t now_ns) {
    grpc_stream_end(call->stream, GRPC_STATUS_UNAVAILABLE, "the leader closed the stream", now_ns);
}

void grpc_server_end_calls(struct grpc_server_host *h) {
    visit_calls(h, end_for_closing);
}

static void tick(struct grpc_server_host *h) {
    visit_calls(h, cancel_late);
    log_more_refusals(h);
    log_closed(h);
    if (!atomic_load(&h->closing) || h->cancelled_all) return;
    if (env_now_ns(h->env) - h->closing_ns < CLOSING_NS) return;
    grpc_server_cancel_all_calls(h->server);
    h->cancelled_all = true;
}

static void handle(struct grpc_server_host *h, const struct grpc_tag *tag, bool ok) {
    if (tag->op == OP_REQUEST)
        on_request(h, tag->owner, ok);
    else if (tag->op == OP_STOPPED)
        h->stopped = true;
    else
        on_call_event(h, tag->owner, tag->op, ok);
}

static bool over(const struct grpc_server_host *h) {
    return h->stopped && h->n_requests == 0 && h->calls == NULL;
}

// How long the loop may wait for events.
static int look(struct grpc_server_host *h) {
    int ms = h->looks != NULL ? h->looks(h->looks_context) : TICK_MS;
    return ms < TICK_MS ? ms : TICK_MS;
}

void *grpc_server_loop(void *arg) {
    struct grpc_server_host *h = arg;
    int64_t ticked_ns = env_now_ns(h->env), looked_ns = ticked_ns;
    int wait_ms = TICK_MS;
    pthread_setname_np(pthread_self(), "grpc-server");
    while (!over(h)) {
        gpr_timespec deadline =
            gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(wait_ms, GPR_TIMESPAN));
        grpc_event event = grpc_completion_queue_next(h->queue, deadline, NULL);
        if (event.type == GRPC_OP_COMPLETE) handle(h, event.tag, event.success != 0);
        int64_t now_ns = env_now_ns(h->env);
        if (now_ns - looked_ns >= wait_ms * NS_PER_MS) {
            looked_ns = now_ns;
            wait_ms = look(h);
        }
        if (now_ns - ticked_ns < TICK_MS * NS_PER_MS) continue;
        ticked_ns = now_ns;
        tick(h);
    }
    return NULL;
}
