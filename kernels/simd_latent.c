// simd_latent.c: attention over latents: a tile of queries over one partition of keys at a time.
//
// A page holds one row a token, so that a key that was not chosen is never touched, and a token's
// latent is stored once. Scores want keys in lanes: the rows of a partition are turned into panels
// [key_dim][16] of float32, four blocks at a time, and every query of the tile passes over them.
// Values are read from the rows as they are. Keys are numbered as they come (chosen or not); only
// the lane sum of the weights goes by position.
#include <math.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "kernels/simd_elementary.h"
#include "kernels/simd_tables.h"
#include "kernels/simd_tile.h"

#define PART ATTN_PARTITION_TOKENS
#define BLOCK KV_BLOCK_TOKENS

static_assert(BLOCK == VEC_LANES, "a block of keys fills the lanes");
static_assert(TILE_ROWS <= LATENT_TILE_MAX, "scratch is sized for a tile");

// Queries of one tile within the partition that starts at key base.
struct tile {
    const struct latent_job *job;
    const float *q;
    uint32_t first_query, n_q, base;
    uint32_t n;      // keys of the partition that some query sees
    uint32_t common; // the first so many are seen by all
    uint32_t seen[LATENT_TILE_MAX];
    uint32_t lane[PART];             // of each key: its position behind base
    const unsigned char *rows[PART]; // where it stands
    float scales[PART][2];           // of int8
    float *panels;                   // [LATENT_PANELS][key_dim][16]
    float *scores;                   // [n_q][PART], by number of the key
    float *acc;                      // [n_q][padded], of this partition
    float *merged;                   // [n_q][padded], of all partitions so far
    size_t padded;
    float max[LATENT_TILE_MAX], sum[LATENT_TILE_MAX];        // of this partition
    float top[LATENT_TILE_MAX], merged_sum[LATENT_TILE_MAX]; // of all so far
    bool started[LATENT_TILE_MAX];
};

// --- the keys

static void add_key(struct tile *t, uint32_t key) {
    const struct latent_job *job = t->job;
    const unsigned char *page = job->pages;
    page += job->block_table[key / BLOCK] * job->block_stride;
    t->lane[t->n] = key - t->base;
    t->rows[t->n] = page + (size_t)(key % BLOCK) * job->key_dim * dtype_bytes(job->kv_dtype);
    if (job->kv_dtype == DTYPE_I8)
        memcpy(t->scales[t->n],
               page + (size_t)BLOCK * job->key_dim + key % BLOCK * sizeof *t->scales,
               sizeof *t->scales);
    t->n++;
}

// The chosen keys of the partition from *at on, which moves behind them: all queries see them.
static void take_chosen(struct tile *t, uint32_t *at) {
    const struct latent_job *job = t->job;
    t->base = job->chosen[*at] / PART * PART;
    for (; *at < job->n_chosen && job->chosen[*at] - t->base < PART; ++*at)
        add_key(t, job->chosen[*at]);
    check(t->n > 0 && t->lane[t->n - 1] < PART);
    t->common = t->n;
    for (uint32_t r = 0; r < t->n_q; r++) {
        check(t->base + t->lane[t->n - 1] < job->n_keys[t->first_query + r]);
        t->seen[r] = t->n;
    }
}

// The keys of the partition from *at on, and how many of them each query sees.
static void take_range(struct tile *t, uint32_t *at) {
    uint32_t most = 0;
    t->base = *at;
    t->common = PART;
    for (uint32_t r = 0; r < t->n_q; r++) {
        uint32_t n = t->job->n_keys[t->first_query + r];
        n = n > t->base ? n - t->base : 0;
        t->seen[r] = n < PART ? n : PART;
        if (t->seen[r] > most) most = t->seen[r];
        if (t->seen[r] < t->common) t->common = t->seen[r];
    }
    for (uint32_t j = 0; j < most; j++)
        add_key(t, t->base + j);
    *at += PART;
}

// --- rows to panels

