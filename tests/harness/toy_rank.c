// toy_rank.c: see toy_rank.h.
#include "tests/harness/toy_rank.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "step.pb-c.h"

struct toy_slot {
    uint32_t *blocks; // the block table
    uint32_t n_blocks, n_tokens, last_token;
};

struct toy_rank {
    struct toy_config config;
    uint32_t *pages; // [kv_blocks][16]
    struct toy_slot *slots;
    bool *in_step; // [n_slots]
    uint64_t n_steps, n_idle, last_step;
};

struct toy_rank *toy_create(const struct toy_config *config) {
    struct toy_rank *t = calloc(1, sizeof *t);
    t->config = *config;
    t->pages = calloc((size_t)config->kv_blocks * KV_BLOCK_TOKENS, sizeof *t->pages);
    t->slots = calloc(config->n_slots, sizeof *t->slots);
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

static void write_rows(struct toy_rank *t, struct toy_slot *s, const Moesaic__Step__V1__PlanSeq *p,
                       uint32_t n_rows) {
    check(p->block_offset + p->n_blocks <= t->config.max_model_len / KV_BLOCK_TOKENS + 1);
    if (p->position == 0) *s = (struct toy_slot){.blocks = s->blocks};
    check(p->position == s->n_tokens && p->block_offset == s->n_blocks);
    for (size_t i = 0; i < p->n_blocks; i++) {
        check(p->blocks[i] < t->config.kv_blocks);
        s->blocks[s->n_blocks++] = p->blocks[i];
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t token = p->token_from_slot ? s->last_token : p->tokens[i];
        check(token < t->config.vocab);
        *cell(t, s, s->n_tokens++) = token;
    }
    check(s->n_tokens <= t->config.max_model_len);
}

static void sample(struct toy_rank *t, struct toy_slot *s, const Moesaic__Step__V1__PlanSeq *p,
                   Moesaic__Step__V1__SeqResult *out) {
    uint64_t h = first_hash(p->sampling->temperature, p->sampling->seed);
    moesaic__step__v1__seq_result__init(out);
    out->slot = p->slot;
    for (uint32_t i = 0; i < s->n_tokens; i++) {
        uint32_t token = *cell(t, s, i);
        if (token == t->config.nonfinite_token) out->nonfinite = true;
        h = mix(h, token);
    }
    s->last_token = out->nonfinite ? 0 : (uint32_t)(h % t->config.vocab);
    out->token = s->last_token;
    out->digest = h;
    out->logprob = -1.0f;
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
    for (size_t i = 0; i < p->n_seqs; i++) {
        Moesaic__Step__V1__PlanSeq *q = p->seqs[i];
        uint32_t n = q->token_from_slot ? 1 : (uint32_t)q->n_tokens;
        check(q->slot < t->config.n_slots && !t->in_step[q->slot] && n > 0 &&
              (!q->token_from_slot || q->n_tokens == 0));
        t->in_step[q->slot] = true;
        n_rows += n;
        write_rows(t, &t->slots[q->slot], q, n);
        if (q->sampling == NULL) continue;
        pointers[result.n_seqs] = &rows[result.n_seqs];
        sample(t, &t->slots[q->slot], q, &rows[result.n_seqs++]);
    }
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
