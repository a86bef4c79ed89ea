// plan.c: one step: which rows of which requests run, and what comes of their results. sched.c is
// before it in the walk, drive.c carries both over the network. Work a step grows with the requests
// that have a slot, not with the queue.
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "leader/sched_state.h"

#define SUSPECT_LOSSES (REPLAYS_IN_VAIN_MAX - 1)
#define LOOK_AHEAD 16 // requests that may be passed at once: bounds the work of a step

int step_plan_init(struct step_plan *step, const struct sched_config *config) {
    *step = (struct step_plan){.n_ranks = config->n_ranks};
    step->ranks = mem_array(config->n_ranks, sizeof *step->ranks);
    if (step->ranks == NULL) return ERR_FATAL_NOMEM;
    for (uint32_t i = 0; i < config->n_ranks; i++) {
        step->ranks[i].seqs = mem_array(config->max_num_seqs, sizeof(struct planned));
        if (step->ranks[i].seqs == NULL) {
            step_plan_finish(step);
            return ERR_FATAL_NOMEM;
        }
    }
    return 0;
}

void step_plan_finish(struct step_plan *step) {
    for (uint32_t i = 0; step->ranks != NULL && i < step->n_ranks; i++)
        mem_free(step->ranks[i].seqs);
    mem_free(step->ranks);
    *step = (struct step_plan){0};
}

// --- planning

// The sequence's rows of this step; their blocks are there.
static struct planned *plan_rows(struct sched *s, struct step_plan *step, struct seq *q,
                                 uint32_t n_rows, bool sample) {
    struct sched_rank *k = &s->ranks[q->rank];
    struct rank_plan *plan = &step->ranks[q->rank];
    check(plan->n_seqs < s->config.max_num_seqs && n_rows <= k->budget);
    check(pages_needed(q->n_planned + n_rows) <= q->n_blocks);
    uint32_t save_at = seq_next_save(s, q);
    struct planned *p = &plan->seqs[plan->n_seqs++];
    *p = (struct planned){.seq = q,
                          .slot = q->slot,
                          .position = q->n_planned,
                          .n_tokens = n_rows,
                          .tokens = q->tokens + q->n_planned,
                          .block_offset = q->n_told,
                          .n_blocks = q->n_blocks - q->n_told,
                          .blocks = q->blocks + q->n_told,
                          .sample = sample,
                          .from_snapshot = snapshot_number(q->restored),
                          .start = q->n_starts};
    q->restored = SNAPSHOT_NONE;
    if (q->n_told == 0 && q->sampling.steered) {
        p->steered_by = q->r;
        k->items -= q->n_items;
    }
    check(p->n_blocks <= k->names);
    k->names -= p->n_blocks;
    q->n_told = q->n_blocks;
    q->n_planned += n_rows;
    seq_publish(s, q);
    if (q->n_planned == save_at) p->to_snapshot = snapshot_number(seq_save(s, q, step->number));
    q->last_step = step->number;
    k->budget -= n_rows;
    plan->n_rows += n_rows;
    if (sample) {
        p->sampling = q->sampling;
        p->again = ++q->n_sampling == seq_generated(q);
    }
    return p;
}

// One more block, if need be of the newest sequence. False: that is q itself.
static bool take_block(struct sched *s, struct seq *q) {
    struct sched_rank *k = &s->ranks[q->rank];
    while (k->pages.n_free == 0) {
        struct seq *newest = seq_of(list_last(&k->running));
        seq_resume_later(s, newest);
        s->counts.preemptions++;
        k->out_of_pages = true;
        log_debug("sched", "request %" PRIu64 " gave up its slot on rank %u", newest->id,
                  newest->rank);
        if (newest == q) return false;
    }
    seq_take_block(s, q);
    return true;
}

