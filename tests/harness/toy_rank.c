// toy_rank.c: see toy_rank.h.
#include "tests/harness/toy_rank.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "step.pb-c.h"

struct toy_state {
    uint64_t hash;
    uint32_t end; // tokens in it
};

struct toy_slot {
    struct toy_state state;
    uint32_t *blocks; // the block table
    uint32_t n_blocks, n_tokens, last_token;
};

struct toy_rank {
    struct toy_config config;
    uint32_t *pages; // [kv_blocks][16]
    struct toy_slot *slots;
    struct toy_state *snapshots; // [snapshots]
    uint64_t *written;           // [snapshots] the step that wrote it last
    bool *in_step;               // [n_slots]
    uint64_t n_steps, n_idle, last_step;
};

struct toy_rank *toy_create(const struct toy_config *config) {
    struct toy_rank *t = calloc(1, sizeof *t);
    t->config = *config;
    t->pages = calloc((size_t)config->kv_blocks * KV_BLOCK_TOKENS, sizeof *t->pages);
    t->slots = calloc(config->n_slots, sizeof *t->slots);
    t->snapshots = calloc(config->snapshots + 1, sizeof *t->snapshots);
    t->written = calloc(config->snapshots + 1, sizeof *t->written);
    t->in_step = calloc(config->n_slots, sizeof *t->in_step);
    for (uint32_t i = 0; i < config->n_slots; i++)
        t->slots[i].blocks = calloc(config->max_model_len / KV_BLOCK_TOKENS + 1, sizeof(uint32_t));
    return t;
}

void toy_destroy(struct toy_rank *t) {
    if (t == NULL) return;
    for (uint32_t i = 0; i < t->config.n_slots; i++)
        free(t->slots[i].blocks);
    free(t->slots);
    free(t->snapshots);
    free(t->written);
    free(t->in_step);
    free(t->pages);
    free(t);
}

uint64_t toy_steps(const struct toy_rank *t) {
    return t->n_steps;
}
uint64_t toy_idle_steps(const struct toy_rank *t) {
    return t->n_idle;
}

static uint64_t mix(uint64_t h, uint64_t x) {
    uint64_t v[2] = {h, x};
    return XXH3_64bits(v, sizeof v);
}

static uint64_t first_hash(float temperature, uint64_t seed) {
    return temperature > 0 ? mix(7, seed) : 7;
}

