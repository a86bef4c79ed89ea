// toy_engine.c: see toy_engine.h.
#include "tests/harness/toy_engine.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"

#define TOY_REQUESTS_MAX 4096

struct toy_request {
    struct request *r; // owned
    uint32_t n_said;
    bool started, aborted;
};

struct toy_engine {
    struct env *env;
    struct waker *waker;
    struct toy_script script;
    struct engine table;
    pthread_t thread;
    pthread_mutex_t lock;
    bool stopping;
    _Atomic bool ready, stuck, told_to_fail;
    struct toy_request requests[TOY_REQUESTS_MAX];
    uint32_t n_requests;
    struct toy_counts counts;
};

static void toy_finish(struct toy_engine *t, uint32_t i, struct token_event *ev) {
    struct request *r = t->requests[i].r;
    void (*emit)(const struct token_event *) = r->emit;
    t->counts.aborted += ev->finish == FINISH_ABORT;
    t->requests[i] = t->requests[--t->n_requests];
    request_destroy(r);
    emit(ev);
}

static void set_token(struct token_event *ev, const struct toy_request *q, uint32_t id) {
    ev->token = id;
    ev->logprob = -0.5f;
    ev->n_top = q->r->sampling.n_logprobs;
    for (uint32_t k = 0; k < ev->n_top; k++) {
        ev->top_ids[k] = k == 0 ? id : k;
        ev->top_logprobs[k] = -0.5f - (float)k;
    }
}

static void say(struct toy_engine *t, struct toy_request *q, struct token_event *ev) {
    ev->has_token = true;
    set_token(ev, q, t->script.ids[q->n_said]);
    ev->digest = q->n_said + 1;
    if (++q->n_said == q->r->max_tokens) ev->finish = FINISH_LENGTH;
}

#define CHUNK 3 // tokens of a prompt that are scored at once

// What the toy finds of a prompt: token i has the log-probability -i / 4 and the rank
// i; the most likely ones are 0, 1, 2, ...
static void score(const struct toy_request *q, uint32_t first, uint32_t n) {
    const struct request *r = q->r;
    uint32_t ranks[CHUNK], ids[CHUNK * TOP_LOGPROBS_MAX];
    float logprobs[CHUNK], tops[CHUNK * TOP_LOGPROBS_MAX];
    struct prompt_scores s = {n, r->n_score_top, r->prompt + first, logprobs, ranks, ids, tops};
    struct token_event ev = {.sink_context = r->sink_context, .request_id = r->id};
    for (uint32_t i = 0; i < n; i++) {
        logprobs[i] = -(float)(first + i) / 4;
        ranks[i] = first + i;
        for (uint32_t k = 0; k < r->n_score_top; k++) {
            ids[i * r->n_score_top + k] = k;
            tops[i * r->n_score_top + k] = -(float)k;
        }
    }
    ev.scores = scores_copy(&s);
    check(ev.scores != NULL);
    r->emit(&ev);
}

static void score_prompt(const struct toy_request *q) {
    uint32_t n_prompt = q->r->n_prompt;
    for (uint32_t at = 1; q->r->score_prompt && at < n_prompt; at += CHUNK)
        score(q, at, n_prompt - at < CHUNK ? n_prompt - at : CHUNK);
}

// One tick of one running request. False: it ended.
static bool toy_step(struct toy_engine *t, uint32_t i) {
    struct toy_request *q = &t->requests[i];
    struct token_event ev = {.sink_context = q->r->sink_context, .request_id = q->r->id};
    if (q->aborted) {
        ev.finish = FINISH_ABORT;
    } else if (!q->started) {
        q->started = true;
        ev.is_start = true;
        q->r->emit(&ev);
        score_prompt(q);
        return true;
    } else if (q->r->max_tokens == 0) {
        ev.finish = FINISH_LENGTH;
    } else if (t->script.fail_after != 0 && q->n_said == t->script.fail_after) {
        if (t->script.fails_when_told && !atomic_load(&t->told_to_fail)) return true;
        ev.finish = FINISH_ERROR;
        ev.error = ERR_REQ_WORKER_LOST;
        snprintf(ev.message, sizeof ev.message, "worker 1 was lost");
    } else if (q->n_said == t->script.n_ids) {
        if (t->script.awaits_abort) return true;
        ev.finish = FINISH_STOP;
        set_token(&ev, q, t->script.stop_id);
        ev.digest = 999;
    } else {
        say(t, q, &ev);
    }
    if (ev.finish != FINISH_NONE) {
        toy_finish(t, i, &ev);
        return false;
    }
    q->r->emit(&ev);
    return true;
}

static void toy_tick(struct toy_engine *t) {
    uint32_t running = 0;
    for (uint32_t i = 0; i < t->n_requests;) {
        bool may_run = t->requests[i].started || running < t->script.slots;
        if (!may_run && !t->requests[i].aborted) {
            i++;
            continue;
        }
        running++;
        if (toy_step(t, i)) i++;
    }
}

static void *toy_thread(void *context) {
    struct toy_engine *t = context;
    for (;;) {
        waker_wait(t->waker, env_now_ns(t->env) + t->script.tick_ns);
        pthread_mutex_lock(&t->lock);
        bool stop = t->stopping;
        if (!stop) toy_tick(t);
        pthread_mutex_unlock(&t->lock);
        if (stop) return NULL;
    }
}