// False: the sequence had to leave.
static bool plan_decode(struct sched *s, struct step_plan *step, struct seq *q) {
    if (q->n_sampling >= q->max_tokens) return true; // its last token is already on the way
    bool known = seq_generated(q) == q->n_sampling;
    if (s->config.n_batches > 1 && !known) return true;
    if (pages_needed(q->n_planned + 1) > q->n_blocks && !take_block(s, q)) return false;
    struct planned *p = plan_rows(s, step, q, 1, true);
    if (!known) p->tokens = NULL;
    step->ranks[q->rank].n_answered++;
    step->n_decode_tokens++;
    s->ranks[q->rank].decodes--;
    return true;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// Of a single batch they always fit: a sequence starts to decode only when a row of the budget was
// left for it beside the decodes there were. Of several batches each step takes a share of what
// runs, whoever's token is known, and the shares grow with newcomers: that they fit as well does
// not follow from this alone, so they are held to the rows there are. Who is left out is known in
// the next step, too, and those of this one are not. In the order of arrival, so that who is
// preempted has no rows in this step yet.
static void plan_decodes(struct sched *s, struct step_plan *step, struct sched_rank *k) {
    struct list_node *n = list_first(&k->running);
    uint32_t n_batches = s->config.n_batches > 1 ? s->config.n_batches : 1;
    uint32_t share = (k->running.count + n_batches - 1) / n_batches;
    k->decodes = least(share, k->budget);
    while (n != NULL && k->decodes > 0) {
        struct seq *q = seq_of(n);
        if (q->state == REQ_DECODING && !plan_decode(s, step, q)) return; // it was the last
        n = list_next(&k->running, n);
    }
}

// Rows that are yet to be scored: every row of a prompt but its last one says how likely the next
// token was. A run is scored from its first row on or not at all, so what its client has of a
// preempted sequence is a run of its own.
static uint32_t scores_left(const struct seq *q) {
    return q->scored && q->n_planned >= q->n_scores && q->n_planned + 1 < q->n_prompt
               ? q->n_prompt - 1 - q->n_planned
               : 0;
}

// 0 when the rows that must be scored would be too many for the step's result.
static uint32_t chunk_rows(const struct sched *s, const struct seq *q) {
    const struct sched_rank *k = &s->ranks[q->rank];
    uint32_t n = least(q->n_prefill - q->n_planned, k->budget);
    n = least(n, seq_next_save(s, q) - q->n_planned);
    if (q->n_planned < q->n_scores) return least(n, q->n_scores - q->n_planned);
    return scores_left(q) == 0 ? n : least(n, k->score_items / q->n_score_items);
}

static void plan_scores(struct sched_rank *k, const struct seq *q, struct planned *p,
                        uint32_t n_scores) {
    uint32_t end = p->position + p->n_tokens;
    p->n_scored = least(n_scores, p->n_tokens);
    p->n_score_top = q->r->n_score_top;
    p->next_token = p->n_scored == p->n_tokens ? q->tokens[end] : 0;
    k->score_items -= p->n_scored * q->n_score_items;
}

static void plan_chunk(struct sched *s, struct step_plan *step, struct seq *q) {
    struct sched_rank *k = &s->ranks[q->rank];
    uint32_t left = q->n_prefill - q->n_planned, n_scores = scores_left(q);
    uint32_t n_rows = chunk_rows(s, q);
    check(n_rows > 0 || q->restored == SNAPSHOT_NONE); // until the next step it may be another's
    if (n_rows == 0) return;
    struct planned *p = plan_rows(s, step, q, n_rows, n_rows == left && q->max_tokens > 0);
    if (n_scores > 0) plan_scores(k, q, p, n_scores);
    if (p->sample || p->n_scored > 0) step->ranks[q->rank].n_answered++;
    step->n_prompt_tokens += n_rows;
    if (n_rows == left) seq_move(q, REQ_DECODING);
}

static void plan_prompts(struct sched *s, struct step_plan *step, struct sched_rank *k) {
    struct list_node *n = list_first(&k->running);
    for (; n != NULL && k->budget > 0; n = list_next(&k->running, n)) {
        if (seq_of(n)->state == REQ_PREFILLING) plan_chunk(s, step, seq_of(n));
    }
}

// Blocks are there for the rows before its first decode, beside one for each that runs there, so
// that a newcomer is not preempted at once. Those that it shares must be named as well, and a plan
// has room for so many names.
static bool has_blocks(struct sched *s, const struct seq *q, uint32_t rank) {
    struct sched_rank *k = &s->ranks[rank];
    uint32_t n_blocks = seq_blocks(q), n_free_hits;
    if (k->names < n_blocks) return false;
    k->n_hits = seq_hits(s, q, rank, &n_free_hits);
    return k->pages.n_free - n_free_hits >= n_blocks - k->n_hits + k->running.count;
}

// The rank's free blocks are compared first, as has_blocks looks every block up: at least one of
// them is never shared.
static bool takes_now(struct sched *s, const struct seq *q, uint32_t rank) {
    const struct sched_rank *k = &s->ranks[rank];
    return k->budget > 0 && k->n_free_slots > 0 && k->items >= q->n_items &&
           k->score_items >= q->n_score_items && !k->out_of_pages &&
           k->pages.n_blocks >= q->n_blocks_max && k->pages.n_free > k->running.count &&
           has_blocks(s, q, rank);
}

static uint32_t blocks_used(const struct sched_rank *k) {
    return k->pages.n_blocks - k->pages.n_free;
}

// What a has of the sequence counts for nothing where it runs so many more than the least busy one,
// which will have it, too, once it has run one of these.
static bool better(const struct sched *s, uint32_t a, uint32_t b, uint32_t busy) {
    const struct sched_rank *x = &s->ranks[a], *y = &s->ranks[b];
    uint32_t x_hits = x->running.count > busy ? 0 : x->n_hits;
    uint32_t y_hits = y->running.count > busy ? 0 : y->n_hits;
    return x_hits != y_hits ? x_hits > y_hits : blocks_used(x) < blocks_used(y);
}

// Of the ranks that can take the sequence now the one that has most of its beginning, then the
// least loaded, then the lowest. UINT32_MAX: none. *ever: some rank could, if it were empty.
static uint32_t choose_rank(struct sched *s, const struct seq *q, bool *ever) {
    uint32_t best = UINT32_MAX, idlest = UINT32_MAX;
    *ever = false;
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        struct sched_rank *k = &s->ranks[i];
        *ever |= k->pages.n_blocks >= q->n_blocks_max;
        k->takes = takes_now(s, q, i);
        if (k->takes && k->running.count < idlest) idlest = k->running.count;
    }
    uint32_t busy = idlest + 1 + s->config.max_num_seqs / 8;
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        if (!s->ranks[i].takes) continue;
        if (best == UINT32_MAX || better(s, i, best, busy)) best = i;
    }
    return best;
}

