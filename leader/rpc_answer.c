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

static int32_t key(const void *self) {
    return ((const struct rpc_call *)self)->key;
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

static size_t message_bytes(const void *self) {
    return ((const struct rpc_call *)self)->message_bytes;
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

struct packed_tops {
    uint32_t n;
    Moesaic__V1__Alternative all[TOP_LOGPROBS_MAX], *list[TOP_LOGPROBS_MAX];
};

static void fill_tops(struct packed_tops *p, const struct tokenizer *t, const uint32_t *ids,
                      const float *logprobs) {
    for (uint32_t i = 0; i < p->n; i++) {
        Moesaic__V1__Alternative *a = &p->all[i];
        *a = (Moesaic__V1__Alternative)MOESAIC__V1__ALTERNATIVE__INIT;
        a->token_id = ids[i];
        a->logprob = logprobs[i];
        a->token = rpc_token_bytes(t, a->token_id);
        p->list[i] = a;
    }
}

// Messages of one kind merge when their bytes follow each other.
static void add_packed(struct choice *c, const Moesaic__V1__GenerateResponse *m) {
    rpc_pack(&c->logprobs.first, &m->base);
}

static void note_logprobs(struct choice *c, const struct token_event *ev, uint64_t text_chars) {
    const struct generation *g = c->generation;
    const struct tokenizer *t = g->serving->tokenizer;
    uint32_t n_wanted = g->request.sampling.n_logprobs;
    struct packed_tops tops = {.n = ev->n_top < n_wanted ? ev->n_top : n_wanted};
    Moesaic__V1__TokenLogprobs token = MOESAIC__V1__TOKEN_LOGPROBS__INIT, *tokens[] = {&token};
    Moesaic__V1__GenerateResponse m = MOESAIC__V1__GENERATE_RESPONSE__INIT;
    (void)text_chars;
    fill_tops(&tops, t, ev->top_ids, ev->top_logprobs);
    token.logprob = ev->logprob;
    token.token = rpc_token_bytes(t, ev->token);
    token.n_top = tops.n;
    token.top = tops.list;
    m.n_logprobs = 1;
    m.logprobs = tokens;
    add_packed(c, &m);
}

static void add_score(struct choice *c, Moesaic__V1__PromptTokenLogprobs *token) {
    Moesaic__V1__GenerateResponse m = MOESAIC__V1__GENERATE_RESPONSE__INIT;
    token->token = rpc_token_bytes(c->generation->serving->tokenizer, token->token_id);
    m.n_prompt_logprobs = 1;
    m.prompt_logprobs = &token;
    add_packed(c, &m);
}

static bool begin_scores(struct choice *c, const struct prompt_start *start) {
    Moesaic__V1__PromptTokenLogprobs first = MOESAIC__V1__PROMPT_TOKEN_LOGPROBS__INIT;
    first.token_id = start->first_token;
    add_score(c, &first);
    return !c->logprobs.first.failed;
}

static void note_scores(struct choice *c, const struct prompt_scores *scores) {
    const struct tokenizer *t = c->generation->serving->tokenizer;
    for (uint32_t i = 0; i < scores->n_tokens; i++) {
        Moesaic__V1__PromptTokenLogprobs token = MOESAIC__V1__PROMPT_TOKEN_LOGPROBS__INIT;
        struct packed_tops tops = {.n = scores->n_top};
        size_t at = (size_t)i * scores->n_top;
        fill_tops(&tops, t, scores->top_ids + at, scores->top_logprobs + at);
        token.token_id = scores->tokens[i];
        token.logprob = scores->logprobs[i];
        token.rank = scores->ranks[i];
        token.n_top = tops.n;
        token.top = tops.list;
        add_score(c, &token);
    }
}

// A stream holds no more than what its reader has not taken.
static bool hold_bytes(void *self, uint64_t bytes) {
    (void)self;
    (void)bytes;
    return true;
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
           c->logprobs.first.bytes != 0 || (c->finish != FINISH_NONE && !c->finish_sent);
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
    d->n_cached = choice->n_cached;
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
    if (!begun && (e->status == 429 || e->status == 503))
        out->pushback_ms = e->retry_after_s != 0 ? e->retry_after_s * 1000 : RPC_PUSHBACK_MS;
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
        .key = key,
        .bytes = message_bytes,
        .parse = parse,
        .gone = gone,
        .on_gone = on_gone,
        .unwanted = unwanted,
        .note_logprobs = note_logprobs,
        .begin_scores = begin_scores,
        .note_scores = note_scores,
        .hold_bytes = hold_bytes,
        .show = show,
        .fail = fail,
    };
    return (struct client){.ops = &ops, .self = c};
}
