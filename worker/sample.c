// sample.c: see sample.h.
//
// The contract sums weights over the whole vocabulary in sorted order. Sorting all of it is avoided
// by two facts: every filter keeps a prefix of that order, and the first weight is 1, so that a
// weight below 2^-24 is less than half a unit in the last place of any running sum and adds exactly
// nothing. Only logits close to the largest are candidates.
#include "worker/sample.h"

#include <math.h>
#include <string.h>

#define LANES 16

void sample_lay(struct sample_scratch *sample, uint32_t vocab, struct scratch *s) {
    sample->candidates = scratch_take(s, vocab, sizeof *sample->candidates);
    sample->spare = scratch_take(s, vocab, sizeof *sample->spare);
    sample->weights = scratch_take(s, vocab, sizeof *sample->weights);
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

// In [0, 1), from the first draw of the row's position.
static float uniform(const struct sample_row *row) {
    const Moesaic__Step__V1__Sampling *p = row->params;
    uint32_t counter[4] = {row->position, 0, p->choice_index, p->prompt_index};
    uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)}, words[4];
    sample_philox(words, counter, key);
    return (float)(words[0] >> 8) * 0x1p-24f;
}

// --- the whole row

static bool finite_bits(float x) {
    return (f32_to_bits(x) & 0x7f800000u) != 0x7f800000u;
}

bool sample_max(const float *x, uint32_t n, float *max) {
    float best[LANES];
    uint32_t bad = 0, i = 0;
    for (int lane = 0; lane < LANES; lane++)
        best[lane] = -INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            best[lane] = x[i + (uint32_t)lane] > best[lane] ? x[i + (uint32_t)lane] : best[lane];
            // Only an exponent of all ones carries into the sign when one is added to it.
            bad |= (f32_to_bits(x[i + (uint32_t)lane]) & 0x7fffffffu) + 0x00800000u;
        }
    }
    for (; i < n; i++) {
        best[0] = x[i] > best[0] ? x[i] : best[0];
        bad |= finite_bits(x[i]) ? 0 : 0x80000000u;
    }
    *max = best[0];
    for (int lane = 1; lane < LANES; lane++)
        *max = best[lane] > *max ? best[lane] : *max;
    return (bad & 0x80000000u) == 0;
}

static uint32_t first_equal(const float *x, float value) {
    uint32_t i = 0;
    while (x[i] != value)
        i++;
    return i;
}

// --- candidates

// Ascending integers are descending floats. -0 counts as +0, as comparisons have it.
static uint32_t descending_key(float x) {
    uint32_t bits = f32_to_bits(x + 0.0f);
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

static float key_value(uint32_t key) {
    return bits_to_f32(key & 0x80000000u ? key : ~key & 0x7fffffffu);
}

static float candidate_value(uint64_t candidate) {
    return key_value((uint32_t)(candidate >> 32));
}

// Everything whose weight may be 2^-24 or more: exp(-17) is below. The last term covers what
// rounding of the divisions does to logits that are large beside the temperature.
#define GATHERED 17.5f
static uint32_t gather(const struct sample_row *row, float max, uint64_t *candidates) {
    float temperature = row->params->temperature;
    double least =
        (double)max - (double)GATHERED * (double)temperature - fabs((double)max) * 0x1p-20;
    float threshold = (float)least;
    uint32_t n = 0;
    for (uint32_t id = 0; id < row->vocab; id++) {
        candidates[n] = id;
        n += row->chosen_by[id] >= threshold;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)candidates[i];
        candidates[i] = (uint64_t)descending_key(row->chosen_by[id] / temperature) << 32 | id;
    }
    return n;
}

#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)
#define BUCKETS 4096
#define CROWDED 64 // candidates of one bucket that are worth other ways of sorting

// Drops candidates that cannot be among the first k, by the leading bits of their keys.
static uint32_t keep_about(uint64_t *candidates, uint32_t n, uint32_t k) {
    uint32_t counts[DIGITS] = {0};
    for (uint32_t i = 0; i < n; i++)
        counts[candidates[i] >> (64 - DIGIT_BITS)]++;
    uint32_t last = 0;
    for (uint32_t seen = counts[0]; seen < k; seen += counts[last])
        last++;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t candidate = candidates[i];
        candidates[kept] = candidate;
        kept += (candidate >> (64 - DIGIT_BITS)) <= last;
    }
    return kept;
}

static void insertion_sort(uint64_t *a, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        uint64_t item = a[i];
        uint32_t at = i;
        for (; at > 0 && a[at - 1] > item; at--)
            a[at] = a[at - 1];
        a[at] = item;
    }
}

// One stable pass by the digit at shift; false when all have the same digit and nothing was moved.
static bool radix_pass(uint64_t *to, const uint64_t *from, uint32_t n, int shift) {
    uint32_t starts[DIGITS] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        starts[from[i] >> shift & (DIGITS - 1)]++;
    if (starts[from[0] >> shift & (DIGITS - 1)] == n) return false;
    for (uint32_t d = 0; d < DIGITS; d++) {
        uint32_t count = starts[d];
        starts[d] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++)
        to[starts[from[i] >> shift & (DIGITS - 1)]++] = from[i];
    return true;
}

