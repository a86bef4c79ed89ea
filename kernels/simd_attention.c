// simd_attention.c: attention of a tile of queries over one partition of keys at a time.
//
// A partition's keys and values stay in the second cache level while the tile's queries pass over
// them, a register tile at a time. Scores have keys in lanes, outputs have dimensions in lanes.
// Blocks that all queries of a tile see whole are loaded once for the tile; the others (the ends of
// ranges) are taken query by query, and keys outside of a query's range are not loaded for it.
#include <math.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "kernels/simd_elementary.h"
#include "kernels/simd_tables.h"
#include "kernels/simd_tile.h"

#define PART ATTN_PARTITION_TOKENS
#define BLOCK KV_BLOCK_TOKENS

static_assert(BLOCK == VEC_LANES, "a block of keys fills the lanes");
static_assert(TILE_ROWS <= ATTEND_TILE_MAX, "scratch is sized for a tile");

// Queries of one tile within the partition that starts at key base. Keys [common, common_end) are
// whole blocks that all queries see.
struct tile {
    const struct attend_job *job;
    const float *q;
    const float *factors; // of this tile's queries, or NULL
    uint32_t n_q, base;
    uint32_t begin[ATTEND_TILE_MAX],
        end[ATTEND_TILE_MAX]; // of this partition's keys; begin >= end: none
    uint32_t common, common_end;
    float *scores; // [n_q][PART]
    float *acc;    // [n_q][padded], of this partition
    float *merged; // [n_q][padded], of all partitions so far
    size_t padded;
    float max[ATTEND_TILE_MAX], sum[ATTEND_TILE_MAX];        // of this partition
    float top[ATTEND_TILE_MAX], merged_sum[ATTEND_TILE_MAX]; // of all so far
    bool started[ATTEND_TILE_MAX];
};

static const unsigned char *page_at(const struct attend_job *job, const void *base, uint32_t key) {
    return (const unsigned char *)base + job->block_table[key / BLOCK] * job->block_stride;
}

// The scales of an int8 page's keys (values) from this one on, which stand behind the codes.
static const unsigned char *key_scales(const struct attend_job *job, uint32_t key) {
    return page_at(job, job->k_base, key) + (size_t)job->head_dim * BLOCK +
           key % BLOCK * sizeof(float);
}
static const unsigned char *value_scales(const struct attend_job *job, uint32_t key) {
    return page_at(job, job->v_base, key) + (size_t)job->value_dim * BLOCK +
           key % BLOCK * sizeof(float);
}

// --- scores

struct score_tile {
    struct tile_input in;
    float *out; // row stride PART
    uint32_t head_dim;
    float scale;
};

INLINE void score_tile(const struct score_tile *t, int rows, int n_blocks, enum dtype dtype) {
    vec acc[TILE_ROWS * 4];
    tile_sum(acc, &t->in, rows, n_blocks, dtype, 0, t->head_dim);
    for (int b = 0; b < n_blocks; b++) {
        vec scales = vec_set(1.0f);
        if (dtype == DTYPE_I8) scales = vec_load(t->in.panels[b] + (size_t)t->head_dim * BLOCK);
        for (int r = 0; r < rows; r++) {
            vec s = acc[r * n_blocks + b];
            if (dtype == DTYPE_I8) s = vec_mul(s, scales);
            vec_store(t->out + r * PART + b * BLOCK, vec_mul(s, vec_set(t->scale)));
        }
    }
}

#define DEFINE_SCORE(rows, n, kind, dtype)                                                         \
    static void score_##dtype##_##rows##_##kind(const struct score_tile *t) {                      \
        score_tile(t, rows, n, DTYPE_##dtype);                                                     \
    }
#define DEFINE_SCORES(rows, dtype) FOR_TILES_OF_ROWS(DEFINE_SCORE, rows, dtype)
FOR_TILE_ROWS(DEFINE_SCORES, F32)
FOR_TILE_ROWS(DEFINE_SCORES, BF16)
FOR_TILE_ROWS(DEFINE_SCORES, E4M3)
FOR_TILE_ROWS(DEFINE_SCORES, I8)

