// indexer.c: see indexer.h.
#include "worker/indexer.h"

#include <math.h>

#include "worker/forward.h"

// Keys that one work item scores: a row of a long context has work for all threads.
#define ITEM_KEYS (64 * KV_BLOCK_TOKENS)
// Rows scored at a time, for each thread: between choices all threads wait for each other.
#define LINES_PER_THREAD 4

// What both kinds of choice have: of tokens, or of compressed entries.
struct index_shape {
    uint32_t n_heads, dim, top_k, rate;
};

static struct index_shape shape_of(const struct model_spec *s) {
    const struct compress_spec *c = &s->compress;
    if (c->csa_rate != 0) return (struct index_shape){c->n_heads, c->dim, c->top_k, c->csa_rate};
    return (struct index_shape){s->indexer.n_heads, s->indexer.dim, s->indexer.top_k, 1};
}

// Keys, or entries, that a row sees.
static uint32_t seen(const struct forward *f, uint32_t row) {
    return (f->batch.position[row] + 1) / shape_of(f->spec).rate;
}

static bool row_chooses(const struct forward *f, uint32_t row) {
    uint32_t top_k = shape_of(f->spec).top_k;
    return top_k != 0 && seen(f, row) > top_k;
}

void indexer_lay(struct forward *f, struct scratch *s) {
    const struct index_shape shape = shape_of(f->spec);
    struct indexer *x = &f->indexer;
    size_t rows = f->config.rows_max;
    uint32_t most = f->config.max_model_len / shape.rate;
    if (shape.top_k == 0) return;
    if (shape.rate == 1) x->k = scratch_take(s, rows * shape.dim, sizeof(float));
    if (shape.top_k >= most) return; // no row ever chooses
    x->n_lines = f->n_threads * LINES_PER_THREAD;
    x->line_floats = (size_t)kv_blocks_of(most) * KV_BLOCK_TOKENS;
    x->q = scratch_take(s, rows * shape.n_heads * shape.dim, sizeof(float));
    x->weights = scratch_take(s, rows * shape.n_heads, sizeof(float));
    x->scores = scratch_take(s, x->n_lines * x->line_floats, sizeof(float));
    x->chosen = scratch_take(s, rows * shape.top_k, sizeof(uint32_t));
    x->rows = scratch_take(s, rows, sizeof(uint32_t));
}

void indexer_begin(struct forward *f) {
    f->indexer.n_rows = 0;
    for (uint32_t row = 0; row < f->batch.n_rows; row++)
        if (row_chooses(f, row)) f->indexer.rows[f->indexer.n_rows++] = row;
}

uint32_t indexer_tile_rows(const struct forward *f, uint32_t row, uint32_t n) {
    if (row_chooses(f, row)) return 1;
    uint32_t all = 1;
    while (all < n && !row_chooses(f, row + all))
        all++;
    return all;
}

const uint32_t *indexer_chosen(const struct forward *f, uint32_t row) {
    size_t top_k = shape_of(f->spec).top_k;
    return row_chooses(f, row) ? f->indexer.chosen + row * top_k : NULL;
}

// --- the best scores

// As an integer of the same order; NaN is below all, and zeros of either sign are equal.
static uint32_t order_of(float x) {
    uint32_t bits = f32_to_bits(x + 0.0f);
    if (isnan(x)) return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The k-th largest, found byte by byte; *ties is how many of the scores equal to it belong to the
// k.
static uint32_t threshold(const float *scores, uint32_t n, uint32_t k, uint32_t *ties) {
    uint32_t prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t counts[256] = {0}, bucket = 255;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t order = order_of(scores[i]);
            bool fits = shift == 24 || order >> (shift + 8) == prefix >> (shift + 8);
            if (fits) counts[order >> shift & 255]++;
        }
        while (counts[bucket] < k)
            k -= counts[bucket--];
        prefix |= bucket << shift;
    }
    *ties = k;
    return prefix;
}

void index_best(const float *scores, uint32_t n, uint32_t k, uint32_t *chosen) {
    uint32_t ties, least = threshold(scores, n, k, &ties), n_chosen = 0;
    for (uint32_t i = 0; i < n && n_chosen < k; i++) {
        uint32_t order = order_of(scores[i]);
        bool tied = order == least && ties > 0;
        if (order <= least && !tied) continue;
        if (tied) ties--;
        chosen[n_chosen++] = i;
    }
}