static void swap(struct sample_scratch *scratch) {
    uint64_t *sorted = scratch->spare;
    scratch->spare = scratch->candidates;
    scratch->candidates = sorted;
}

// Where a candidate stands between the largest value and the least that gather lets in. Every step
// of it grows or stays as the value falls, so that order between buckets is order.
static uint32_t bucket_of(uint64_t candidate, float first, float scale) {
    float at = (first - candidate_value(candidate)) * scale;
    return at < BUCKETS - 1 ? (uint32_t)at : BUCKETS - 1;
}

// Deals candidates into many buckets by value, which leaves little to sort. False, with candidates
// as they were, where values are so crowded that much would be left.
static bool bucket_sort(struct sample_scratch *scratch, uint32_t n, float first) {
    uint32_t starts[BUCKETS] = {0}, sum = 0, most = 0;
    const float scale = BUCKETS / GATHERED;
    const uint64_t *from = scratch->candidates;
    for (uint32_t i = 0; i < n; i++)
        starts[bucket_of(from[i], first, scale)]++;
    for (uint32_t b = 0; b < BUCKETS; b++) {
        uint32_t count = starts[b];
        most = count > most ? count : most;
        starts[b] = sum;
        sum += count;
    }
    if (most > CROWDED) return false;
    for (uint32_t i = 0; i < n; i++)
        scratch->spare[starts[bucket_of(from[i], first, scale)]++] = from[i];
    insertion_sort(scratch->spare, n);
    swap(scratch);
    return true;
}

// Sorts candidates whose ids ascend; first is the largest value. The result is in
// scratch->candidates.
static void sort(struct sample_scratch *scratch, uint32_t n, float first) {
    if (n <= 64) {
        insertion_sort(scratch->candidates, n);
        return;
    }
    if (n <= BUCKETS * 4 && bucket_sort(scratch, n, first)) return;
    for (int shift = 32; shift < 64; shift += DIGIT_BITS) {
        if (radix_pass(scratch->spare, scratch->candidates, n, shift)) swap(scratch);
    }
}

// --- filters and the draw, over sorted candidates

static float sum_of(const float *weights, uint32_t n) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += weights[i];
    return sum;
}

static uint32_t keep_top_p(const float *weights, uint32_t n, float top_p) {
    float wanted = top_p * sum_of(weights, n), sum = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        sum += weights[i];
        if (sum >= wanted) return i + 1;
    }
    return n;
}

static uint32_t keep_min_p(const float *weights, uint32_t n, float min_p) {
    float least = min_p * weights[0];
    uint32_t kept = 1;
    while (kept < n && weights[kept] >= least)
        kept++;
    return kept;
}

static uint32_t draw(const float *weights, uint32_t n, float u) {
    float wanted = u * sum_of(weights, n), sum = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        sum += weights[i];
        if (sum > wanted) return i;
    }
    return n - 1; // u is below 1, so the sum passes it
}

static uint32_t sample_token(const struct kernel_ops *ops, const struct sample_row *row, float max,
                             struct sample_scratch *scratch) {
    const Moesaic__Step__V1__Sampling *p = row->params;
    // A temperature so small that the largest logit overflows means the largest logit.
    if (p->temperature == 0.0f || !finite_bits(max / p->temperature))
        return first_equal(row->chosen_by, max);
    uint32_t n = gather(row, max, scratch->candidates);
    bool cut = p->top_k != 0 && p->top_k < n;
    if (cut) n = keep_about(scratch->candidates, n, p->top_k);
    sort(scratch, n, max / p->temperature);
    if (cut) n = p->top_k;
    float *weights = scratch->weights, first = candidate_value(scratch->candidates[0]);
    for (uint32_t i = 0; i < n; i++)
        weights[i] = candidate_value(scratch->candidates[i]) - first;
    ops->exp(weights, n);
    if (p->top_p < 1.0f) n = keep_top_p(weights, n, p->top_p);
    if (p->min_p > 0.0f) n = keep_min_p(weights, n, p->min_p);
    return (uint32_t)scratch->candidates[draw(weights, n, uniform(row))];
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
    float max, lse;
    out->token = out->n_top = 0;
    out->logprob = 0.0f;
    out->nonfinite = !sample_max(row->logits, row->vocab, &max);
    if (out->nonfinite) return;
    if (row->chosen_by != row->logits) sample_max(row->chosen_by, row->vocab, &max);
    out->token = sample_token(ops, row, max, scratch);
    if (!row->params->want_logprob && row->params->n_logprobs == 0) return;
    ops->log_sum_exp(row->logits, row->vocab, &max, &lse);
    out->logprob = row->logits[out->token] - lse;
    struct sample_top top = {row->params->n_logprobs, out->top_ids, out->top_logprobs};
    sample_top(row->logits, row->vocab, lse, &top);
    out->n_top = top.n;
}