#define NAME_SCORES(rows, dtype) {score_##dtype##_##rows##_one, score_##dtype##_##rows##_full},
static void (*const score_tiles[DTYPE_KV_COUNT][TILE_ROWS][2])(const struct score_tile *) = {
    [DTYPE_F32] = {FOR_TILE_ROWS(NAME_SCORES, F32)},
    [DTYPE_BF16] = {FOR_TILE_ROWS(NAME_SCORES, BF16)},
    [DTYPE_E4M3] = {FOR_TILE_ROWS(NAME_SCORES, E4M3)},
    [DTYPE_I8] = {FOR_TILE_ROWS(NAME_SCORES, I8)},
};

// Whole blocks [key, key_end) for rows queries from row on.
static void score_blocks(const struct tile *t, uint32_t row, uint32_t rows, uint32_t key,
                         uint32_t key_end) {
    const struct attend_job *job = t->job;
    struct score_tile s = {.head_dim = job->head_dim, .scale = job->scale};
    s.in.x = t->q + row * job->q_stride;
    s.in.ldx = job->q_stride;
    while (key < key_end) {
        bool full = (key_end - key) / BLOCK >= (uint32_t)TILE_PANELS(rows);
        uint32_t n_blocks = full ? TILE_PANELS(rows) : 1;
        s.out = t->scores + row * PART + (key - t->base);
        for (uint32_t b = 0; b < n_blocks; b++)
            s.in.panels[b] = page_at(job, job->k_base, key + b * BLOCK);
        score_tiles[job->kv_dtype][rows - 1][full](&s);
        key += n_blocks * BLOCK;
    }
}

// n keys of one block from key on, for one query: they are loaded into the first lanes, so no other
// is touched.
INLINE void score_some(const struct tile *t, uint32_t row, uint32_t key, uint32_t n,
                       enum dtype dtype) {
    const struct attend_job *job = t->job;
    const float *q = t->q + row * job->q_stride;
    const unsigned char *page = page_at(job, job->k_base, key);
    vec s = vec_zero();
    for (size_t d = 0; d < job->head_dim; d++)
        s = vec_fma(element_load_n(page, dtype, d * BLOCK + key % BLOCK, n), vec_set(q[d]), s);
    if (dtype == DTYPE_I8) s = vec_mul(s, vec_load_n(key_scales(job, key), n));
    vec_store_n(t->scores + row * PART + (key - t->base), vec_mul(s, vec_set(job->scale)), n);
}

static void score_part(const struct tile *t, uint32_t row, uint32_t key, uint32_t n) {
    switch (t->job->kv_dtype) {
    case DTYPE_F32: score_some(t, row, key, n, DTYPE_F32); break;
    case DTYPE_BF16: score_some(t, row, key, n, DTYPE_BF16); break;
    case DTYPE_E4M3: score_some(t, row, key, n, DTYPE_E4M3); break;
    default: score_some(t, row, key, n, DTYPE_I8);
    }
}

// Any keys [key, end) for one query: a part of a block, whole blocks, a part of a block.
static void score_range(const struct tile *t, uint32_t row, uint32_t key, uint32_t end) {
    while (key < end) {
        uint32_t n = BLOCK - key % BLOCK;
        if (n > end - key) n = end - key;
        if (n == BLOCK)
            score_blocks(t, row, 1, key, key + n);
        else
            score_part(t, row, key, n);
        key += n;
    }
}

// --- weights: scores become exp(score - max); lanes of keys that do not exist become +0

// Of int8 pages the weights take the values' scales, and the values are the codes.
static void weigh_values(const struct tile *t, uint32_t row) {
    const struct attend_job *job = t->job;
    for (uint32_t key = t->begin[row]; key < t->end[row];) {
        float *p = t->scores + row * PART + (key - t->base);
        uint32_t n = BLOCK - key % BLOCK;
        if (n > t->end[row] - key) n = t->end[row] - key;
        vec scales = vec_load_n(value_scales(job, key), n);
        vec_store_n(p, vec_mul(vec_load_n(p, n), scales), n);
        key += n;
    }
}

// What some models do to scores, of the keys that exist.
static void shape_scores(const struct tile *t, uint32_t row) {
    vec cap = vec_set(t->job->softcap), factor = vec_set(t->factors != NULL ? t->factors[row] : 1);
    for (uint32_t key = t->begin[row], n; key < t->end[row]; key += n) {
        float *s = t->scores + row * PART + (key - t->base);
        n = t->end[row] - key < BLOCK ? t->end[row] - key : BLOCK;
        vec x = vec_load_n(s, n);
        if (t->job->softcap != 0) x = vec_softcap(x, cap);
        vec_store_n(s, vec_mul(x, factor), n);
    }
}

