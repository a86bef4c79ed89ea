// rpc_call.c: one gRPC call as the threads of render and stream see it. Everything they change is
// under the call's lock.
//
// One message at a time is with gRPC. What comes meanwhile waits in the delta and goes as one, so a
// slow reader costs no more than the bound on that.
#include "leader/rpc_call.h"

#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "generate.pb-c.h"
#include "leader/generation.h"
#include "leader/rpc_request.h"

struct rpc_call *rpc_call_create(struct rpc *r, struct grpc_server_call *grpc) {
    struct rpc_call *c = mem_zalloc(sizeof *c);
    if (c == NULL) return NULL;
    c->refs = 1;
    c->rpc = r;
    c->grpc = grpc;
    c->delta.finish = "";
    grpc_server_call_ref(grpc);
    check(pthread_mutex_init(&c->lock, NULL) == 0);
    buf_init(&c->delta.text, 0);
    buf_init(&c->delta.ids, 0);
    return c;
}

static void hold(void *self) {
    struct rpc_call *c = self;
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

void rpc_call_release(struct rpc_call *c) {
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    rpc_call_drop_message(c);
    buf_finish(&c->delta.text);
    buf_finish(&c->delta.ids);
    grpc_server_call_unref(c->grpc);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

void rpc_call_drop_message(struct rpc_call *c) {
    atomic_fetch_sub(&c->rpc->body_bytes, c->message_bytes);
    mem_free(c->message);
    c->message = NULL;
    c->message_bytes = 0;
}

// --- sending, under the lock

static int send_delta(struct rpc_call *c) {
    struct rpc_delta *d = &c->delta;
    Moesaic__V1__GenerateResponse m = MOESAIC__V1__GENERATE_RESPONSE__INIT;
    buf_add(&d->text, "", 1);
    if (d->text.failed || d->ids.failed) return ERR_FATAL_NOMEM;
    m.request_id = c->request_id;
    m.text = d->text.data;
    m.token_ids = (uint32_t *)(void *)d->ids.data;
    m.n_token_ids = d->ids.bytes / sizeof(uint32_t);
    m.finish_reason = (char *)(uintptr_t)d->finish;
    m.prompt_tokens = d->n_prompt;
    m.completion_tokens = d->n_completion;
    m.seed = d->seed;
    m.digest = d->digest;
    size_t bytes = moesaic__v1__generate_response__get_packed_size(&m);
    uint8_t *packed = mem_alloc(bytes);
    if (packed == NULL) return ERR_FATAL_NOMEM;
    moesaic__v1__generate_response__pack(&m, packed);
    int rc = grpc_server_call_send(c->grpc, packed, bytes);
    mem_free(packed);
    buf_reset(&d->text);
    buf_reset(&d->ids);
    d->fresh = false;
    c->sending = rc == 0;
    return rc;
}

static void cut(struct rpc_call *c, int code, const char *text) {
    c->gone = true;
    counter_add(&c->rpc->by_code[code], 1);
    grpc_server_call_cancel(c->grpc, code, text);
}

static int pump(struct rpc_call *c) {
    int rc = 0;
    if (c->gone || c->sending) return 0;
    if (c->delta.fresh) rc = send_delta(c);
    if (rc == ERR_FATAL_NOMEM) cut(c, GRPC_STATUS_INTERNAL, "memory is out");
    if (rc != 0 || c->sending || !c->ended || c->end_sent) return rc;
    c->end_sent = true;
    counter_add(&c->rpc->by_code[c->code], 1);
    grpc_server_call_end(c->grpc, c->code, c->text);
    return 0;
}

// --- gRPC's thread

void rpc_call_sent(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    pump(c);
    pthread_mutex_unlock(&c->lock);
}

void rpc_call_mark_gone(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    if (!c->gone && !c->end_sent) counter_add(&c->rpc->disconnects, 1);
    c->gone = true;
    if (c->on_gone != NULL) c->on_gone(c->gone_context);
    c->on_gone = NULL;
    pthread_mutex_unlock(&c->lock);
}

// --- any thread

void rpc_call_end(struct rpc_call *c, int code, const char *text) {
    check(code >= 0 && code < RPC_CODES);
    pthread_mutex_lock(&c->lock);
    if (!c->ended) {
        c->ended = true;
        c->code = code;
        snprintf(c->text, sizeof c->text, "%s", text);
        pump(c);
    }
    pthread_mutex_unlock(&c->lock);
}

static const char *request_id(const void *self) {
    return ((const struct rpc_call *)self)->request_id;
}

static int64_t arrived_ns(const void *self) {
    return ((const struct rpc_call *)self)->arrived_ns;
}

static int parse(void *self, struct openai_request *out, const struct openai_defaults *defaults,
                 struct api_error *e) {
    struct rpc_call *c = self;
    struct rpc_message message = {c->message, c->message_bytes};
    int rc = rpc_request_parse(out, c->request_id, &message, defaults, e);
    rpc_call_drop_message(c);
    if (rc == 0 && c->request_id[0] == '\0')
        client_id_draw(c->request_id, c->rpc->config.serving->env);
    return rc;
}

static bool gone(void *self) {
    struct rpc_call *c = self;
    pthread_mutex_lock(&c->lock);
    bool yes = c->gone;
    pthread_mutex_unlock(&c->lock);
    return yes;
}

static bool on_gone(void *self, void (*left)(void *context), void *context) {
    struct rpc_call *c = self;
    pthread_mutex_lock(&c->lock);
    bool here = !c->gone;
    c->on_gone = here ? left : NULL;
    c->gone_context = context;
    pthread_mutex_unlock(&c->lock);
    return here;
}

// --- the answer

static const char *finish_word(enum finish f) {
    return f == FINISH_STOP ? "stop" : f == FINISH_LENGTH ? "length" : "";
}

// Moves what is new of the choice into the delta.
static void add_news(struct rpc_call *c, const struct generation *g, struct choice *choice) {
    struct rpc_delta *d = &c->delta;
    d->fresh |= !g->begun || choice->text.bytes != 0 || choice->ids.bytes != 0 ||
                choice->finish != FINISH_NONE;
    buf_add(&d->text, choice->text.data, choice->text.bytes);
    buf_add(&d->ids, choice->ids.data, choice->ids.bytes);
    d->text.failed |= choice->text.failed | choice->ids.failed;
    d->n_prompt = choice->n_prompt;
    d->n_completion = choice->n_generated;
    d->seed = (uint64_t)g->request.seed;
    d->digest = g->serving->digest ? choice->digest : 0;
    d->finish = finish_word(choice->finish);
    buf_reset(&choice->text);
    buf_reset(&choice->ids);
}

static int say(struct rpc_call *c, struct generation *g, struct choice *choice) {
    struct rpc_delta *d = &c->delta;
    if (c->gone) return ERR_REQ_ABORTED;
    add_news(c, g, choice);
    if (generation_finished(g)) {
        c->ended = true;
        c->code = GRPC_STATUS_OK;
    }
    int rc = pump(c);
    if (rc != 0 || d->text.bytes + d->ids.bytes <= STREAM_BUFFER_BYTES_MAX) return rc;
    cut(c, GRPC_STATUS_RESOURCE_EXHAUSTED, "the client reads its stream too slowly");
    return ERR_REQ_TOO_LARGE;
}

static void show(struct generation *g, struct choice *choice) {
    struct rpc_call *c = g->client.self;
    pthread_mutex_lock(&c->lock);
    int rc = say(c, g, choice);
    pthread_mutex_unlock(&c->lock);
    g->begun = true;
    g->over = rc != 0 || generation_finished(g);
    if (rc == 0) return;
    if (rc == ERR_REQ_TOO_LARGE || rc == ERR_FATAL_NOMEM)
        log_warn("rpc", "request %s cut: %s", c->request_id,
                 rc == ERR_REQ_TOO_LARGE ? "its client reads too slowly" : "memory is out");
    generation_abort(g);
}

// --- errors

static int code_of(int status) {
    switch (status) {
    case 429: return GRPC_STATUS_RESOURCE_EXHAUSTED;
    case 503: return GRPC_STATUS_UNAVAILABLE;
    default: return status < 500 ? GRPC_STATUS_INVALID_ARGUMENT : GRPC_STATUS_INTERNAL;
    }
}

static void fail(void *self, bool begun, const struct api_error *e) {
    char text[sizeof e->param + 2 + sizeof e->message];
    bool named = e->param[0] == '\0' || strstr(e->message, e->param) != NULL;
    (void)begun; // a status may come at any time
    snprintf(text, sizeof text, "%s%s%s", named ? "" : e->param, named ? "" : ": ", e->message);
    rpc_call_end(self, code_of(e->status), text);
}

static void release(void *self) {
    rpc_call_release(self);
}

struct client rpc_call_client(struct rpc_call *c) {
    static const struct client_ops ops = {
        .hold = hold,
        .release = release,
        .request_id = request_id,
        .arrived_ns = arrived_ns,
        .parse = parse,
        .gone = gone,
        .on_gone = on_gone,
        .show = show,
        .fail = fail,
    };
    return (struct client){.ops = &ops, .self = c};
}