// Eight rows of eight: element r of column c goes to row c.
INLINE void transpose_8(float *out, const __m256 *in) {
    __m256 a[8], b[8];
    UNROLL
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_ps(in[2 * i], in[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(in[2 * i], in[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + (size_t)i * BLOCK, _mm256_permute2f128_ps(b[i], b[4 + i], 0x20));
        _mm256_storeu_ps(out + (size_t)(4 + i) * BLOCK,
                         _mm256_permute2f128_ps(b[i], b[4 + i], 0x31));
    }
}

// Sixteen dimensions of eight keys, into half of the panel's lanes.
INLINE void turn_half(float *panel, const vec *rows) {
    __m256 half[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        half[i] = vec_low(rows[i]);
    transpose_8(panel, half);
    UNROLL
    for (int i = 0; i < 8; i++)
        half[i] = vec_high(rows[i]);
    transpose_8(panel + (size_t)8 * BLOCK, half);
}

// n dimensions from d on of one key.
INLINE vec row_part(const struct tile *t, uint32_t key, uint32_t d, uint32_t n, enum dtype dtype) {
    const unsigned char *row = t->rows[key];
    vec x = n == VEC_LANES ? element_load(row, dtype, d) : element_load_n(row, dtype, d, n);
    return dtype == DTYPE_I8 ? vec_mul(x, vec_set(t->scales[key][d >= t->job->value_dim])) : x;
}

// n dimensions from d on of up to sixteen keys from number key on: out becomes [16][16]. Lanes
// behind the last key repeat it, and nobody looks at them.
INLINE void turn_square(const struct tile *t, float *out, uint32_t key, const uint32_t d_n[2],
                        enum dtype dtype) {
    for (uint32_t from = 0; from < BLOCK; from += 8) {
        vec rows[8];
        UNROLL
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t j = key + from + i < t->n ? key + from + i : t->n - 1;
            rows[i] = row_part(t, j, d_n[0], d_n[1], dtype);
        }
        turn_half(out + from, rows);
    }
}

// Dimensions [d, end) of the keys, which have one scale if any.
INLINE void turn_rows(const struct tile *t, float *panel, uint32_t key, uint32_t d, uint32_t end,
                      enum dtype dtype) {
    for (; d + VEC_LANES <= end; d += VEC_LANES)
        turn_square(t, panel + (size_t)d * BLOCK, key, (uint32_t[]){d, VEC_LANES}, dtype);
    if (d == end) return;
    float tail[VEC_LANES * BLOCK];
    turn_square(t, tail, key, (uint32_t[]){d, end - d}, dtype);
    memcpy(panel + (size_t)d * BLOCK, tail, (end - d) * BLOCK * sizeof *tail);
}

INLINE void fill_panel_as(const struct tile *t, float *panel, uint32_t key, enum dtype dtype) {
    if (dtype == DTYPE_I8) {
        turn_rows(t, panel, key, 0, t->job->value_dim, dtype);
        turn_rows(t, panel, key, t->job->value_dim, t->job->key_dim, dtype);
    } else {
        turn_rows(t, panel, key, 0, t->job->key_dim, dtype);
    }
}

static void fill_panel(const struct tile *t, float *panel, uint32_t key) {
    switch (t->job->kv_dtype) {
    case DTYPE_F32: fill_panel_as(t, panel, key, DTYPE_F32); break;
    case DTYPE_BF16: fill_panel_as(t, panel, key, DTYPE_BF16); break;
    case DTYPE_E4M3: fill_panel_as(t, panel, key, DTYPE_E4M3); break;
    default: fill_panel_as(t, panel, key, DTYPE_I8);
    }
}

// --- scores

struct score_tile {
    struct tile_input in;
    float *out; // row stride PART
    uint32_t key_dim;
    float scale;
};

INLINE void score_tile(const struct score_tile *t, int rows, int n_blocks) {
    vec acc[TILE_ROWS * 4];
    tile_sum(acc, &t->in, rows, n_blocks, DTYPE_F32, 0, t->key_dim);
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < n_blocks; b++)
            vec_store(t->out + r * PART + b * BLOCK,
                      vec_mul(acc[r * n_blocks + b], vec_set(t->scale)));
}

#define DEFINE_SCORE(rows, n, kind, dtype)                                                         \
    static void score_##rows##_##kind(const struct score_tile *t) {                                \
        score_tile(t, rows, n);                                                                    \
    }
