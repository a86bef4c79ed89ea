// indexer.c: see indexer.h.
#include "worker/indexer.h"

#include <math.h>

#include "worker/forward.h"
#include "worker/linear.h"

// Blocks of keys that one work item scores: a row of a long context has work for all threads.
#define ITEM_BLOCKS 64
// Rows scored at a time, for each thread: between choices all threads wait for each other.
#define LINES_PER_THREAD 4

static bool row_chooses(const struct forward *f, uint32_t row) {
    uint32_t top_k = f->spec->indexer.top_k;
    return top_k != 0 && f->batch.position[row] >= top_k;
}

void indexer_lay(struct forward *f, struct scratch *s) {
    const struct indexer_spec *spec = &f->spec->indexer;
    struct indexer *x = &f->indexer;
    size_t rows = f->config.rows_max;
    if (spec->top_k == 0) return;
    x->k = scratch_take(s, rows * spec->dim, sizeof(float));
    if (spec->top_k >= f->config.max_model_len) return; // no row ever chooses
    x->n_lines = f->n_threads * LINES_PER_THREAD;
    x->line_floats = (size_t)kv_blocks_of(f->config.max_model_len) * KV_BLOCK_TOKENS;
    x->q = scratch_take(s, rows * spec->n_heads * spec->dim, sizeof(float));
    x->weights = scratch_take(s, rows * spec->n_heads, sizeof(float));
    x->scores = scratch_take(s, x->n_lines * x->line_floats, sizeof(float));
    x->chosen = scratch_take(s, rows * spec->top_k, sizeof(uint32_t));
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
    return row_chooses(f, row) ? f->indexer.chosen + (size_t)row * f->spec->indexer.top_k : NULL;
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
    const struct index_weights *w;
    uint32_t layer;
    uint32_t first, n_lines; // of indexer.rows: those that are scored now
    uint32_t n_chunks;       // items of the longest of them
};

static void project(const struct index_layer *il, const struct matrix *w, const float *x,
                    float *y) {
    struct forward *f = il->f;
    struct linear l = {.ops = f->ops,
                       .w = w,
                       .x = x,
                       .y = y,
                       .ldx = w->n_in,
                       .ldy = w->n_out,
                       .n_rows = f->batch.n_rows};
    linear_run(f->pool, &l);
}

static void write_keys(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    struct forward *f = il->f;
    const struct indexer_spec *spec = &f->spec->indexer;
    const struct norm_weights norm = {il->w->k_norm, il->w->k_norm_bias};
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *k = f->indexer.k + (size_t)row * spec->dim;
        struct kv_place at = {il->layer, 0, f->batch.slot[row], f->batch.position[row]};
        f->ops->layer_norm(k, k, &norm, spec->dim, spec->norm_eps);
        rotary_turn_as(&f->attn.rope, k, row, spec->interleaved);
        kv_write_index(&f->kv, f->ops, &at, k);
    }
}

static void finish_queries(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    struct forward *f = il->f;
    const struct indexer_spec *spec = &f->spec->indexer;
    float scale = 1.0f / sqrtf((float)spec->n_heads);
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *weights = f->indexer.weights + (size_t)row * spec->n_heads;
        float *q = f->indexer.q + (size_t)row * spec->n_heads * spec->dim;
        f->ops->scale(weights, weights, scale, spec->n_heads);
        for (uint32_t h = 0; h < spec->n_heads; h++)
            rotary_turn_as(&f->attn.rope, q + (size_t)h * spec->dim, row, spec->interleaved);
    }
}

// Item i: a row, and a part of its keys.
static void score_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    struct forward *f = il->f;
    const struct indexer_spec *spec = &f->spec->indexer;
    struct indexer *x = &f->indexer;
    uint32_t line = i / il->n_chunks, begin = i % il->n_chunks * ITEM_BLOCKS;
    uint32_t row = x->rows[il->first + line], end = kv_blocks_of(f->batch.position[row] + 1);
    if (begin >= end) return;
    struct index_job job = {
        .q = x->q + (size_t)row * spec->n_heads * spec->dim,
        .weights = x->weights + (size_t)row * spec->n_heads,
        .n_heads = spec->n_heads,
        .dim = spec->dim,
        .first_block = begin,
        .n_blocks = end - begin < ITEM_BLOCKS ? end - begin : ITEM_BLOCKS,
        .block_table = f->kv.tables[f->batch.slot[row]].blocks,
        .pages = kv_index_keys(&f->kv, il->layer),
        .block_stride = f->kv.layers[il->layer].stride,
        .kv_dtype = f->kv.dtype,
        .scale = 1.0f / sqrtf((float)spec->dim),
        .out = x->scores + line * x->line_floats + (size_t)begin * KV_BLOCK_TOKENS,
    };
    f->ops->index_scores(&job);
}

static void choose_item(void *context, uint32_t line, uint32_t thread) {
    (void)thread;
    const struct index_layer *il = context;
    struct indexer *x = &il->f->indexer;
    uint32_t row = x->rows[il->first + line], top_k = il->f->spec->indexer.top_k;
    index_best(x->scores + line * x->line_floats, il->f->batch.position[row] + 1, top_k,
               x->chosen + (size_t)row * top_k);
}

static void choose_lines(struct index_layer *il, uint32_t first) {
    const struct forward *f = il->f;
    uint32_t left = f->indexer.n_rows - first, longest = 0;
    il->first = first;
    il->n_lines = left < f->indexer.n_lines ? left : f->indexer.n_lines;
    for (uint32_t line = 0; line < il->n_lines; line++) {
        uint32_t n = kv_blocks_of(f->batch.position[f->indexer.rows[first + line]] + 1);
        if (n > longest) longest = n;
    }
    il->n_chunks = (longest + ITEM_BLOCKS - 1) / ITEM_BLOCKS;
    pool_run(f->pool, il->n_lines * il->n_chunks, score_item, il);
    pool_run(f->pool, il->n_lines, choose_item, il);
}

void indexer_choose(struct forward *f, uint32_t layer) {
    const struct indexer_spec *spec = &f->spec->indexer;
    struct index_layer il = {.f = f, .w = &forward_layer(f, layer)->index, .layer = layer};
    if (spec->top_k == 0 || (f->spec->layer_flags[layer] & LAYER_SAME_KEYS)) return;
    uint32_t n_rows = f->batch.n_rows;
    project(&il, &il.w->k, f->all_normed, f->indexer.k);
    pool_run_rows(f->pool, n_rows, (size_t)spec->dim * 4, write_keys, &il);
    if (f->indexer.n_rows == 0) return;
    project(&il, &il.w->q, f->mla.q_a, f->indexer.q);
    project(&il, &il.w->weights, f->all_normed, f->indexer.weights);
    pool_run_rows(f->pool, n_rows, (size_t)spec->n_heads * (spec->dim + 1), finish_queries, &il);
    for (uint32_t first = 0; first < f->indexer.n_rows; first += f->indexer.n_lines)
        choose_lines(&il, first);
}
