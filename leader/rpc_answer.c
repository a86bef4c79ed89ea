// rpc_answer.c: a call of Generate as render and stream see it: the twin of http_answer.c. What it
// has to say goes into the call's deltas; rpc_call.c sends them.
#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "generate.pb-c.h"
#include "leader/generation.h"
#include "leader/rpc_call.h"
#include "leader/rpc_request.h"

static void hold(void *self) {
    rpc_call_hold(self);
}

static void release(void *self) {
    rpc_call_release(self);
}

static const char *request_id(const void *self) {
    return ((const struct rpc_call *)self)->request_id;
}

static int64_t arrived_ns(const void *self) {
    return ((const struct rpc_call *)self)->arrived_ns;
}

// --- the request

// A call that goes by its name may be aborted by it.
static int take_name(struct rpc_call *c, struct api_error *e) {
    bool taken = false;
    pthread_mutex_lock(&c->lock);
    if (!c->gone) c->named = rpc_names_add(&c->rpc->names, c);
    taken = !c->gone && !c->named;
    pthread_mutex_unlock(&c->lock);
    if (!taken) return 0;
    return api_error_set(e, 409, "request_id",
                         "'request_id' %s is the one of another call in flight.", c->request_id);
}

static int make_deltas(struct rpc_call *c, uint32_t n, struct api_error *e) {
    struct rpc_delta *deltas = mem_array(n, sizeof *deltas);
    if (deltas == NULL) return api_error_set(e, 500, NULL, "memory is out.");
    for (uint32_t i = 0; i < n; i++)
        deltas[i].finish = "";
    pthread_mutex_lock(&c->lock);
    c->deltas = deltas;
    c->n_deltas = n;
    pthread_mutex_unlock(&c->lock);
    return 0;
}

static int parse(void *self, struct openai_request *out, const struct openai_defaults *defaults,
                 struct api_error *e) {
    struct rpc_call *c = self;
    struct rpc_message message = {c->message, c->message_bytes, c->key};
    char id[REQUEST_ID_BYTES_MAX + 1] = "";
    int rc = rpc_request_parse(out, id, &message, defaults, e);
    rpc_call_drop_message(c);
    if (id[0] != '\0') snprintf(c->request_id, sizeof c->request_id, "%s", id);
    if (c->request_id[0] == '\0') client_id_draw(c->request_id, c->rpc->config.serving->env);
    grpc_server_call_add_metadata(c->grpc, RPC_REQUEST_ID_KEY, c->request_id);
    if (rc != 0) return rc;
    rc = make_deltas(c, out->n, e);
    if (rc == 0) rc = take_name(c, e);
    if (rc != 0) openai_request_finish(out);
    return rc;
}

// --- who listens

static bool gone(void *self) {
    struct rpc_call *c = self;
    pthread_mutex_lock(&c->lock);
    bool yes = c->gone;
    pthread_mutex_unlock(&c->lock);
    return yes;
}

static bool unwanted(void *self) {
    struct rpc_call *c = self;
    pthread_mutex_lock(&c->lock);
    bool yes = c->gone || c->aborted;
    pthread_mutex_unlock(&c->lock);
    return yes;
}

static bool on_gone(void *self, void (*left)(void *context), void *context) {
    struct rpc_call *c = self;
    pthread_mutex_lock(&c->lock);
    bool here = !c->gone && !c->aborted;
    if (here || left == NULL) c->on_gone = left;
    c->gone_context = context;
    pthread_mutex_unlock(&c->lock);
    return here;
}

// --- log-probabilities: each token's are packed when it comes, and wait as bytes

struct packed_logprobs {
    Moesaic__V1__TokenLogprobs token;
    Moesaic__V1__Alternative top[TOP_LOGPROBS_MAX];
    Moesaic__V1__Alternative *top_list[TOP_LOGPROBS_MAX];
};

static ProtobufCBinaryData token_bytes(const struct tokenizer *t, uint32_t id) {
    size_t bytes = 0;
    const char *text = tokenizer_bytes(t, id, &bytes);
    return (ProtobufCBinaryData){text == NULL ? 0 : bytes, (uint8_t *)(uintptr_t)text};
}

static void fill_logprobs(struct packed_logprobs *p, const struct tokenizer *t,
                          const struct token_event *ev, uint32_t n_top) {
    p->token = (Moesaic__V1__TokenLogprobs)MOESAIC__V1__TOKEN_LOGPROBS__INIT;
    p->token.logprob = ev->logprob;
    p->token.token = token_bytes(t, ev->token);
    p->token.n_top = n_top;
    p->token.top = p->top_list;
    for (uint32_t i = 0; i < n_top; i++) {
        Moesaic__V1__Alternative *a = &p->top[i];
        *a = (Moesaic__V1__Alternative)MOESAIC__V1__ALTERNATIVE__INIT;
        a->token_id = ev->top_ids[i];
        a->logprob = ev->top_logprobs[i];
        a->token = token_bytes(t, a->token_id);
        p->top_list[i] = a;
    }
}