#define DEFINE_SCORES(rows, dtype) FOR_TILES_OF_ROWS(DEFINE_SCORE, rows, dtype)
FOR_TILE_ROWS(DEFINE_SCORES, F32)

#define NAME_SCORES(rows, dtype) {score_##rows##_one, score_##rows##_full},
static void (*const score_tiles[TILE_ROWS][2])(const struct score_tile *) = {
    FOR_TILE_ROWS(NAME_SCORES, F32)};

// All queries against the keys that stand in n_panels panels, the first of them number key.
static void score_panels(const struct tile *t, uint32_t key, uint32_t n_panels) {
    const struct latent_job *job = t->job;
    struct score_tile s = {.key_dim = job->key_dim, .scale = job->scale};
    s.in.ldx = job->q_stride;
    for (uint32_t row = 0, rows; row < t->n_q; row += rows) {
        rows = tile_rows(t->n_q - row);
        s.in.x = t->q + row * job->q_stride;
        for (uint32_t p = 0, n; p < n_panels; p += n) {
            bool full = n_panels - p >= (uint32_t)TILE_PANELS(rows);
            n = full ? TILE_PANELS(rows) : 1;
            for (uint32_t i = 0; i < n; i++)
                s.in.panels[i] =
                    (const unsigned char *)(t->panels + (size_t)(p + i) * job->key_dim * BLOCK);
            s.out = t->scores + row * PART + key + p * BLOCK;
            score_tiles[rows - 1][full](&s);
        }
    }
}

static void score(const struct tile *t) {
    for (uint32_t key = 0; key < t->n; key += LATENT_PANELS * BLOCK) {
        uint32_t n_panels = 0;
        for (; n_panels < LATENT_PANELS && key + n_panels * BLOCK < t->n; n_panels++)
            fill_panel(t, t->panels + (size_t)n_panels * t->job->key_dim * BLOCK,
                       key + n_panels * BLOCK);
        score_panels(t, key, n_panels);
    }
}

// --- weights: scores become exp(score - max)

static void weigh(struct tile *t, uint32_t row) {
    float *s = t->scores + row * PART, at[PART];
    uint32_t n = t->seen[row], end = t->lane[n - 1] / BLOCK * BLOCK + BLOCK;
    for (uint32_t j = t->lane[0] / BLOCK * BLOCK; j < end; j++)
        at[j] = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        at[t->lane[i]] = s[i];
    vec top = vec_set(-INFINITY), sum = vec_zero();
    for (uint32_t j = t->lane[0] / BLOCK * BLOCK; j < end; j += BLOCK)
        top = vec_max(top, vec_load(at + j));
    t->max[row] = vec_tree_max(top);
    for (uint32_t j = t->lane[0] / BLOCK * BLOCK; j < end; j += BLOCK) {
        vec p = vec_exp(vec_sub(vec_load(at + j), vec_set(t->max[row])));
        sum = vec_add(sum, p);
        vec_store(at + j, p);
    }
    t->sum[row] = vec_tree_sum(sum);
    for (uint32_t i = 0; i < n; i++)
        s[i] = at[t->lane[i]];
    // Of int8 the weights take the values' scales, and the values are the codes.
    if (t->job->kv_dtype != DTYPE_I8) return;
    for (uint32_t i = 0; i < n; i++)
        s[i] = s[i] * t->scales[i][0];
}

// --- values

