// sample.c: see sample.h.
//
// Weights are integers, so their sums are exact, in any order: nothing is ever sorted. Without
// top-k and top-p a row is read twice, for the largest logit and for the weights. With one of them
// a few candidates are taken out of the row, among which the end of what is kept lies (cut.h).
#include "worker/sample.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/base/limits.h"
#include "worker/cut.h"

#define LANES 16
#define BLOCK 512 // ids whose weights have a sum, and whose logits have LANES maxima

static_assert((uint64_t)BLOCK << 16 <= UINT32_MAX, "halves of a block's weights add up in 32 bits");
static_assert(VOCAB_MAX <= 1u << 31, "a row's weights, times a part of 2^32, stay below 2^64");

static uint32_t n_blocks(uint32_t vocab) {
    return (vocab + BLOCK - 1) / BLOCK;
}

static uint32_t block_ids(uint32_t vocab, uint32_t first) {
    return vocab - first < BLOCK ? vocab - first : BLOCK;
}

void sample_lay(struct sample_scratch *sample, uint32_t vocab, struct scratch *s) {
    sample->maxima = scratch_take(s, (size_t)n_blocks(vocab) * LANES, sizeof *sample->maxima);
    sample->sums = scratch_take(s, n_blocks(vocab), sizeof *sample->sums);
    sample->weights = scratch_take(s, (size_t)n_blocks(vocab) * BLOCK, sizeof *sample->weights);
    sample->candidates =
        scratch_take(s, (size_t)n_blocks(vocab) * BLOCK, sizeof *sample->candidates);
}

// --- random numbers

void sample_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]) {
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xD2511F53) * c[0], b = UINT64_C(0xCD9E8D57) * c[2];
        uint32_t next0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, next2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[0] = next0;
        c[1] = (uint32_t)b;
        c[2] = next2;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

// 32 bits, from the first draw of the row's position.
static uint32_t random_bits(const struct sample_row *row) {
    const Moesaic__Step__V1__Sampling *p = row->params;
    uint32_t counter[4] = {row->position, 0, p->choice_index, p->prompt_index};
    uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)}, words[4];
    sample_philox(words, counter, key);
    return words[0];
}

// --- the whole row

static bool finite_bits(float x) {
    return (f32_to_bits(x) & 0x7f800000u) != 0x7f800000u;
}

// Only an exponent of all ones carries into the sign when one is added to it.
static uint32_t bad_bits(float x) {
    return (f32_to_bits(x) & 0x7fffffffu) + 0x00800000u;
}

static uint32_t lane_maxima(const float *x, uint32_t n, float maxima[LANES]) {
    float best[LANES];
    uint32_t bad[LANES] = {0};
    const float *end = x + n;
    for (int lane = 0; lane < LANES; lane++)
        best[lane] = -INFINITY;
    for (; end - x >= LANES; x += LANES) {
        for (int lane = 0; lane < LANES; lane++)
            best[lane] = x[lane] > best[lane] ? x[lane] : best[lane];
        for (int lane = 0; lane < LANES; lane++)
            bad[lane] |= bad_bits(x[lane]);
    }
    for (int lane = 0; x + lane < end; lane++) {
        best[lane] = x[lane] > best[lane] ? x[lane] : best[lane];
        bad[lane] |= bad_bits(x[lane]);
    }
    for (int lane = 1; lane < LANES; lane++)
        bad[0] |= bad[lane];
    memcpy(maxima, best, sizeof best);
    return bad[0];
}

// The largest of a row, and of each block's lanes; false when any number is not finite.
static bool row_maxima(const float *x, uint32_t vocab, float *maxima, float *max) {
    uint32_t bad = 0;
    float best[LANES];
    for (int lane = 0; lane < LANES; lane++)
        best[lane] = -INFINITY;
    for (uint32_t first = 0; first < vocab; first += BLOCK, maxima += LANES) {
        bad |= lane_maxima(x + first, block_ids(vocab, first), maxima);
        for (int lane = 0; lane < LANES; lane++)
            best[lane] = maxima[lane] > best[lane] ? maxima[lane] : best[lane];
    }
    *max = best[0];
    for (int lane = 1; lane < LANES; lane++)
        *max = best[lane] > *max ? best[lane] : *max;
    return (bad & 0x80000000u) == 0;
}

