// simd_latent.c: attention over latents: a tile of queries over one partition of keys at a time.
//
// A page holds one row a token, so that a key that was not chosen is never touched, and a token's
// latent is stored once. Scores want keys in lanes: the rows of a partition are turned into panels
// [key_dim][16] of float32, four blocks at a time, and every query of the tile passes over them.
// Values are read from the rows as they are. Keys are numbered as they come (chosen or not); only
// the lane sum of the weights goes by position. Rows of several kinds are partitions like others.
#include <math.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "kernels/simd_attend.h"
#include "kernels/simd_turn.h"

static_assert(TILE_ROWS <= LATENT_TILE_MAX, "scratch is sized for a tile");

// Queries of one tile within the partition that starts at key base.
struct tile {
    const struct latent_job *job;
    const float *q;
    uint32_t first_query, n_q, base;
    const struct latent_keys *keys;                      // of the partition
    struct row_set set;                                  // those that some query sees
    uint32_t lane[PART];                                 // of each: its position behind base
    uint32_t from[LATENT_TILE_MAX], to[LATENT_TILE_MAX]; // numbers of those that a query sees
    uint32_t common, common_end;                         // of those that all see
    float *panels;                                       // [LATENT_PANELS][key_dim][16]
    float *scores;                                       // [n_q][PART], by number of the key
    struct attend_sums sums[LATENT_TILE_MAX];
};

// --- the keys

static void add_key(struct tile *t, uint32_t key) {
    const struct latent_keys *k = t->keys;
    struct row_place at = {k->pages, k->block_stride, t->job->block_table, k->rate};
    t->lane[t->set.n] = key - t->base;
    add_row(&t->set, &at, key);
}

static uint32_t first_of(const struct tile *t, uint32_t row) {
    return t->keys->first != NULL ? t->keys->first[t->first_query + row] : 0;
}

// The chosen keys of the partition from *at on, which moves behind them: all queries see them.
static void take_chosen(struct tile *t, uint32_t *at) {
    const struct latent_keys *k = t->keys;
    t->base = k->chosen[*at] / PART * PART;
    for (; *at < k->n_chosen && k->chosen[*at] - t->base < PART; ++*at)
        add_key(t, k->chosen[*at]);
    check(t->set.n > 0 && t->lane[t->set.n - 1] < PART);
    t->common = 0;
    t->common_end = t->set.n;
    for (uint32_t r = 0; r < t->n_q; r++) {
        check(t->base + t->lane[0] >= first_of(t, r));
        check(t->base + t->lane[t->set.n - 1] < k->n[t->first_query + r]);
        t->from[r] = 0;
        t->to[r] = t->set.n;
    }
}

// The keys of the partition from *at on, and which of them each query sees.
static void take_range(struct tile *t, uint32_t *at) {
    uint32_t least = UINT32_MAX, most = 0;
    t->base = *at;
    for (uint32_t r = 0; r < t->n_q; r++) {
        uint32_t first = first_of(t, r), n = t->keys->n[t->first_query + r];
        t->from[r] = first > t->base ? first : t->base;
        t->to[r] = n < t->base + PART ? n : t->base + PART;
        if (t->from[r] >= t->to[r]) t->from[r] = t->to[r] = t->base; // none
        if (t->from[r] < t->to[r] && t->from[r] < least) least = t->from[r];
        if (t->from[r] < t->to[r] && t->to[r] > most) most = t->to[r];
    }
    t->common = 0;
    t->common_end = PART;
    for (uint32_t r = 0; r < t->n_q; r++) {
        bool none = t->from[r] == t->to[r];
        t->from[r] = none ? 0 : t->from[r] - least;
        t->to[r] = none ? 0 : t->to[r] - least;
        if (t->from[r] > t->common) t->common = t->from[r];
        if (t->to[r] < t->common_end) t->common_end = t->to[r];
    }
    for (uint32_t key = least; key < most; key++)
        add_key(t, key);
    *at += PART;
}

// --- scores

// All queries against the keys that stand in n_panels panels, the first of them number key.
static void score_panels(const struct tile *t, uint32_t key, uint32_t n_panels) {
    const struct latent_job *job = t->job;
    const unsigned char *panels[LATENT_PANELS];
    const struct attend_keys k = {panels, job->key_dim, DTYPE_F32};
    for (uint32_t p = 0; p < n_panels; p++)
        panels[p] = (const unsigned char *)(t->panels + (size_t)p * job->key_dim * BLOCK);
    for (uint32_t row = 0, rows; row < t->n_q; row += rows) {
        rows = tile_rows(t->n_q - row);
        const struct attend_queries q = {t->q + row * job->q_stride, job->q_stride, rows,
                                         t->scores + row * PART + key};
        attend_scores(&q, &k, job->scale, (const uint32_t[]){0, n_panels * BLOCK});
    }
}

