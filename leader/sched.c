// sched.c: the life of a request in the scheduler, from the mailbox to its last event. plan.c is
// next in the walk.
#include "leader/sched.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "leader/sched_state.h"

// --- making and unmaking

static int rank_init(struct sched_rank *k, uint32_t max_num_seqs) {
    list_init(&k->running);
    k->free_slots = mem_array(max_num_seqs, sizeof *k->free_slots);
    return k->free_slots == NULL ? ERR_FATAL_NOMEM : 0;
}

// The lowest slot is taken first; which one it is changes no answer.
static void rank_free_slots(struct sched_rank *k, uint32_t max_num_seqs) {
    for (uint32_t i = 0; i < max_num_seqs; i++)
        k->free_slots[i] = max_num_seqs - 1 - i;
    k->n_free_slots = max_num_seqs;
}

int sched_create(struct sched **out, const struct sched_config *config, struct err_text *e) {
    check(config->n_ranks > 0 && config->max_num_seqs > 0 && config->max_num_batched_tokens > 0);
    struct sched *s = mem_zalloc(sizeof *s);
    if (s == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the scheduler");
    s->config = *config;
    s->queue_deadline_ns = NO_DEADLINE;
    list_init(&s->queue);
    list_init(&s->ended);
    s->buckets = mem_array(ID_BUCKETS, sizeof(struct seq *));
    s->ranks = mem_array(config->n_ranks, sizeof *s->ranks);
    bool failed = s->buckets == NULL || s->ranks == NULL;
    for (uint32_t i = 0; i < config->n_ranks && !failed; i++) {
        failed = rank_init(&s->ranks[i], config->max_num_seqs) != 0;
        if (!failed) rank_free_slots(&s->ranks[i], config->max_num_seqs);
    }
    if (failed) {
        sched_destroy(s);
        return err_set(e, ERR_FATAL_NOMEM, "no memory for the scheduler");
    }
    *out = s;
    return 0;
}

void sched_destroy(struct sched *s) {
    if (s == NULL) return;
    check(s->n_live == 0);
    for (uint32_t i = 0; i < s->config.n_ranks && s->ranks != NULL; i++) {
        mem_free(s->ranks[i].free_slots);
        pages_finish(&s->ranks[i].pages);
        snapshots_finish(&s->ranks[i].snapshots);
    }
    mem_free(s->ranks);
    mem_free(s->buckets);
    mem_free(s);
}

// --- the index of ids

static struct seq **bucket_of(const struct sched *s, uint64_t id) {
    return &s->buckets[id & (ID_BUCKETS - 1)];
}

struct seq *sched_find(const struct sched *s, uint64_t id) {
    struct seq *q = *bucket_of(s, id);
    while (q != NULL && q->id != id)
        q = q->next_in_bucket;
    return q;
}

static void index_remove(struct sched *s, struct seq *q) {
    struct seq **place = bucket_of(s, q->id);
    while (*place != q)
        place = &(*place)->next_in_bucket;
    *place = q->next_in_bucket;
}

// --- ends

void sched_end(struct sched *s, struct seq *q, struct token_event *ev) {
    check(ev->finish != FINISH_NONE);
    void (*emit)(const struct token_event *) = q->r->emit;
    request_destroy(q->r); // before the event: after it nothing of the request is touched
    q->r = NULL;
    index_remove(s, q);
    if (q->state == REQ_QUEUED)
        seq_dequeue(s, q);
    else
        seq_leave(s, q);
    seq_move(q, REQ_ENDED);
    s->n_live--;
    if (q->last_step > s->completed)
        list_push(&s->ended, &q->node);
    else
        seq_destroy(q);
    emit(ev);
}

void sched_end_error(struct sched *s, struct seq *q, int error, const char *message) {
    struct token_event ev = seq_event(q);
    ev.finish = FINISH_ERROR;
    ev.error = error;
    snprintf(ev.message, sizeof ev.message, "%s", message);
    sched_end(s, q, &ev);
}

void sched_retire(struct sched *s) {
    struct list_node *next;
    for (struct list_node *n = list_first(&s->ended); n != NULL; n = next) {
        next = list_next(&s->ended, n);
        if (seq_of(n)->last_step > s->completed) continue;
        list_remove(&s->ended, n);
        seq_destroy(seq_of(n));
    }
}

// --- submit and abort

// An event for a request that never became a sequence.
static void refuse(struct request *r, int error, const char *message) {
    struct token_event ev = {.sink_context = r->sink_context,
                             .request_id = r->id,
                             .finish = FINISH_ERROR,
                             .error = error};
    snprintf(ev.message, sizeof ev.message, "%s", message);
    void (*emit)(const struct token_event *) = r->emit;
    request_destroy(r);
    emit(&ev);
}

static int check_request(const struct sched *s, const struct request *r, struct err_text *e) {
    if (r->n_prompt == 0) return err_set(e, ERR_REQ_INVALID, "the prompt is empty");
    if ((uint64_t)r->n_prompt + r->max_tokens > s->config.max_model_len)
        return err_set(e, ERR_REQ_TOO_LARGE,
                       "%u prompt tokens and %u new ones are more than max_model_len %u",
                       r->n_prompt, r->max_tokens, s->config.max_model_len);
    if (r->n_stop_ids > STOP_IDS_MAX || r->sampling.n_logprobs > TOP_LOGPROBS_MAX ||
        r->n_score_top > TOP_LOGPROBS_MAX)
        return err_set(e, ERR_REQ_INVALID, "too many stop ids or logprobs");
    if (r->steering != NULL && steering_items(r->steering, r->n_stop_ids) > STEERING_ITEMS_MAX)
        return err_set(e, ERR_REQ_INVALID, "too many biases, allowed ids and banned words");
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] >= s->config.vocab)
            return err_set(e, ERR_REQ_INVALID,
                           "prompt token %u is not below the vocabulary size %u", r->prompt[i],
                           s->config.vocab);
    }
    if (sched_find(s, r->id) != NULL) return err_set(e, ERR_REQ_INVALID, "request id is in use");
    return 0;
}

