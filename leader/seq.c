// seq.c: one sequence: its tokens, its place in the line, and what it holds of a rank. sched.c
// makes and ends sequences, plan.c gives them slots and rows.
//
// Slots and blocks are free for the next step as soon as they are given back, also while the last
// step with them is on the way: a rank runs its steps in the order of their numbers, so whatever is
// written there later comes after everything that was read.
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "leader/sched_state.h"

// The last token that is sampled is never fed back, so it needs no place.
static uint32_t blocks_of(const struct request *r) {
    return pages_needed((uint64_t)r->n_prompt + (r->max_tokens == 0 ? 0 : r->max_tokens - 1));
}

struct seq *seq_create(struct request *r) {
    uint32_t n_blocks = blocks_of(r);
    struct seq *q = mem_zalloc(sizeof *q + n_blocks * sizeof q->blocks[0]);
    if (q == NULL) return NULL;
    q->r = r;
    q->id = r->id;
    q->n_prompt = q->n_tokens = q->tokens_capacity = r->n_prompt;
    q->tokens = r->prompt;
    r->prompt = NULL;
    q->priority = r->priority;
    q->max_tokens = r->max_tokens;
    q->n_blocks_max = n_blocks;
    q->sampling = r->sampling;
    q->sampling.steered = r->steering != NULL;
    q->scored = r->score_prompt;
    q->n_score_items = r->score_prompt ? r->n_score_top + 1 : 0;
    q->restored = q->held = SNAPSHOT_NONE;
    q->n_items = r->steering != NULL ? steering_items(r->steering, r->n_stop_ids) : 0;
    return q;
}

void seq_destroy(struct seq *q) {
    mem_free(q->tokens);
    mem_free(q);
}

void seq_move(struct seq *q, enum request_state to) {
    check(request_may_move(q->state, to));
    q->state = to;
}