static void score(const struct tile *t) {
    for (uint32_t key = 0; key < t->set.n; key += LATENT_PANELS * BLOCK) {
        uint32_t n_panels = 0;
        for (; n_panels < LATENT_PANELS && key + n_panels * BLOCK < t->set.n; n_panels++)
            fill_panel(&t->set, t->panels + (size_t)n_panels * t->job->key_dim * BLOCK,
                       key + n_panels * BLOCK);
        score_panels(t, key, n_panels);
    }
}

// --- weights: scores become exp(score - max)

static void weigh(struct tile *t, uint32_t row) {
    float *s = t->scores + row * PART, at[PART];
    uint32_t from = t->from[row], to = t->to[row], begin = t->lane[from] / BLOCK * BLOCK,
             end = t->lane[to - 1] / BLOCK * BLOCK + BLOCK;
    for (uint32_t j = begin; j < end; j++)
        at[j] = -INFINITY;
    for (uint32_t i = from; i < to; i++)
        at[t->lane[i]] = s[i];
    attend_softmax(&t->sums[row], at + begin, end - begin);
    for (uint32_t i = from; i < to; i++)
        s[i] = at[t->lane[i]];
    // Of int8 the weights take the values' scales, and the values are the codes.
    if (t->job->kv_dtype != DTYPE_I8) return;
    for (uint32_t i = from; i < to; i++)
        s[i] = s[i] * t->set.scales[i][0];
}

// --- values

static void add_values(const struct tile *t, uint32_t row, uint32_t rows, uint32_t key,
                       uint32_t end) {
    const struct attend_values v = {t->set.rows, 0, t->job->value_dim, t->job->kv_dtype};
    attend_add_values(t->sums + row, rows, t->scores + row * PART, &v,
                      (const uint32_t[2]){key, end});
}

// --- a partition, and all of them

static void attend_partition(struct tile *t) {
    memset(t->sums[0].acc, 0, t->n_q * attend_padded(t->job->value_dim) * sizeof(float));
    score(t);
    bool shared = t->common < t->common_end;
    for (uint32_t r = 0; r < t->n_q; r++) {
        if (t->from[r] == t->to[r]) continue;
        weigh(t, r);
        add_values(t, r, 1, t->from[r], shared ? t->common : t->to[r]);
    }
    for (uint32_t r = 0, rows; r < t->n_q; r += rows) {
        rows = tile_rows(t->n_q - r);
        add_values(t, r, rows, t->common, t->common_end);
    }
    for (uint32_t r = 0; r < t->n_q; r++) {
        if (t->from[r] == t->to[r]) continue;
        if (shared) add_values(t, r, 1, t->common_end, t->to[r]);
        attend_merge(&t->sums[r], t->job->value_dim);
    }
}

static void write_output(const struct tile *t) {
    const struct latent_job *job = t->job;
    for (uint32_t r = 0; r < t->n_q; r++) {
        uint32_t query = t->first_query + r;
        check(t->sums[r].started);
        attend_write(&t->sums[r], job->out + query * job->out_stride, job->value_dim,
                     job->sinks != NULL ? &job->sinks[query] : NULL);
    }
}

// The partitions of one kind: from that of the first key that some query sees.
static void attend_kind(struct tile *t) {
    const struct latent_keys *k = t->keys;
    uint32_t at = 0, end = k->n_chosen;
    if (k->chosen == NULL) {
        at = UINT32_MAX;
        end = 0;
        for (uint32_t r = 0; r < t->n_q; r++) {
            if (first_of(t, r) < at) at = first_of(t, r);
            if (k->n[t->first_query + r] > end) end = k->n[t->first_query + r];
        }
        at = at / PART * PART;
    }
    while (at < end) {
        t->set.n = 0;
        if (k->chosen != NULL)
            take_chosen(t, &at);
        else
            take_range(t, &at);
        if (t->set.n > 0) attend_partition(t);
    }
}

void KERNEL_SYMBOL(attend_latent)(const struct latent_job *job) {
    check(dtype_is_kv(job->kv_dtype) && job->value_dim <= job->key_dim);
    size_t padded = attend_padded(job->value_dim);
    for (uint32_t query = 0, n; query < job->n_q; query += n) {
        n = job->n_q - query < LATENT_TILE_MAX ? job->n_q - query : LATENT_TILE_MAX;
        struct tile t = {
            .job = job,
            .q = job->q + query * job->q_stride,
            .first_query = query,
            .n_q = n,
            .set = {.dim = job->key_dim, .value_dim = job->value_dim, .dtype = job->kv_dtype}};
        t.panels = job->scratch;
        t.scores = t.panels + (size_t)LATENT_PANELS * BLOCK * job->key_dim;
        for (uint32_t r = 0; r < n; r++) {
            t.sums[r].acc = t.scores + (size_t)n * PART + r * padded;
            t.sums[r].merged = t.sums[r].acc + n * padded;
        }
        for (uint32_t kind = 0; kind < job->n_kinds; kind++) {
            t.keys = &job->kinds[kind];
            attend_kind(&t);
        }
        write_output(&t);
    }
}
