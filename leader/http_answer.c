// http_answer.c: see http_answer.h. The stream thread's, but for parsing and errors before it.
#include "leader/http_answer.h"

#include <string.h>

#include "common/base/log.h"
#include "leader/generation.h"

static struct http_call *call_of(const struct generation *g) {
    return g->client.self;
}

// --- what both forms of answer say

static bool has_id(const uint32_t *ids, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

// The model's own ends need no reason.
static bool ended_by_client_id(const struct choice *c) {
    const struct openai_request *r = &c->generation->request;
    const struct model_spec *spec = c->generation->serving->spec;
    if (!c->has_stop_id || !has_id(r->stop_ids, r->n_stop_ids, c->stop_id)) return false;
    return r->ignore_eos || !has_id(spec->stop_ids, spec->n_stop_ids, c->stop_id);
}

static void describe(const struct choice *c, struct answer_choice *out) {
    const struct generation *g = c->generation;
    *out = (struct answer_choice){
        .chat = g->request.chat,
        .chunk = g->request.stream,
        .index = c->index,
        .finish = c->finish,
        .called = tool_reader_n_calls(&c->calls) != 0,
        .digest = g->serving->digest ? &c->digest : NULL,
    };
    if (c->stop.matched >= 0) {
        out->stop_text = g->request.stop.text[c->stop.matched];
        out->stop_text_bytes = g->request.stop.bytes[c->stop.matched];
    } else if (ended_by_client_id(c)) {
        out->stop_id = &c->stop_id;
    }
}

// The choices of a whole answer share what is said of their prompt.
static const struct echo *echo_of(const struct choice *c) {
    const struct generation *g = c->generation;
    return c->echo != NULL ? c->echo : g->choices[c->index - c->index % g->request.n].echo;
}

static void add_content(struct choice *c, struct answer_choice *out, struct buf *logprobs) {
    const struct echo *echo = echo_of(c);
    out->calls = c->calls.calls;
    out->first_call = c->n_calls_sent;
    out->text = c->text.bytes != 0 ? c->text.data : "";
    out->text_bytes = c->text.bytes;
    if (c->generation->request.sampling.want_logprob) {
        answer_logprobs_close(&c->logprobs, echo == NULL ? NULL : &echo->own, logprobs);
        out->logprobs = logprobs;
    }
    if (c->generation->request.return_token_ids) {
        static const uint32_t none = 0;
        out->token_ids = c->ids.bytes != 0 ? (const uint32_t *)(const void *)c->ids.data : &none;
        out->n_token_ids = (uint32_t)(c->ids.bytes / sizeof(uint32_t));
    }
}

static void forget_content(struct choice *c) {
    buf_reset(&c->text);
    buf_reset(&c->ids);
    c->n_calls_sent = tool_reader_n_calls(&c->calls);
}

static void note_logprobs(struct choice *c, const struct token_event *ev, uint64_t text_chars) {
    const struct generation *g = c->generation;
    uint32_t n_top = g->request.sampling.n_logprobs;
    // OpenAI's shapes do not show the stop id. Who asks for the prompt's as well is an evaluation
    // harness, which counts on one entry for each token that was generated.
    if (!ev->has_token && !g->request.echo_logprobs) return;
    struct answer_token token = {.id = ev->token,
                                 .logprob = ev->logprob,
                                 .n_top = ev->n_top < n_top ? ev->n_top : n_top,
                                 .top_ids = ev->top_ids,
                                 .top_logprobs = ev->top_logprobs};
    answer_logprobs_add(&c->logprobs, g->serving->tokenizer, &token, text_chars);
}

// A stream says its prompt's tokens before the others; a whole answer collects them for all
// choices.
static bool begin_scores(struct choice *c, const struct prompt_start *start) {
    const struct generation *g = c->generation;
    c->echo = echo_create(g->serving->tokenizer, &g->request);
    if (c->echo == NULL) return false;
    if (g->request.stream) c->echo->to = &c->logprobs;
    return echo_begin(c->echo, start);
}

static void note_scores(struct choice *c, const struct prompt_scores *scores) {
    echo_add(c->echo, scores);
}

static bool hold_bytes(void *self, uint64_t bytes) {
    return http_call_charge(self, bytes);
}

// --- streamed

static void send(struct generation *g, const struct buf *out) {
    int rc = out->failed ? ERR_FATAL_NOMEM : http_call_write(call_of(g), out->data, out->bytes);
    if (rc == 0) return;
    if (out->failed) http_call_cut(call_of(g));
    if (rc != ERR_REQ_ABORTED)
        log_warn("stream", "request %s cut: %s", http_call_request_id(call_of(g)),
                 rc == ERR_REQ_TOO_LARGE ? "its client reads too slowly" : "memory is out");
    g->over = true;
    generation_abort(g);
}

static struct answer_usage choice_usage(const struct generation *g, uint32_t index) {
    const struct choice *c = &g->choices[index];
    return (struct answer_usage){.prompt_tokens = c->n_prompt,
                                 .completion_tokens = c->n_generated,
                                 .cached_tokens = c->n_cached};
}

static void add_chunk(struct generation *g, struct buf *out, const struct answer_choice *c) {
    buf_text(out, "data: ");
    answer_head(out, &g->head);
    if (c != NULL) answer_choice(out, c);
    struct answer_usage usage = c == NULL ? generation_usage(g) : choice_usage(g, c->index);
    if (c != NULL && c->role) usage.completion_tokens = 0; // it tells none, however many there are
    bool shown = c == NULL || g->request.continuous_usage;
    answer_tail(out, shown ? &usage : NULL, g->request.include_usage);
    buf_text(out, "\n\n");
}

static void introduce(struct generation *g, struct choice *c, struct buf *out) {
    if (!g->begun) http_call_stream(call_of(g));
    g->begun = true;
    if (c->introduced) return;
    c->introduced = true;
    if (!g->request.chat) return;
    struct answer_choice first = {
        .chat = true, .chunk = true, .role = true, .index = c->index, .text = ""};
    add_chunk(g, out, &first);
}

static bool has_news(const struct choice *c) {
    return c->text.bytes != 0 || c->logprobs.n_tokens != 0 || c->ids.bytes != 0 ||
           tool_reader_n_calls(&c->calls) > c->n_calls_sent;
}

static void show_chunks(struct generation *g, struct choice *c) {
    struct buf out, logprobs;
    struct answer_choice chunk;
    buf_init(&out, 0);
    buf_init(&logprobs, 0);
    introduce(g, c, &out);
    out.failed |= c->text.failed | c->ids.failed; // forgotten below
    enum finish finish = c->finish;
    if (has_news(c)) {
        describe(c, &chunk);
        chunk.finish = FINISH_NONE; // said by a chunk of its own
        add_content(c, &chunk, &logprobs);
        add_chunk(g, &out, &chunk);
        forget_content(c);
    }
    if (finish != FINISH_NONE && !c->finish_sent) {
        describe(c, &chunk);
        add_chunk(g, &out, &chunk);
        c->finish_sent = true;
    }
    bool end = generation_finished(g);
    if (end) {
        if (g->request.include_usage) add_chunk(g, &out, NULL);
        buf_text(&out, "data: [DONE]\n\n");
    }
    out.failed |= logprobs.failed;
    if (out.bytes != 0 || out.failed) send(g, &out);
    if (end && !g->over) http_call_end(call_of(g));
    if (end) g->over = true;
    buf_finish(&out);
    buf_finish(&logprobs);
}

// --- at once

static void reply_whole(struct generation *g) {
    struct http_reply reply = {.status = 200, .content_type = "application/json"};
    struct answer_usage usage = generation_usage(g);
    const struct echo *echo = g->choices[0].echo;
    struct buf logprobs;
    buf_init(&reply.body, 0);
    buf_init(&logprobs, 0);
    if (g->request.chat && g->request.prompt_logprobs) g->head.prompt_logprobs = &echo->list;
    answer_head(&reply.body, &g->head);
    for (uint32_t i = 0; i < g->n_choices; i++) {
        struct answer_choice choice;
        buf_reset(&logprobs);
        describe(&g->choices[i], &choice);
        add_content(&g->choices[i], &choice, &logprobs);
        if (!g->request.chat && g->request.prompt_logprobs)
            choice.prompt_logprobs = &echo_of(&g->choices[i])->list;
        if (i != 0) buf_text(&reply.body, ",");
        answer_choice(&reply.body, &choice);
        reply.body.failed |= logprobs.failed | g->choices[i].text.failed | g->choices[i].ids.failed;
    }
    answer_tail(&reply.body, &usage, true);
    buf_finish(&logprobs);
    http_call_reply(call_of(g), &reply);
    g->over = true;
}

static void show(struct generation *g, struct choice *c) {
    if (g->request.stream)
        show_chunks(g, c);
    else if (generation_finished(g))
        reply_whole(g);
}

// --- errors

void http_answer_error(struct http_call *call, const struct api_error *e) {
    struct http_reply reply = {
        .status = e->status, .content_type = "application/json", .retry_after_s = e->retry_after_s};
    if (e->retry_after_s == 0 && (e->status == 429 || e->status == 503)) reply.retry_after_s = 1;
    buf_init(&reply.body, 0);
    answer_error(&reply.body, e);
    http_call_reply(call, &reply);
}

static void fail(void *self, bool begun, const struct api_error *e) {
    struct buf event;
    if (!begun) {
        http_answer_error(self, e);
        return;
    }
    buf_init(&event, 0);
    buf_text(&event, "data: ");
    answer_error(&event, e);
    buf_text(&event, "\n\ndata: [DONE]\n\n");
    // What cannot be written is cut or gone: there is nobody left to tell.
    if (!event.failed) http_call_write(self, event.data, event.bytes);
    http_call_end(self);
    buf_finish(&event);
}

// --- the client's table

static void hold(void *self) {
    http_call_hold(self);
}

static void release(void *self) {
    http_call_release(self);
}

static const char *request_id(const void *self) {
    return http_call_request_id(self);
}

static int64_t arrived_ns(const void *self) {
    return http_call_arrived_ns(self);
}

static int32_t key(const void *self) {
    return http_call_key(self);
}

static size_t body_bytes(const void *self) {
    size_t bytes;
    http_call_body(self, &bytes);
    return bytes;
}

static int parse(struct http_call *call, bool chat, struct openai_request *out,
                 const struct openai_defaults *defaults, struct api_error *e) {
    struct openai_body body = {.chat = chat};
    body.text = http_call_body(call, &body.bytes);
    int rc = openai_parse(out, &body, defaults, e);
    if (rc == 0 && out->request_id != NULL) http_call_name(call, out->request_id);
    http_call_drop_body(call);
    return rc;
}

static int parse_chat(void *self, struct openai_request *out,
                      const struct openai_defaults *defaults, struct api_error *e) {
    return parse(self, true, out, defaults, e);
}

static int parse_completion(void *self, struct openai_request *out,
                            const struct openai_defaults *defaults, struct api_error *e) {
    return parse(self, false, out, defaults, e);
}

static bool gone(void *self) {
    return http_call_gone(self);
}

static bool on_gone(void *self, void (*left)(void *context), void *context) {
    return http_call_on_gone(self, left, context);
}

#define TABLE(parse_kind)                                                                          \
    {                                                                                              \
        .hold = hold, .release = release, .request_id = request_id, .arrived_ns = arrived_ns,      \
        .key = key, .bytes = body_bytes, .parse = parse_kind, .gone = gone, .on_gone = on_gone,    \
        .unwanted = gone, .note_logprobs = note_logprobs, .begin_scores = begin_scores,            \
        .note_scores = note_scores, .hold_bytes = hold_bytes, .show = show, .fail = fail           \
    }

struct client http_answer_client(struct http_call *call, bool chat) {
    static const struct client_ops chats = TABLE(parse_chat);
    static const struct client_ops completions = TABLE(parse_completion);
    return (struct client){.ops = chat ? &chats : &completions, .self = call};
}