void sched_submit(struct sched *s, struct request *r, int64_t now_ns) {
    struct err_text e;
    int err = check_request(s, r, &e);
    if (err != 0) {
        refuse(r, err, e.text);
        return;
    }
    struct seq *q = seq_create(r);
    if (q == NULL) {
        refuse(r, ERR_REQ_UNAVAILABLE, "no memory for the request");
        return;
    }
    q->arrival = s->n_arrived++;
    q->next_in_bucket = *bucket_of(s, q->id);
    *bucket_of(s, q->id) = q;
    seq_enqueue(s, q);
    s->n_live++;
    if (!s->formed && s->queue_deadline_ns == NO_DEADLINE) // it was on its way when all ended
        s->queue_deadline_ns = now_ns + s->config.recovery_timeout_ns;
}

void sched_abort(struct sched *s, uint64_t request_id) {
    struct seq *q = sched_find(s, request_id);
    if (q == NULL) return;
    struct token_event ev = seq_event(q);
    ev.finish = FINISH_ABORT;
    sched_end(s, q, &ev);
}

// --- the group comes and goes

static int rank_form(struct sched_rank *k, const struct rank_room *room, uint64_t seed) {
    struct pages pages;
    struct snapshots snapshots;
    if (pages_init(&pages, room->kv_blocks, seed) != 0) return ERR_FATAL_NOMEM;
    if (snapshots_init(&snapshots, room->snapshots) != 0) {
        pages_finish(&pages);
        return ERR_FATAL_NOMEM;
    }
    pages_finish(&k->pages);
    snapshots_finish(&k->snapshots);
    k->pages = pages;
    k->snapshots = snapshots;
    return 0;
}

