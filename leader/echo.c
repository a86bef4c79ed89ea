// echo.c: see echo.h.
#include "leader/echo.h"

#include "common/base/mem.h"
#include "common/text/drift.h"
#include "common/text/utf8.h"
#include "leader/client.h"

// What an entry takes as JSON, beside the text of its token: names, numbers and quotes.
#define ENTRY_BYTES 96

struct echo *echo_create(const struct tokenizer *t, const struct openai_request *r) {
    struct echo *e = mem_zalloc(sizeof *e);
    if (e == NULL) return NULL;
    e->tokenizer = t;
    e->listed = r->prompt_logprobs;
    e->echoed = r->echo_logprobs;
    e->n_listed_top = r->n_prompt_logprobs;
    e->n_echoed_top = r->sampling.n_logprobs;
    e->to = &e->own;
    answer_logprobs_init(&e->own, false);
    buf_init(&e->list, 0);
    buf_init(&e->drifts, 0);
    e->piece_bytes = detok_bytes_max(t);
    e->piece = mem_alloc(e->piece_bytes);
    detok_init(&e->detok, t, false);
    if (e->piece != NULL) return e;
    echo_destroy(e);
    return NULL;
}

void echo_destroy(struct echo *e) {
    if (e == NULL) return;
    answer_logprobs_finish(&e->own);
    buf_finish(&e->list);
    buf_finish(&e->drifts);
    mem_free(e->piece);
    mem_free(e);
}

// --- prompt_logprobs

static void list_entry(struct buf *out, const struct tokenizer *t, const struct answer_token *one,
                       uint32_t rank) {
    size_t bytes = 0;
    const char *text = tokenizer_bytes(t, one->id, &bytes);
    buf_format(out, "\"%u\":{\"logprob\":", one->id);
    answer_logprob(out, one->logprob);
    buf_format(out, ",\"rank\":%u,\"decoded_token\":", rank);
    buf_json(out, text == NULL ? "" : text, text == NULL ? 0 : bytes);
    buf_text(out, "}");
}

static uint32_t place_of(const struct answer_token *token, uint32_t n_top) {
    uint32_t i = 0;
    while (i < n_top && token->top_ids[i] != token->id)
        i++;
    return i;
}

// The prompt's own token first. One of the most likely has its place among them for its rank,
// another the number of those that are at least as likely: they differ only between equals.
static void list_token(struct echo *e, const struct answer_token *token, uint32_t rank) {
    struct buf *out = &e->list;
    uint32_t n_top = e->n_listed_top < token->n_top ? e->n_listed_top : token->n_top;
    uint32_t own = place_of(token, n_top);
    buf_text(out, ",{");
    list_entry(out, e->tokenizer, token, own < n_top ? own + 1 : rank);
    for (uint32_t i = 0; i < n_top; i++) {
        struct answer_token other = {.id = token->top_ids[i], .logprob = token->top_logprobs[i]};
        if (i == own) continue;
        buf_text(out, ",");
        list_entry(out, e->tokenizer, &other, i + 1);
    }
    buf_text(out, "}");
}

// --- echo with logprobs

// A token that begins inside of what was normalised has a place inside of what it was.
static uint64_t offset_of(struct echo *e) {
    uint64_t at = e->decoded > e->added ? e->decoded - e->added : 0;
    const struct text_drift *drifts = (const struct text_drift *)(const void *)e->drifts.data;
    size_t n = e->drifts.bytes / sizeof *drifts;
    while (e->next_drift < n && drifts[e->next_drift].after <= at)
        e->next_drift++;
    if (e->next_drift > 0) {
        const struct text_drift *last = &drifts[e->next_drift - 1];
        at = last->before + (at - last->after);
    }
    if (e->next_drift < n && at > drifts[e->next_drift].before) at = drifts[e->next_drift].before;
    return at < e->chars ? at : e->chars;
}

// Leaves the offset where the answer's own text begins.
static void echo_token(struct echo *e, const struct answer_token *token) {
    e->to->text_offset = offset_of(e);
    answer_logprobs_add(e->to, e->tokenizer, token, 0);
    e->to->text_offset = e->chars;
    size_t bytes = detok_push(&e->detok, token->id, e->piece, e->piece_bytes);
    e->decoded += utf8_count(e->piece, bytes);
}

// --- both

static uint64_t normal_chars(const struct prompt_start *start) {
    const struct text_drift *drifts = (const struct text_drift *)(const void *)start->drifts->data;
    size_t n = start->drifts->bytes / sizeof *drifts;
    if (n == 0) return start->text_chars;
    return start->text_chars - drifts[n - 1].before + drifts[n - 1].after;
}

bool echo_begin(struct echo *e, const struct prompt_start *start) {
    struct answer_token first = {.id = start->first_token, .unknown = true};
    uint64_t chars = normal_chars(start);
    e->chars = start->text_chars;
    e->added = start->ids_chars > chars ? start->ids_chars - chars : 0;
    buf_add(&e->drifts, start->drifts->data, start->drifts->bytes);
    if (e->listed) buf_text(&e->list, "null");
    if (e->echoed) echo_token(e, &first);
    return !e->drifts.failed;
}

void echo_add(struct echo *e, const struct prompt_scores *s) {
    for (uint32_t i = 0; i < s->n_tokens; i++) {
        struct answer_token token = {.id = s->tokens[i],
                                     .logprob = s->logprobs[i],
                                     .n_top = s->n_top,
                                     .top_ids = s->top_ids + (size_t)i * s->n_top,
                                     .top_logprobs = s->top_logprobs + (size_t)i * s->n_top};
        if (e->listed) list_token(e, &token, s->ranks[i]);
        if (token.n_top > e->n_echoed_top) token.n_top = e->n_echoed_top;
        if (e->echoed) echo_token(e, &token);
    }
}

// A token of the prompt may have a long text, and each character of it may be escaped; the
// alternatives are the model's choice.
uint64_t echo_bytes(const struct tokenizer *t, const struct openai_request *r, const uint32_t *ids,
                    size_t n) {
    uint64_t own = 0, shapes = (uint64_t)r->prompt_logprobs + r->echo_logprobs;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        tokenizer_bytes(t, ids[i], &bytes);
        own += 2 * bytes;
    }
    return shapes * (own + (uint64_t)n * (openai_score_top(r) + 1) * ENTRY_BYTES);
}
