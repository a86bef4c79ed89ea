// rpc_call.c: the life of one call of Generate, and what goes out on it. Everything that more than
// one thread changes is under the call's lock.
//
// One message at a time is with gRPC. What comes meanwhile waits in the delta of its choice and
// goes as one, so a slow reader costs no more than the bound on that.
#include "leader/rpc_call.h"

#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "generate.pb-c.h"
#include "leader/rpc_pack.h"

#define RESPONSE_TEXT 2 // proto/generate.proto's number of the field

struct rpc_call *rpc_call_create(struct rpc *r, struct grpc_server_call *grpc) {
    struct rpc_call *c = mem_zalloc(sizeof *c);
    if (c == NULL) return NULL;
    c->refs = 1;
    c->rpc = r;
    c->grpc = grpc;
    c->key = grpc_server_call_key(grpc);
    if (!grpc_server_call_metadata(grpc, RPC_REQUEST_ID_KEY, c->request_id, sizeof c->request_id) ||
        !client_id_ok(c->request_id))
        c->request_id[0] = '\0';
    grpc_server_call_ref(grpc);
    check(pthread_mutex_init(&c->lock, NULL) == 0);
    return c;
}

void rpc_call_hold(struct rpc_call *c) {
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
}

static void finish_delta(struct rpc_delta *d) {
    buf_finish(&d->text);
    buf_finish(&d->ids);
    buf_finish(&d->logprobs);
    buf_finish(&d->stop_reason);
}

