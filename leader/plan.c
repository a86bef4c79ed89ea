// plan.c: one step: which rows of which requests run, and what comes of their results. sched.c is
// before it in the walk, drive.c carries both over the network. Work a step grows with the requests
// that have a slot, not with the queue.
#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "leader/sched_state.h"

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

// Takes the blocks that the sequence's rows up to n_tokens need and says which of them are new.
static void grow(struct sched_rank *k, struct seq *q, uint32_t n_tokens, struct planned *p) {
    uint32_t needed = pages_needed(n_tokens);
    p->block_offset = q->n_blocks;
    p->blocks = q->blocks + q->n_blocks;
    while (q->n_blocks < needed) {
        q->blocks[q->n_blocks++] = pages_take(&k->pages);
        q->n_promised--;
    }
    p->n_blocks = q->n_blocks - p->block_offset;
}

static struct planned *plan_rows(struct sched *s, struct step_plan *step, struct seq *q,
                                 uint32_t n_rows, bool sample) {
    struct sched_rank *k = &s->ranks[q->rank];
    struct rank_plan *plan = &step->ranks[q->rank];
    check(plan->n_seqs < s->config.max_num_seqs && n_rows <= k->budget);
    struct planned *p = &plan->seqs[plan->n_seqs++];
    *p = (struct planned){
        .seq = q, .slot = q->slot, .position = q->n_planned, .n_tokens = n_rows, .sample = sample};
    grow(k, q, q->n_planned + n_rows, p);
    q->n_planned += n_rows;
    q->last_step = step->number;
    k->budget -= n_rows;
    plan->n_rows += n_rows;
    if (p->position == 0 && q->sampling.steered) {
        p->steered_by = q->r;
        k->items -= q->n_items;
    }
    if (sample) {
        p->sampling = q->sampling;
        q->n_sampling++;
    }
    return p;
}

static void plan_decode(struct sched *s, struct step_plan *step, struct seq *q) {
    if (q->n_sampling >= q->max_tokens) return; // its last token is already on the way
    bool known = q->n_generated == q->n_sampling;
    struct planned *p = plan_rows(s, step, q, 1, true);
    p->tokens = known ? &q->last_token : NULL;
    step->ranks[q->rank].n_answered++;
    step->n_decode_tokens++;
}

// They always fit: a sequence starts to decode only when a row of the budget was left for it beside
// the decodes there were.
static void plan_decodes(struct sched *s, struct step_plan *step, struct sched_rank *k) {
    for (struct list_node *n = list_first(&k->decodes); n != NULL; n = list_next(&k->decodes, n))
        plan_decode(s, step, seq_of(n));
}

static uint32_t chunk_rows(const struct sched_rank *k, const struct seq *q) {
    uint32_t left = q->n_prompt - q->n_planned;
    uint32_t n = left < k->budget ? left : k->budget;
    if (!q->wants_prompt_rows) return n;
    uint32_t scorable = k->score_items / q->n_score_items;
    return n < scorable ? n : scorable;
}

// Every row of a prompt but its last one says how likely the next token was.
static void plan_scores(struct sched_rank *k, const struct seq *q, struct planned *p) {
    bool last = p->position + p->n_tokens == q->n_prompt;
    p->n_scored = last ? p->n_tokens - 1 : p->n_tokens;
    p->n_score_top = q->r->n_score_top;
    p->next_token = last ? 0 : q->r->prompt[p->position + p->n_tokens];
    k->score_items -= p->n_scored * q->n_score_items;
}

// Nothing when the rows that must be scored would be too many for the step's result.
static void plan_chunk(struct sched *s, struct step_plan *step, struct seq *q) {
    struct sched_rank *k = &s->ranks[q->rank];
    uint32_t left = q->n_prompt - q->n_planned, n_rows = chunk_rows(k, q);
    if (n_rows == 0) return;
    const uint32_t *tokens = q->r->prompt + q->n_planned;
    struct planned *p = plan_rows(s, step, q, n_rows, n_rows == left && q->max_tokens > 0);
    p->tokens = tokens;
    if (q->wants_prompt_rows) plan_scores(k, q, p);
    if (p->sample || p->n_scored > 0) step->ranks[q->rank].n_answered++;
    step->n_prompt_tokens += n_rows;
    if (n_rows < left) return;
    list_remove(&k->prompts, &q->node);
    seq_move(q, REQ_DECODING);
    list_push(&k->decodes, &q->node);
}

