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
    list_init(&k->prompts);
    list_init(&k->decodes);
    list_init(&k->ended);
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
    }
    mem_free(s->ranks);
    mem_free(s->buckets);
    mem_free(s);
}

// --- the index of ids

static struct seq **bucket_of(const struct sched *s, uint64_t id) {
    return &s->buckets[id & (ID_BUCKETS - 1)];
}

static struct seq *find(const struct sched *s, uint64_t id) {
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

// --- states and events

void seq_move(struct seq *q, enum request_state to) {
    check(request_may_move(q->state, to));
    q->state = to;
}

struct token_event seq_event(const struct seq *q) {
    struct token_event ev = {0};
    ev.sink_context = q->r->sink_context;
    ev.request_id = q->id;
    ev.digest = q->digest;
    return ev;
}

static struct list *list_of(struct sched *s, const struct seq *q) {
    if (q->state == REQ_QUEUED) return &s->queue;
    struct sched_rank *k = &s->ranks[q->rank];
    if (q->state == REQ_PREFILLING) return &k->prompts;
    return q->state == REQ_DECODING ? &k->decodes : &k->ended;
}

void sched_end(struct sched *s, struct seq *q, struct token_event *ev) {
    check(ev->finish != FINISH_NONE);
    void (*emit)(const struct token_event *) = q->r->emit;
    request_destroy(q->r); // before the event: after it nothing of the request is touched
    q->r = NULL;
    index_remove(s, q);
    list_remove(list_of(s, q), &q->node);
    seq_move(q, REQ_ENDED);
    s->n_live--;
    if (q->has_slot)
        list_push(&s->ranks[q->rank].ended, &q->node);
    else
        mem_free(q);
    emit(ev);
}

void sched_end_error(struct sched *s, struct seq *q, int error, const char *message) {
    struct token_event ev = seq_event(q);
    ev.finish = FINISH_ERROR;
    ev.error = error;
    snprintf(ev.message, sizeof ev.message, "%s", message);
    sched_end(s, q, &ev);
}

static void give_back(struct sched *s, struct seq *q) {
    struct sched_rank *k = &s->ranks[q->rank];
    list_remove(&k->ended, &q->node);
    for (uint32_t i = 0; i < q->n_blocks; i++)
        pages_give(&k->pages, q->blocks[i]);
    pages_unpromise(&k->pages, q->n_promised);
    k->free_slots[k->n_free_slots++] = q->slot;
    mem_free(q);
}

void sched_retire(struct sched *s) {
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        struct list *ended = &s->ranks[i].ended;
        struct list_node *next;
        for (struct list_node *n = list_first(ended); n != NULL; n = next) {
            next = list_next(ended, n);
            if (seq_of(n)->last_step <= s->completed) give_back(s, seq_of(n));
        }
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
    if (find(s, r->id) != NULL) return err_set(e, ERR_REQ_INVALID, "request id is in use");
    return 0;
}

// The last token that is sampled is never fed back, so it needs no place.
static uint32_t blocks_of(const struct request *r) {
    return pages_needed((uint64_t)r->n_prompt + (r->max_tokens == 0 ? 0 : r->max_tokens - 1));
}

void sched_submit(struct sched *s, struct request *r, int64_t now_ns) {
    struct err_text e;
    int err = check_request(s, r, &e);
    if (err != 0) {
        refuse(r, err, e.text);
        return;
    }
    uint32_t n_blocks = blocks_of(r);
    struct seq *q = mem_zalloc(sizeof *q + n_blocks * sizeof q->blocks[0]);
    if (q == NULL) {
        refuse(r, ERR_REQ_UNAVAILABLE, "no memory for the request");
        return;
    }
    q->r = r;
    q->id = r->id;
    q->n_prompt = r->n_prompt;
    q->max_tokens = r->max_tokens;
    q->n_promised = n_blocks; // what it will need; promised when it gets its slot
    q->sampling = r->sampling;
    q->sampling.steered = r->steering != NULL;
    q->wants_prompt_rows = r->score_prompt;
    q->n_score_items = r->score_prompt ? r->n_score_top + 1 : 0;
    q->n_items = r->steering != NULL ? steering_items(r->steering, r->n_stop_ids) : 0;
    q->next_in_bucket = *bucket_of(s, q->id);
    *bucket_of(s, q->id) = q;
    list_push(&s->queue, &q->node);
    s->n_live++;
    if (!s->formed && s->queue_deadline_ns == NO_DEADLINE)
        s->queue_deadline_ns = now_ns + s->config.queue_wait_ns;
}

void sched_abort(struct sched *s, uint64_t request_id) {
    struct seq *q = find(s, request_id);
    if (q == NULL) return;
    struct token_event ev = seq_event(q);
    ev.finish = FINISH_ABORT;
    sched_end(s, q, &ev);
    sched_retire(s);
}

// --- the group comes and goes

int sched_form(struct sched *s, const uint32_t *kv_blocks) {
    check(!s->formed);
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        struct pages fresh;
        if (pages_init(&fresh, kv_blocks[i]) != 0) return ERR_FATAL_NOMEM;
        pages_finish(&s->ranks[i].pages);
        s->ranks[i].pages = fresh;
    }
    s->formed = true;
    s->queue_deadline_ns = NO_DEADLINE;
    return 0;
}

