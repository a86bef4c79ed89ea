// answer.c: see answer.h.
#include "leader/answer.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

// JSON has no infinity; this is what other servers send in its place.
#define LOGPROB_FLOOR (-9999.0)

// --- errors

int api_error_set(struct api_error *e, int status, const char *param, const char *format, ...) {
    va_list args;
    memset(e, 0, sizeof *e);
    e->status = status;
    snprintf(e->param, sizeof e->param, "%s", param == NULL ? "" : param);
    va_start(args, format);
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    return ERR_REQ_INVALID;
}

int api_error_code(struct api_error *e, int rc, const char *code) {
    snprintf(e->code, sizeof e->code, "%s", code);
    return rc;
}

int api_error_status(int code) {
    switch (code) {
    case ERR_REQ_INVALID:
    case ERR_REQ_TOO_LARGE: return 400;
    case ERR_REQ_NOT_FOUND: return 404;
    case ERR_REQ_QUEUE_FULL: return 429;
    case ERR_REQ_UNAVAILABLE:
    case ERR_REQ_WORKER_LOST: return 503;
    default: return 500;
    }
}

const char *answer_error_code(size_t i) {
    static const char *const words[] = {"unknown_url",           "method_not_allowed",
                                        "invalid_api_key",       "model_not_found",
                                        "no_chat_template",      "context_length_exceeded",
                                        "unsupported_parameter", "rate_limit_exceeded"};
    // Of requests that ended after they were queued (stream.c).
    static const int codes[] = {ERR_REQ_TOO_LARGE, ERR_REQ_QUEUE_FULL,  ERR_REQ_UNAVAILABLE,
                                ERR_REQ_NONFINITE, ERR_REQ_WORKER_LOST, ERR_PEER_LOST,
                                ERR_PEER_TIMEOUT,  ERR_FATAL_NOMEM,     ERR_FATAL_STOPPED};
    const size_t n_words = sizeof words / sizeof *words;
    if (i < n_words) return words[i];
    i -= n_words;
    return i < sizeof codes / sizeof *codes ? err_name(codes[i]) : NULL;
}