static void note_logprobs(struct choice *c, const struct token_event *ev, uint64_t text_chars) {
    const struct generation *g = c->generation;
    uint32_t n_wanted = g->request.sampling.n_logprobs;
    struct packed_logprobs p;
    Moesaic__V1__TokenLogprobs *tokens[] = {&p.token};
    Moesaic__V1__GenerateResponse m = MOESAIC__V1__GENERATE_RESPONSE__INIT;
    (void)text_chars;
    fill_logprobs(&p, g->serving->tokenizer, ev, ev->n_top < n_wanted ? ev->n_top : n_wanted);
    m.n_logprobs = 1;
    m.logprobs = tokens;
    size_t bytes = moesaic__v1__generate_response__get_packed_size(&m);
    uint8_t *packed = mem_alloc(bytes);
    struct buf *out = &c->logprobs.first;
    out->failed |= packed == NULL;
    if (packed == NULL) return;
    moesaic__v1__generate_response__pack(&m, packed);
    buf_add(out, packed, bytes);
    mem_free(packed);
}

// --- the answer

static const char *finish_word(enum finish f) {
    switch (f) {
    case FINISH_STOP: return "stop";
    case FINISH_LENGTH: return "length";
    case FINISH_ABORT: return "abort";
    default: return "";
    }
}

static bool has_news(const struct choice *c) {
    return !c->introduced || c->text.bytes != 0 || c->ids.bytes != 0 ||
           (c->finish != FINISH_NONE && !c->finish_sent);
}

static void move(struct buf *to, struct buf *from) {
    buf_add(to, from->data, from->bytes);
    to->failed |= from->failed;
    buf_reset(from);
}

// Moves what is new of the choice into its delta.
static void add_news(struct rpc_call *c, const struct generation *g, struct choice *choice) {
    struct rpc_delta *d = &c->deltas[choice->index];
    const struct stop_strings *stop = &g->request.stop;
    int matched = choice->stop.matched;
    if (!has_news(choice)) return;
    c->waiting_bytes += choice->text.bytes + choice->ids.bytes + choice->logprobs.first.bytes;
    move(&d->text, &choice->text);
    move(&d->ids, &choice->ids);
    move(&d->logprobs, &choice->logprobs.first);
    d->n_prompt = choice->n_prompt;
    d->n_completion = choice->n_generated;
    d->digest = g->serving->digest ? choice->digest : 0;
    d->finish = finish_word(choice->finish);
    if (choice->finish != FINISH_NONE && matched >= 0)
        buf_add(&d->stop_reason, stop->text[matched], stop->bytes[matched]);
    d->fresh = true;
    choice->introduced = true;
    choice->finish_sent = choice->finish != FINISH_NONE;
}

static int say(struct rpc_call *c, struct generation *g, struct choice *choice) {
    static const struct rpc_end well = {.code = GRPC_STATUS_OK};
    if (c->gone) return ERR_REQ_ABORTED;
    c->seed = (uint64_t)g->request.seed;
    add_news(c, g, choice);
    if (generation_finished(g)) rpc_call_finish(c, &well);
    int rc = rpc_call_pump(c);
    if (rc != 0 || c->waiting_bytes <= STREAM_BUFFER_BYTES_MAX) return rc;
    rpc_call_cut(c, GRPC_STATUS_RESOURCE_EXHAUSTED, "the client reads its stream too slowly");
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

static bool has_code(const struct api_error *e, const char *code) {
    return strcmp(e->code, code) == 0;
}

// UNAVAILABLE says that nothing was done, so that clients and proxies try again by themselves; a
// generation that had begun is ABORTED.
static int code_of(bool begun, const struct api_error *e) {
    switch (e->status) {
    case 401: return GRPC_STATUS_UNAUTHENTICATED;
    case 404: return GRPC_STATUS_NOT_FOUND;
    case 409: return GRPC_STATUS_ALREADY_EXISTS;
    case 429: return GRPC_STATUS_RESOURCE_EXHAUSTED;
    case 503: return begun ? GRPC_STATUS_ABORTED : GRPC_STATUS_UNAVAILABLE;
    default: break;
    }
    if (has_code(e, "no_chat_template") || has_code(e, err_name(ERR_REQ_TOO_LARGE)))
        return GRPC_STATUS_FAILED_PRECONDITION;
    return e->status < 500 ? GRPC_STATUS_INVALID_ARGUMENT : GRPC_STATUS_INTERNAL;
}

void rpc_end_of(struct rpc_end *out, bool begun, const struct api_error *e) {
    bool named = e->param[0] == '\0' || strstr(e->message, e->param) != NULL;
    *out = (struct rpc_end){.code = code_of(begun, e)};
    out->come_again = !begun && (e->status == 429 || e->status == 503);
    snprintf(out->text, sizeof out->text, "%s%s%s", named ? "" : e->param, named ? "" : ": ",
             e->message);
}

static void fail(void *self, bool begun, const struct api_error *e) {
    struct rpc_call *c = self;
    struct rpc_end how;
    rpc_end_of(&how, begun, e);
    pthread_mutex_lock(&c->lock);
    rpc_call_finish(c, &how);
    rpc_call_pump(c);
    pthread_mutex_unlock(&c->lock);
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
        .unwanted = unwanted,
        .note_logprobs = note_logprobs,
        .show = show,
        .fail = fail,
    };
    return (struct client){.ops = &ops, .self = c};
}