static void lose_all(struct sched *s, struct list *list, const char *message) {
    struct list_node *n;
    while ((n = list_first(list)) != NULL) {
        sched_end_error(s, seq_of(n), ERR_REQ_WORKER_LOST, message);
        s->counts.requests_lost++;
    }
}

void sched_lose(struct sched *s, int64_t now_ns) {
    static const char message[] = "the worker group was lost while the request ran; try it again";
    if (!s->formed) return;
    uint32_t n_running = s->n_live - s->queue.count;
    s->formed = false;
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        lose_all(s, &s->ranks[i].decodes, message);
        lose_all(s, &s->ranks[i].prompts, message);
    }
    if (n_running > 0)
        log_event(LOG_ERROR, "sched", "requests lost", log_uint("requests", n_running));
    s->completed = s->n_steps; // what was in flight never returns
    sched_retire(s);
    s->queue_deadline_ns = s->queue.count > 0 ? now_ns + s->config.queue_wait_ns : NO_DEADLINE;
}

static void end_queue(struct sched *s, const char *message) {
    struct list_node *n;
    while ((n = list_first(&s->queue)) != NULL)
        sched_end_error(s, seq_of(n), ERR_REQ_UNAVAILABLE, message);
    s->queue_deadline_ns = NO_DEADLINE;
}

int64_t sched_deadline(const struct sched *s) {
    return s->queue_deadline_ns;
}

void sched_expire(struct sched *s, int64_t now_ns) {
    if (now_ns < s->queue_deadline_ns) return;
    log_error("sched", "requests %u waited too long for the worker group", s->queue.count);
    end_queue(s, "no worker group was formed in time");
}

void sched_hold(struct sched *s, bool held) {
    s->held = held;
}

void sched_close(struct sched *s, const char *reason) {
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        struct list *lists[] = {&s->ranks[i].decodes, &s->ranks[i].prompts};
        for (int j = 0; j < 2; j++) {
            struct list_node *n;
            while ((n = list_first(lists[j])) != NULL)
                sched_end_error(s, seq_of(n), ERR_REQ_UNAVAILABLE, reason);
        }
    }
    end_queue(s, reason);
    s->completed = s->n_steps;
    sched_retire(s);
}

// --- numbers

void sched_count(const struct sched *s, struct sched_counts *out) {
    *out = s->counts;
    out->n_waiting = s->queue.count;
    out->n_running = s->n_live - s->queue.count;
}