int sched_form(struct sched *s, const struct rank_room *rooms) {
    check(!s->formed);
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        int err = rank_form(&s->ranks[i], &rooms[i], s->config.seed);
        if (err != 0) return err;
    }
    s->formed = true;
    s->queue_deadline_ns = NO_DEADLINE;
    return 0;
}

static void lose(struct sched *s, struct seq *q) {
    if (++q->n_vain < REPLAYS_IN_VAIN_MAX) {
        seq_resume_later(s, q);
        s->counts.replays++;
        return;
    }
    s->counts.requests_lost++;
    sched_end_error(s, q, ERR_REQ_WORKER_LOST,
                    "worker groups were lost again and again while the request ran");
}

void sched_lose(struct sched *s, int64_t now_ns) {
    if (!s->formed) return;
    s->formed = false;
    s->completed = s->n_steps; // what was in flight never returns
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        struct list_node *n;
        while ((n = list_last(&s->ranks[i].running)) != NULL)
            lose(s, seq_of(n));
    }
    sched_retire(s);
    if (s->n_resuming > 0)
        log_event(LOG_WARN, "sched", "requests wait for the group",
                  log_uint("requests", s->n_resuming),
                  log_uint("most_s", (uint64_t)(s->config.recovery_timeout_ns / NS_PER_S)));
    s->queue_deadline_ns = now_ns + s->config.recovery_timeout_ns;
}

// Who has begun hears that it was lost; who has not may come again as if nothing was.
static void expire(struct sched *s, struct seq *q) {
    if (q->n_starts == 0) {
        sched_end_error(s, q, ERR_REQ_UNAVAILABLE, "no worker group was formed in time");
        return;
    }
    s->counts.requests_lost++;
    sched_end_error(s, q, ERR_REQ_WORKER_LOST,
                    "the worker group was lost while the request ran, and none was formed in time");
}

int64_t sched_deadline(const struct sched *s) {
    return s->queue_deadline_ns;
}

void sched_expire(struct sched *s, int64_t now_ns) {
    struct list_node *n;
    if (now_ns < s->queue_deadline_ns) return;
    if (s->queue.count > 0)
        log_event(LOG_ERROR, "sched", "requests waited too long for the group",
                  log_uint("requests", s->queue.count), log_uint("lost", s->n_resuming));
    while ((n = list_first(&s->queue)) != NULL)
        expire(s, seq_of(n));
    s->queue_deadline_ns = NO_DEADLINE;
}

void sched_hold(struct sched *s, bool held) {
    s->held = held;
}

static void close_list(struct sched *s, struct list *list, const char *reason) {
    struct list_node *n;
    while ((n = list_first(list)) != NULL)
        sched_end_error(s, seq_of(n), ERR_REQ_UNAVAILABLE, reason);
}

void sched_close(struct sched *s, const char *reason) {
    s->completed = s->n_steps;
    for (uint32_t i = 0; i < s->config.n_ranks; i++)
        close_list(s, &s->ranks[i].running, reason);
    close_list(s, &s->queue, reason);
    s->queue_deadline_ns = NO_DEADLINE;
    sched_retire(s);
}

// --- numbers

void sched_count(const struct sched *s, struct sched_counts *out) {
    *out = s->counts;
    out->n_waiting = s->queue.count;
    out->n_running = s->n_live - s->queue.count;
    out->n_resuming = s->n_resuming;
}

void sched_count_rank(const struct sched *s, uint32_t rank, struct sched_rank_counts *out) {
    const struct sched_rank *k = &s->ranks[rank];
    *out = (struct sched_rank_counts){.n_running = k->running.count,
                                      .blocks_used = k->pages.n_blocks - k->pages.n_free,
                                      .snapshots_used = k->snapshots.n_bound,
                                      .generation_tokens = k->generation_tokens};
}

bool sched_has_work(const struct sched *s) {
    return s->n_live > 0;
}
