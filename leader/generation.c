// generation.c: see generation.h. What goes to the client, as chunks or as one answer.
#include "leader/generation.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"

// --- life

static void init_head(struct generation *g) {
    struct serving *s = g->serving;
    uint64_t drawn[2];
    env_random(s->env, drawn, sizeof drawn);
    g->head = (struct answer_head){
        .chat = g->request.chat,
        .chunk = g->request.stream,
        .created_s = env_wall_ns(s->env) / NS_PER_S,
        .model = s->model_name,
        .fingerprint = s->fingerprint,
        .seed = g->request.seed,
    };
    snprintf(g->head.id, sizeof g->head.id, "%s-%016llx%016llx",
             g->request.chat ? "chatcmpl" : "cmpl", (unsigned long long)drawn[0],
             (unsigned long long)drawn[1]);
}

static void init_choice(struct generation *g, uint32_t index, uint64_t first_id) {
    struct choice *c = &g->choices[index];
    c->generation = g;
    c->index = index;
    c->prompt_index = index / g->request.n;
    c->request_id = first_id + index;
    c->times.arrived_ns = http_call_arrived_ns(g->call);
    detok_init(&c->detok);
    stop_init(&c->stop, &g->request.stop);
    answer_logprobs_init(&c->logprobs, g->request.chat);
}

// 53 bits, so that a client that reads JSON numbers as doubles can send it back.
static void draw_seed(struct generation *g) {
    uint64_t drawn;
    if (g->request.has_seed) return;
    env_random(g->serving->env, &drawn, sizeof drawn);
    g->request.seed = (int64_t)(drawn >> 11);
}

struct generation *generation_create(struct serving *s, struct http_call *call,
                                     struct openai_request *request) {
    struct generation *g = mem_zalloc(sizeof *g);
    uint32_t n = request->n_prompts * request->n;
    struct choice *choices = mem_array(n, sizeof *choices);
    if (g == NULL || choices == NULL) {
        mem_free(g);
        mem_free(choices);
        openai_request_finish(request);
        return NULL;
    }
    g->serving = s;
    g->call = call;
    g->request = *request;
    g->choices = choices;
    g->n_choices = g->n_open = n;
    *request = (struct openai_request){0};
    http_call_hold(call);
    draw_seed(g);
    init_head(g);
    uint64_t first_id = atomic_fetch_add(&s->next_request_id, n) + 1;
    for (uint32_t i = 0; i < n; i++)
        init_choice(g, i, first_id);
    return g;
}

static void finish_choice(struct choice *c) {
    mem_free(c->inbox.events);
    mem_free(c->taken.events);
    stop_finish(&c->stop);
    answer_logprobs_finish(&c->logprobs);
    buf_finish(&c->text);
    buf_finish(&c->ids);
}

void generation_destroy(struct generation *g) {
    if (g == NULL) return;
    http_call_on_gone(g->call, NULL, NULL); // after this nobody else knows g
    for (uint32_t i = 0; i < g->n_choices; i++)
        finish_choice(&g->choices[i]);
    openai_request_finish(&g->request);
    http_call_release(g->call);
    mem_free(g->choices);
    mem_free(g);
}

// Ids that ended already are unknown to the scheduler, which ignores them.
void generation_abort(struct generation *g) {
    const struct engine *engine = g->serving->engine;
    for (uint32_t i = 0; i < g->n_choices; i++)
        engine->abort(engine->self, g->choices[i].request_id);
}

// --- what both forms of answer say

static struct answer_usage usage_of(const struct generation *g) {
    struct answer_usage u = {0};
    for (uint32_t i = 0; i < g->n_choices; i++) {
        const struct choice *c = &g->choices[i];
        if (i % g->request.n == 0) u.prompt_tokens += c->n_prompt; // choices share their prompt
        u.completion_tokens += c->n_generated;
    }
    return u;
}

static void describe(const struct choice *c, struct answer_choice *out) {
    const struct generation *g = c->generation;
    *out = (struct answer_choice){
        .chat = g->request.chat,
        .chunk = g->request.stream,
        .index = c->index,
        .finish = c->finish,
        .digest = g->serving->digest ? &c->digest : NULL,
    };
    if (c->stop.matched >= 0) {
        out->stop_text = g->request.stop.text[c->stop.matched];
        out->stop_text_bytes = g->request.stop.bytes[c->stop.matched];
    }
}

