// simd_attention.c: attention of many queries over one partition of keys at a time.
//
// A partition's keys and values stay in the second cache level while all queries of the job pass
// over them, a register tile at a time. Scores have keys in lanes, outputs have dimensions in
// lanes. Blocks that all queries of a tile see whole, in the same pages, are loaded once for the
// tile. The rest (the ends of ranges, and pages that a sequence has for itself) is taken by mates:
// neighbours with one range and one table, as a row's heads are. Keys outside of a query's range
// are not loaded for it.
#include <math.h>

#include "common/base/check.h"
#include "kernels/simd_attend.h"
#include "kernels/simd_elementary.h"
#include "kernels/simd_tables.h"
#include "kernels/simd_tile.h"

static_assert(TILE_ROWS <= ATTEND_TILE_MAX, "scratch is sized for a tile");

// Queries of one register tile within the partition that starts at key base. Keys [common,
// common_end) are whole blocks that all of them see.
struct tile {
    const struct attend_job *job;
    uint32_t first, n_q; // of the job's queries
    uint32_t base;
    uint32_t begin[TILE_ROWS], end[TILE_ROWS]; // of this partition's keys; begin >= end: none
    uint32_t common, common_end;
    struct attend_sums *sums; // [n_q]
    float *scores;            // [n_q][PART]
    // Pages of the partition's blocks: those of the table that was asked for last, where that is
    // another one than the tile's.
    const unsigned char *keys[PART / BLOCK], *values[PART / BLOCK];
};

static const uint32_t *table_of(const struct attend_job *job, uint32_t query) {
    return job->tables != NULL ? job->tables[query] : job->block_table;
}

// Finds the pages of keys [key, end) of a query.
static void find_pages(struct tile *t, uint32_t row, uint32_t key, uint32_t end) {
    const struct attend_job *job = t->job;
    const uint32_t *table = table_of(job, t->first + row);
    if (key >= end) return;
    for (uint32_t b = key / BLOCK; b <= (end - 1) / BLOCK; b++) {
        size_t at = table[b] * job->block_stride;
        t->keys[b - t->base / BLOCK] = (const unsigned char *)job->k_base + at;
        t->values[b - t->base / BLOCK] = (const unsigned char *)job->v_base + at;
    }
}

static const unsigned char *key_page(const struct tile *t, uint32_t key) {
    return t->keys[(key - t->base) / BLOCK];
}

// --- scores

struct score_tile {
    struct tile_input in;
    const unsigned char *scales[4]; // of int8 keys, which stand behind the codes
    float *out;                     // row stride PART
    uint32_t head_dim, n_lanes;
    float scale;
};

INLINE void score_end(const struct score_tile *t, const vec *acc, int rows, int n_blocks,
                      enum dtype dtype) {
    for (int b = 0; b < n_blocks; b++) {
        vec scales = vec_set(1.0f);
        if (dtype == DTYPE_I8) scales = vec_load_n(t->scales[b], t->n_lanes);
        for (int r = 0; r < rows; r++) {
            vec s = acc[r * n_blocks + b];
            if (dtype == DTYPE_I8) s = vec_mul(s, scales);
            s = vec_mul(s, vec_set(t->scale));
            vec_store_n(t->out + r * PART + b * BLOCK, s, t->n_lanes);
        }
    }
}

INLINE void score_tile(const struct score_tile *t, int rows, int n_blocks, enum dtype dtype) {
    vec acc[TILE_ROWS * 4];
    tile_sum(acc, &t->in, rows, n_blocks, dtype, 0, t->head_dim);
    score_end(t, acc, rows, n_blocks, dtype);
}

// Keys of one block, the first of which is where the panel begins: they are loaded into the first
// lanes, so no other is touched.
INLINE void score_part(const struct score_tile *t, int rows, enum dtype dtype) {
    vec acc[TILE_ROWS * 4];
    UNROLL
    for (int r = 0; r < rows; r++)
        acc[r] = vec_zero();
    for (size_t d = 0; d < t->head_dim; d++) {
        vec k = element_load_n(t->in.panels[0], dtype, d * BLOCK, t->n_lanes);
        UNROLL
        for (int r = 0; r < rows; r++)
            acc[r] = vec_fma(k, vec_set(t->in.x[(size_t)r * t->in.ldx + d]), acc[r]);
    }
    score_end(t, acc, rows, 1, dtype);
}

