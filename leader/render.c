// render.c: see render.h.
#include "leader/render.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/plural.h"
#include "common/text/drift.h"
#include "common/text/utf8.h"
#include "leader/prompt.h"
#include "leader/render_queue.h"
#include "leader/salt.h"
#include "leader/words.h"

#define THREADS_MAX 16

struct job {
    struct render_item item; // first member
    struct client client;    // held; of a generation
    struct render_task task; // run is NULL: a generation
};

struct render {
    struct serving *serving;
    struct stream *stream;
    struct render_queue jobs;
    pthread_t threads[THREADS_MAX];
    uint32_t n_threads;
};

// --- ids to requests

static int asks_too_much(const struct serving *s, const char *field, uint32_t asked,
                         uint32_t n_prompt, struct api_error *e) {
    int rc = api_error_set(e, 400, field,
                           "This model's maximum context length is %u tokens; the prompt has "
                           "%u and '%s' asks for %u.",
                           s->max_model_len, n_prompt, field, asked);
    return api_error_code(e, rc, "context_length_exceeded");
}

static int choose_max_tokens(const struct serving *s, const struct openai_request *r,
                             uint32_t n_prompt, uint32_t *out, struct api_error *e) {
    uint32_t room = s->max_model_len - n_prompt;
    if (r->max_tokens > room)
        return asks_too_much(s, r->max_tokens_field, r->max_tokens, n_prompt, e);
    // It has no effect, but no prompt could make it right.
    if (r->max_tokens_overruled >= s->max_model_len)
        return asks_too_much(s, "max_tokens", r->max_tokens_overruled, n_prompt, e);
    uint32_t otherwise = r->max_tokens_default < room ? r->max_tokens_default : room;
    *out = r->max_tokens != 0 || r->prompt_only ? r->max_tokens : otherwise;
    return 0;
}

static int choose_stop_ids(const struct serving *s, const struct openai_request *r,
                           struct request *q, struct api_error *e) {
    uint32_t n_model = r->ignore_eos ? 0 : s->spec->n_stop_ids;
    if (n_model + r->n_stop_ids > STOP_IDS_MAX)
        return api_error_set(e, 400, "stop_token_ids",
                             "'stop_token_ids' may have at most %u ids with this model.",
                             STOP_IDS_MAX - n_model);
    memcpy(q->stop_ids, s->spec->stop_ids, n_model * sizeof *q->stop_ids);
    memcpy(q->stop_ids + n_model, r->stop_ids, r->n_stop_ids * sizeof *q->stop_ids);
    q->n_stop_ids = n_model + r->n_stop_ids;
    return 0;
}

// What can only come to that on the way is no error: these bans then do not count
// (docs/arithmetic.md).
static int check_steering(const struct openai_request *r, const struct request *q,
                          struct api_error *e) {
    struct steering_conflict by;
    if (!steering_conflicts(&r->steering, q->stop_ids, q->n_stop_ids, &by)) return 0;
    return api_error_set(
        e, 400, "allowed_token_ids", "none of 'allowed_token_ids' may come: %s%s%s.",
        by.words ? "'bad_words' has them" : "", by.words && by.stops ? ", and " : "",
        by.stops ? "'min_tokens' holds back those that end the answer (the "
                   "model's own, and 'stop_token_ids')"
                 : "");
}

// A copy for each choice, as the scheduler owns it.
static int choose_steering(const struct openai_request *r, struct request *q, struct api_error *e) {
    if (steering_is_idle(&r->steering)) return 0;
    q->steering = steering_copy(&r->steering);
    return q->steering != NULL ? 0 : api_error_set(e, 500, NULL, "memory is out.");
}

// The choices of a prompt share what is said of it, but for those that stream it themselves.
static bool is_scored(const struct choice *c) {
    const struct openai_request *r = &c->generation->request;
    bool alone = c->index % r->n == 0 || (r->stream && r->echo_logprobs);
    return openai_scores(r) && alone;
}