static void start(struct sched *s, struct seq *q, uint32_t rank) {
    seq_start(s, q, rank);
    if (q->n_starts > 1) return; // its client has heard of it
    struct token_event ev = seq_event(q);
    ev.is_start = true;
    ev.n_cached = q->n_planned;
    q->r->emit(&ev);
}

// Some rank could take some request in this step.
static bool has_room(const struct sched *s) {
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        const struct sched_rank *k = &s->ranks[i];
        if (k->budget > 0 && k->n_free_slots > 0 && k->pages.n_free > 0) return true;
    }
    return false;
}

// Those that wait for blocks while others pass them.
struct passed {
    struct seq *seqs[LOOK_AHEAD];
    uint32_t n;
};

// False when one of them has been passed often enough.
static bool count_pass(struct passed *p) {
    bool more = true;
    for (uint32_t i = 0; i < p->n; i++)
        more &= ++p->seqs[i]->n_overtaken < OVERTAKEN_MAX;
    return more;
}

// False: nobody may pass it.
static bool pass(struct passed *p, struct seq *q) {
    if (q->n_starts > 0 || q->n_overtaken >= OVERTAKEN_MAX || p->n == LOOK_AHEAD) return false;
    p->seqs[p->n++] = q;
    return true;
}

// The most groups that were lost under one that runs, since it got on.
static uint32_t most_vain(const struct sched *s) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        const struct list *running = &s->ranks[i].running;
        for (struct list_node *n = list_first(running); n != NULL; n = list_next(running, n))
            if (seq_of(n)->n_vain > most) most = seq_of(n)->n_vain;
    }
    return most;
}