// Keys [key, end) times weights, added to the dimensions from dim on.
struct value_tile {
    const struct tile *t;
    const float *p; // row stride PART
    float *acc;     // row stride padded
    uint32_t key, end, dim;
};

INLINE void value_tile(const struct value_tile *v, int rows, int n_vecs, enum dtype dtype,
                       uint32_t n_lanes) {
    vec acc[TILE_ROWS * 4];
    size_t padded = v->t->padded;
    UNROLL
    for (int i = 0; i < rows * n_vecs; i++)
        acc[i] = vec_load(v->acc + (size_t)(i / n_vecs) * padded + i % n_vecs * VEC_LANES);
    for (uint32_t key = v->key; key < v->end; key++) {
        const unsigned char *row = v->t->rows[key];
        const float *p = v->p + key;
        vec x[4];
        UNROLL
        for (int i = 0; i < n_vecs; i++)
            x[i] = n_lanes == VEC_LANES ? element_load(row, dtype, v->dim + (size_t)i * VEC_LANES)
                                        : element_load_n(row, dtype, v->dim, n_lanes);
        UNROLL
        for (int i = 0; i < rows * n_vecs; i++)
            acc[i] = vec_fma(vec_set(p[i / n_vecs * PART]), x[i % n_vecs], acc[i]);
    }
    UNROLL
    for (int i = 0; i < rows * n_vecs; i++)
        vec_store(v->acc + (size_t)(i / n_vecs) * padded + i % n_vecs * VEC_LANES, acc[i]);
}

#define DEFINE_VALUE(rows, n, kind, dtype)                                                         \
    static void value_##dtype##_##rows##_##kind(const struct value_tile *v) {                      \
        value_tile(v, rows, n, DTYPE_##dtype, VEC_LANES);                                          \
    }
#define DEFINE_VALUES(rows, dtype)                                                                 \
    FOR_TILES_OF_ROWS(DEFINE_VALUE, rows, dtype)                                                   \
    static void value_##dtype##_##rows##_tail(const struct value_tile *v) {                        \
        value_tile(v, rows, 1, DTYPE_##dtype, v->t->job->value_dim % VEC_LANES);                   \
    }
FOR_TILE_ROWS(DEFINE_VALUES, F32)
FOR_TILE_ROWS(DEFINE_VALUES, BF16)
FOR_TILE_ROWS(DEFINE_VALUES, E4M3)
FOR_TILE_ROWS(DEFINE_VALUES, I8)