static uint32_t *cell(const struct toy_rank *t, const struct toy_slot *s, uint32_t position) {
    check(position / KV_BLOCK_TOKENS < s->n_blocks);
    return &t->pages[(size_t)s->blocks[position / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS +
                     position % KV_BLOCK_TOKENS];
}

// Before any row of the step: the state that a run begins with.
static void restore(struct toy_rank *t, const Moesaic__Step__V1__PlanSeq *p) {
    check(p->slot < t->config.n_slots);
    struct toy_state *state = &t->slots[p->slot].state;
    check(p->from_snapshot <= t->config.snapshots);
    if (p->from_snapshot != 0) {
        *state = t->snapshots[p->from_snapshot - 1];
        check(t->config.stateful && state->end != 0);
    } else if (p->position == 0) {
        *state = (struct toy_state){0};
    }
    check(!t->config.stateful || state->end == p->position);
}

// After all rows of the step; as strict as a worker, which refuses such plans.
static void save(struct toy_rank *t, const Moesaic__Step__V1__PlanSeq *p, uint64_t step) {
    if (p->to_snapshot == 0) return;
    uint32_t n_rows = p->token_from_slot ? 1 : (uint32_t)p->n_tokens;
    const struct toy_state *state = &t->slots[p->slot].state;
    check(t->config.stateful && p->to_snapshot <= t->config.snapshots);
    check(state->end == p->position + n_rows && state->end % KV_BLOCK_TOKENS == 0);
    check(t->written[p->to_snapshot - 1] != step); // two runs would race
    t->written[p->to_snapshot - 1] = step;
    t->snapshots[p->to_snapshot - 1] = *state;
}

static void write_rows(struct toy_rank *t, struct toy_slot *s, const Moesaic__Step__V1__PlanSeq *p,
                       uint32_t n_rows) {
    check(p->block_offset + p->n_blocks <= t->config.max_model_len / KV_BLOCK_TOKENS + 1);
    if (p->block_offset == 0) // the first run of a sequence; what is before it stands in the blocks
        *s = (struct toy_slot){.blocks = s->blocks, .n_tokens = p->position, .state = s->state};
    check(p->position == s->n_tokens && p->block_offset == s->n_blocks);
    for (size_t i = 0; i < p->n_blocks; i++) {
        check(p->blocks[i] < t->config.kv_blocks);
        s->blocks[s->n_blocks++] = p->blocks[i];
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t token = p->token_from_slot ? s->last_token : p->tokens[i];
        check(token < t->config.vocab);
        *cell(t, s, s->n_tokens++) = token;
        s->state = (struct toy_state){mix(s->state.hash, token), s->state.end + 1};
    }
    check(s->n_tokens <= t->config.max_model_len);
}

static void sample(struct toy_rank *t, struct toy_slot *s, const Moesaic__Step__V1__PlanSeq *p,
                   Moesaic__Step__V1__SeqResult *out) {
    uint64_t h = first_hash(p->sampling->temperature, p->sampling->seed), state = 0;
    for (uint32_t i = 0; i < s->n_tokens; i++) {
        uint32_t token = *cell(t, s, i);
        state = mix(state, token);
        if (token == t->config.nonfinite_token) out->nonfinite = true;
        h = mix(h, token);
    }
    check(!t->config.stateful || state == s->state.hash);
    s->last_token = out->nonfinite ? 0 : (uint32_t)(h % t->config.vocab);
    out->token = s->last_token;
    out->digest = h;
    out->logprob = -1.0f;
}

static uint64_t prefix_hash(const uint32_t *prompt, uint32_t n) {
    uint64_t h = 11;
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, prompt[i]);
    return h;
}

struct toy_score toy_score(const uint32_t *prompt, uint32_t n, uint32_t next, uint32_t vocab) {
    uint64_t h = mix(prefix_hash(prompt, n), next);
    return (struct toy_score){-1.0f - (float)(h % 1000) / 8, 1 + (uint32_t)(h % vocab)};
}

uint32_t toy_alternative(const uint32_t *prompt, uint32_t n, uint32_t k, uint32_t vocab) {
    return (uint32_t)((prefix_hash(prompt, n) + k) % vocab);
}

// Reads its history back from the pages, as sample does. The lists are freed with free_scores.
static void score(struct toy_rank *t, struct toy_slot *s, const Moesaic__Step__V1__PlanSeq *p,
                  Moesaic__Step__V1__SeqResult *out) {
    uint32_t n = p->scoring->n_rows, n_top = p->scoring->n_top, vocab = t->config.vocab;
    uint32_t *history = calloc(s->n_tokens + 1, sizeof *history);
    for (uint32_t i = 0; i < s->n_tokens; i++)
        history[i] = *cell(t, s, i);
    history[s->n_tokens] = p->scoring->next_token;
    check(p->position + n <= s->n_tokens && n_top <= TOP_LOGPROBS_MAX);
    out->n_scored_logprobs = out->n_scored_ranks = n;
    out->n_scored_top_ids = out->n_scored_top_logprobs = (size_t)n * n_top;
    out->scored_logprobs = calloc(n, sizeof(float));
    out->scored_ranks = calloc(n, sizeof(uint32_t));
    out->scored_top_ids = calloc((size_t)n * n_top + 1, sizeof(uint32_t));
    out->scored_top_logprobs = calloc((size_t)n * n_top + 1, sizeof(float));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t before = p->position + i + 1;
        struct toy_score one = toy_score(history, before, history[before], vocab);
        out->scored_logprobs[i] = one.logprob;
        out->scored_ranks[i] = one.rank;
        for (uint32_t k = 0; k < n_top; k++) {
            out->scored_top_ids[i * n_top + k] = toy_alternative(history, before, k, vocab);
            out->scored_top_logprobs[i * n_top + k] = -1.0f - (float)k;
        }
    }
    free(history);
}