static bool any_from(const float x[LANES], float least) {
    int32_t any = 0;
    for (int lane = 0; lane < LANES; lane++)
        any |= x[lane] >= least ? 1 : 0;
    return any != 0;
}

// The lowest id of the largest logit.
static uint32_t first_of(const float *x, const float *maxima, float max) {
    uint32_t id = 0;
    for (; !any_from(maxima, max); maxima += LANES)
        id += BLOCK;
    while (x[id] != max)
        id++;
    return id;
}

// --- weights

// One row on its way to a token.
struct choice {
    const struct kernel_ops *ops;
    const struct sample_row *row;
    struct sample_scratch *scratch;
    float first; // the largest logit over the temperature
    float least; // the least weight that min-p keeps
    uint32_t n;  // candidates
};

static float temperature_of(const struct choice *c) {
    return c->row->params->temperature;
}

// Logits over the temperature, from an id on that a block begins with.
static void divide_block(const struct choice *c, uint32_t first, float *restrict y) {
    uint32_t n = block_ids(c->row->vocab, first);
    const float *restrict x = c->row->chosen_by + first;
    float temperature = temperature_of(c);
    for (uint32_t i = 0; n == BLOCK && i < BLOCK; i++)
        y[i] = x[i] / temperature;
    for (uint32_t i = 0; n < BLOCK && i < BLOCK; i++)
        y[i] = i < n ? x[i] / temperature : -INFINITY;
}

// In two halves, which instructions for 32 bits convert and add: what is behind the upper one is
// exact.
static uint64_t block_sum(const float weights[BLOCK]) {
    uint32_t upper = 0, lower = 0;
    for (int i = 0; i < BLOCK; i++) {
        float scaled = weights[i] * 0x1p16f;
        int32_t whole = (int32_t)scaled;
        upper += (uint32_t)whole;
        lower += (uint32_t)(int32_t)((scaled - (float)whole) * 0x1p16f);
    }
    return ((uint64_t)upper << 16) + lower;
}

// Weights of all ids, and the sum of each block's: returns that of all.
static uint64_t weigh_row(const struct choice *c, float least) {
    const float first = c->first;
    uint64_t total = 0;
    for (uint32_t b = 0; b < n_blocks(c->row->vocab); b++) {
        float *weights = c->scratch->weights + (size_t)b * BLOCK;
        divide_block(c, b * BLOCK, weights);
        for (uint32_t i = 0; i < BLOCK; i++)
            weights[i] -= first;
        c->ops->exp(weights, BLOCK);
        for (uint32_t i = 0; least > 0 && i < BLOCK; i++)
            weights[i] = weights[i] >= least ? weights[i] : 0.0f;
        c->scratch->sums[b] = block_sum(weights);
        total += c->scratch->sums[b];
    }
    return total;
}

// --- the draw

// Of total, rounded down: random / 2^32.
static uint64_t share_of(uint64_t total, uint32_t random) {
    return random * (total >> 32) + (random * (total & UINT32_MAX) >> 32);
}

// The first whose running sum exceeds wanted.
static uint32_t draw(const float *weights, uint64_t wanted) {
    uint32_t i = 0;
    for (uint64_t sum = cut_weight(weights[0]); sum <= wanted; sum += cut_weight(weights[i]))
        i++;
    return i;
}

static uint32_t draw_from_row(const struct choice *c, uint64_t total) {
    uint64_t wanted = share_of(total, random_bits(c->row));
    uint32_t b = 0;
    for (; c->scratch->sums[b] <= wanted; b++)
        wanted -= c->scratch->sums[b];
    return b * BLOCK + draw(c->scratch->weights + (size_t)b * BLOCK, wanted);
}

