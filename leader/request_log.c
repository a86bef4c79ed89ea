// request_log.c: see request_log.h.
#include "leader/request_log.h"

#include "common/base/mem.h"
#include "leader/generation.h"
#include "leader/status.h"

// --- text, with --log-prompts

static void add_text(struct buf *out, const struct serving *s, const struct request *r,
                     char *piece) {
    struct detok detok;
    size_t cap = detok_bytes_max(s->tokenizer);
    detok_init(&detok, s->tokenizer, false);
    for (uint32_t i = 0; i < r->n_prompt && out->bytes < s->log.bytes_max; i++) {
        // Ids that a client sent are checked by the scheduler, which has not seen them yet.
        if (r->prompt[i] >= tokenizer_vocab(s->tokenizer)) continue;
        size_t bytes = detok_push(&detok, r->prompt[i], piece, cap);
        buf_add(out, piece, bytes);
    }
}

static size_t whole_chars(const struct buf *text, size_t bytes_max) {
    size_t at = 0;
    while (at < text->bytes) {
        size_t n = utf8_char_bytes(text->data + at, text->bytes - at);
        if (n == 0 || at + n > bytes_max) break;
        at += n;
    }
    return at;
}

static void log_prompt(const struct generation *g, const struct request *r) {
    const struct serving *s = g->serving;
    char *piece = mem_alloc(detok_bytes_max(s->tokenizer));
    struct buf text;
    buf_init(&text, 0);
    if (piece != NULL) add_text(&text, s, r, piece);
    text.bytes = whole_chars(&text, s->log.bytes_max);
    buf_add(&text, "", 1);
    if (!text.failed)
        log_event(s->log.requests, "request", "request prompt",
                  log_text("request", g->client.ops->request_id(g->client.self)),
                  log_text("text", text.data));
    buf_finish(&text);
    mem_free(piece);
}

// --- lines

void request_log_admitted(const struct generation *g, struct request *const *list) {
    const struct serving *s = g->serving;
    uint64_t n_prompt = 0;
    if (!log_enabled(s->log.requests)) return;
    for (uint32_t i = 0; i < g->n_choices; i += g->request.n)
        n_prompt += list[i]->n_prompt;
    log_event(s->log.requests, "request", "request admitted",
              log_text("request", g->client.ops->request_id(g->client.self)),
              log_uint("prompts", g->request.n_prompts), log_uint("choices", g->n_choices),
              log_uint("prompt_tokens", n_prompt), log_uint("max_tokens", list[0]->max_tokens),
              log_real("temperature", (double)list[0]->sampling.temperature));
    for (uint32_t i = 0; s->log.prompts && i < g->n_choices; i += g->request.n)
        log_prompt(g, list[i]);
}

// The message may quote the request.
void request_log_refused(const struct serving *s, const struct client *client,
                         const struct api_error *e) {
    log_event(s->log.requests, "request", "request refused",
              log_text("request", client->ops->request_id(client->self)),
              log_uint("status", (uint64_t)e->status), log_text("code", e->code),
              log_text("field", e->param),
              log_text("message", s->log.prompts ? e->message : "hidden"));
}

static uint64_t ms_between(int64_t from_ns, int64_t to_ns) {
    return from_ns == 0 || to_ns < from_ns ? 0 : (uint64_t)((to_ns - from_ns) / NS_PER_MS);
}

void request_log_ended(const struct generation *g) {
    const struct answer_usage usage = generation_usage(g);
    const struct choice_times *first = &g->choices[0].times;
    int64_t last_ns = 0;
    for (uint32_t i = 0; i < g->n_choices; i++) {
        if (g->choices[i].times.finished_ns > last_ns) last_ns = g->choices[i].times.finished_ns;
    }
    log_event(g->serving->log.requests, "request", "request finished",
              log_text("request", g->client.ops->request_id(g->client.self)),
              log_text("reason", status_finish_name(g->choices[0].ended)),
              log_uint("prompt_tokens", usage.prompt_tokens),
              log_uint("output_tokens", usage.completion_tokens),
              log_uint("queue_ms", ms_between(first->arrived_ns, first->started_ns)),
              log_uint("first_token_ms", ms_between(first->arrived_ns, first->first_ns)),
              log_uint("took_ms", ms_between(first->arrived_ns, last_ns)));
}
