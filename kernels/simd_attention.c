// simd_attention.c: attention of many queries over one partition of keys at a time.
//
// Queries are taken in bunches, and a bunch in tiles of as many as fit the registers. Scores have
// keys in lanes, outputs have dimensions in lanes. Blocks that all queries of a tile see whole, in
// the same pages, are loaded once for the tile; where there are many tiles, and it pays, a slice of
// them is turned into float32 once for all, and stays in the first cache while they pass over it.
// The rest (the ends of ranges, and pages that a sequence has for itself) is taken by mates:
// neighbours with one range and one table, as a row's heads are. Keys outside of a query's range
// are not looked at for it.
#include <math.h>

#include "common/base/check.h"
#include "kernels/simd_attend.h"
#include "kernels/simd_elementary.h"
#include "kernels/simd_tables.h"
#include "kernels/simd_tile.h"

// Queries of one register tile, of one partition. Keys [common, common_end) are whole blocks in the
// same pages that all of them see.
struct tile {
    uint32_t first, n; // of the bunch
    uint32_t common, common_end;
};

// Where the keys and values of a partition's blocks stand.
struct blocks {
    const unsigned char *keys[PART / BLOCK], *values[PART / BLOCK];
};

// Queries that pass over a partition together.
struct bunch {
    const struct attend_job *job;
    uint32_t first, n_q; // of the job's
    uint32_t base;       // the partition's first key
    uint32_t n_tiles;
    struct tile tiles[ATTEND_BUNCH_MAX];
    uint32_t tile, tile_end;                                 // those that are worked on
    uint32_t begin[ATTEND_BUNCH_MAX], end[ATTEND_BUNCH_MAX]; // of a query's keys; or begin >= end
    struct attend_sums sums[ATTEND_BUNCH_MAX];
    float *scores;        // [queries of those tiles][PART]
    float *copies;        // [attend_slice_keys(dim)][dim] of keys or of values
    bool copy;            // whether common keys and values are turned into float32
    struct blocks common; // of all tiles, or what copies replace them with
};

// Neighbours in a bunch, and keys that all of them see.
struct group {
    uint32_t first, n;
    uint32_t key, end;
};

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static const uint32_t *table_of(const struct bunch *b, uint32_t query) {
    const struct attend_job *job = b->job;
    return job->tables != NULL ? job->tables[b->first + query] : job->block_table;
}

static float *scores_of(const struct bunch *b, uint32_t query) {
    return b->scores + (size_t)(query - b->tiles[b->tile].first) * PART;
}

// Finds the blocks of a group's keys.
static void find_blocks(const struct bunch *b, struct blocks *blocks, const struct group *g) {
    const struct attend_job *job = b->job;
    const uint32_t *table = table_of(b, g->first);
    for (uint32_t key = g->key / BLOCK * BLOCK; key < g->end; key += BLOCK) {
        size_t at = table[key / BLOCK] * job->block_stride, i = (key - b->base) / BLOCK;
        blocks->keys[i] = (const unsigned char *)job->k_base + at;
        blocks->values[i] = (const unsigned char *)job->v_base + at;
    }
}

// --- scores, weights, values

static void score(const struct bunch *b, const struct blocks *blocks, const struct group *g,
                  enum dtype dtype) {
    const struct attend_job *job = b->job;
    if (g->key >= g->end) return;
    const struct attend_queries q = {job->q + (b->first + g->first) * job->q_stride, job->q_stride,
                                     g->n, scores_of(b, g->first)};
    const struct attend_keys k = {blocks->keys, job->head_dim, dtype};
    float scale = job->kv_dtype == DTYPE_I8 ? 1.0f : job->scale; // behind the keys' own scales
    attend_scores(&q, &k, scale, (const uint32_t[]){g->key - b->base, g->end - b->base});
}

static void add_values(const struct bunch *b, const struct blocks *blocks, const struct group *g,
                       enum dtype dtype) {
    if (g->key >= g->end) return;
    const struct attend_values v = {blocks->values, 4, b->job->value_dim, dtype};
    static_assert(BLOCK == 1 << 4, "the shift above");
    attend_add_values(b->sums + g->first, g->n, scores_of(b, g->first), &v,
                      (const uint32_t[]){g->key - b->base, g->end - b->base});
}

// Of int8 pages, what comes of codes takes the scales that stand behind them, and then factor.
static void apply_scales(const struct bunch *b, uint32_t query, const void *codes, uint32_t dim,
                         float factor) {
    const uint32_t *table = table_of(b, query);
    for (uint32_t key = b->begin[query], n; key < b->end[query]; key += n) {
        float *x = scores_of(b, query) + (key - b->base);
        const unsigned char *page = codes;
        page += table[key / BLOCK] * b->job->block_stride + (size_t)dim * BLOCK;
        n = smaller(BLOCK - key % BLOCK, b->end[query] - key);
        vec scaled = vec_mul(vec_load_n(x, n), vec_load_n(page + key % BLOCK * sizeof(float), n));
        vec_store_n(x, vec_mul(scaled, vec_set(factor)), n);
    }
}

