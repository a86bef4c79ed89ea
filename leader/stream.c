// stream.c: see stream.h.
#include "leader/stream.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/text/utf8.h"

// Tokens of one choice that may wait for the stream thread. It is far behind then: something is
// broken.
#define INBOX_MAX 4096

struct stream {
    struct serving *serving;
    struct queue ready;   // choices with something in their inbox
    pthread_mutex_t lock; // of all inboxes
    pthread_t thread;
    char *piece; // [piece_bytes]
    size_t piece_bytes;
};

// --- scheduler thread

static bool inbox_grow(struct inbox *b) {
    if (b->n < b->capacity) return true;
    uint32_t capacity = b->capacity == 0 ? 4 : b->capacity * 2;
    if (capacity > INBOX_MAX) return false;
    struct stamped_event *events = mem_resize(b->events, capacity * sizeof *events);
    if (events == NULL) return false;
    b->events = events;
    b->capacity = capacity;
    return true;
}

// False: the token is lost.
static bool inbox_add(struct inbox *b, const struct token_event *ev, int64_t now_ns) {
    if (ev->finish != FINISH_NONE) {
        check(!b->has_last);
        b->has_last = true;
        b->last = (struct stamped_event){.ev = *ev, .at_ns = now_ns};
        return true;
    }
    if (!inbox_grow(b)) {
        mem_free(ev->scores);
        return false;
    }
    b->events[b->n++] = (struct stamped_event){.ev = *ev, .at_ns = now_ns};
    return true;
}

void stream_emit(const struct token_event *ev) {
    struct choice *c = ev->sink_context;
    struct stream *s = c->generation->stream;
    const struct engine *engine = s->serving->engine;
    int64_t now_ns = env_now_ns(s->serving->env);
    pthread_mutex_lock(&s->lock);
    bool lose = !inbox_add(&c->inbox, ev, now_ns) && !c->lost;
    c->lost |= lose;
    bool first = !c->queued;
    c->queued = true;
    pthread_mutex_unlock(&s->lock);
    // Until it is pushed the stream thread does not know of it; afterwards it may be gone.
    if (first) queue_push(&s->ready, &c->link);
    if (lose) engine->abort(engine->self, ev->request_id);
}

// --- stream thread: one token

static void note_id(struct choice *c, const struct token_event *ev, uint64_t text_chars) {
    const struct generation *g = c->generation;
    c->n_generated++;
    if (g->request.return_token_ids) buf_add(&c->ids, &ev->token, sizeof ev->token);
    if (g->request.sampling.want_logprob) g->client.ops->note_logprobs(c, ev, text_chars);
}

// Where the model's text goes: to the reader of calls first, when there is one.
static struct buf *text_of(struct choice *c) {
    return c->calls.format != NULL ? &c->raw : &c->text;
}

static void finish_text(struct stream *s, struct choice *c, enum finish finish) {
    size_t bytes = detok_finish(&c->detok, s->piece, s->piece_bytes);
    bool stopped = stop_push(&c->stop, s->piece, bytes, text_of(c));
    if (!stopped) stop_flush(&c->stop, text_of(c));
    c->finish = stopped ? FINISH_STOP : finish;
}

// The text of the stop id itself, for who wants to see what ended the answer.
static bool show_stop_token(struct stream *s, struct choice *c, uint32_t id) {
    size_t bytes = detok_push(&c->detok, id, s->piece, s->piece_bytes);
    return stop_push(&c->stop, s->piece, bytes, text_of(c));
}

static void take_stop_token(struct stream *s, struct choice *c, const struct token_event *ev) {
    note_id(c, ev, 0);
    c->stop_id = ev->token;
    c->has_stop_id = true;
    // Behind calls it would be text that makes them none.
    if (c->calls.format != NULL || !c->generation->request.stop.keep) return;
    if (show_stop_token(s, c, ev->token)) c->finish = FINISH_STOP;
}

static void take_token(struct stream *s, struct choice *c, const struct stamped_event *e) {
    size_t bytes = detok_push(&c->detok, e->ev.token, s->piece, s->piece_bytes);
    note_id(c, &e->ev, utf8_count(s->piece, bytes));
    c->digest = e->ev.digest;
    meter_token(&s->serving->meter, c->times.arrived_ns, c->times.last_ns, e->at_ns);
    if (c->times.first_ns == 0) c->times.first_ns = e->at_ns;
    c->times.last_ns = e->at_ns;
    if (c->n_generated <= c->generation->request.steering.min_tokens) {
        buf_add(text_of(c), s->piece, bytes); // too early to stop
        return;
    }
    if (!stop_push(&c->stop, s->piece, bytes, text_of(c))) return;
    const struct engine *engine = s->serving->engine;
    c->finish = FINISH_STOP;
    engine->abort(engine->self, c->request_id);
}

static void take_event(struct stream *s, struct choice *c, const struct stamped_event *e) {
    if (e->ev.is_start && c->times.started_ns == 0) {
        c->times.started_ns = e->at_ns;
        c->n_cached = e->ev.n_cached;
    }
    if (e->ev.has_token && c->finish == FINISH_NONE) take_token(s, c, e);
}