static int make_request(struct choice *c, const struct id_list *ids, struct request **out,
                        struct api_error *e) {
    const struct generation *g = c->generation;
    struct request *q = request_create((uint32_t)ids->n);
    if (q == NULL) return api_error_set(e, 500, NULL, "memory is out.");
    memcpy(q->prompt, ids->ids, ids->n * sizeof *ids->ids);
    q->id = c->request_id;
    q->sampling = g->request.sampling;
    q->sampling.seed = (uint64_t)g->request.seed;
    q->sampling.prompt_index = c->prompt_index;
    q->sampling.choice_index = c->index % g->request.n;
    q->score_prompt = is_scored(c);
    q->n_score_top = q->score_prompt ? openai_score_top(&g->request) : 0;
    q->priority = g->request.priority;
    q->emit = stream_emit;
    q->sink_context = c;
    c->n_prompt = q->n_prompt;
    int rc = choose_max_tokens(g->serving, &g->request, q->n_prompt, &q->max_tokens, e);
    if (salt_fill(q->salt, g->client.ops->key(g->client.self), g->request.cache_salt) != 0)
        rc = api_error_set(e, 500, NULL, "memory is out.");
    if (rc == 0) rc = choose_stop_ids(g->serving, &g->request, q, e);
    if (rc == 0) rc = check_steering(&g->request, q, e);
    if (rc == 0) rc = choose_steering(&g->request, q, e);
    if (rc != 0) {
        request_destroy(q);
        return rc;
    }
    *out = q;
    return 0;
}

// A client's own text comes back as it was; ids, and what was left of a text, as they read.
static int echo_prompt(struct choice *c, const struct id_list *ids, struct api_error *e) {
    const struct generation *g = c->generation;
    const struct openai_prompt *p = &g->request.prompts[c->prompt_index];
    int rc = 0;
    if (g->request.chat || !g->request.echo) return 0;
    if (p->text != NULL && g->request.truncate_prompt == 0)
        buf_add(&c->text, p->text, p->text_bytes);
    else
        rc = prompt_text(g->serving, ids->ids, ids->n, &c->text);
    return rc == 0 && !c->text.failed ? 0 : api_error_set(e, 500, NULL, "memory is out.");
}

static int count_chars(const struct serving *s, const struct id_list *ids, uint64_t *out,
                       struct api_error *e) {
    struct buf text;
    buf_init(&text, 0);
    int rc = prompt_text(s, ids->ids, ids->n, &text);
    *out = utf8_count(text.data, text.bytes);
    buf_finish(&text);
    return rc == 0 ? 0 : api_error_set(e, 500, NULL, "memory is out.");
}

// How the text that the client gets and its ids differ. A text that was cut is that of its ids.
static int compare_text(const struct choice *c, const struct id_list *ids,
                        struct prompt_start *start, struct buf *drifts, struct api_error *e) {
    const struct generation *g = c->generation;
    const struct tokenizer *t = g->serving->tokenizer;
    bool own = g->request.truncate_prompt == 0 && g->request.prompts[c->prompt_index].text != NULL;
    if (own && drift_find(t, c->text.data, c->text.bytes, drifts) != 0)
        return api_error_set(e, 500, NULL, "memory is out.");
    return count_chars(g->serving, ids, &start->ids_chars, e);
}

static int begin_scores(struct choice *c, const struct id_list *ids, struct api_error *e) {
    const struct generation *g = c->generation;
    struct buf drifts;
    struct prompt_start start = {.first_token = ids->ids[0], .drifts = &drifts};
    int rc = 0;
    buf_init(&drifts, 0);
    start.text_chars = utf8_count(c->text.data, c->text.bytes);
    if (g->request.echo_logprobs) rc = compare_text(c, ids, &start, &drifts, e);
    c->logprobs.text_offset = start.text_chars;
    if (rc == 0 && is_scored(c) && !g->client.ops->begin_scores(c, &start))
        rc = api_error_set(e, 500, NULL, "memory is out.");
    buf_finish(&drifts);
    return rc;
}