// So that what is submitted now has not heard the abort.
static void await_abort(struct toy_engine *t) {
    int64_t until = env_now_ns(t->env) + 60 * NS_PER_S; // of a busy machine
    struct waker *w;
    check(waker_create(t->env, &w) == 0);
    while (toy_engine_counts(t).aborts == 0 && env_now_ns(t->env) < until)
        waker_wait(w, env_now_ns(t->env) + NS_PER_MS);
    waker_destroy(w);
}

static int toy_submit(void *self, struct request *r) {
    struct toy_engine *t = self;
    uint32_t n_errors = t->script.n_errors;
    if (n_errors != 0 && toy_engine_counts(t).submitted == n_errors) await_abort(t);
    pthread_mutex_lock(&t->lock);
    bool refuses = t->script.n_errors == 0 || t->counts.submitted < t->script.n_errors;
    int rc = refuses ? t->script.submit_error : 0;
    t->counts.submitted++;
    if (rc == 0) {
        check(t->n_requests < TOY_REQUESTS_MAX);
        t->requests[t->n_requests++] = (struct toy_request){.r = r};
    } else {
        request_destroy(r);
    }
    pthread_mutex_unlock(&t->lock);
    return rc;
}

static void toy_abort(void *self, uint64_t id) {
    struct toy_engine *t = self;
    pthread_mutex_lock(&t->lock);
    t->counts.aborts++;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        if (t->requests[i].r->id == id) t->requests[i].aborted = true;
    }
    pthread_mutex_unlock(&t->lock);
}

static bool toy_leaving(void *self) {
    struct toy_engine *t = self;
    return t->script.leaving;
}

static bool toy_ready(void *self) {
    struct toy_engine *t = self;
    return t->ready && !t->script.leaving;
}

static bool toy_takes_requests(void *self) {
    struct toy_engine *t = self;
    return (t->ready || t->script.takes_requests) && !t->script.leaving;
}

static bool toy_alive(void *self) {
    (void)self;
    return true;
}

static bool toy_in_time(void *self) {
    struct toy_engine *t = self;
    return !t->stuck;
}

void toy_engine_show(struct toy_engine *t, bool ready, bool stuck) {
    t->ready = ready;
    t->stuck = stuck;
}

void toy_engine_fail(struct toy_engine *t) {
    atomic_store(&t->told_to_fail, true);
}

static int toy_view(void *self, struct leader_view *out) {
    struct toy_engine *t = self;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&t->lock);
    out->n_running = t->n_requests;
    pthread_mutex_unlock(&t->lock);
    out->ready = t->ready;
    snprintf(out->state, sizeof out->state, "waiting for 1 of 2 workers");
    return 0;
}

struct toy_engine *toy_engine_create(struct env *env, const struct toy_script *script) {
    struct toy_engine *t = mem_zalloc(sizeof *t);
    check(t != NULL);
    t->env = env;
    t->script = *script;
    t->ready = !script->not_ready;
    t->table = (struct engine){.self = t,
                               .submit = toy_submit,
                               .abort = toy_abort,
                               .ready = toy_ready,
                               .takes_requests = toy_takes_requests,
                               .leaving = toy_leaving,
                               .alive = toy_alive,
                               .in_time = toy_in_time,
                               .view = toy_view};
    // The stream side aborts from inside emit as well, when this thread holds the lock already.
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&t->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    check(waker_create(env, &t->waker) == 0);
    check(pthread_create(&t->thread, NULL, toy_thread, t) == 0);
    return t;
}

void toy_engine_stop(struct toy_engine *t) {
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    pthread_mutex_unlock(&t->lock);
    waker_wake(t->waker);
    pthread_join(t->thread, NULL);
    pthread_mutex_lock(&t->lock); // others may still abort
    while (t->n_requests != 0) {
        struct token_event ev = {.sink_context = t->requests[0].r->sink_context,
                                 .request_id = t->requests[0].r->id,
                                 .finish = FINISH_ERROR,
                                 .error = ERR_REQ_UNAVAILABLE};
        toy_finish(t, 0, &ev);
    }
    pthread_mutex_unlock(&t->lock);
}

void toy_engine_destroy(struct toy_engine *t) {
    waker_destroy(t->waker);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

const struct engine *toy_engine_table(const struct toy_engine *t) {
    return &t->table;
}

struct toy_counts toy_engine_counts(struct toy_engine *t) {
    pthread_mutex_lock(&t->lock);
    struct toy_counts c = t->counts;
    c.inside = t->n_requests;
    pthread_mutex_unlock(&t->lock);
    return c;
}

bool toy_engine_await(struct toy_engine *t, uint32_t n_inside) {
    int64_t until = env_now_ns(t->env) + 60 * NS_PER_S; // of a busy machine
    struct waker *w;
    check(waker_create(t->env, &w) == 0);
    bool there;
    while (!(there = toy_engine_counts(t).inside == n_inside) && env_now_ns(t->env) < until)
        waker_wait(w, env_now_ns(t->env) + NS_PER_MS);
    waker_destroy(w);
    return there;
}

uint32_t toy_engine_aborting(struct toy_engine *t) {
    uint32_t n = 0;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < t->n_requests; i++)
        n += t->requests[i].aborted;
    pthread_mutex_unlock(&t->lock);
    return n;
}
