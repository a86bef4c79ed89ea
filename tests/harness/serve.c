// serve.c: see serve.h.
#include "tests/harness/serve.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "common/base/mem.h"

#define RANKS_SERVED_MAX 16
#define SEATS_MAX 64
#define PAGES_MAX 4096

// A request that is being served in a slot of the same number.
struct seat {
    const struct serve_request *request; // NULL: free
    struct serve_token *answer;
    float *logits;
    struct serve_score *scores;
    uint32_t n_done, n_generated; // tokens in the cache, tokens answered
    uint32_t blocks[PAGES_MAX];
    uint32_t n_blocks, n_sent; // pages held, pages that the rank knows
};

struct rank_plan {
    Moesaic__Step__V1__StepPlan plan;
    Moesaic__Step__V1__PlanSeq seqs[SEATS_MAX], *pointers[SEATS_MAX];
    Moesaic__Step__V1__Sampling sampling[SEATS_MAX];
    Moesaic__Step__V1__Scoring scoring[SEATS_MAX];
    uint32_t token[SEATS_MAX];
};

struct desk {
    struct seat seats[SEATS_MAX];
    uint32_t free[PAGES_MAX], n_free;
    uint32_t next_request; // of this group
    struct rank_plan plan;
};

struct serving {
    struct ranks *ranks;
    const struct serve_way *way;
    const struct serve_request *requests;
    uint32_t n_requests, vocab;
    const struct layout *layout;
    struct serve_token *answers;
    uint32_t stride;
    float *logits;
    struct serve_score *scores;
    struct desk *desks;
};

static void shuffle_pages(struct desk *d, uint32_t n, uint64_t seed) {
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t at = (uint32_t)((seed >> 33) % (i + 1));
        d->free[i] = d->free[at];
        d->free[at] = i;
    }
    d->n_free = n;
}

static size_t first_row(const struct serving *s, uint32_t request) {
    size_t rows = 0;
    for (uint32_t i = 0; i < request; i++)
        rows += s->requests[i].n_prompt;
    return rows;
}

static void fill_seats(struct serving *s, uint32_t group) {
    struct desk *d = &s->desks[group];
    for (uint32_t i = 0; i < s->way->n_together && d->next_request < s->n_requests; i++) {
        struct seat *seat = &d->seats[i];
        if (seat->request != NULL) continue;
        uint32_t n = d->next_request;
        memset(seat, 0, sizeof *seat);
        seat->request = &s->requests[n];
        seat->answer = s->answers + (size_t)n * s->stride;
        if (s->logits != NULL) seat->logits = s->logits + first_row(s, n) * s->vocab;
        if (s->scores != NULL) seat->scores = s->scores + first_row(s, n);
        d->next_request += s->layout->dp;
    }
}

static void give_pages(struct desk *d, struct seat *seat, uint32_t n_tokens) {
    while (seat->n_blocks * KV_BLOCK_TOKENS < n_tokens) {
        check(d->n_free > 0 && seat->n_blocks < PAGES_MAX);
        seat->blocks[seat->n_blocks++] = d->free[--d->n_free];
    }
}

// All rows of a chunk but the prompt's last.
static void plan_scoring(struct rank_plan *p, const struct seat *seat, uint32_t slot,
                         Moesaic__Step__V1__PlanSeq *seq) {
    const struct serve_request *request = seat->request;
    uint32_t end = seq->position + (uint32_t)seq->n_tokens;
    Moesaic__Step__V1__Scoring *scoring = &p->scoring[slot];
    moesaic__step__v1__scoring__init(scoring);
    scoring->n_rows = (uint32_t)seq->n_tokens - (end == request->n_prompt ? 1 : 0);
    scoring->n_top = request->n_score_top;
    if (end < request->n_prompt) scoring->next_token = request->prompt[end];
    if (scoring->n_rows > 0) seq->scoring = scoring;
}

// The seat's next run of tokens: a chunk of its prompt, or the token it generated last.
static void plan_seat(struct serving *s, struct desk *d, uint32_t slot) {
    struct seat *seat = &d->seats[slot];
    const struct serve_request *request = seat->request;
    struct rank_plan *p = &d->plan;
    Moesaic__Step__V1__PlanSeq *seq = &p->seqs[p->plan.n_seqs];
    moesaic__step__v1__plan_seq__init(seq);
    uint32_t left = request->n_prompt - seat->n_done, n = 1;
    if (seat->n_generated == 0) {
        n = s->way->mixed ? 1 + (seat->n_done * 7 + slot * 3) % s->way->chunk : s->way->chunk;
        if (n > left) n = left;
        seq->tokens = (uint32_t *)request->prompt + seat->n_done;
        seq->n_tokens = n;
    } else if (s->way->from_slot) {
        seq->token_from_slot = true;
    } else {
        p->token[slot] = seat->answer[seat->n_generated - 1].token;
        seq->tokens = &p->token[slot];
        seq->n_tokens = 1;
    }
    give_pages(d, seat, seat->n_done + n);
    seq->slot = slot;
    seq->position = seat->n_done;
    seq->block_offset = seat->n_sent;
    seq->blocks = seat->blocks + seat->n_sent;
    seq->n_blocks = seat->n_blocks - seat->n_sent;
    seat->n_sent = seat->n_blocks;
    if (seq->position == 0) seq->steering = (Moesaic__Step__V1__Steering *)request->steering;
    if (request->scored && seat->n_generated == 0) plan_scoring(p, seat, slot, seq);
    seat->n_done += n;
    if (seat->n_done >= request->n_prompt) {
        p->sampling[slot] = request->sampling;
        seq->sampling = &p->sampling[slot];
    }
    p->pointers[p->plan.n_seqs++] = seq;
}