// A stream says them as they come; a whole answer has those of all prompts at once, and of each
// choice.
static int hold_scores(struct generation *g, const struct id_list *ids, struct api_error *e) {
    const struct openai_request *r = &g->request;
    const char *field = r->prompt_logprobs ? "prompt_logprobs" : "echo";
    uint64_t bytes = echo_bytes(g->serving->tokenizer, r, ids->ids, ids->n) * (r->chat ? 1 : r->n);
    g->scores_bytes += bytes;
    if (g->scores_bytes > SCORES_ANSWER_BYTES_MAX)
        return api_error_set(e, 400, field,
                             "'%s' would make an answer of more than %u MiB; ask for fewer "
                             "alternatives, fewer choices or fewer prompts at once.",
                             field, SCORES_ANSWER_BYTES_MAX >> 20);
    if (g->client.ops->hold_bytes(g->client.self, bytes)) return 0;
    return api_error_set(e, 503, NULL, "too many bytes of answers are being made; try again later");
}

static int make_choice(struct choice *c, const struct id_list *ids, struct request **out,
                       struct api_error *e) {
    int rc = echo_prompt(c, ids, e);
    if (rc == 0 && openai_scores(&c->generation->request)) rc = begin_scores(c, ids, e);
    return rc == 0 ? make_request(c, ids, out, e) : rc;
}

static bool is_unwanted(void *context) {
    const struct client *client = context;
    return client->ops->unwanted(client->self);
}

static int make_prompt_requests(struct generation *g, uint32_t prompt, struct request **list,
                                struct api_error *e) {
    struct id_list ids = {0};
    uint32_t n = g->request.n;
    const struct text_watch watch = {is_unwanted, &g->client};
    const struct prompt_ask ask = {g->serving, &g->request, prompt, &watch};
    int rc = prompt_encode(&ask, &ids, e);
    if (rc == 0) rc = prompt_check_room(g->serving, &g->request, ids.n, e);
    if (rc == 0 && openai_scores(&g->request) && !g->request.stream) rc = hold_scores(g, &ids, e);
    for (uint32_t k = 0; k < n && rc == 0; k++)
        rc = make_choice(&g->choices[prompt * n + k], &ids, &list[prompt * n + k], e);
    id_list_finish(&ids);
    return rc;
}

static void destroy_requests(struct request **list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        request_destroy(list[i]);
    mem_free(list);
}

static int make_requests(struct generation *g, struct request ***out, struct api_error *e) {
    struct request **list = mem_array(g->n_choices, sizeof *list);
    if (list == NULL) return api_error_set(e, 500, NULL, "memory is out.");
    int rc = words_encode(g->serving->tokenizer, &g->request, e);
    for (uint32_t p = 0; p < g->request.n_prompts && rc == 0; p++)
        rc = make_prompt_requests(g, p, list, e);
    if (rc != 0) {
        destroy_requests(list, g->n_choices);
        return rc;
    }
    *out = list;
    return 0;
}

// --- requests to the scheduler

static const char *why_unavailable(const struct serving *s) {
    if (s->draining) return "the server is shutting down";
    return s->engine->leaving(s->engine->self) ? "a worker drains; try again later"
                                               : "no group of workers is ready; try again later";
}

static const char *why_not_taken(const struct serving *s, int code) {
    switch (code) {
    case ERR_REQ_QUEUE_FULL: return "too many requests are waiting; try again later";
    case ERR_REQ_TOO_LARGE: return "the prompt and max_tokens need more KV cache than a worker has";
    default: return why_unavailable(s);
    }
}

// A request that the scheduler did not take ends like one that it ended, so that one place knows
// how calls end.
static void submit_failed(struct choice *c, int code) {
    struct token_event ev = {
        .sink_context = c, .request_id = c->request_id, .finish = FINISH_ERROR, .error = code};
    snprintf(ev.message, sizeof ev.message, "%s", why_not_taken(c->generation->serving, code));
    counter_add(&c->generation->serving->meter
                     .rejected[code == ERR_REQ_QUEUE_FULL ? REJECT_QUEUE_FULL : REJECT_UNAVAILABLE],
                1);
    stream_emit(&ev);
}