// What some models do to scores, of the keys that exist.
static void shape_scores(const struct bunch *b, uint32_t query) {
    const struct attend_job *job = b->job;
    vec cap = vec_set(job->softcap),
        factor = vec_set(job->factors != NULL ? job->factors[b->first + query] : 1);
    for (uint32_t key = b->begin[query], n; key < b->end[query]; key += n) {
        float *s = scores_of(b, query) + (key - b->base);
        n = smaller(b->end[query] - key, BLOCK);
        vec x = vec_load_n(s, n);
        if (job->softcap != 0) x = vec_softcap(x, cap);
        vec_store_n(s, vec_mul(x, factor), n);
    }
}

// Scores become exp(score - largest), and those of keys that do not exist +0.
static void weigh(struct bunch *b, uint32_t query) {
    const struct attend_job *job = b->job;
    float *s = scores_of(b, query);
    uint32_t begin = b->begin[query] - b->base, end = b->end[query] - b->base;
    uint32_t from = begin / BLOCK * BLOCK, to = (end + BLOCK - 1) / BLOCK * BLOCK;
    bool codes = job->kv_dtype == DTYPE_I8;
    if (codes) apply_scales(b, query, job->k_base, job->head_dim, job->scale);
    if (job->softcap != 0 || job->factors != NULL) shape_scores(b, query);
    for (uint32_t j = from; j < begin; j++)
        s[j] = -INFINITY;
    for (uint32_t j = end; j < to; j++)
        s[j] = -INFINITY;
    attend_softmax(&b->sums[query], s + from, to - from);
    if (codes) apply_scales(b, query, job->v_base, job->value_dim, 1.0f);
}

// --- mates: neighbours of a tile that have one range and one table

static uint32_t mates(const struct bunch *b, const struct tile *t, uint32_t query) {
    uint32_t n = 1;
    while (query + n < t->first + t->n && b->begin[query + n] == b->begin[query] &&
           b->end[query + n] == b->end[query] && table_of(b, query + n) == table_of(b, query))
        n++;
    return n;
}

// What mates see for themselves, on either side of what is common.
static struct group before(const struct bunch *b, const struct tile *t, uint32_t query,
                           uint32_t n) {
    return (struct group){query, n, b->begin[query], smaller(b->end[query], t->common)};
}

static struct group behind(const struct bunch *b, const struct tile *t, uint32_t query,
                           uint32_t n) {
    return (struct group){query, n, t->common_end, b->end[query]};
}

static void begin_mates(struct bunch *b, const struct tile *t, uint32_t query, uint32_t n) {
    struct group first = before(b, t, query, n), last = behind(b, t, query, n);
    enum dtype dtype = b->job->kv_dtype;
    struct blocks own;
    find_blocks(b, &own, &first);
    find_blocks(b, &own, &last);
    score(b, &own, &first, dtype);
    score(b, &own, &last, dtype);
    for (uint32_t i = query; i < query + n; i++)
        weigh(b, i);
    add_values(b, &own, &first, dtype);
}

static void end_mates(struct bunch *b, const struct tile *t, uint32_t query, uint32_t n) {
    struct group last = behind(b, t, query, n);
    struct blocks own;
    find_blocks(b, &own, &last);
    add_values(b, &own, &last, b->job->kv_dtype);
    for (uint32_t i = query; i < query + n; i++)
        attend_merge(&b->sums[i], b->job->value_dim);
}

static void for_mates(struct bunch *b,
                      void (*act)(struct bunch *, const struct tile *, uint32_t, uint32_t)) {
    for (uint32_t i = b->tile; i < b->tile_end; i++) {
        const struct tile *t = &b->tiles[i];
        for (uint32_t q = t->first, n; q < t->first + t->n; q += n) {
            n = mates(b, t, q);
            if (b->begin[q] < b->end[q]) act(b, t, q, n);
        }
    }
}

// --- what is common, slice by slice

INLINE void copy_as(float *to, const unsigned char *from, uint32_t n, enum dtype dtype) {
    for (uint32_t i = 0; i < n; i += VEC_LANES)
        vec_store(to + i, element_load(from, dtype, i));
}

// Elements of pages become float32, of int8 the codes; blocks then points there.
static void copy_blocks(const struct bunch *b, const unsigned char **blocks, uint32_t n,
                        uint32_t dim) {
    float *to = b->copies;
    for (uint32_t i = 0; i < n; i++, to += dim * BLOCK) {
        switch (b->job->kv_dtype) {
        case DTYPE_BF16: copy_as(to, blocks[i], dim * BLOCK, DTYPE_BF16); break;
        case DTYPE_E4M3: copy_as(to, blocks[i], dim * BLOCK, DTYPE_E4M3); break;
        default: copy_as(to, blocks[i], dim * BLOCK, DTYPE_I8);
        }
        blocks[i] = (const unsigned char *)to;
    }
}

// The keys that are common in any of the tiles. It may be that there are none.
static struct group all_common(const struct bunch *b) {
    struct group all = {0, b->n_q, UINT32_MAX, 0};
    for (uint32_t i = b->tile; i < b->tile_end; i++) {
        const struct tile *t = &b->tiles[i];
        if (t->common >= t->common_end) continue;
        all.key = smaller(all.key, t->common);
        all.end = larger(all.end, t->common_end);
    }
    return all;
}