void rpc_call_release(struct rpc_call *c) {
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    check(!c->named);
    rpc_call_drop_message(c);
    for (uint32_t i = 0; i < c->n_deltas; i++)
        finish_delta(&c->deltas[i]);
    mem_free(c->deltas);
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

static Moesaic__V1__GenerateResponse describe(struct rpc_call *c, uint32_t index) {
    struct rpc_delta *d = &c->deltas[index];
    Moesaic__V1__GenerateResponse m = MOESAIC__V1__GENERATE_RESPONSE__INIT;
    m.request_id = c->request_id;
    m.index = index;
    m.token_ids = (uint32_t *)(void *)d->ids.data;
    m.n_token_ids = d->ids.bytes / sizeof(uint32_t);
    m.finish_reason = (char *)(uintptr_t)d->finish;
    m.stop_reason = d->stop_reason.data;
    m.prompt_tokens = d->n_prompt;
    m.completion_tokens = d->n_completion;
    m.cached_tokens = d->n_cached;
    m.seed = c->seed;
    m.digest = d->digest;
    return m;
}

static void forget(struct rpc_call *c, struct rpc_delta *d) {
    c->waiting_bytes -= d->text.bytes + d->ids.bytes + d->logprobs.bytes;
    buf_reset(&d->text);
    buf_reset(&d->ids);
    buf_reset(&d->logprobs);
    buf_reset(&d->stop_reason);
    d->fresh = false;
}

// Protobuf messages of one kind merge when their bytes are put one behind the other, so the
// text and the log-probabilities, packed token by token, just follow.
static int send_delta(struct rpc_call *c, uint32_t index) {
    struct rpc_delta *d = &c->deltas[index];
    buf_add(&d->stop_reason, "", 1);
    if (d->text.failed || d->ids.failed || d->logprobs.failed || d->stop_reason.failed)
        return ERR_FATAL_NOMEM;
    Moesaic__V1__GenerateResponse m = describe(c, index);
    struct buf packed;
    buf_init(&packed, 0);
    rpc_pack(&packed, &m.base);
    rpc_pack_text(&packed, RESPONSE_TEXT, d->text.data, d->text.bytes);
    buf_add(&packed, d->logprobs.data, d->logprobs.bytes);
    bool whole = !packed.failed;
    int rc = whole ? grpc_server_call_send(c->grpc, packed.data, packed.bytes) : ERR_FATAL_NOMEM;
    buf_finish(&packed);
    if (!whole) return rc;
    forget(c, d);
    c->sending = rc == 0;
    return rc;
}

// The choices take turns. False: none of them has news.
static bool find_news(struct rpc_call *c, uint32_t *index) {
    for (uint32_t i = 0; i < c->n_deltas; i++) {
        *index = c->next_delta;
        c->next_delta = (*index + 1) % c->n_deltas;
        if (c->deltas[*index].fresh) return true;
    }
    return false;
}

static void lose_name(struct rpc_call *c) {
    if (c->named) rpc_names_remove(&c->rpc->names, c);
    c->named = false;
}

void rpc_call_cut(struct rpc_call *c, int code, const char *text) {
    c->gone = true;
    lose_name(c);
    counter_add(&c->rpc->by_code[code], 1);
    grpc_server_call_cancel(c->grpc, code, text);
}

static void send_end(struct rpc_call *c) {
    const struct rpc_end *how = &c->how;
    c->end_sent = true;
    lose_name(c); // before the client hears it and may use it again
    counter_add(&c->rpc->by_code[how->code], 1);
    if (how->pushback_ms != 0)
        grpc_server_call_end_pushback(c->grpc, how->code, how->text, how->pushback_ms);
    else
        grpc_server_call_end(c->grpc, how->code, how->text);
}

// When nothing more will come, the rest does not wait for the message before it: with the status in
// its queue gRPC's side knows since when the client owes us its reading, and ends one that does
// not.
int rpc_call_pump(struct rpc_call *c) {
    int rc = 0;
    while (rc == 0 && !c->gone && !c->end_sent && (c->ended || !c->sending)) {
        uint32_t index;
        if (find_news(c, &index))
            rc = send_delta(c, index);
        else if (c->ended)
            send_end(c);
        else
            break;
    }
    if (rc == ERR_FATAL_NOMEM) rpc_call_cut(c, GRPC_STATUS_INTERNAL, "memory is out");
    return rc;
}

void rpc_call_finish(struct rpc_call *c, const struct rpc_end *how) {
    check(how->code >= 0 && how->code < RPC_CODES);
    if (c->ended) return;
    c->ended = true;
    c->how = *how;
}

// --- gRPC's thread

void rpc_call_sent(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    c->sending = false;
    rpc_call_pump(c);
    pthread_mutex_unlock(&c->lock);
}

void rpc_call_mark_gone(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    if (!c->gone && !c->end_sent) counter_add(&c->rpc->disconnects, 1);
    c->gone = true;
    lose_name(c);
    if (c->on_gone != NULL) c->on_gone(c->gone_context);
    c->on_gone = NULL;
    pthread_mutex_unlock(&c->lock);
}

// --- any thread

void rpc_call_end(struct rpc_call *c, int code, const char *text) {
    struct rpc_end how = {.code = code};
    if (code == GRPC_STATUS_RESOURCE_EXHAUSTED) how.pushback_ms = RPC_PUSHBACK_MS;
    snprintf(how.text, sizeof how.text, "%s", text);
    pthread_mutex_lock(&c->lock);
    rpc_call_finish(c, &how);
    rpc_call_pump(c);
    pthread_mutex_unlock(&c->lock);
}

// Nobody will say anything of a request that was not queued yet.
static void end_unqueued(struct rpc_call *c) {
    struct rpc_end how = {.code = GRPC_STATUS_OK};
    for (uint32_t i = 0; i < c->n_deltas; i++) {
        c->deltas[i].finish = "abort";
        c->deltas[i].fresh = true;
    }
    rpc_call_finish(c, &how);
    rpc_call_pump(c);
}

bool rpc_call_abort(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    bool live = !c->gone && !c->ended && !c->aborted;
    if (live) c->aborted = true;
    if (live && c->on_gone != NULL)
        c->on_gone(c->gone_context); // it still hears the end, so the hook stays
    else if (live)
        end_unqueued(c);
    pthread_mutex_unlock(&c->lock);
    return live;
}