// --- a layer

struct index_layer {
    struct forward *f;
    const struct index_weights *keys; // what makes them
    const struct matrix *q, *weights;
    struct index_shape shape;
    const struct rotary *rope;
    uint32_t layer, rotated; // the rotated part of a query begins there
    bool interleaved;
    struct row_range rows;   // that are projected
    uint32_t first, n_lines; // of indexer.rows: those that are scored now
    uint32_t n_chunks;       // items of the longest of them
};

static void finish_keys(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    struct forward *f = il->f;
    const struct indexer_spec *spec = &f->spec->indexer;
    const struct norm_weights norm = {il->keys->k_norm, il->keys->k_norm_bias};
    for (uint32_t row = il->rows.first + row_begin; row < il->rows.first + row_end; row++) {
        float *k = f->indexer.k + (size_t)row * spec->dim;
        f->ops->layer_norm(k, k, &norm, spec->dim, spec->norm_eps);
        rotary_turn_as(&f->attn.rope, k, row, spec->interleaved);
    }
}

static void write_keys(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    struct forward *f = il->f;
    for (uint32_t row = row_begin; row < row_end; row++) {
        struct kv_place at = {il->layer, 0, f->batch.slot[row], f->batch.position[row]};
        kv_write_index(&f->kv, f->ops, &at, f->indexer.k + (size_t)row * f->spec->indexer.dim);
    }
}

static void finish_queries(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    const struct index_shape *shape = &il->shape;
    struct forward *f = il->f;
    float scale = 1.0f / sqrtf((float)shape->n_heads);
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *weights = f->indexer.weights + (size_t)row * shape->n_heads;
        float *q = f->indexer.q + (size_t)row * shape->n_heads * shape->dim + il->rotated;
        f->ops->scale(weights, weights, scale, shape->n_heads);
        for (uint32_t h = 0; h < shape->n_heads; h++)
            rotary_turn_as(il->rope, q + (size_t)h * shape->dim, row, il->interleaved);
    }
}

// A line of scores, and the part [begin, end) of its row's keys.
struct index_part {
    uint32_t row, begin, end;
    float *scores;
};

static void score_keys(const struct index_layer *il, const struct index_part *part) {
    const struct forward *f = il->f;
    uint32_t block = part->begin / KV_BLOCK_TOKENS;
    struct index_job job = {
        .q = f->indexer.q + (size_t)part->row * il->shape.n_heads * il->shape.dim,
        .weights = f->indexer.weights + (size_t)part->row * il->shape.n_heads,
        .n_heads = il->shape.n_heads,
        .dim = il->shape.dim,
        .first_block = block,
        .n_blocks = kv_blocks_of(part->end) - block,
        .block_table = f->kv.tables[f->batch.slot[part->row]].blocks,
        .pages = kv_index_keys(&f->kv, il->layer),
        .block_stride = f->kv.layers[il->layer].stride,
        .kv_dtype = f->kv.dtype,
        .scale = 1.0f / sqrtf((float)il->shape.dim),
        .out = part->scores,
    };
    f->ops->index_scores(&job);
}

static void score_entries(const struct index_layer *il, const struct index_part *part) {
    const struct forward *f = il->f;
    struct entry_job job = {
        .q = f->indexer.q + (size_t)part->row * il->shape.n_heads * il->shape.dim,
        .weights = f->indexer.weights + (size_t)part->row * il->shape.n_heads,
        .n_heads = il->shape.n_heads,
        .dim = il->shape.dim,
        .first = part->begin,
        .n = part->end - part->begin,
        .rate = il->shape.rate,
        .block_table = f->kv.tables[f->batch.slot[part->row]].blocks,
        .pages = kv_entries(&f->kv, il->layer, true),
        .block_stride = f->kv.layers[il->layer].stride,
        .kv_dtype = f->kv.dtype,
        .scale = 1.0f / sqrtf((float)il->shape.dim),
        .out = part->scores,
    };
    f->ops->entry_scores(&job);
}

