// tokens.c: see tokens.h.
#include "leader/tokens.h"

#include "leader/http_answer.h"
#include "leader/prompt.h"

// --- the answers

static void write_ids(struct buf *out, const struct id_list *ids) {
    buf_text(out, ",\"tokens\":[");
    for (size_t i = 0; i < ids->n; i++)
        buf_format(out, "%s%u", i == 0 ? "" : ",", ids->ids[i]);
    buf_text(out, "],\"token_strs\":");
}

static void write_strings(struct buf *out, const struct tokenizer *t, const struct id_list *ids) {
    buf_text(out, "[");
    for (size_t i = 0; i < ids->n; i++) {
        if (i != 0) buf_text(out, ",");
        answer_token_name(out, t, ids->ids[i]);
    }
    buf_text(out, "]");
}

static bool is_gone(void *context) {
    return http_call_gone(context);
}

static int encode(const struct serving *s, const struct openai_request *r, struct http_call *call,
                  struct buf *out, struct api_error *e) {
    struct id_list ids = {0};
    struct text_watch watch = {is_gone, call};
    const struct prompt_ask ask = {s, r, 0, &watch};
    int rc = prompt_encode(&ask, &ids, e);
    if (rc == 0) {
        buf_format(out, "{\"count\":%zu,\"max_model_len\":%u", ids.n, s->max_model_len);
        write_ids(out, &ids);
        if (r->return_token_strs)
            write_strings(out, s->tokenizer, &ids);
        else
            buf_text(out, "null");
        buf_text(out, "}");
    }
    id_list_finish(&ids);
    return rc;
}

static int decode(const struct serving *s, const struct openai_request *r, struct buf *out,
                  struct api_error *e) {
    const struct openai_prompt *p = &r->prompts[0];
    struct buf text;
    if (p->n_ids > s->max_model_len)
        return api_error_set(e, 400, "tokens", "'tokens' may have at most %u ids.",
                             s->max_model_len);
    buf_init(&text, 0);
    int rc = prompt_text(s, p->ids, p->n_ids, &text);
    buf_text(out, "{\"prompt\":");
    buf_json(out, text.bytes == 0 ? "" : text.data, text.bytes);
    buf_text(out, "}");
    buf_finish(&text);
    return rc == 0 ? 0 : api_error_set(e, 500, NULL, "memory is out.");
}

// --- the call, on a render thread

static int parse(struct openai_request *r, struct http_call *call, enum tokens_kind kind,
                 const struct serving *s, struct api_error *e) {
    struct openai_body body = {0};
    body.text = http_call_body(call, &body.bytes);
    int rc = kind == TOKENS_ENCODE ? openai_parse_tokenize(r, &body, &s->defaults, e)
                                   : openai_parse_detokenize(r, &body, &s->defaults, e);
    http_call_drop_body(call);
    return rc;
}

static void answer(struct serving *s, struct http_call *call, enum tokens_kind kind) {
    struct http_reply reply = {.status = 200, .content_type = "application/json"};
    struct openai_request r;
    struct api_error e;
    if (http_call_gone(call)) return;
    buf_init(&reply.body, 0);
    int rc = parse(&r, call, kind, s, &e);
    if (rc == 0) {
        rc = prompt_check_model(s, &r, &e);
        if (rc == 0)
            rc = kind == TOKENS_ENCODE ? encode(s, &r, call, &reply.body, &e)
                                       : decode(s, &r, &reply.body, &e);
        openai_request_finish(&r);
    }
    if (rc == 0 && reply.body.failed) rc = api_error_set(&e, 500, NULL, "memory is out.");
    if (rc == 0) {
        http_call_reply(call, &reply);
        return;
    }
    buf_finish(&reply.body);
    if (rc != ERR_REQ_ABORTED) http_answer_error(call, &e);
}

static void run_encode(struct serving *s, void *context) {
    answer(s, context, TOKENS_ENCODE);
    http_call_release(context);
}

static void run_decode(struct serving *s, void *context) {
    answer(s, context, TOKENS_DECODE);
    http_call_release(context);
}

void tokens_take(struct render *r, struct http_call *call, enum tokens_kind kind) {
    struct render_task task = {kind == TOKENS_ENCODE ? run_encode : run_decode, call, 0};
    http_call_body(call, &task.bytes);
    struct api_error e;
    http_call_hold(call);
    if (render_run(r, &task, &e) == 0) return;
    http_answer_error(call, &e);
    http_call_release(call);
}