void sched_count_rank(const struct sched *s, uint32_t rank, struct sched_rank_counts *out) {
    const struct sched_rank *k = &s->ranks[rank];
    *out = (struct sched_rank_counts){.n_running = k->prompts.count + k->decodes.count,
                                      .blocks_used = k->pages.n_blocks - k->pages.n_free,
                                      .generation_tokens = k->generation_tokens};
}

bool sched_has_work(const struct sched *s) {
    return s->n_live > 0;
}

struct recount {
    bool *slots; // [max_num_seqs], seen so far
    uint32_t n_seqs, n_taken, n_promised;
};

static int recount_list(const struct sched *s, const struct list *list, enum request_state state,
                        struct recount *c, struct err_text *e) {
    uint32_t n = 0;
    for (struct list_node *node = list_first(list); node != NULL;
         node = list_next(list, node), n++) {
        const struct seq *q = seq_of(node);
        if (q->state != state)
            return err_set(e, ERR_FATAL_BOOKS, "request %llu is on the list of another state",
                           (unsigned long long)q->id);
        if (state != REQ_ENDED && find(s, q->id) != q)
            return err_set(e, ERR_FATAL_BOOKS, "request %llu is not in the index",
                           (unsigned long long)q->id);
        if (!q->has_slot) continue;
        if (q->slot >= s->config.max_num_seqs || c->slots[q->slot])
            return err_set(e, ERR_FATAL_BOOKS, "slot %u is held twice or does not exist", q->slot);
        c->slots[q->slot] = true;
        c->n_taken += q->n_blocks;
        c->n_promised += q->n_promised;
    }
    c->n_seqs += n;
    return n == list->count
               ? 0
               : err_set(e, ERR_FATAL_BOOKS, "a list counts %u and holds %u", list->count, n);
}

static int check_rank(const struct sched *s, const struct sched_rank *k, bool *slots,
                      struct err_text *e) {
    struct recount c = {.slots = slots};
    memset(slots, 0, s->config.max_num_seqs * sizeof *slots);
    int err = recount_list(s, &k->prompts, REQ_PREFILLING, &c, e);
    if (err == 0) err = recount_list(s, &k->decodes, REQ_DECODING, &c, e);
    if (err == 0) err = recount_list(s, &k->ended, REQ_ENDED, &c, e);
    if (err != 0) return err;
    for (uint32_t i = 0; i < k->n_free_slots; i++) {
        if (slots[k->free_slots[i]])
            return err_set(e, ERR_FATAL_BOOKS, "slot %u is free and held", k->free_slots[i]);
    }
    if (c.n_seqs + k->n_free_slots != s->config.max_num_seqs)
        return err_set(e, ERR_FATAL_BOOKS, "%u slots are held and %u free of %u", c.n_seqs,
                       k->n_free_slots, s->config.max_num_seqs);
    return pages_check(&k->pages, c.n_taken, c.n_promised, e);
}

static uint32_t count_index(const struct sched *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < ID_BUCKETS; i++) {
        for (const struct seq *q = s->buckets[i]; q != NULL; q = q->next_in_bucket)
            n++;
    }
    return n;
}

int sched_check(const struct sched *s, struct err_text *e) {
    bool *slots = mem_array(s->config.max_num_seqs, sizeof *slots);
    if (slots == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory to recount");
    struct recount queued = {.slots = slots};
    int err = recount_list(s, &s->queue, REQ_QUEUED, &queued, e);
    uint32_t n_live = s->queue.count;
    for (uint32_t i = 0; i < s->config.n_ranks && err == 0; i++) {
        err = check_rank(s, &s->ranks[i], slots, e);
        n_live += s->ranks[i].prompts.count + s->ranks[i].decodes.count;
    }
    mem_free(slots);
    if (err == 0 && (n_live != s->n_live || count_index(s) != n_live))
        err = err_set(e, ERR_FATAL_BOOKS, "%u requests are on lists, %u counted, %u in the index",
                      n_live, s->n_live, count_index(s));
    return err;
}
