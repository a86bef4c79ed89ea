// rpc_tokens.c: see rpc_tokens.h.
#include "leader/rpc_tokens.h"

#include <grpc/status.h>
#include <string.h>

#include "common/base/mem.h"
#include "leader/openai_fields.h"
#include "leader/prompt.h"
#include "leader/rpc_call.h"
#include "leader/rpc_pack.h"
#include "leader/rpc_prompt.h"
#include "leader/rpc_walk.h"

#define DETOKENIZED_TEXT 1              // proto/generate.proto's number of the field
#define MESSAGE_WAIT_NS (75 * NS_PER_S) // as Generate's: texts may be as long

struct tokens_call {
    _Atomic uint32_t refs; // gRPC's, the render pool's
    _Atomic bool over;
    struct rpc *rpc;
    enum rpc_tokens_kind kind;
    struct grpc_server_call *grpc; // a reference
    bool asked;                    // gRPC's thread
    uint8_t *message;              // owned
    size_t message_bytes;
};

static void release(struct tokens_call *c) {
    if (atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    atomic_fetch_sub(&c->rpc->body_bytes, c->message_bytes);
    mem_free(c->message);
    grpc_server_call_unref(c->grpc);
    mem_free(c);
}

static void end(struct rpc *r, struct grpc_server_call *grpc, const struct rpc_end *how) {
    counter_add(&r->by_code[how->code], 1);
    if (how->pushback_ms != 0)
        grpc_server_call_end_pushback(grpc, how->code, how->text, how->pushback_ms);
    else
        grpc_server_call_end(grpc, how->code, how->text);
}

static void fail(struct tokens_call *c, const struct api_error *e) {
    struct rpc_end how;
    rpc_end_of(&how, false, e);
    end(c->rpc, c->grpc, &how);
}

// --- the messages, on a render thread

static int begin(struct openai_request *r, const struct rpc_prompt *p, const char *model,
                 struct openai_reader *fields) {
    openai_request_init(r, rpc_prompt_is_chat(p), fields->defaults);
    r->root = json_object();
    if (r->root == NULL) return api_error_set(fields->error, 500, NULL, "memory is out.");
    if (model[0] != '\0') r->model = model; // the message's, which is there until the end
    int rc = rpc_prompt_fill(r->root, p, fields->error);
    if (rc == 0) rc = openai_fields_read(fields, r->root);
    if (rc == 0) rc = openai_fields_check(fields);
    return rc == 0 ? rpc_prompt_read(r, p, fields->defaults->vocab, fields->error) : rc;
}

static int write_ids(const struct serving *s, const struct id_list *ids, bool tokens,
                     struct buf *out) {
    Moesaic__V1__TokenizeResponse m = MOESAIC__V1__TOKENIZE_RESPONSE__INIT;
    ProtobufCBinaryData *list = tokens ? mem_array(ids->n, sizeof *list) : NULL;
    if (tokens && list == NULL) return ERR_FATAL_NOMEM;
    m.token_ids = ids->ids;
    m.n_token_ids = ids->n;
    m.max_model_len = s->max_model_len;
    m.tokens = list;
    m.n_tokens = tokens ? ids->n : 0;
    for (size_t i = 0; i < m.n_tokens; i++)
        list[i] = rpc_token_bytes(s->tokenizer, ids->ids[i]);
    rpc_pack(out, &m.base);
    mem_free(list);
    return 0;
}

static bool is_over(void *context) {
    return atomic_load(&((struct tokens_call *)context)->over);
}

static int encode(const struct prompt_ask *ask, bool tokens, struct buf *out, struct api_error *e) {
    const struct serving *s = ask->serving;
    struct id_list ids = {0};
    int rc = prompt_check_model(s, ask->request, e);
    if (rc == 0) rc = prompt_encode(ask, &ids, e);
    if (rc == 0 && write_ids(s, &ids, tokens, out) != 0)
        rc = api_error_set(e, 500, NULL, "memory is out.");
    id_list_finish(&ids);
    return rc;
}

static int tokenize(struct tokens_call *c, const ProtobufCMessage *message, struct buf *out,
                    struct api_error *e) {
    const struct serving *s = c->rpc->config.serving;
    const Moesaic__V1__TokenizeRequest *m = (const Moesaic__V1__TokenizeRequest *)message;
    struct rpc_prompt p = {.text = m->text,
                           .n_messages = m->n_messages,
                           .messages = m->messages,
                           .template_kwargs = m->chat_template_kwargs,
                           .tools = m->tools,
                           .tool_choice = "",
                           .documents = m->documents,
                           .truncate = m->truncate_prompt_tokens,
                           .continue_final_message = m->continue_final_message,
                           .has_generation_prompt = m->optional_add_generation_prompt_case != 0,
                           .add_generation_prompt = m->add_generation_prompt,
                           .has_special_tokens = m->optional_add_special_tokens_case != 0,
                           .add_special_tokens = m->add_special_tokens};
    struct openai_request r;
    struct openai_reader fields = {
        .request = &r, .defaults = &s->defaults, .error = e, .where = TOKENIZE};
    if (m->text[0] != '\0' && m->n_messages != 0)
        return api_error_set(e, 400, "text", "only one of 'text' and 'messages' may be given.");
    int rc = begin(&r, &p, m->model, &fields);
    const struct text_watch watch = {is_over, c};
    const struct prompt_ask ask = {s, &r, 0, &watch};
    if (rc == 0) rc = encode(&ask, m->return_tokens, out, e);
    openai_request_finish(&r);
    return rc;
}

static int detokenize(const struct serving *s, const ProtobufCMessage *message, struct buf *out,
                      struct api_error *e) {
    const Moesaic__V1__DetokenizeRequest *m = (const Moesaic__V1__DetokenizeRequest *)message;
    struct openai_request r = {.model = m->model[0] != '\0' ? m->model : NULL};
    struct buf text;
    int rc = prompt_check_model(s, &r, e);
    if (rc == 0 && m->n_token_ids > s->max_model_len)
        rc = api_error_set(e, 400, "token_ids", "'token_ids' may have at most %u ids.",
                           s->max_model_len);
    for (size_t i = 0; i < m->n_token_ids && rc == 0; i++) {
        if (m->token_ids[i] >= s->defaults.vocab)
            rc = api_error_set(e, 400, "token_ids",
                               "'token_ids[%zu]' must be below %u, the model's vocabulary.", i,
                               s->defaults.vocab);
    }
    if (rc != 0) return rc;
    buf_init(&text, 0);
    rc = prompt_text(s, m->token_ids, m->n_token_ids, &text);
    if (rc == 0 && !text.failed)
        rpc_pack_text(out, DETOKENIZED_TEXT, text.data, text.bytes);
    else
        rc = api_error_set(e, 500, NULL, "memory is out.");
    buf_finish(&text);
    return rc;
}

static int make_answer(struct tokens_call *c, struct buf *out, struct api_error *e) {
    const struct serving *s = c->rpc->config.serving;
    const ProtobufCMessageDescriptor *kind = c->kind == RPC_TOKENIZE
                                                 ? &moesaic__v1__tokenize_request__descriptor
                                                 : &moesaic__v1__detokenize_request__descriptor;
    struct rpc_message message = {.data = c->message, .bytes = c->message_bytes};
    struct rpc_unpacked u;
    int rc = rpc_unpack(&u, kind, &message, e);
    if (rc == 0) rc = rpc_walk(kind, &message, e);
    if (rc == 0)
        rc = c->kind == RPC_TOKENIZE ? tokenize(c, u.message, out, e)
                                     : detokenize(s, u.message, out, e);
    rpc_unpacked_finish(&u);
    return rc == 0 && out->failed ? api_error_set(e, 500, NULL, "memory is out.") : rc;
}

static void run(struct serving *s, void *context) {
    static const struct rpc_end well = {.code = GRPC_STATUS_OK};
    struct tokens_call *c = context;
    struct api_error e;
    struct buf out;
    (void)s;
    buf_init(&out, 0);
    int rc = atomic_load(&c->over) ? ERR_REQ_ABORTED : make_answer(c, &out, &e);
    if (rc == ERR_REQ_ABORTED) {
        // There is nobody left to tell.
    } else if (rc != 0) {
        fail(c, &e);
    } else {
        grpc_server_call_send(c->grpc, out.bytes == 0 ? "" : out.data, out.bytes);
        end(c->rpc, c->grpc, &well);
    }
    buf_finish(&out);
    release(c);
}

// --- gRPC's thread; a call that could not be opened has no state

static void opened(void *context, struct grpc_server_call *grpc, void **state) {
    static const struct rpc_end full = {GRPC_STATUS_RESOURCE_EXHAUSTED, RPC_PUSHBACK_MS,
                                        "too many calls are open; try again later"};
    const struct rpc_tokens *t = context;
    struct rpc *r = t->rpc;
    struct tokens_call *c = NULL;
    if (atomic_fetch_add(&r->n_calls, 1) < r->config.calls_max) c = mem_zalloc(sizeof *c);
    *state = c;
    if (c == NULL) {
        end(r, grpc, &full);
        return;
    }
    c->refs = 1;
    c->rpc = r;
    c->kind = t->kind;
    c->grpc = grpc;
    grpc_server_call_ref(grpc);
}

static int keep(struct tokens_call *c, const uint8_t *data, size_t bytes, struct api_error *e) {
    struct rpc *r = c->rpc;
    if (atomic_fetch_add(&r->body_bytes, bytes) + bytes > r->config.bodies_bytes_max) {
        atomic_fetch_sub(&r->body_bytes, bytes);
        return api_error_set(e, 429, NULL,
                             "too many bytes of requests are waiting; try again later");
    }
    c->message_bytes = bytes;
    c->message = mem_alloc(bytes);
    if (c->message == NULL) return api_error_set(e, 429, NULL, "memory is out");
    if (bytes != 0) memcpy(c->message, data, bytes);
    return 0;
}

static void message(void *context, void *state, const uint8_t *data, size_t bytes) {
    struct tokens_call *c = state;
    struct api_error e;
    (void)context;
    if (c == NULL || c->asked) return;
    c->asked = true;
    if (keep(c, data, bytes, &e) != 0) {
        fail(c, &e);
        return;
    }
    struct render_task task = {run, c, bytes};
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    if (render_run(c->rpc->config.render, &task, &e) == 0) return;
    fail(c, &e);
    release(c);
}

static void half_closed(void *context, void *state) {
    static const struct rpc_end how = {.code = GRPC_STATUS_INVALID_ARGUMENT,
                                       .text = "the call ended without a request"};
    struct tokens_call *c = state;
    (void)context;
    if (c == NULL || c->asked) return;
    c->asked = true;
    end(c->rpc, c->grpc, &how);
}

static void closed(void *context, void *state, bool connection_lost) {
    struct rpc *r = ((const struct rpc_tokens *)context)->rpc;
    struct tokens_call *c = state;
    (void)connection_lost;
    atomic_fetch_sub(&r->n_calls, 1);
    if (c == NULL) return;
    atomic_store(&c->over, true);
    release(c);
}

void rpc_tokens_register(struct rpc *r) {
    static const char *const paths[] = {"/moesaic.v1.Generate/Tokenize",
                                        "/moesaic.v1.Generate/Detokenize"};
    for (int kind = 0; kind < RPC_TOKENS_COUNT; kind++) {
        r->tokens[kind] = (struct rpc_tokens){r, (enum rpc_tokens_kind)kind};
        struct grpc_method method = {.path = paths[kind],
                                     .first_ns = MESSAGE_WAIT_NS,
                                     .end_ns = MESSAGE_WAIT_NS,
                                     .context = &r->tokens[kind],
                                     .opened = opened,
                                     .message = message,
                                     .half_closed = half_closed,
                                     .closed = closed};
        grpc_server_host_register(r->host, &method);
    }
}