enum value_kind { VALUE_ONE, VALUE_FULL, VALUE_TAIL, VALUE_KINDS };
#define NAME_VALUES(rows, dtype)                                                                   \
    {value_##dtype##_##rows##_one, value_##dtype##_##rows##_full, value_##dtype##_##rows##_tail},
static void (*const value_tiles[DTYPE_KV_COUNT][TILE_ROWS][VALUE_KINDS])(
    const struct value_tile *) = {
    [DTYPE_F32] = {FOR_TILE_ROWS(NAME_VALUES, F32)},
    [DTYPE_BF16] = {FOR_TILE_ROWS(NAME_VALUES, BF16)},
    [DTYPE_E4M3] = {FOR_TILE_ROWS(NAME_VALUES, E4M3)},
    [DTYPE_I8] = {FOR_TILE_ROWS(NAME_VALUES, I8)},
};

static void add_values(const struct tile *t, uint32_t row, uint32_t rows, uint32_t key,
                       uint32_t end) {
    if (key >= end) return;
    struct value_tile v = {.t = t, .p = t->scores + row * PART, .key = key, .end = end};
    while (v.dim < t->job->value_dim) {
        uint32_t left = t->job->value_dim - v.dim;
        enum value_kind kind = left < VEC_LANES ? VALUE_TAIL : VALUE_ONE;
        if (left >= (uint32_t)TILE_PANELS(rows) * VEC_LANES) kind = VALUE_FULL;
        v.acc = t->acc + row * t->padded + v.dim;
        value_tiles[t->job->kv_dtype][rows - 1][kind](&v);
        v.dim += kind == VALUE_FULL ? (uint32_t)TILE_PANELS(rows) * VEC_LANES : VEC_LANES;
    }
}

// --- a partition, and all of them

static void merge(struct tile *t, uint32_t row) {
    float *merged = t->merged + row * t->padded;
    const float *acc = t->acc + row * t->padded;
    if (!t->started[row]) {
        memcpy(merged, acc, t->padded * sizeof *merged);
        t->top[row] = t->max[row];
        t->merged_sum[row] = t->sum[row];
        t->started[row] = true;
        return;
    }
    float top = t->top[row] > t->max[row] ? t->top[row] : t->max[row];
    float c1 = elementary_exp(t->top[row] - top), c2 = elementary_exp(t->max[row] - top);
    t->merged_sum[row] = t->merged_sum[row] * c1 + t->sum[row] * c2;
    t->top[row] = top;
    for (size_t d = 0; d < t->padded; d += VEC_LANES) {
        vec a = vec_mul(vec_load(merged + d), vec_set(c1)),
            b = vec_mul(vec_load(acc + d), vec_set(c2));
        vec_store(merged + d, vec_add(a, b));
    }
}

static void attend_partition(struct tile *t) {
    memset(t->acc, 0, t->n_q * t->padded * sizeof *t->acc);
    score(t);
    for (uint32_t r = 0; r < t->n_q; r++)
        if (t->seen[r] > 0) weigh(t, r);
    for (uint32_t r = 0, rows; r < t->n_q; r += rows) {
        rows = tile_rows(t->n_q - r);
        add_values(t, r, rows, 0, t->common);
    }
    for (uint32_t r = 0; r < t->n_q; r++) {
        if (t->seen[r] == 0) continue;
        add_values(t, r, 1, t->common, t->seen[r]);
        merge(t, r);
    }
}

static void write_output(const struct tile *t) {
    const struct latent_job *job = t->job;
    for (uint32_t r = 0; r < t->n_q; r++) {
        float *out = job->out + (t->first_query + r) * job->out_stride;
        for (uint32_t d = 0; d < job->value_dim; d += VEC_LANES) {
            uint32_t left = job->value_dim - d;
            vec o = vec_div(vec_load(t->merged + r * t->padded + d), vec_set(t->merged_sum[r]));
            vec_store_n(out + d, o, left < VEC_LANES ? left : VEC_LANES);
        }
    }
}

static void attend_tile(struct tile *t) {
    const struct latent_job *job = t->job;
    uint32_t end = job->n_chosen;
    if (job->chosen == NULL) {
        end = 0;
        for (uint32_t r = 0; r < t->n_q; r++) {
            check(job->n_keys[t->first_query + r] > 0);
            if (job->n_keys[t->first_query + r] > end) end = job->n_keys[t->first_query + r];
        }
    }
    check(end > 0);
    for (uint32_t at = 0; at < end;) {
        t->n = 0;
        if (job->chosen != NULL)
            take_chosen(t, &at);
        else
            take_range(t, &at);
        attend_partition(t);
    }
    write_output(t);
}

void KERNEL_SYMBOL(attend_latent)(const struct latent_job *job) {
    check(dtype_is_kv(job->kv_dtype) && job->value_dim <= job->key_dim);
    for (uint32_t query = 0, n; query < job->n_q; query += n) {
        n = job->n_q - query < LATENT_TILE_MAX ? job->n_q - query : LATENT_TILE_MAX;
        struct tile t = {
            .job = job, .q = job->q + query * job->q_stride, .first_query = query, .n_q = n};
        t.padded = ((size_t)job->value_dim + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
        t.panels = job->scratch;
        t.scores = t.panels + (size_t)LATENT_PANELS * BLOCK * job->key_dim;
        t.acc = t.scores + (size_t)n * PART;
        t.merged = t.acc + n * t.padded;
        attend_tile(&t);
    }
}