// Item i: a row, and a part of its keys.
static void score_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    struct indexer *x = &il->f->indexer;
    uint32_t line = i / il->n_chunks, row = x->rows[il->first + line], n = seen(il->f, row);
    struct index_part part = {.row = row, .begin = i % il->n_chunks * ITEM_KEYS};
    if (part.begin >= n) return;
    part.end = n - part.begin < ITEM_KEYS ? n : part.begin + ITEM_KEYS;
    part.scores = x->scores + line * x->line_floats + part.begin;
    if (il->f->spec->compress.csa_rate != 0)
        score_entries(il, &part);
    else
        score_keys(il, &part);
}

static void choose_item(void *context, uint32_t line, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    struct indexer *x = &il->f->indexer;
    uint32_t row = x->rows[il->first + line], top_k = il->shape.top_k;
    index_best(x->scores + line * x->line_floats, seen(il->f, row), top_k,
               x->chosen + (size_t)row * top_k);
}

static void choose_lines(struct index_layer *il, uint32_t first) {
    const struct forward *f = il->f;
    uint32_t left = f->indexer.n_rows - first, longest = 0;
    il->first = first;
    il->n_lines = left < f->indexer.n_lines ? left : f->indexer.n_lines;
    for (uint32_t line = 0; line < il->n_lines; line++) {
        uint32_t n = seen(f, f->indexer.rows[first + line]);
        if (n > longest) longest = n;
    }
    il->n_chunks = (longest + ITEM_KEYS - 1) / ITEM_KEYS;
    pool_run(f->pool, il->n_lines * il->n_chunks, score_item, il);
    pool_run(f->pool, il->n_lines, choose_item, il);
}

// From the rows' compressed queries to what each that chooses has chosen; their weights are there.
static void choose(struct index_layer *il, const float *q_a) {
    struct forward *f = il->f;
    size_t cost = (size_t)il->shape.n_heads * (il->shape.dim + 1);
    if (f->indexer.n_rows == 0) return;
    forward_project(f, il->q, il->rows, q_a, f->indexer.q);
    pool_run_rows(f->pool, f->batch.n_rows, cost, finish_queries, il);
    for (uint32_t first = 0; first < f->indexer.n_rows; first += f->indexer.n_lines)
        choose_lines(il, first);
}

static void weigh(struct index_layer *il) {
    struct forward *f = il->f;
    if (f->indexer.n_rows > 0)
        forward_project(f, il->weights, il->rows, f->all_normed, f->indexer.weights);
}

// Of all rows.
static struct index_layer of_keys(struct forward *f, uint32_t layer) {
    const struct index_weights *w = &forward_layer(f, layer)->index;
    return (struct index_layer){.f = f,
                                .keys = w,
                                .q = &w->q,
                                .weights = &w->weights,
                                .shape = shape_of(f->spec),
                                .rope = &f->attn.rope,
                                .layer = layer,
                                .interleaved = f->spec->indexer.interleaved,
                                .rows = {0, f->batch.n_rows}};
}

void indexer_compress(struct forward *f, uint32_t layer, uint32_t first, uint32_t n) {
    struct index_layer il = of_keys(f, layer);
    if (!spec_layer_chooses(f->spec, layer)) return;
    il.rows = (struct row_range){first, n};
    forward_project(f, &il.keys->k, il.rows, f->all_normed, f->indexer.k);
    pool_run_rows(f->pool, n, (size_t)il.shape.dim * 4, finish_keys, &il);
    weigh(&il);
}

void indexer_choose(struct forward *f, uint32_t layer) {
    struct index_layer il = of_keys(f, layer);
    if (!spec_layer_chooses(f->spec, layer)) return;
    pool_run_rows(f->pool, il.rows.n, il.shape.dim, write_keys, &il);
    choose(&il, f->mla.q_a);
}

void indexer_choose_entries(struct forward *f, uint32_t layer, const float *q_a) {
    if (!(f->spec->layer_flags[layer] & LAYER_CSA)) return;
    const struct compress_weights *w = &forward_layer(f, layer)->compress;
    struct index_layer il = {.f = f,
                             .q = &w->index_q,
                             .weights = &w->index_weights,
                             .shape = shape_of(f->spec),
                             .rope = &f->attn.compress_rope,
                             .layer = layer,
                             .rotated = f->spec->compress.dim - f->spec->rope.dim,
                             .interleaved = f->attn.compress_rope.interleaved,
                             .rows = {0, f->batch.n_rows}};
    weigh(&il);
    choose(&il, q_a);
}