static void free_scores(Moesaic__Step__V1__SeqResult *out) {
    free(out->scored_logprobs);
    free(out->scored_ranks);
    free(out->scored_top_ids);
    free(out->scored_top_logprobs);
}

static uint8_t *pack(const Moesaic__Step__V1__StepResult *r, size_t *bytes) {
    *bytes = moesaic__step__v1__step_result__get_packed_size(r);
    uint8_t *data = malloc(*bytes + 1);
    moesaic__step__v1__step_result__pack(r, data);
    return data;
}

uint8_t *toy_step(struct toy_rank *t, const uint8_t *plan, size_t plan_bytes,
                  size_t *result_bytes) {
    Moesaic__Step__V1__StepPlan *p = moesaic__step__v1__step_plan__unpack(NULL, plan_bytes, plan);
    check(p != NULL && p->n_seqs <= t->config.n_slots && p->step > t->last_step);
    Moesaic__Step__V1__SeqResult *rows = calloc(t->config.n_slots, sizeof *rows);
    Moesaic__Step__V1__SeqResult **pointers = calloc(t->config.n_slots, sizeof(void *));
    Moesaic__Step__V1__StepResult result = MOESAIC__STEP__V1__STEP_RESULT__INIT;
    uint32_t n_rows = 0;
    memset(t->in_step, 0, t->config.n_slots * sizeof *t->in_step);
    for (size_t i = 0; i < p->n_seqs; i++)
        restore(t, p->seqs[i]);
    for (size_t i = 0; i < p->n_seqs; i++) {
        Moesaic__Step__V1__PlanSeq *q = p->seqs[i];
        uint32_t n = q->token_from_slot ? 1 : (uint32_t)q->n_tokens;
        check(!t->in_step[q->slot] && n > 0 && (!q->token_from_slot || q->n_tokens == 0));
        t->in_step[q->slot] = true;
        n_rows += n;
        write_rows(t, &t->slots[q->slot], q, n);
        if (q->sampling == NULL && q->scoring == NULL) continue;
        Moesaic__Step__V1__SeqResult *row = pointers[result.n_seqs] = &rows[result.n_seqs];
        result.n_seqs++;
        moesaic__step__v1__seq_result__init(row);
        row->slot = q->slot;
        if (q->scoring != NULL) score(t, &t->slots[q->slot], q, row);
        if (q->sampling != NULL) sample(t, &t->slots[q->slot], q, row);
    }
    for (size_t i = 0; i < p->n_seqs; i++)
        save(t, p->seqs[i], p->step);
    check(n_rows <= t->config.rows_max);
    result.epoch = p->epoch;
    result.step = t->last_step = p->step;
    result.rank = t->config.rank;
    result.seqs = pointers;
    uint64_t phases[3] = {1, 2, 3};
    result.n_phase_ns = 3;
    result.phase_ns = phases;
    t->n_steps++;
    t->n_idle += p->n_seqs == 0 ? 1 : 0;
    uint8_t *data = pack(&result, result_bytes);
    moesaic__step__v1__step_plan__free_unpacked(p, NULL);
    for (size_t i = 0; i < result.n_seqs; i++)
        free_scores(&rows[i]);
    free(rows);
    free(pointers);
    return data;
}

static bool stops(const struct request *r, uint32_t token) {
    for (uint32_t i = 0; i < r->n_stop_ids; i++) {
        if (r->stop_ids[i] == token) return true;
    }
    return false;
}

void toy_answer(const struct request *r, uint32_t vocab, struct toy_answer *out) {
    *out = (struct toy_answer){.tokens = calloc(r->max_tokens, sizeof(uint32_t)),
                               .finish = FINISH_LENGTH};
    uint64_t h = first_hash(r->sampling.temperature, r->sampling.seed);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        h = mix(h, r->prompt[i]);
    while (out->n_tokens < r->max_tokens) {
        uint32_t token = (uint32_t)(h % vocab);
        out->digest = mix(out->digest, h); // little-endian machines only: XXH3 over the two numbers
        if (stops(r, token)) {
            out->finish = FINISH_STOP;
            return;
        }
        out->tokens[out->n_tokens++] = token;
        h = mix(h, token);
    }
}