static void weigh(struct tile *t, uint32_t row) {
    float *s = t->scores + row * PART;
    if (t->job->softcap != 0 || t->factors != NULL) shape_scores(t, row);
    uint32_t begin = t->begin[row] - t->base, end = t->end[row] - t->base;
    uint32_t from = begin / BLOCK * BLOCK, to = (end + BLOCK - 1) / BLOCK * BLOCK;
    for (uint32_t j = from; j < begin; j++)
        s[j] = -INFINITY;
    for (uint32_t j = end; j < to; j++)
        s[j] = -INFINITY;
    vec top = vec_set(-INFINITY), sum = vec_zero();
    for (uint32_t j = from; j < to; j += BLOCK)
        top = vec_max(top, vec_load(s + j));
    t->max[row] = vec_tree_max(top);
    for (uint32_t j = from; j < to; j += BLOCK) {
        vec p = vec_exp(vec_sub(vec_load(s + j), vec_set(t->max[row])));
        sum = vec_add(sum, p);
        vec_store(s + j, p);
    }
    t->sum[row] = vec_tree_sum(sum);
    if (t->job->kv_dtype == DTYPE_I8) weigh_values(t, row);
}

// --- values

// Keys [key, end) times weights, added to the dimensions from dim on.
struct value_tile {
    const struct attend_job *job;
    const float *p; // row stride PART, of key base
    float *acc;     // row stride padded
    size_t padded;
    uint32_t base, key, end, dim;
};

INLINE void value_tile(const struct value_tile *t, int rows, int n_vecs, enum dtype dtype,
                       uint32_t n_lanes) {
    const struct attend_job *job = t->job;
    vec acc[TILE_ROWS * 4];
    UNROLL
    for (int i = 0; i < rows * n_vecs; i++)
        acc[i] = vec_load(t->acc + (size_t)(i / n_vecs) * t->padded + i % n_vecs * VEC_LANES);
    for (uint32_t key = t->key; key < t->end;) {
        const unsigned char *page = page_at(job, job->v_base, key);
        uint32_t stop = key / BLOCK * BLOCK + BLOCK;
        if (stop > t->end) stop = t->end;
        for (; key < stop; key++) {
            size_t index = (size_t)(key % BLOCK) * job->value_dim + t->dim;
            const float *p = t->p + (key - t->base);
            vec v[4];
            UNROLL
            for (int i = 0; i < n_vecs; i++)
                v[i] = n_lanes == VEC_LANES
                           ? element_load(page, dtype, index + (size_t)i * VEC_LANES)
                           : element_load_n(page, dtype, index, n_lanes);
            UNROLL
            for (int i = 0; i < rows * n_vecs; i++)
                acc[i] = vec_fma(vec_set(p[i / n_vecs * PART]), v[i % n_vecs], acc[i]);
        }
    }
    UNROLL
    for (int i = 0; i < rows * n_vecs; i++)
        vec_store(t->acc + (size_t)(i / n_vecs) * t->padded + i % n_vecs * VEC_LANES, acc[i]);
}

#define DEFINE_VALUE(rows, n, kind, dtype)                                                         \
    static void value_##dtype##_##rows##_##kind(const struct value_tile *t) {                      \
        value_tile(t, rows, n, DTYPE_##dtype, VEC_LANES);                                          \
    }