static void client_left(void *context) {
    generation_abort(context);
}

// From the first submit on the generation belongs to the stream thread, which frees it after the
// last choice's last event: nothing of it is touched behind the last submit.
static void submit_all(struct generation *g, struct request **list) {
    const struct engine *engine = g->serving->engine;
    struct client client = g->client;
    uint32_t n = g->n_choices;
    struct choice *choices = g->choices;
    uint64_t first = choices[0].request_id;
    bool refused = false;
    for (uint32_t i = 0; i < n; i++) {
        struct choice *c = &choices[i];
        int rc = engine->submit(engine->self, list[i]);
        if (rc != 0) submit_failed(c, rc);
        refused |= rc != 0;
    }
    mem_free(list);
    // An abort that came before its request was submitted was lost.
    for (uint32_t i = 0; i < n && (refused || client.ops->unwanted(client.self)); i++)
        engine->abort(engine->self, first + i);
    client.ops->release(client.self);
}

static void log_left(const struct client *client) {
    log_debug("render", "request %s left before it was queued",
              client->ops->request_id(client->self));
}

static void submit(struct generation *g, struct request **list) {
    struct meter *m = &g->serving->meter;
    histogram_observe(&m->n_choices, g->request.n);
    for (uint32_t i = 0; i < g->n_choices; i++)
        histogram_observe(&m->max_tokens, list[i]->max_tokens);
    struct client client = g->client;
    client.ops->hold(client.self);
    if (!client.ops->on_gone(client.self, client_left, g)) {
        log_left(&client);
        client.ops->release(client.self);
        admit_release(&g->serving->admit, g->n_choices);
        destroy_requests(list, g->n_choices);
        generation_destroy(g);
        return;
    }
    request_log_admitted(g, list);
    submit_all(g, list);
}

// --- the pool

static int unavailable(struct serving *s, struct api_error *e) {
    counter_add(&s->meter.rejected[REJECT_UNAVAILABLE], 1);
    return api_error_set(e, 503, NULL, "%s", why_unavailable(s));
}

static int check_call(struct serving *s, const struct openai_request *r, struct api_error *e) {
    int rc = prompt_check_model(s, r, e);
    if (rc != 0) return rc;
    return s->engine->takes_requests(s->engine->self) && !s->draining ? 0 : unavailable(s, e);
}

static int reserve(struct serving *s, uint32_t n, struct api_error *e) {
    if (admit_reserve(&s->admit, n)) return 0;
    if (s->draining) return unavailable(s, e); // who comes later finds no server, not a place
    counter_add(&s->meter.rejected[REJECT_QUEUE_FULL], 1);
    int rc = api_error_set(
        e, 429, NULL, "%u more would exceed %u waiting and running request%s; try again later.", n,
        s->admit.max, plural(s->admit.max));
    e->retry_after_s = admit_retry_after_s(&s->admit);
    return api_error_code(e, rc, "rate_limit_exceeded");
}

// One place is there already.
static int reserve_rest(struct serving *s, const struct openai_request *r, struct api_error *e) {
    uint32_t n = r->n_prompts * r->n;
    if (n > s->admit.max) // it would not help to try again
        return api_error_set(e, 400, r->n > 1 ? "n" : r->prompt_field,
                             "%u choices are more than the %u waiting and running request%s that "
                             "this server allows.",
                             n, s->admit.max, plural(s->admit.max));
    return n == 1 ? 0 : reserve(s, n - 1, e);
}

// The reserved places go with the generation; on failure they are given back here.
static int start(struct render *r, struct client client, struct openai_request *request,
                 struct api_error *e) {
    struct serving *s = r->serving;
    uint32_t n = request->n_prompts * request->n;
    struct request **list = NULL;
    struct generation *g = generation_create(s, client, request);
    int rc = g == NULL ? api_error_set(e, 500, NULL, "memory is out.") : 0;
    if (rc == 0) g->stream = r->stream;
    if (rc == 0) rc = make_requests(g, &list, e);
    if (rc != 0) {
        generation_destroy(g);
        admit_release(&s->admit, n);
        return rc;
    }
    submit(g, list);
    return 0;
}