static void add_content(struct choice *c, struct answer_choice *out, struct buf *logprobs) {
    out->text = c->text.bytes != 0 ? c->text.data : "";
    out->text_bytes = c->text.bytes;
    if (c->generation->request.sampling.want_logprob) {
        answer_logprobs_close(&c->logprobs, logprobs);
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
}

// --- streamed

static void send(struct generation *g, const struct buf *out) {
    int rc = out->failed ? ERR_FATAL_NOMEM : http_call_write(g->call, out->data, out->bytes);
    if (rc == 0) return;
    if (rc != ERR_REQ_ABORTED)
        log_warn("stream", "request %s cut: %s", http_call_request_id(g->call),
                 rc == ERR_REQ_TOO_LARGE ? "its client reads too slowly" : "memory is out");
    g->over = true;
    generation_abort(g);
}

static void add_chunk(struct generation *g, struct buf *out, const struct answer_choice *c) {
    buf_text(out, "data: ");
    answer_head(out, &g->head);
    if (c != NULL) answer_choice(out, c);
    struct answer_usage usage = usage_of(g);
    answer_tail(out, c == NULL ? &usage : NULL, g->request.include_usage);
    buf_text(out, "\n\n");
}

static void introduce(struct generation *g, struct choice *c, struct buf *out) {
    if (!g->streaming) http_call_stream(g->call);
    g->streaming = true;
    if (c->introduced) return;
    c->introduced = true;
    if (!g->request.chat) return;
    struct answer_choice first = {
        .chat = true, .chunk = true, .role = true, .index = c->index, .text = ""};
    add_chunk(g, out, &first);
}

static bool all_finished(const struct generation *g) {
    for (uint32_t i = 0; i < g->n_choices; i++) {
        if (g->choices[i].finish == FINISH_NONE) return false;
    }
    return true;
}

static void show_chunks(struct generation *g, struct choice *c) {
    struct buf out, logprobs;
    struct answer_choice chunk;
    buf_init(&out, 0);
    buf_init(&logprobs, 0);
    introduce(g, c, &out);
    enum finish finish = c->finish;
    if (c->text.bytes != 0 || c->logprobs.n_tokens != 0 || c->ids.bytes != 0) {
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
    bool end = all_finished(g);
    if (end) {
        if (g->request.include_usage) add_chunk(g, &out, NULL);
        buf_text(&out, "data: [DONE]\n\n");
    }
    out.failed |= c->text.failed | c->ids.failed;
    if (out.bytes != 0) send(g, &out);
    if (end && !g->over) http_call_end(g->call);
    if (end) g->over = true;
    buf_finish(&out);
    buf_finish(&logprobs);
}

// --- at once

static void reply_whole(struct generation *g) {
    struct http_reply reply = {.status = 200, .content_type = "application/json"};
    struct answer_usage usage = usage_of(g);
    struct buf logprobs;
    buf_init(&reply.body, 0);
    buf_init(&logprobs, 0);
    answer_head(&reply.body, &g->head);
    for (uint32_t i = 0; i < g->n_choices; i++) {
        struct answer_choice choice;
        buf_reset(&logprobs);
        describe(&g->choices[i], &choice);
        add_content(&g->choices[i], &choice, &logprobs);
        if (i != 0) buf_text(&reply.body, ",");
        answer_choice(&reply.body, &choice);
        reply.body.failed |= logprobs.failed | g->choices[i].text.failed;
    }
    answer_tail(&reply.body, &usage, true);
    buf_finish(&logprobs);
    http_call_reply(g->call, &reply);
    g->over = true;
}

void generation_show(struct generation *g, struct choice *c) {
    if (g->over) return;
    if (g->request.stream)
        show_chunks(g, c);
    else if (all_finished(g))
        reply_whole(g);
}

void generation_fail(struct generation *g, const struct api_error *e) {
    struct buf body;
    if (g->over) return;
    buf_init(&body, 0);
    if (g->streaming) {
        buf_text(&body, "data: ");
        answer_error(&body, e);
        buf_text(&body, "\n\ndata: [DONE]\n\n");
        send(g, &body);
        if (!g->over) http_call_end(g->call);
        buf_finish(&body);
    } else {
        answer_error(&body, e);
        struct http_reply reply = {.status = e->status,
                                   .content_type = "application/json",
                                   .body = body,
                                   .retry_after_s = e->status == 429 || e->status == 503 ? 1 : 0};
        http_call_reply(g->call, &reply);
    }
    g->over = true;
    generation_abort(g);
}