#define DEFINE_VALUES(rows, dtype)                                                                 \
    FOR_TILES_OF_ROWS(DEFINE_VALUE, rows, dtype)                                                   \
    static void value_##dtype##_##rows##_tail(const struct value_tile *t) {                        \
        value_tile(t, rows, 1, DTYPE_##dtype, t->job->value_dim % VEC_LANES);                      \
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
    struct value_tile v = {
        .job = t->job, .padded = t->padded, .base = t->base, .key = key, .end = end};
    v.p = t->scores + row * PART;
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

// Cuts the queries' ranges to the partition from base on and finds the blocks that all of them see
// whole.
static void cut_ranges(struct tile *t, uint32_t first_query, uint32_t base) {
    uint32_t common = base, common_end = base + PART;
    t->base = base;
    for (uint32_t r = 0; r < t->n_q; r++) {
        uint32_t first = t->job->first_key[first_query + r], n = t->job->n_keys[first_query + r];
        t->begin[r] = first > base ? first : base;
        t->end[r] = n < base + PART ? n : base + PART;
        uint32_t whole = (t->begin[r] + BLOCK - 1) / BLOCK * BLOCK,
                 whole_end = t->end[r] / BLOCK * BLOCK;
        if (whole > common) common = whole;
        if (whole_end < common_end) common_end = whole_end;
    }
    bool some = common < common_end;
    t->common = some ? common : base + PART;
    t->common_end = some ? common_end : base + PART;
}

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
    for (uint32_t r = 0, rows; r < t->n_q; r += rows) {
        rows = tile_rows(t->n_q - r);
        score_blocks(t, r, rows, t->common, t->common_end);
    }
    for (uint32_t r = 0; r < t->n_q; r++) {
        if (t->begin[r] >= t->end[r]) continue;
        uint32_t before = t->end[r] < t->common ? t->end[r] : t->common;
        score_range(t, r, t->begin[r], before);
        score_range(t, r, t->common_end, t->end[r]);
        weigh(t, r);
        add_values(t, r, 1, t->begin[r], before);
    }
    for (uint32_t r = 0, rows; r < t->n_q; r += rows) {
        rows = tile_rows(t->n_q - r);
        add_values(t, r, rows, t->common, t->common_end);
    }
    for (uint32_t r = 0; r < t->n_q; r++) {
        if (t->begin[r] >= t->end[r]) continue;
        add_values(t, r, 1, t->common_end, t->end[r]);
        merge(t, r);
    }
}

// The sum with the sink's weight in it; *keep is what the values are worth then.
static float add_sink(const struct tile *t, uint32_t row, float sink, float *keep) {
    float top = t->top[row] > sink ? t->top[row] : sink;
    *keep = elementary_exp(t->top[row] - top);
    return t->merged_sum[row] * *keep + elementary_exp(sink - top);
}

static void write_output(const struct tile *t, uint32_t first_query) {
    const struct attend_job *job = t->job;
    for (uint32_t r = 0; r < t->n_q; r++) {
        float *out = job->out + (first_query + r) * job->out_stride;
        float l = t->merged_sum[r], keep = 1.0f;
        if (job->sinks != NULL) l = add_sink(t, r, job->sinks[first_query + r], &keep);
        for (uint32_t d = 0; d < job->value_dim; d += VEC_LANES) {
            vec acc = vec_mul(vec_load(t->merged + r * t->padded + d), vec_set(keep));
            vec o = vec_div(acc, vec_set(l));
            uint32_t left = job->value_dim - d;
            vec_store_n(out + d, o, left < VEC_LANES ? left : VEC_LANES);
        }
    }
}

static void attend_tile(const struct attend_job *job, uint32_t first_query, uint32_t n_q) {
    struct tile t = {.job = job, .q = job->q + first_query * job->q_stride, .n_q = n_q};
    if (job->factors != NULL) t.factors = job->factors + first_query;
    t.padded = ((size_t)job->value_dim + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    t.scores = job->scratch;
    t.acc = t.scores + n_q * PART;
    t.merged = t.acc + n_q * t.padded;
    uint32_t begin = UINT32_MAX, end = 0;
    for (uint32_t i = first_query; i < first_query + n_q; i++) {
        check(job->first_key[i] < job->n_keys[i]);
        if (job->first_key[i] < begin) begin = job->first_key[i];
        if (job->n_keys[i] > end) end = job->n_keys[i];
    }
    for (uint32_t base = begin / PART * PART; base < end; base += PART) {
        cut_ranges(&t, first_query, base);
        attend_partition(&t);
    }
    write_output(&t, first_query);
}

void KERNEL_SYMBOL(attend)(const struct attend_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    for (uint32_t query = 0, n; query < job->n_q; query += n) {
        n = job->n_q - query < ATTEND_TILE_MAX ? job->n_q - query : ATTEND_TILE_MAX;
        attend_tile(job, query, n);
    }
}