#define DEFINE_SCORE(rows, n, kind, dtype)                                                         \
    static void score_##dtype##_##rows##_##kind(const struct score_tile *t) {                      \
        score_tile(t, rows, n, DTYPE_##dtype);                                                     \
    }
#define DEFINE_SCORES(rows, dtype)                                                                 \
    FOR_TILES_OF_ROWS(DEFINE_SCORE, rows, dtype)                                                   \
    static void score_##dtype##_##rows##_part(const struct score_tile *t) {                        \
        score_part(t, rows, DTYPE_##dtype);                                                        \
    }
FOR_TILE_ROWS(DEFINE_SCORES, F32)
FOR_TILE_ROWS(DEFINE_SCORES, BF16)
FOR_TILE_ROWS(DEFINE_SCORES, E4M3)
FOR_TILE_ROWS(DEFINE_SCORES, I8)

enum score_kind { SCORE_ONE, SCORE_FULL, SCORE_PART, SCORE_KINDS };
#define NAME_SCORES(rows, dtype)                                                                   \
    {score_##dtype##_##rows##_one, score_##dtype##_##rows##_full, score_##dtype##_##rows##_part},
static void (*const score_tiles[DTYPE_KV_COUNT][TILE_ROWS][SCORE_KINDS])(
    const struct score_tile *) = {
    [DTYPE_F32] = {FOR_TILE_ROWS(NAME_SCORES, F32)},
    [DTYPE_BF16] = {FOR_TILE_ROWS(NAME_SCORES, BF16)},
    [DTYPE_E4M3] = {FOR_TILE_ROWS(NAME_SCORES, E4M3)},
    [DTYPE_I8] = {FOR_TILE_ROWS(NAME_SCORES, I8)},
};

// Any keys [key, end) for rows queries that see them all: a part of a block, whole blocks, a part
// of a block.
static void score_range(const struct tile *t, uint32_t row, uint32_t rows, uint32_t key,
                        uint32_t end) {
    const struct attend_job *job = t->job;
    struct score_tile s = {.head_dim = job->head_dim, .scale = job->scale};
    s.in.x = job->q + (t->first + row) * job->q_stride;
    s.in.ldx = job->q_stride;
    for (uint32_t n; key < end; key += n) {
        uint32_t lane = key % BLOCK, n_blocks = 1;
        enum score_kind kind = SCORE_ONE;
        n = end - key < BLOCK - lane ? end - key : BLOCK - lane;
        if (n < BLOCK) {
            kind = SCORE_PART;
        } else if ((end - key) / BLOCK >= (uint32_t)TILE_PANELS(rows)) {
            kind = SCORE_FULL;
            n_blocks = TILE_PANELS(rows);
        }
        s.n_lanes = n;
        s.out = t->scores + row * PART + (key - t->base);
        for (uint32_t b = 0; b < n_blocks; b++) {
            const unsigned char *page = key_page(t, key + b * BLOCK);
            s.in.panels[b] = page + lane * dtype_bytes(job->kv_dtype);
            s.scales[b] = page + (size_t)job->head_dim * BLOCK + lane * sizeof(float);
        }
        score_tiles[job->kv_dtype][rows - 1][kind](&s);
        n *= n_blocks;
    }
}

// --- weights: scores become exp(score - max); lanes of keys that do not exist become +0

// Of int8 pages the weights take the values' scales, and the values are the codes.
static void weigh_values(const struct tile *t, uint32_t row) {
    for (uint32_t key = t->begin[row], n; key < t->end[row]; key += n) {
        float *p = t->scores + row * PART + (key - t->base);
        const unsigned char *scales = t->values[(key - t->base) / BLOCK];
        scales += (size_t)t->job->value_dim * BLOCK + key % BLOCK * sizeof(float);
        n = BLOCK - key % BLOCK;
        if (n > t->end[row] - key) n = t->end[row] - key;
        vec_store_n(p, vec_mul(vec_load_n(p, n), vec_load_n(scales, n)), n);
    }
}

// What some models do to scores, of the keys that exist.
static void shape_scores(const struct tile *t, uint32_t row) {
    const float *factors = t->job->factors;
    vec cap = vec_set(t->job->softcap),
        factor = vec_set(factors != NULL ? factors[t->first + row] : 1);
    for (uint32_t key = t->begin[row], n; key < t->end[row]; key += n) {
        float *s = t->scores + row * PART + (key - t->base);
        n = t->end[row] - key < BLOCK ? t->end[row] - key : BLOCK;
        vec x = vec_load_n(s, n);
        if (t->job->softcap != 0) x = vec_softcap(x, cap);
        vec_store_n(s, vec_mul(x, factor), n);
    }
}

static void weigh(const struct tile *t, uint32_t row) {
    float *s = t->scores + row * PART;
    if (t->job->softcap != 0 || t->job->factors != NULL) shape_scores(t, row);
    uint32_t begin = t->begin[row] - t->base, end = t->end[row] - t->base;
    uint32_t from = begin / BLOCK * BLOCK, to = (end + BLOCK - 1) / BLOCK * BLOCK;
    for (uint32_t j = from; j < begin; j++)
        s[j] = -INFINITY;
    for (uint32_t j = end; j < to; j++)
        s[j] = -INFINITY;
    attend_softmax(&t->sums[row], s + from, to - from);
    if (t->job->kv_dtype == DTYPE_I8) weigh_values(t, row);
}

// --- values

static void add_values(const struct tile *t, uint32_t row, uint32_t rows, uint32_t key,
                       uint32_t end) {
    const struct attend_values v = {t->values, 4, t->job->value_dim, t->job->kv_dtype};
    static_assert(BLOCK == 1 << 4, "the shift above");
    if (key >= end) return;
    attend_add_values(t->sums + row, rows, t->scores + row * PART, &v,
                      (const uint32_t[2]){key - t->base, end - t->base});
}

// --- a tile in a partition

// Cuts the queries' ranges to the partition and finds the blocks that all of them see whole.
static void cut_ranges(struct tile *t) {
    const struct attend_job *job = t->job;
    uint32_t common = t->base, common_end = t->base + PART;
    for (uint32_t r = 0; r < t->n_q; r++) {
        uint32_t first = job->first_key[t->first + r], n = job->n_keys[t->first + r];
        t->begin[r] = first > t->base ? first : t->base;
        t->end[r] = n < t->base + PART ? n : t->base + PART;
        uint32_t whole = (t->begin[r] + BLOCK - 1) / BLOCK * BLOCK,
                 whole_end = t->end[r] / BLOCK * BLOCK;
        if (table_of(job, t->first + r) != table_of(job, t->first) &&
            whole_end > job->n_shared * BLOCK)
            whole_end = job->n_shared * BLOCK;
        if (whole > common) common = whole;
        if (whole_end < common_end) common_end = whole_end;
    }
    bool some = common < common_end;
    t->common = some ? common : t->base + PART;
    t->common_end = some ? common_end : t->base + PART;
}

// How many queries from row on have its range and its table.
static uint32_t mates(const struct tile *t, uint32_t row) {
    uint32_t n = 1;
    while (row + n < t->n_q && t->begin[row + n] == t->begin[row] &&
           t->end[row + n] == t->end[row] &&
           table_of(t->job, t->first + row + n) == table_of(t->job, t->first + row))
        n++;
    return n;
}

// What mates see for themselves, on either side of what is common.
static void score_mates(struct tile *t, uint32_t row, uint32_t rows) {
    uint32_t end = t->end[row], before = end < t->common ? end : t->common;
    find_pages(t, row, t->begin[row], before);
    find_pages(t, row, t->common_end, end);
    score_range(t, row, rows, t->begin[row], before);
    score_range(t, row, rows, t->common_end, end);
    for (uint32_t r = row; r < row + rows; r++)
        weigh(t, r);
    add_values(t, row, rows, t->begin[row], before);
}

static void end_mates(struct tile *t, uint32_t row, uint32_t rows) {
    find_pages(t, row, t->common_end, t->end[row]);
    add_values(t, row, rows, t->common_end, t->end[row]);
    for (uint32_t r = row; r < row + rows; r++)
        attend_merge(&t->sums[r], t->job->value_dim);
}

static void attend_partition(struct tile *t) {
    size_t padded = attend_padded(t->job->value_dim);
    memset(t->sums[0].acc, 0, t->n_q * padded * sizeof(float));
    cut_ranges(t);
    if (t->common < t->common_end) {
        find_pages(t, 0, t->common, t->common_end);
        score_range(t, 0, t->n_q, t->common, t->common_end);
    }
    for (uint32_t r = 0, rows; r < t->n_q; r += rows) {
        rows = mates(t, r);
        if (t->begin[r] < t->end[r]) score_mates(t, r, rows);
    }
    add_values(t, 0, t->n_q, t->common, t->common_end);
    for (uint32_t r = 0, rows; r < t->n_q; r += rows) {
        rows = mates(t, r);
        if (t->begin[r] < t->end[r]) end_mates(t, r, rows);
    }
}

// --- all tiles and partitions

// Queries that pass over a partition together, and their sums.
struct bunch {
    const struct attend_job *job;
    uint32_t first, n_q;
    struct attend_sums sums[ATTEND_BUNCH_MAX];
};

// The tiles' scores and sums of a partition are the same memory.
static void lay_sums(struct bunch *b) {
    size_t padded = attend_padded(b->job->value_dim);
    float *acc = b->job->scratch + ATTEND_TILE_MAX * PART, *merged = acc + ATTEND_TILE_MAX * padded;
    for (uint32_t i = 0; i < b->n_q; i++) {
        b->sums[i].started = false;
        b->sums[i].merged = merged + i * padded;
    }
}

static void run_partition(struct bunch *b, uint32_t base) {
    size_t padded = attend_padded(b->job->value_dim);
    for (uint32_t q = 0, n; q < b->n_q; q += n) {
        struct tile t = {.job = b->job, .first = b->first + q, .base = base};
        n = t.n_q = tile_rows(b->n_q - q);
        t.scores = b->job->scratch;
        t.sums = b->sums + q;
        for (uint32_t r = 0; r < n; r++)
            t.sums[r].acc = b->job->scratch + ATTEND_TILE_MAX * PART + r * padded;
        attend_partition(&t);
    }
}

static void attend_bunch(struct bunch *b) {
    const struct attend_job *job = b->job;
    uint32_t begin = UINT32_MAX, end = 0;
    lay_sums(b);
    for (uint32_t i = b->first; i < b->first + b->n_q; i++) {
        check(job->first_key[i] < job->n_keys[i]);
        if (job->first_key[i] < begin) begin = job->first_key[i];
        if (job->n_keys[i] > end) end = job->n_keys[i];
    }
    for (uint32_t base = begin / PART * PART; base < end; base += PART)
        run_partition(b, base);
    for (uint32_t i = 0; i < b->n_q; i++) {
        const float *sink = job->sinks != NULL ? &job->sinks[b->first + i] : NULL;
        attend_write(&b->sums[i], job->out + (b->first + i) * job->out_stride, job->value_dim,
                     sink);
    }
}

void KERNEL_SYMBOL(attend)(const struct attend_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    struct bunch b = {.job = job};
    for (; b.first < job->n_q; b.first += b.n_q) {
        b.n_q = job->n_q - b.first < ATTEND_BUNCH_MAX ? job->n_q - b.first : ATTEND_BUNCH_MAX;
        attend_bunch(&b);
    }
}