static const char *error_type(int status) {
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

static void json_or_null(struct buf *out, const char *text) {
    if (text[0] == '\0')
        buf_text(out, "null");
    else
        buf_json(out, text, strlen(text));
}

void answer_error(struct buf *out, const struct api_error *e) {
    buf_text(out, "{\"error\":{\"message\":");
    buf_json(out, e->message, strlen(e->message));
    buf_format(out, ",\"type\":\"%s\",\"param\":", error_type(e->status));
    json_or_null(out, e->param);
    buf_text(out, ",\"code\":");
    json_or_null(out, e->code);
    buf_text(out, "}}");
}

// --- head and tail

static const char *object_name(const struct answer_head *h) {
    if (!h->chat) return "text_completion";
    return h->chunk ? "chat.completion.chunk" : "chat.completion";
}

static void prompt_list(struct buf *out, const struct buf *entries) {
    if (entries == NULL) return;
    buf_text(out, ",\"prompt_logprobs\":[");
    buf_add(out, entries->data, entries->bytes);
    out->failed |= entries->failed;
    buf_text(out, "]");
}

void answer_head(struct buf *out, const struct answer_head *h) {
    buf_format(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", h->id,
               object_name(h), (long long)h->created_s);
    buf_json(out, h->model, strlen(h->model));
    buf_text(out, ",\"system_fingerprint\":");
    buf_json(out, h->fingerprint, strlen(h->fingerprint));
    buf_format(out, ",\"seed\":%lld", (long long)h->seed);
    prompt_list(out, h->prompt_logprobs);
    buf_text(out, ",\"choices\":[");
}

void answer_tail(struct buf *out, const struct answer_usage *usage, bool with_usage) {
    buf_text(out, "]");
    if (usage != NULL)
        buf_format(out,
                   ",\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,"
                   "\"total_tokens\":%llu,\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
                   (unsigned long long)usage->prompt_tokens,
                   (unsigned long long)usage->completion_tokens,
                   (unsigned long long)(usage->prompt_tokens + usage->completion_tokens),
                   (unsigned long long)usage->cached_tokens);
    else if (with_usage)
        buf_text(out, ",\"usage\":null");
    buf_text(out, "}");
}

// --- choices

static const char *finish_word(const struct answer_choice *c) {
    switch (c->finish) {
    case FINISH_STOP: return c->called ? "\"tool_calls\"" : "\"stop\"";
    case FINISH_LENGTH: return "\"length\"";
    default: return "null";
    }
}

// The name of an object's next member.
static void name_member(struct buf *out, const char **comma, const char *name) {
    buf_format(out, "%s\"%s\":", *comma, name);
    *comma = ",";
}

static void copy_member(struct buf *out, const char **comma, const char *name,
                        const json_t *object) {
    const json_t *value = json_object_get(object, name);
    name_member(out, comma, name);
    buf_json(out, json_string_value(value), json_string_length(value));
}

static void one_call(struct buf *out, const struct answer_choice *c, size_t i) {
    const json_t *call = json_array_get(c->calls, i);
    const char *comma = "", *inner = "";
    buf_text(out, i > c->first_call ? ",{" : "{");
    if (c->chunk) name_member(out, &comma, "index");
    if (c->chunk) buf_format(out, "%zu", i);
    copy_member(out, &comma, "id", call);
    name_member(out, &comma, "type");
    buf_text(out, "\"function\"");
    name_member(out, &comma, "function");
    buf_text(out, "{");
    copy_member(out, &inner, "name", call);
    copy_member(out, &inner, "arguments", call);
    buf_text(out, "}}");
}

static void tool_calls(struct buf *out, const struct answer_choice *c, const char **comma) {
    name_member(out, comma, "tool_calls");
    buf_text(out, "[");
    for (size_t i = c->first_call; i < json_array_size(c->calls); i++)
        one_call(out, c, i);
    buf_text(out, "]");
}

static void chat_content(struct buf *out, const struct answer_choice *c, const char **comma,
                         bool calls) {
    bool silent = calls && c->text_bytes == 0;
    if (c->text == NULL || (silent && c->chunk)) return;
    name_member(out, comma, "content");
    if (silent)
        buf_text(out, "null");
    else
        buf_json(out, c->text, c->text_bytes);
}

// Where there are calls and no text a message has null and a chunk nothing; else both have a text.
static void chat_text(struct buf *out, const struct answer_choice *c) {
    bool calls = json_array_size(c->calls) > c->first_call;
    const char *comma = "";
    buf_text(out, c->chunk ? ",\"delta\":{" : ",\"message\":{");
    if (c->role || !c->chunk) {
        name_member(out, &comma, "role");
        buf_text(out, "\"assistant\"");
    }
    chat_content(out, c, &comma, calls);
    if (!c->chunk) name_member(out, &comma, "refusal");
    if (!c->chunk) buf_text(out, "null");
    if (calls) tool_calls(out, c, &comma);
    buf_text(out, "}");
}

static void token_ids(struct buf *out, const struct answer_choice *c) {
    buf_text(out, ",\"token_ids\":[");
    for (uint32_t i = 0; i < c->n_token_ids; i++)
        buf_format(out, "%s%u", i == 0 ? "" : ",", c->token_ids[i]);
    buf_text(out, "]");
}

void answer_choice(struct buf *out, const struct answer_choice *c) {
    buf_format(out, "{\"index\":%u", c->index);
    if (c->chat) {
        chat_text(out, c);
    } else {
        buf_text(out, ",\"text\":");
        buf_json(out, c->text == NULL ? "" : c->text, c->text_bytes);
    }
    buf_text(out, ",\"logprobs\":");
    if (c->logprobs != NULL)
        buf_add(out, c->logprobs->data, c->logprobs->bytes);
    else
        buf_text(out, "null");
    prompt_list(out, c->prompt_logprobs);
    buf_format(out, ",\"finish_reason\":%s", finish_word(c));
    if (c->finish != FINISH_NONE) {
        buf_text(out, ",\"stop_reason\":");
        if (c->stop_text != NULL)
            buf_json(out, c->stop_text, c->stop_text_bytes);
        else if (c->stop_id != NULL)
            buf_format(out, "%u", *c->stop_id);
        else
            buf_text(out, "null");
        if (c->digest != NULL)
            buf_format(out, ",\"digest\":\"%016llx\"", (unsigned long long)*c->digest);
    }
    if (c->token_ids != NULL) token_ids(out, c);
    buf_text(out, "}");
}

// --- log-probabilities

void answer_logprobs_init(struct answer_logprobs *l, bool chat) {
    *l = (struct answer_logprobs){.chat = chat};
}

void answer_logprobs_finish(struct answer_logprobs *l) {
    buf_finish(&l->first);
    buf_finish(&l->values);
    buf_finish(&l->tops);
    buf_finish(&l->offsets);
}

void answer_logprob(struct buf *out, float value) {
    buf_format(out, "%.9g", value > (float)LOGPROB_FLOOR ? (double)value : LOGPROB_FLOOR);
}

static bool is_utf8(const char *text, size_t bytes) {
    size_t i = 0, n = 0;
    while (i < bytes && (n = utf8_char_bytes(text + i, bytes - i)) != 0)
        i += n;
    return i == bytes;
}

// The completions shape has no list of bytes, so a token that is not UTF-8 is spelt: two of them
// would else look the same.
static void token_name(struct buf *out, const char *text, size_t bytes, bool chat) {
    if (chat || is_utf8(text, bytes)) {
        buf_json(out, text, bytes);
        return;
    }
    buf_text(out, "\"bytes:");
    for (size_t i = 0; i < bytes; i++)
        buf_format(out, "\\\\x%02x", (unsigned char)text[i]);
    buf_text(out, "\"");
}

static const char *token_text(const struct tokenizer *t, uint32_t id, size_t *bytes) {
    *bytes = 0;
    const char *text = tokenizer_bytes(t, id, bytes);
    return text == NULL ? "" : text;
}

void answer_token_name(struct buf *out, const struct tokenizer *t, uint32_t id) {
    size_t bytes;
    const char *text = token_text(t, id, &bytes);
    token_name(out, text, bytes, false);
}

// {"token":...,"logprob":...,"bytes":[...] without the closing brace.
static void chat_token(struct buf *out, const struct tokenizer *t, uint32_t id, float logprob) {
    size_t bytes;
    const char *text = token_text(t, id, &bytes);
    buf_text(out, "{\"token\":");
    token_name(out, text, bytes, true);
    buf_text(out, ",\"logprob\":");
    answer_logprob(out, logprob);
    buf_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes; i++)
        buf_format(out, "%s%u", i == 0 ? "" : ",", (unsigned char)text[i]);
    buf_text(out, "]");
}