static void plan_prompts(struct sched *s, struct step_plan *step, struct sched_rank *k) {
    struct list_node *next;
    for (struct list_node *n = list_first(&k->prompts); n != NULL && k->budget > 0; n = next) {
        next = list_next(&k->prompts, n);
        plan_chunk(s, step, seq_of(n));
    }
}

static uint32_t blocks_used(const struct sched_rank *k) {
    return k->pages.n_blocks - pages_available(&k->pages);
}

// The least loaded rank that can take the sequence now; the lowest of equals. UINT32_MAX: none.
// *ever: some rank could, if it were empty.
static uint32_t choose_rank(const struct sched *s, const struct seq *q, bool *ever) {
    uint32_t best = UINT32_MAX;
    *ever = false;
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        const struct sched_rank *k = &s->ranks[i];
        if (k->pages.n_blocks >= q->n_promised) *ever = true;
        if (k->budget == 0 || k->n_free_slots == 0 || k->items < q->n_items ||
            k->score_items < q->n_score_items || pages_available(&k->pages) < q->n_promised)
            continue;
        if (best == UINT32_MAX || blocks_used(k) < blocks_used(&s->ranks[best])) best = i;
    }
    return best;
}

static void admit(struct sched *s, struct seq *q, uint32_t rank) {
    struct sched_rank *k = &s->ranks[rank];
    check(pages_promise(&k->pages, q->n_promised));
    list_remove(&s->queue, &q->node);
    q->rank = rank;
    q->slot = k->free_slots[--k->n_free_slots];
    q->has_slot = true;
    seq_move(q, REQ_PREFILLING);
    list_push(&k->prompts, &q->node);
    struct token_event ev = seq_event(q);
    ev.is_start = true;
    q->r->emit(&ev);
}

// Some rank could take some request in this step.
static bool has_room(const struct sched *s) {
    for (uint32_t i = 0; i < s->config.n_ranks; i++) {
        const struct sched_rank *k = &s->ranks[i];
        if (k->budget > 0 && k->n_free_slots > 0 && pages_available(&k->pages) > 0) return true;
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

// First in, first out, but for requests that need more blocks than are free: smaller ones behind
// them go first, so that slots do not stand empty; only so often, so that a large one is never
// passed for ever.
static void plan_queue(struct sched *s, struct step_plan *step) {
    struct passed passed = {.n = 0};
    struct list_node *next = s->held ? NULL : list_first(&s->queue);
    while (next != NULL && has_room(s)) {
        struct seq *q = seq_of(next);
        bool ever;
        uint32_t rank = choose_rank(s, q, &ever);
        next = list_next(&s->queue, next);
        if (!ever) {
            sched_end_error(s, q, ERR_REQ_TOO_LARGE,
                            "the request needs more KV blocks than a worker has");
        } else if (rank != UINT32_MAX) {
            admit(s, q, rank);
            plan_chunk(s, step, q);
            if (!count_pass(&passed)) return;
        } else {
            if (q->n_overtaken >= OVERTAKEN_MAX || passed.n == LOOK_AHEAD) return;
            passed.seqs[passed.n++] = q;
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

static void apply_token(struct sched *s, struct seq *q, const struct sampled *t) {
    check(t->n_top <= TOP_LOGPROBS_MAX);
    if (s->config.digest) q->digest = digest_roll(q->digest, t->digest);
    q->last_token = t->token;
    q->n_generated++;
    s->counts.generation_tokens++;
    s->ranks[q->rank].generation_tokens++;
    struct token_event ev = seq_event(q);
    set_token(&ev, t);
    ev.has_token = !is_stop(q->r, t->token);
    if (!ev.has_token)
        ev.finish = FINISH_STOP;
    else if (q->n_generated == q->max_tokens)
        ev.finish = FINISH_LENGTH;
    if (ev.finish != FINISH_NONE)
        sched_end(s, q, &ev);
    else
        q->r->emit(&ev);
}

static void apply_scores(struct sched *s, struct seq *q, const struct planned *p,
                         const struct sampled *t) {
    struct prompt_scores scores = t->scores;
    struct token_event ev = seq_event(q);
    check(scores.n_tokens == p->n_scored);
    scores.tokens = q->r->prompt + p->position + 1;
    ev.scores = scores_copy(&scores);
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
    if (q->state == REQ_ENDED) return; // planned in vain: it ended while this run was on the way
    if (t != NULL && t->nonfinite) {
        sched_end_error(s, q, ERR_REQ_NONFINITE, "the model's logits were not finite");
        return;
    }
    if (p->n_scored > 0) apply_scores(s, q, p, t);
    if (q->state == REQ_ENDED) return;
    if (p->sample) apply_token(s, q, t);
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