static uint64_t sum_of(const float *weights, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += cut_weight(weights[i]);
    return sum;
}

static uint32_t draw_from_candidates(const struct choice *c) {
    const float *weights = c->scratch->weights;
    uint64_t wanted = share_of(sum_of(weights, c->n), random_bits(c->row));
    return (uint32_t)c->scratch->candidates[draw(weights, wanted)];
}

// --- candidates: some ids, ascending, with their order; every one that is not among them is behind
// what a filter keeps, or weighs nothing

// exp(-22.25) is below 2^-32.
#define WEIGHTLESS 22.25f

// Ids of a block that have at least so much of what x holds.
static void gather(struct choice *c, const float x[BLOCK], uint32_t first, float least) {
    uint64_t *ids = c->scratch->candidates + c->n;
    uint32_t n = 0;
    for (uint32_t run = 0; run < BLOCK; run += LANES) {
        if (!any_from(x + run, least)) continue;
        for (uint32_t i = run; i < run + LANES; i++) {
            ids[n] = first + i;
            n += x[i] >= least;
        }
    }
    c->n += n;
}

static void order(struct choice *c) {
    uint64_t *candidates = c->scratch->candidates;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t id = (uint32_t)candidates[i];
        candidates[i] = cut_item(c->row->chosen_by[id] / temperature_of(c), id);
    }
}

static void keep_until(struct choice *c, uint64_t last) {
    uint64_t *candidates = c->scratch->candidates;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t item = candidates[i];
        candidates[kept] = item;
        c->scratch->weights[kept] = c->scratch->weights[i];
        kept += item <= last;
    }
    c->n = kept;
}

// The kth largest of the maxima: the kth largest of all is not below it.
static float kth_largest(const struct choice *c, uint32_t k, float least) {
    const float *maxima = c->scratch->maxima;
    uint64_t *items = c->scratch->candidates;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_blocks(c->row->vocab) * LANES; i++) {
        items[n] = cut_item(maxima[i], i);
        n += maxima[i] >= least;
    }
    return n < k ? least : cut_value(cut_find(&(struct cut_list){items, NULL, n}, k));
}

static void gather_first(struct choice *c, uint32_t k) {
    float divided[BLOCK], *maxima = c->scratch->maxima;
    uint32_t blocks = n_blocks(c->row->vocab);
    for (uint32_t i = 0; i < blocks * LANES; i++)
        maxima[i] /= temperature_of(c);
    float least = kth_largest(c, k, c->first - WEIGHTLESS);
    for (uint32_t b = 0; b < blocks; b++) {
        if (!any_from(maxima + (size_t)b * LANES, least)) continue;
        divide_block(c, b * BLOCK, divided);
        gather(c, divided, b * BLOCK, least);
    }
    order(c);
}

static void keep_top_k(struct choice *c, uint32_t k) {
    const struct sample_scratch *s = c->scratch;
    gather_first(c, k);
    if (c->n > k) keep_until(c, cut_find(&(struct cut_list){s->candidates, NULL, c->n}, k));
    for (uint32_t i = 0; i < c->n; i++)
        s->weights[i] = cut_value(s->candidates[i]) - c->first;
    c->ops->exp(s->weights, c->n);
}

// What top-p wants of total, rounded up; at least one token's.
static uint64_t top_p_of(uint64_t total, float top_p) {
    uint64_t share = (uint64_t)(top_p * 0x1p32f); // below 2^32
    uint64_t wanted = share * (total >> 32) + ((share * (total & UINT32_MAX) + UINT32_MAX) >> 32);
    return wanted > 0 ? wanted : 1;
}