static void add_chat(struct answer_logprobs *l, const struct tokenizer *t,
                     const struct answer_token *token) {
    struct buf *out = &l->first;
    if (l->n_tokens != 0) buf_text(out, ",");
    chat_token(out, t, token->id, token->logprob);
    buf_text(out, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < token->n_top; i++) {
        if (i != 0) buf_text(out, ",");
        chat_token(out, t, token->top_ids[i], token->top_logprobs[i]);
        buf_text(out, "}");
    }
    buf_text(out, "]}");
}

static void add_pair(struct buf *out, const struct tokenizer *t, uint32_t id, float logprob) {
    answer_token_name(out, t, id);
    buf_text(out, ":");
    answer_logprob(out, logprob);
}

// The token is among its alternatives, as in OpenAI's legacy shape, even when it is not one of the
// best.
static void add_tops(struct buf *out, const struct tokenizer *t, const struct answer_token *token) {
    bool seen = false;
    buf_text(out, "{");
    for (uint32_t i = 0; i < token->n_top; i++) {
        if (i != 0) buf_text(out, ",");
        add_pair(out, t, token->top_ids[i], token->top_logprobs[i]);
        seen |= token->top_ids[i] == token->id;
    }
    if (!seen) {
        if (token->n_top != 0) buf_text(out, ",");
        add_pair(out, t, token->id, token->logprob);
    }
    buf_text(out, "}");
}

static void add_completion(struct answer_logprobs *l, const struct tokenizer *t,
                           const struct answer_token *token) {
    const char *comma = l->n_tokens != 0 ? "," : "";
    buf_text(&l->first, comma);
    answer_token_name(&l->first, t, token->id);
    buf_format(&l->offsets, "%s%llu", comma, (unsigned long long)l->text_offset);
    buf_text(&l->values, comma);
    buf_text(&l->tops, comma);
    if (token->unknown) {
        buf_text(&l->values, "null");
        buf_text(&l->tops, "null");
        return;
    }
    answer_logprob(&l->values, token->logprob);
    add_tops(&l->tops, t, token);
}

void answer_logprobs_add(struct answer_logprobs *l, const struct tokenizer *t,
                         const struct answer_token *token, uint64_t text_chars) {
    check(token->n_top <= TOP_LOGPROBS_MAX);
    if (l->chat)
        add_chat(l, t, token);
    else
        add_completion(l, t, token);
    l->text_offset += text_chars;
    l->n_tokens++;
}

static void move(struct buf *out, const char *name, const struct buf *before, struct buf *from) {
    buf_text(out, name);
    if (before != NULL) {
        buf_add(out, before->data, before->bytes);
        if (before->bytes != 0 && from->bytes != 0) buf_text(out, ",");
        out->failed |= before->failed;
    }
    buf_add(out, from->data, from->bytes);
    out->failed |= from->failed;
    buf_reset(from);
}

void answer_logprobs_close(struct answer_logprobs *l, const struct answer_logprobs *before,
                           struct buf *out) {
    static const struct answer_logprobs none;
    const struct answer_logprobs *b = before != NULL ? before : &none;
    if (l->chat) {
        move(out, "{\"content\":[", NULL, &l->first);
        buf_text(out, "],\"refusal\":null}");
    } else {
        move(out, "{\"tokens\":[", &b->first, &l->first);
        move(out, "],\"token_logprobs\":[", &b->values, &l->values);
        move(out, "],\"top_logprobs\":[", &b->tops, &l->tops);
        move(out, "],\"text_offset\":[", &b->offsets, &l->offsets);
        buf_text(out, "]}");
    }
    l->n_tokens = 0;
}
