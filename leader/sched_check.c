// sched_check.c: recounts what must add up: slots, blocks, lists, orders and the index of ids.
#include <string.h>

#include "common/base/mem.h"
#include "leader/sched_state.h"

struct recount {
    bool *slots; // [max_num_seqs], seen so far
    uint32_t n_taken, n_resuming, n_held;
};

static int wrong(const struct seq *q, const char *what, struct err_text *e) {
    return err_set(e, ERR_FATAL_BOOKS, "request %llu %s", (unsigned long long)q->id, what);
}

static int check_state(const struct sched *s, const struct seq *q, bool queued,
                       struct err_text *e) {
    if (queued != (q->state == REQ_QUEUED) || q->state == REQ_ENDED)
        return wrong(q, "is on the list of another state", e);
    if (sched_find(s, q->id) != q) return wrong(q, "is not in the index", e);
    if (q->n_tokens < q->n_prompt || q->n_tokens > q->tokens_capacity)
        return wrong(q, "has lost tokens", e);
    return 0;
}

// The chain from the root to its newest full block is what its tokens say, block by block or in
// blocks with equal contents.
static int check_published(const struct sched *s, const struct seq *q, struct err_text *e) {
    const struct pages *p = &s->ranks[q->rank].pages;
    struct prefix prefix = {.id = q->r->salt[0], .root = q->r->salt[1] | 1};
    for (uint32_t i = 0; i < q->n_published; i++) {
        const struct page *g = &p->pages[q->blocks[i]];
        if (g->contents == 0) return 0; // its double is, or was, what others look at
        bool same = g->before.id == prefix.id && g->before.root == prefix.root;
        if (memcmp(g->tokens, q->tokens + i * KV_BLOCK_TOKENS, sizeof g->tokens) != 0 || !same)
            return wrong(q, "has a block of other contents", e);
        prefix = (struct prefix){.id = g->contents};
    }
    return 0;
}

static int check_running(const struct sched *s, const struct seq *q, struct recount *c,
                         struct err_text *e) {
    if (q->slot >= s->config.max_num_seqs || c->slots[q->slot])
        return wrong(q, "has a slot that is held twice or does not exist", e);
    c->slots[q->slot] = true;
    if (q->n_blocks > q->n_blocks_max || q->n_told > q->n_blocks || q->n_published > q->n_blocks ||
        pages_needed(q->n_planned) > q->n_blocks)
        return wrong(q, "has another number of blocks than rows", e);
    if ((q->state == REQ_PREFILLING) != (q->n_planned < q->n_prefill))
        return wrong(q, "has rows of another state", e);
    int err = check_published(s, q, e);
    if (err != 0) return err;
    c->n_taken += q->n_blocks;
    c->n_held += q->held != SNAPSHOT_NONE;
    return 0;
}

static int recount_list(const struct sched *s, const struct list *list, struct recount *c,
                        struct err_text *e) {
    uint32_t n = 0;
    bool queued = list == &s->queue;
    const struct seq *before = NULL;
    for (struct list_node *node = list_first(list); node != NULL; node = list_next(list, node)) {
        const struct seq *q = seq_of(node);
        int err = check_state(s, q, queued, e);
        if (err == 0 && !queued) err = check_running(s, q, c, e);
        if (err == 0 && before != NULL && !seq_before(before, q))
            err = wrong(q, "is out of order", e);
        if (err != 0) return err;
        c->n_resuming += queued && q->n_starts > 0;
        before = q;
        n++;
    }
    if (n == list->count) return 0;
    return err_set(e, ERR_FATAL_BOOKS, "a list counts %u and holds %u", list->count, n);
}

// Each snapshot stands behind contents that a block has. Not all of them can be reached: where the
// block of an earlier part was taken while a sequence ran on in a double of it, what that one
// publishes and keeps later is found by nobody, is never touched and so ages.
static int check_bound(const struct sched_rank *k, struct err_text *e) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->pages.n_blocks; i++) {
        uint64_t contents = k->pages.pages[i].contents;
        n += contents != 0 && snapshots_find(&k->snapshots, contents) != SNAPSHOT_NONE;
    }
    if (n == k->snapshots.n_bound) return 0;
    return err_set(e, ERR_FATAL_BOOKS, "%u snapshots are bound, but %u blocks have one",
                   k->snapshots.n_bound, n);
}

static int check_rank(const struct sched *s, const struct sched_rank *k, bool *slots,
                      struct err_text *e) {
    struct recount c = {.slots = slots};
    memset(slots, 0, s->config.max_num_seqs * sizeof *slots);
    int err = recount_list(s, &k->running, &c, e);
    if (err != 0) return err;
    for (uint32_t i = 0; i < k->n_free_slots; i++) {
        if (slots[k->free_slots[i]])
            return err_set(e, ERR_FATAL_BOOKS, "slot %u is free and held", k->free_slots[i]);
    }
    if (k->running.count + k->n_free_slots != s->config.max_num_seqs)
        return err_set(e, ERR_FATAL_BOOKS, "%u slots are held and %u free of %u", k->running.count,
                       k->n_free_slots, s->config.max_num_seqs);
    err = pages_check(&k->pages, c.n_taken, e);
    if (err == 0) err = snapshots_check(&k->snapshots, c.n_held, e);
    return err != 0 ? err : check_bound(k, e);
}

static uint32_t count_index(const struct sched *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < ID_BUCKETS; i++) {
        for (const struct seq *q = s->buckets[i]; q != NULL; q = q->next_in_bucket)
            n++;
    }
    return n;
}

static int check_ended(const struct sched *s, struct err_text *e) {
    for (struct list_node *n = list_first(&s->ended); n != NULL; n = list_next(&s->ended, n)) {
        const struct seq *q = seq_of(n);
        if (q->state != REQ_ENDED || q->last_step <= s->completed)
            return wrong(q, "has ended and is kept, or has not and is forgotten", e);
    }
    return 0;
}

int sched_check(const struct sched *s, struct err_text *e) {
    bool *slots = mem_array(s->config.max_num_seqs, sizeof *slots);
    if (slots == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory to recount");
    struct recount queued = {.slots = slots};
    int err = recount_list(s, &s->queue, &queued, e);
    uint32_t n_live = s->queue.count;
    for (uint32_t i = 0; i < s->config.n_ranks && err == 0; i++) {
        err = check_rank(s, &s->ranks[i], slots, e);
        n_live += s->ranks[i].running.count;
    }
    mem_free(slots);
    if (err == 0) err = check_ended(s, e);
    if (err == 0 && (n_live != s->n_live || count_index(s) != n_live))
        err = err_set(e, ERR_FATAL_BOOKS, "%u requests are on lists, %u counted, %u in the index",
                      n_live, s->n_live, count_index(s));
    if (err == 0 && queued.n_resuming != s->n_resuming)
        err = err_set(e, ERR_FATAL_BOOKS, "%u requests wait to go on, %u are counted",
                      queued.n_resuming, s->n_resuming);
    return err;
}