// First in, first out, but for requests that need more blocks than are free: smaller ones behind
// them go first, so that slots do not stand empty; only so often, so that a large one is never
// passed for ever; and never before one that had a slot, whose blocks they would take again. A
// suspect starts when all that run have got on since their last group, and nobody starts beside it
// until it has: the next loss is laid to it alone.
static void plan_queue(struct sched *s, struct step_plan *step) {
    struct passed passed = {.n = 0};
    uint32_t vain = most_vain(s);
    struct list_node *next = list_first(&s->queue);
    while (next != NULL && vain < SUSPECT_LOSSES && has_room(s) &&
           (!s->held || s->n_resuming > 0)) {
        struct seq *q = seq_of(next);
        bool ever;
        next = list_next(&s->queue, next);
        if (s->held && q->n_starts == 0) continue;
        if (q->n_vain >= SUSPECT_LOSSES && vain > 0) return;
        uint32_t rank = choose_rank(s, q, &ever);
        if (!ever) {
            sched_end_error(s, q, ERR_REQ_TOO_LARGE,
                            "the request needs more KV blocks than a worker has");
        } else if (rank != UINT32_MAX) {
            start(s, q, rank);
            plan_chunk(s, step, q);
            if (q->n_vain > vain) vain = q->n_vain;
            if (!count_pass(&passed)) return;
        } else if (!pass(&passed, q)) {
            return;
        }
    }
}

static void step_reset(struct step_plan *step) {
    step->n_answers = step->n_prompt_tokens = step->n_decode_tokens = step->n_ranks_busy = 0;
    for (uint32_t i = 0; i < step->n_ranks; i++) {
        struct rank_plan *plan = &step->ranks[i];
        plan->n_seqs = plan->n_rows = plan->n_answered = 0;
        plan->answered = false;
    }
}

bool sched_plan(struct sched *s, struct step_plan *step) {
    check(s->formed);
    step_reset(step);
    step->number = s->n_steps + 1;
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        struct sched_rank *k = &s->ranks[i];
        k->budget = s->config.max_num_batched_tokens;
        k->items = STEERING_STEP_ITEMS_MAX;
        k->score_items = SCORES_STEP_ITEMS_MAX;
        k->names = k->pages.n_blocks + PLAN_NAMES_MAX;
        k->out_of_pages = false;
        plan_decodes(s, step, k);
        plan_prompts(s, step, k);
    }
    plan_queue(s, step);
    for (uint32_t i = 0; i < s->config.n_ranks; i++)
        step->n_ranks_busy += step->ranks[i].n_seqs > 0 ? 1 : 0;
    if (step->n_ranks_busy == 0) return false;
    s->n_steps = step->number;
    s->counts.prompt_tokens += step->n_prompt_tokens;
    return true;
}

// --- results

// d = XXH3-64(d || row digest), both little-endian: docs/arithmetic.md.
static uint64_t digest_roll(uint64_t digest, uint64_t row) {
    unsigned char bytes[16];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(digest >> (8 * i));
        bytes[8 + i] = (unsigned char)(row >> (8 * i));
    }
    return XXH3_64bits(bytes, sizeof bytes);
}

static bool is_stop(const struct request *r, uint32_t token) {
    for (uint32_t i = 0; i < r->n_stop_ids; i++) {
        if (r->stop_ids[i] == token) return true;
    }
    return false;
}

static void set_token(struct token_event *ev, const struct sampled *t) {
    ev->token = t->token;
    ev->logprob = t->logprob;
    ev->n_top = t->n_top;
    if (t->n_top == 0) return;
    memcpy(ev->top_ids, t->top_ids, t->n_top * sizeof ev->top_ids[0]);
    memcpy(ev->top_logprobs, t->top_logprobs, t->n_top * sizeof ev->top_logprobs[0]);
}