// Leaves out what weighs so little that all of it together is no more than may be left over. exp is
// monotonous but for its error of one unit in the last place: hence 2^-20.
static void gather_heavy(struct choice *c, uint64_t left_over) {
    const struct sample_scratch *s = c->scratch;
    float least = (float)(left_over / c->row->vocab) * 0x1p-32f * (1 - 0x1p-20f);
    least = least > 0x1p-32f ? least : 0x1p-32f;
    for (uint32_t b = 0; b < n_blocks(c->row->vocab); b++) {
        if (s->sums[b] >= cut_weight(least))
            gather(c, s->weights + (size_t)b * BLOCK, b * BLOCK, least);
    }
    for (uint32_t i = 0; i < c->n; i++)
        s->weights[i] = s->weights[(uint32_t)s->candidates[i]];
    order(c);
}

static void keep_top_p(struct choice *c, uint64_t wanted) {
    const struct cut_list list = {c->scratch->candidates, c->scratch->weights, c->n};
    keep_until(c, cut_find(&list, wanted));
}

static void keep_min_p(struct choice *c) {
    float *weights = c->scratch->weights;
    for (uint32_t i = 0; i < c->n; i++)
        weights[i] = weights[i] >= c->least ? weights[i] : 0.0f;
}

static uint32_t sample_token(struct choice *c, float max) {
    const Moesaic__Step__V1__Sampling *p = c->row->params;
    bool top_k = p->top_k != 0 && p->top_k < c->row->vocab, top_p = p->top_p < 1.0f;
    c->first = max / p->temperature;
    // A temperature so small that the largest logit overflows means the largest logit.
    if (p->temperature == 0.0f || !finite_bits(c->first))
        return first_of(c->row->chosen_by, c->scratch->maxima, max);
    c->least = ceilf(p->min_p * 0x1p32f) * 0x1p-32f;
    if (top_k) keep_top_k(c, p->top_k);
    if (!top_k && !top_p) return draw_from_row(c, weigh_row(c, c->least));
    if (top_p) {
        uint64_t total = top_k ? sum_of(c->scratch->weights, c->n) : weigh_row(c, 0.0f);
        uint64_t wanted = top_p_of(total, p->top_p);
        if (!top_k) gather_heavy(c, total - wanted);
        keep_top_p(c, wanted);
    }
    if (c->least > 0) keep_min_p(c);
    return draw_from_candidates(c);
}

void sample_top(const float *x, uint32_t vocab, float lse, struct sample_top *top) {
    uint32_t n_wanted = top->n < vocab ? top->n : vocab;
    uint32_t *ids = top->ids;
    top->n = 0;
    for (uint32_t id = 0; id < vocab && n_wanted > 0; id++) {
        if (top->n == n_wanted && !(x[id] > x[ids[n_wanted - 1]])) continue;
        uint32_t at = top->n < n_wanted ? top->n++ : n_wanted - 1;
        for (; at > 0 && x[id] > x[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
    for (uint32_t i = 0; i < top->n; i++)
        top->logprobs[i] = x[ids[i]] - lse;
}

void sample_row(const struct kernel_ops *ops, const struct sample_row *row,
                struct sample_scratch *scratch, struct seq_result *out) {
    struct choice choice = {.ops = ops, .row = row, .scratch = scratch};
    float max, lse;
    out->token = out->n_top = 0;
    out->logprob = 0.0f;
    out->nonfinite = !row_maxima(row->logits, row->vocab, scratch->maxima, &max);
    if (out->nonfinite) return;
    if (row->chosen_by != row->logits) {
        row_maxima(row->chosen_by, row->vocab, scratch->maxima, &max);
        out->nonfinite = max == -INFINITY; // nothing is left to choose
        if (out->nonfinite) return;
    }
    out->token = sample_token(&choice, max);
    if (!row->params->want_logprob && row->params->n_logprobs == 0) return;
    ops->log_sum_exp(row->logits, row->vocab, &max, &lse);
    out->logprob = row->logits[out->token] - lse;
    struct sample_top top = {row->params->n_logprobs, out->top_ids, out->top_logprobs};
    sample_top(row->logits, row->vocab, lse, &top);
    out->n_top = top.n;
}