// Scores of the tiles' common keys, or their values.
static void pass_common(struct bunch *b, bool values) {
    const struct attend_job *job = b->job;
    uint32_t dim = values ? job->value_dim : job->head_dim;
    uint32_t slice = b->copy ? attend_slice_keys(dim) : PART;
    const struct group all = all_common(b);
    for (uint32_t key = all.key; key < all.end; key += slice) {
        uint32_t stop = smaller(key + slice, all.end), at = (key - b->base) / BLOCK;
        const unsigned char **blocks = (values ? b->common.values : b->common.keys) + at;
        if (b->copy) copy_blocks(b, blocks, (stop - key) / BLOCK, dim);
        for (uint32_t i = b->tile; i < b->tile_end; i++) {
            const struct tile *t = &b->tiles[i];
            struct group g = {t->first, t->n, larger(key, t->common), smaller(stop, t->common_end)};
            (values ? add_values : score)(b, &b->common, &g, b->copy ? DTYPE_F32 : job->kv_dtype);
        }
    }
}

// --- a bunch, and all of them

// Keys that the tile's queries all see, in whole blocks that are the same for all.
static void find_common(const struct bunch *b, struct tile *t) {
    const struct attend_job *job = b->job;
    uint32_t shared_end = job->tables == NULL ? UINT32_MAX : job->n_shared * BLOCK;
    t->common = b->base;
    t->common_end = smaller(b->base + PART, shared_end);
    for (uint32_t q = t->first; q < t->first + t->n; q++) {
        t->common = larger(t->common, (b->begin[q] + BLOCK - 1) / BLOCK * BLOCK);
        t->common_end = smaller(t->common_end, b->end[q] / BLOCK * BLOCK);
    }
    if (t->common >= t->common_end) t->common = t->common_end = b->base + PART;
}

// Cuts the queries' ranges to the partition.
static void cut_ranges(struct bunch *b) {
    for (uint32_t q = 0; q < b->n_q; q++) {
        b->begin[q] = larger(b->job->first_key[b->first + q], b->base);
        b->end[q] = smaller(b->job->n_keys[b->first + q], b->base + PART);
    }
    for (uint32_t i = 0; i < b->n_tiles; i++)
        find_common(b, &b->tiles[i]);
}

// Tiles that share copies take each step together. Others go one by one: their scores stay in the
// first cache.
static void attend_partition(struct bunch *b) {
    memset(b->sums[0].acc, 0, b->n_q * attend_padded(b->job->value_dim) * sizeof(float));
    cut_ranges(b);
    b->tile = 0;
    b->tile_end = b->n_tiles;
    const struct group all = all_common(b);
    find_blocks(b, &b->common, &all);
    for (; b->tile < b->n_tiles; b->tile = b->tile_end) {
        if (!b->copy) b->tile_end = b->tile + 1;
        pass_common(b, false);
        for_mates(b, begin_mates);
        pass_common(b, true);
        for_mates(b, end_mates);
    }
}

static void lay_bunch(struct bunch *b) {
    size_t padded = attend_padded(b->job->value_dim);
    b->scores = b->job->scratch;
    float *sums = b->scores + (size_t)b->n_q * PART;
    b->copies = sums + 2 * b->n_q * padded;
    for (uint32_t i = 0; i < b->n_q; i++) {
        b->sums[i].started = false;
        b->sums[i].acc = sums + i * padded;
        b->sums[i].merged = sums + (b->n_q + i) * padded;
    }
    b->copy = b->n_q >= ATTEND_COPY_MIN && COPIES_PAY(b->job->kv_dtype);
    b->n_tiles = 0;
    for (uint32_t q = 0, n; q < b->n_q; q += n) {
        n = tile_rows(b->n_q - q);
        b->tiles[b->n_tiles++] = (struct tile){.first = q, .n = n};
    }
}

static void attend_bunch(struct bunch *b) {
    const struct attend_job *job = b->job;
    uint32_t begin = UINT32_MAX, end = 0;
    lay_bunch(b);
    for (uint32_t i = b->first; i < b->first + b->n_q; i++) {
        check(job->first_key[i] < job->n_keys[i]);
        begin = smaller(begin, job->first_key[i]);
        end = larger(end, job->n_keys[i]);
    }
    for (b->base = begin / PART * PART; b->base < end; b->base += PART)
        attend_partition(b);
    for (uint32_t i = 0; i < b->n_q; i++) {
        const float *sink = job->sinks != NULL ? &job->sinks[b->first + i] : NULL;
        attend_write(&b->sums[i], job->out + (b->first + i) * job->out_stride, job->value_dim,
                     sink);
    }
}

void KERNEL_SYMBOL(attend)(const struct attend_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    struct bunch b;
    b.job = job;
    for (b.first = 0; b.first < job->n_q; b.first += b.n_q) {
        b.n_q = smaller(job->n_q - b.first, ATTEND_BUNCH_MAX);
        attend_bunch(&b);
    }
}