bool seq_before(const struct seq *a, const struct seq *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

struct token_event seq_event(const struct seq *q) {
    struct token_event ev = {0};
    ev.sink_context = q->r->sink_context;
    ev.request_id = q->id;
    ev.digest = q->digest;
    return ev;
}

// Doubles, as nobody knows how long an answer gets: what it may get to is often the context's end.
bool seq_add_token(struct seq *q, uint32_t token) {
    if (q->n_tokens == q->tokens_capacity) {
        uint64_t capacity = 2 * (uint64_t)q->tokens_capacity + KV_BLOCK_TOKENS;
        uint64_t most = (uint64_t)q->n_prompt + q->max_tokens;
        if (capacity > most) capacity = most;
        uint32_t *tokens = mem_resize(q->tokens, capacity * sizeof *tokens);
        if (tokens == NULL) return false;
        q->tokens = tokens;
        q->tokens_capacity = (uint32_t)capacity;
    }
    q->tokens[q->n_tokens++] = token;
    return true;
}

// --- lines

static void insert_from_end(struct list *list, struct seq *q) {
    struct list_node *before = list->head.prev;
    while (before != &list->head && seq_before(q, seq_of(before)))
        before = before->prev;
    list_insert(list, before, &q->node);
}

static void insert_from_head(struct list *list, struct seq *q) {
    struct list_node *before = &list->head;
    while (before->next != &list->head && seq_before(seq_of(before->next), q))
        before = before->next;
    list_insert(list, before, &q->node);
}

// Newcomers belong to the end, and who had a slot once came before most that wait for one: neither
// search is long.
void seq_enqueue(struct sched *s, struct seq *q) {
    if (q->n_starts == 0) {
        insert_from_end(&s->queue, q);
        return;
    }
    insert_from_head(&s->queue, q);
    s->n_resuming++;
}

void seq_dequeue(struct sched *s, struct seq *q) {
    list_remove(&s->queue, &q->node);
    if (q->n_starts > 0) s->n_resuming--;
}

// --- slot and blocks

uint32_t seq_blocks(const struct seq *q) {
    return pages_needed(q->n_tokens - (seq_generated(q) > 0 ? 1 : 0));
}

static uint32_t hits_max(const struct sched *s, const struct seq *q) {
    if (!s->config.prefix_caching) return 0;
    if (q->scored && q->n_scores + 1 < q->n_prompt) return q->n_scores / KV_BLOCK_TOKENS;
    return (q->n_tokens - (seq_generated(q) > 0 ? 1 : 0) - 1) / KV_BLOCK_TOKENS;
}

static struct prefix root_of(const struct seq *q) {
    return (struct prefix){.id = q->r->salt[0], .root = q->r->salt[1] | 1};
}

// Whether whoever has the blocks up to there has all that the rows behind them need.
static bool can_begin_behind(const struct sched *s, uint32_t rank, const struct prefix *prefix) {
    const struct snapshots *x = &s->ranks[rank].snapshots;
    if (s->config.snapshot_tokens == 0) return true;
    uint32_t place = snapshots_find(x, prefix->id);
    return place != SNAPSHOT_NONE && x->snapshots[place].step <= s->n_steps;
}

static void restore(struct sched *s, struct seq *q) {
    struct snapshots *x = &s->ranks[q->rank].snapshots;
    q->restored = snapshots_find(x, q->prefix.id);
    snapshots_touch(x, q->restored);
}

uint32_t seq_hits(const struct sched *s, const struct seq *q, uint32_t rank, uint32_t *n_free) {
    const struct pages *p = &s->ranks[rank].pages;
    struct prefix prefix = root_of(q);
    uint32_t hits = 0, n_unheld = 0, most = hits_max(s, q);
    *n_free = 0;
    for (uint32_t n = 0; n < most; n++) {
        uint32_t block = pages_find(p, &prefix, q->tokens + n * KV_BLOCK_TOKENS);
        if (block == PAGE_NONE) break;
        prefix = (struct prefix){.id = p->pages[block].contents};
        n_unheld += p->pages[block].n_holders == 0;
        if (!can_begin_behind(s, rank, &prefix)) continue;
        hits = n + 1;
        *n_free = n_unheld;
    }
    return hits;
}

// The same walk; what is found is held before anything is taken, so that it is not taken.
static void share_blocks(struct sched *s, struct seq *q) {
    struct pages *p = &s->ranks[q->rank].pages;
    uint32_t n_free, hits = seq_hits(s, q, q->rank, &n_free);
    q->prefix = root_of(q);
    while (q->n_blocks < hits) {
        uint32_t block = pages_find(p, &q->prefix, q->tokens + q->n_blocks * KV_BLOCK_TOKENS);
        pages_hold(p, block);
        q->prefix = (struct prefix){.id = p->pages[block].contents};
        q->blocks[q->n_blocks++] = block;
    }
    q->n_published = q->n_blocks;
    q->n_planned = q->n_saved = q->n_blocks * KV_BLOCK_TOKENS;
    if (hits > 0 && s->config.snapshot_tokens != 0) restore(s, q);
    if (q->n_starts > 1) return;
    s->counts.prefix_queries += s->config.prefix_caching ? q->n_prompt : 0;
    s->counts.prefix_hits += q->n_planned;
}

void seq_start(struct sched *s, struct seq *q, uint32_t rank) {
    struct sched_rank *k = &s->ranks[rank];
    seq_dequeue(s, q);
    q->n_starts++;
    q->rank = rank;
    q->slot = k->free_slots[--k->n_free_slots];
    uint32_t n_generated = seq_generated(q), n_blocks = seq_blocks(q);
    q->n_sampling = n_generated > 0 ? n_generated - 1 : 0;
    q->n_prefill = q->n_prompt + q->n_sampling;
    q->n_told = 0;
    share_blocks(s, q);
    while (q->n_blocks < n_blocks)
        seq_take_block(s, q);
    seq_move(q, REQ_PREFILLING);
    insert_from_end(&k->running, q);
}

// A snapshot is no use behind contents that nobody can find.
void seq_take_block(struct sched *s, struct seq *q) {
    struct sched_rank *k = &s->ranks[q->rank];
    snapshots_forget(&k->snapshots, pages_next_contents(&k->pages));
    q->blocks[q->n_blocks++] = pages_take(&k->pages);
}

// The tokens before it are known now, and published.
static void bind_held(struct sched *s, struct seq *q) {
    struct snapshots *x = &s->ranks[q->rank].snapshots;
    if (snapshots_find(x, q->prefix.id) == SNAPSHOT_NONE)
        snapshots_bind(x, q->held, q->prefix.id);
    else
        snapshots_give(x, q->held);
    q->held = SNAPSHOT_NONE;
}

void seq_publish(struct sched *s, struct seq *q) {
    uint32_t n_rows = q->n_planned < q->n_tokens ? q->n_planned : q->n_tokens;
    if (!s->config.prefix_caching) return;
    while ((q->n_published + 1) * KV_BLOCK_TOKENS <= n_rows) {
        pages_publish(&s->ranks[q->rank].pages, q->blocks[q->n_published], &q->prefix,
                      q->tokens + q->n_published * KV_BLOCK_TOKENS);
        q->n_published++;
        if (q->held != SNAPSHOT_NONE && q->held_end == q->n_published * KV_BLOCK_TOKENS)
            bind_held(s, q);
    }
}

// The multiples of snapshot_tokens, the last place at which a hit on its whole prompt can end, and
// where its answer ends at the longest, if that is where a block does: of these the ones that are
// far enough behind the last.
uint32_t seq_next_save(const struct sched *s, const struct seq *q) {
    uint32_t every = s->config.snapshot_tokens;
    if (every == 0 || !s->config.prefix_caching || s->ranks[q->rank].snapshots.n == 0)
        return UINT32_MAX;
    uint32_t least = q->n_saved + every / SNAPSHOT_SHARE;
    if (least <= q->n_planned) least = q->n_planned + 1;
    uint32_t next = (least + every - 1) / every * every;
    uint32_t last = (q->n_prompt - 1) / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;
    uint32_t end = q->n_prompt + q->max_tokens - (q->max_tokens > 0 ? 1 : 0);
    if (last >= least && last < next) next = last;
    if (end >= least && end < next && end % KV_BLOCK_TOKENS == 0) next = end;
    return next;
}

uint32_t seq_save(struct sched *s, struct seq *q, uint64_t step) {
    struct snapshots *x = &s->ranks[q->rank].snapshots;
    bool known = q->n_published * KV_BLOCK_TOKENS == q->n_planned;
    q->n_saved = q->n_planned;
    uint32_t place = known ? snapshots_find(x, q->prefix.id) : SNAPSHOT_NONE;
    if (place != SNAPSHOT_NONE) { // another sequence's, with the same tokens
        snapshots_touch(x, place);
        return SNAPSHOT_NONE;
    }
    check(q->held == SNAPSHOT_NONE);
    q->held = snapshots_take(x, step);
    q->held_end = q->n_planned;
    place = q->held;
    if (known && place != SNAPSHOT_NONE) bind_held(s, q);
    return place;
}

// The last block first, so that it is also taken first: beginnings are what others look for.
void seq_leave(struct sched *s, struct seq *q) {
    struct sched_rank *k = &s->ranks[q->rank];
    list_remove(&k->running, &q->node);
    while (q->n_blocks > 0)
        pages_give(&k->pages, q->blocks[--q->n_blocks]);
    if (q->held != SNAPSHOT_NONE) snapshots_give(&k->snapshots, q->held);
    q->restored = q->held = SNAPSHOT_NONE;
    k->free_slots[k->n_free_slots++] = q->slot;
}

void seq_resume_later(struct sched *s, struct seq *q) {
    seq_leave(s, q);
    seq_move(q, REQ_QUEUED);
    seq_enqueue(s, q);
}