static void work(struct render *r, struct client client) {
    struct serving *s = r->serving;
    struct api_error e;
    struct openai_request request;
    if (client.ops->unwanted(client.self)) { // it left while it waited for this thread
        admit_release(&s->admit, 1);
        return;
    }
    int rc = client.ops->parse(client.self, &request, &s->defaults, &e);
    if (rc == 0) {
        rc = check_call(s, &request, &e);
        if (rc == 0) rc = reserve_rest(s, &request, &e);
        if (rc != 0) openai_request_finish(&request);
    }
    if (rc != 0) admit_release(&s->admit, 1);
    if (rc == 0) rc = start(r, client, &request, &e);
    if (rc == 0) return;
    if (rc == ERR_REQ_ABORTED) {
        log_left(&client);
        return;
    }
    if (e.status < 429) counter_add(&s->meter.rejected[REJECT_INVALID], 1);
    request_log_refused(s, &client, &e);
    client.ops->fail(client.self, false, &e);
}

static void run_task(struct render *r, const struct render_task *task) {
    task->run(r->serving, task->context);
    admit_release(&r->serving->admit, 1);
}

static void *render_thread(void *context) {
    struct render *r = context;
    struct render_item *item;
    while ((item = render_queue_take(&r->jobs)) != NULL) {
        struct job *job = (struct job *)item;
        bool large = item->large;
        if (job->task.run != NULL) {
            run_task(r, &job->task);
        } else {
            work(r, job->client);
            job->client.ops->release(job->client.self);
        }
        mem_free(job);
        render_queue_done(&r->jobs, large);
    }
    return NULL;
}

int render_create(struct render **out, struct serving *s, struct stream *stream, uint32_t n_threads,
                  struct err_text *e) {
    struct render *r = mem_zalloc(sizeof *r);
    if (r == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the render pool");
    r->serving = s;
    r->stream = stream;
    check(n_threads >= 1 && n_threads <= THREADS_MAX);
    render_queue_init(&r->jobs, n_threads > 1 ? n_threads - 1 : 1);
    while (r->n_threads < n_threads &&
           pthread_create(&r->threads[r->n_threads], NULL, render_thread, r) == 0)
        r->n_threads++;
    if (r->n_threads < n_threads) {
        render_destroy(r);
        return err_set(e, ERR_FATAL_NOMEM, "cannot start the render threads");
    }
    *out = r;
    return 0;
}

void render_destroy(struct render *r) {
    if (r == NULL) return;
    render_queue_close(&r->jobs);
    for (uint32_t i = 0; i < r->n_threads; i++)
        pthread_join(r->threads[i], NULL);
    render_queue_finish(&r->jobs);
    mem_free(r);
}

bool render_take(struct render *r, struct client client) {
    struct serving *s = r->serving;
    struct api_error e;
    if (reserve(s, 1, &e) != 0) {
        client.ops->fail(client.self, false, &e);
        return true;
    }
    struct job *job = mem_zalloc(sizeof *job);
    if (job == NULL) {
        admit_release(&s->admit, 1);
        return false;
    }
    client.ops->hold(client.self);
    job->client = client;
    render_queue_push(&r->jobs, &job->item, client.ops->bytes(client.self));
    return true;
}

int render_run(struct render *r, const struct render_task *task, struct api_error *e) {
    struct serving *s = r->serving;
    if (s->draining) return unavailable(s, e);
    int rc = reserve(s, 1, e);
    if (rc != 0) return rc;
    struct job *job = mem_zalloc(sizeof *job);
    if (job == NULL) {
        admit_release(&s->admit, 1);
        return api_error_set(e, 503, NULL, "memory is out.");
    }
    job->task = *task;
    render_queue_push(&r->jobs, &job->item, task->bytes);
    return 0;
}