// The token that the client has: it must come out as before. It stays in any case, as what follows
// was promised to follow it.
static void compare(struct sched *s, const struct seq *q, const struct sampled *t) {
    uint32_t token = q->tokens[q->n_tokens - 1];
    if (t->token == token && (!s->config.digest || t->digest == q->row_digest)) return;
    s->counts.replay_mismatches++;
    log_event(LOG_ERROR, "sched", "replay differs", log_uint("request", q->id),
              log_uint("token", q->n_tokens), log_uint("was", token), log_uint("is", t->token));
}

static void tell_token(struct sched *s, struct seq *q, const struct sampled *t) {
    seq_publish(s, q);
    if (s->config.digest) q->digest = digest_roll(q->digest, t->digest);
    q->row_digest = t->digest;
    q->n_vain = 0;
    s->counts.generation_tokens++;
    s->ranks[q->rank].generation_tokens++;
    struct token_event ev = seq_event(q);
    set_token(&ev, t);
    ev.has_token = !is_stop(q->r, t->token);
    if (!ev.has_token)
        ev.finish = FINISH_STOP;
    else if (seq_generated(q) == q->max_tokens)
        ev.finish = FINISH_LENGTH;
    if (ev.finish != FINISH_NONE)
        sched_end(s, q, &ev);
    else
        q->r->emit(&ev);
}

static void apply_token(struct sched *s, const struct planned *p, const struct sampled *t) {
    struct seq *q = p->seq;
    check(t->n_top <= TOP_LOGPROBS_MAX);
    if (p->again)
        compare(s, q, t);
    else if (seq_add_token(q, t->token))
        tell_token(s, q, t);
    else
        sched_end_error(s, q, ERR_REQ_UNAVAILABLE, "no memory for the request's next token");
}

static void apply_scores(struct sched *s, const struct planned *p, const struct sampled *t) {
    struct seq *q = p->seq;
    struct prompt_scores scores = t->scores;
    struct token_event ev = seq_event(q);
    check(scores.n_tokens == p->n_scored && p->position == q->n_scores);
    scores.tokens = q->tokens + p->position + 1;
    ev.scores = scores_copy(&scores);
    q->n_scores += p->n_scored;
    q->n_vain = 0;
    if (ev.scores != NULL)
        q->r->emit(&ev);
    else
        sched_end_error(s, q, ERR_REQ_UNAVAILABLE, "no memory for the prompt's log-probabilities");
}

static bool ends_with_prompt(const struct seq *q, const struct planned *p) {
    return q->max_tokens == 0 && p->position + p->n_tokens == q->n_prompt;
}

// t is NULL for a run that is neither sampled nor scored.
static void apply_run(struct sched *s, const struct planned *p, const struct sampled *t) {
    struct seq *q = p->seq;
    // Planned in vain: it ended, or lost its slot, while this run was on the way.
    if (q->state == REQ_ENDED || q->state == REQ_QUEUED || p->start != q->n_starts) return;
    if (t != NULL && t->nonfinite) {
        sched_end_error(s, q, ERR_REQ_NONFINITE, "the model's logits were not finite");
        return;
    }
    if (p->n_scored > 0) apply_scores(s, p, t);
    if (q->state == REQ_ENDED) return;
    if (p->sample) apply_token(s, p, t);
    if (!ends_with_prompt(q, p)) return;
    struct token_event ev = seq_event(q);
    ev.finish = FINISH_LENGTH;
    sched_end(s, q, &ev);
}

bool sched_apply(struct sched *s, struct step_plan *step, uint32_t rank,
                 const struct sampled *results) {
    struct rank_plan *plan = &step->ranks[rank];
    check(!plan->answered);
    plan->answered = true;
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_seqs; i++) {
        const struct planned *p = &plan->seqs[i];
        bool answered = p->sample || p->n_scored > 0;
        apply_run(s, p, answered ? &results[n++] : NULL);
    }
    check(n == plan->n_answered);
    if (++step->n_answers < step->n_ranks) return false;
    check(step->number == s->completed + 1); // each rank answers in order, so steps end in order
    s->completed = step->number;
    sched_retire(s);
    return true;
}