// A chunk of a prompt can have as much to say as one message should hold, so it is shown at once.
static void take_scores(struct choice *c, struct prompt_scores *scores) {
    struct generation *g = c->generation;
    if (scores == NULL) return;
    if (!g->over) g->client.ops->note_scores(c, scores);
    mem_free(scores);
    generation_show(g, c);
}

// --- stream thread: the end of a choice

static void fail_choice(struct choice *c, const struct token_event *ev) {
    struct api_error error;
    int code = ev->finish == FINISH_ERROR ? ev->error : ERR_REQ_ABORTED;
    const char *text = ev->message[0] != '\0' ? ev->message : "the request was ended";
    if (c->lost) text = "tokens were lost: memory is out";
    api_error_set(&error, api_error_status(code), NULL, "%s", text);
    if (code < 0 && code != ERR_REQ_ABORTED) api_error_code(&error, 0, err_name(code));
    generation_fail(c->generation, &error);
}

static void take_last(struct stream *s, struct choice *c, const struct stamped_event *e) {
    struct serving *v = s->serving;
    enum finish finish = e->ev.finish;
    bool ended_well = finish != FINISH_ERROR && !c->lost;
    take_event(s, c, e);
    if (c->finish == FINISH_NONE && ended_well) {
        if (finish == FINISH_STOP && !e->ev.has_token) take_stop_token(s, c, &e->ev);
        c->digest = e->ev.digest;
        if (c->finish == FINISH_NONE) finish_text(s, c, finish);
    } else if (c->finish == FINISH_NONE) {
        fail_choice(c, &e->ev);
    }
    c->closed = true;
    c->times.finished_ns = e->at_ns;
    c->ended = c->finish != FINISH_NONE ? c->finish : finish;
    meter_choice(&v->meter, c->ended, &c->times, c->n_prompt, c->n_generated);
    admit_finish(&v->admit, c->times.arrived_ns, e->at_ns);
}

// --- stream thread: the loop

static void swap_inbox(struct stream *s, struct choice *c) {
    struct inbox empty = {.events = c->taken.events, .capacity = c->taken.capacity};
    pthread_mutex_lock(&s->lock);
    c->taken = c->inbox;
    c->inbox = empty;
    c->queued = false;
    pthread_mutex_unlock(&s->lock);
}

static void read_calls(struct choice *c) {
    if (c->calls.format == NULL || c->calls_ended) return;
    tool_reader_push(&c->calls, c->raw.data, c->raw.bytes, &c->text);
    c->text.failed |= c->raw.failed;
    buf_reset(&c->raw);
    if (c->finish == FINISH_NONE) return;
    tool_reader_end(&c->calls, &c->text);
    c->calls_ended = true;
}

// A choice that was submitted only after the abort of all did not hear it.
static void abort_late(struct generation *g, struct choice *c) {
    const struct engine *engine = g->serving->engine;
    if (!g->over || c->taken.has_last || c->aborted_late) return;
    c->aborted_late = true;
    engine->abort(engine->self, c->request_id);
}

static void serve(struct stream *s, struct choice *c) {
    struct generation *g = c->generation;
    swap_inbox(s, c);
    if (!g->over && g->client.ops->gone(g->client.self)) {
        g->over = true;
        generation_abort(g);
    }
    abort_late(g, c);
    for (uint32_t i = 0; i < c->taken.n; i++) {
        take_event(s, c, &c->taken.events[i]);
        take_scores(c, c->taken.events[i].ev.scores);
    }
    if (c->taken.has_last) take_last(s, c, &c->taken.last);
    read_calls(c);
    generation_show(g, c);
    if (!c->taken.has_last || --g->n_open > 0) return;
    request_log_ended(g);
    generation_destroy(g);
}

static void *stream_thread(void *context) {
    struct stream *s = context;
    struct queue_link *link;
    while ((link = queue_take(&s->ready)) != NULL)
        serve(s, (struct choice *)link);
    return NULL;
}

int stream_create(struct stream **out, struct serving *serving, struct err_text *e) {
    struct stream *s = mem_zalloc(sizeof *s);
    if (s == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the stream thread");
    s->serving = serving;
    s->piece_bytes = detok_bytes_max(serving->tokenizer);
    s->piece = mem_alloc(s->piece_bytes);
    queue_init(&s->ready);
    pthread_mutex_init(&s->lock, NULL);
    if (s->piece == NULL || pthread_create(&s->thread, NULL, stream_thread, s) != 0) {
        queue_finish(&s->ready);
        mem_free(s->piece);
        mem_free(s);
        return err_set(e, ERR_FATAL_NOMEM, "cannot start the stream thread");
    }
    *out = s;
    return 0;
}

void stream_destroy(struct stream *s) {
    if (s == NULL) return;
    queue_close(&s->ready);
    pthread_join(s->thread, NULL);
    queue_finish(&s->ready);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->piece);
    mem_free(s);
}