static bool plan_group(struct serving *s, uint32_t group, uint64_t step) {
    struct desk *d = &s->desks[group];
    fill_seats(s, group);
    moesaic__step__v1__step_plan__init(&d->plan.plan);
    d->plan.plan.step = step;
    d->plan.plan.seqs = d->plan.pointers;
    for (uint32_t slot = 0; slot < s->way->n_together; slot++) {
        if (d->seats[slot].request != NULL) plan_seat(s, d, slot);
    }
    return d->plan.plan.n_seqs > 0;
}

// The rank of a group that answers.
static uint32_t answering(const struct serving *s, uint32_t group) {
    return layout_rank(s->layout, s->layout->pp - 1, group, 0);
}

static void take_logits(struct serving *s, uint32_t group) {
    struct desk *d = &s->desks[group];
    uint32_t n_rows, row = 0;
    const float *kept = model_logits(ranks_model(s->ranks, answering(s, group)), &n_rows);
    for (size_t i = 0; kept != NULL && i < d->plan.plan.n_seqs; i++) {
        const Moesaic__Step__V1__PlanSeq *seq = d->plan.pointers[i];
        struct seat *seat = &d->seats[seq->slot];
        uint32_t n = seq->token_from_slot ? 1 : (uint32_t)seq->n_tokens;
        if (seat->logits != NULL && seq->position < seat->request->n_prompt)
            memcpy(seat->logits + (size_t)seq->position * s->vocab, kept + (size_t)row * s->vocab,
                   (size_t)n * s->vocab * sizeof(float));
        row += n;
    }
}

static void free_seat(struct desk *d, struct seat *seat) {
    while (seat->n_blocks > 0)
        d->free[d->n_free++] = seat->blocks[--seat->n_blocks];
    seat->request = NULL;
}

static void take_scores(struct seat *seat, uint32_t position, const struct seq_scores *s) {
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const uint32_t *ids = s->top_ids + (size_t)i * s->n_top;
        const float *logprobs = s->top_logprobs + (size_t)i * s->n_top;
        struct serve_score *score = &seat->scores[position + i + 1];
        *score = (struct serve_score){.logprob = s->logprobs[i], .rank = s->ranks[i]};
        if (s->n_top == 0) continue;
        score->top_id = ids[0];
        score->top_logprob = logprobs[0];
        score->tops = XXH3_64bits(ids, s->n_top * sizeof *ids) ^
                      XXH3_64bits(logprobs, s->n_top * sizeof *logprobs) * 3;
    }
}

static const Moesaic__Step__V1__PlanSeq *planned(const struct desk *d, uint32_t slot) {
    size_t i = 0;
    while (d->plan.pointers[i]->slot != slot)
        i++;
    return d->plan.pointers[i];
}

static void take_results(struct serving *s, uint32_t group, const struct step_output *out) {
    struct desk *d = &s->desks[group];
    for (uint32_t i = 0; i < out->n_seqs; i++) {
        const struct seq_result *result = &out->seqs[i];
        struct seat *seat = &d->seats[result->slot];
        check(!result->nonfinite && seat->request != NULL);
        const Moesaic__Step__V1__PlanSeq *seq = planned(d, result->slot);
        take_scores(seat, seq->position, &result->scores);
        if (seq->sampling == NULL) continue;
        seat->answer[seat->n_generated++] =
            (struct serve_token){result->token, result->logprob, result->digest};
        if (seat->n_generated >= seat->request->n_generate) free_seat(d, seat);
    }
}

static bool serve_step(struct serving *s, uint64_t step) {
    const Moesaic__Step__V1__StepPlan *plans[RANKS_SERVED_MAX];
    struct step_output outs[RANKS_SERVED_MAX];
    bool busy = false;
    for (uint32_t group = 0; group < s->layout->dp; group++)
        busy |= plan_group(s, group, step);
    if (!busy) return false;
    for (uint32_t rank = 0; rank < s->layout->n_ranks; rank++)
        plans[rank] = &s->desks[layout_place(s->layout, rank).dp].plan.plan;
    ranks_step(s->ranks, plans, outs);
    for (uint32_t rank = 0; rank < s->layout->n_ranks; rank++) {
        uint32_t group = layout_place(s->layout, rank).dp;
        check(rank == answering(s, group) || outs[rank].n_seqs == 0);
        if (rank != answering(s, group)) continue;
        take_logits(s, group);
        take_results(s, group, &outs[rank]);
    }
    return true;
}

void serve(struct ranks *r, const struct serve_way *way, const struct serve_batch *batch) {
    struct serving s = {
        .ranks = r,
        .way = way,
        .requests = batch->requests,
        .n_requests = batch->n_requests,
        .layout = ranks_layout(r),
        .vocab = ranks_spec(r)->vocab,
        .answers = batch->answers,
        .stride = batch->stride,
        .logits = batch->logits,
        .scores = batch->scores,
    };
    check(s.layout->n_ranks <= RANKS_SERVED_MAX && way->n_together <= SEATS_MAX);
    s.desks = mem_array(s.layout->dp, sizeof *s.desks);
    check(s.desks != NULL);
    for (uint32_t group = 0; group < s.layout->dp; group++) {
        shuffle_pages(&s.desks[group], ranks_kv_blocks(r), way->page_seed + group);
        s.desks[group].next_request = group;
    }
    for (uint64_t step = 1; serve_step(&s, step); step++)
        continue;
    mem_free(s.desks);
}
