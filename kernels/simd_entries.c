// simd_entries.c: windows of tokens that become one row, and the scores of a query's index against
// such rows.
#include <math.h>

#include "common/base/limits.h"
#include "kernels/simd_elementary.h"
#include "kernels/simd_turn.h"

// --- a window: channels in lanes, which never meet

INLINE vec part_of(const float *x, uint32_t c, uint32_t n) {
    return n < VEC_LANES ? vec_load_n(x + c, n) : vec_load(x + c);
}

void KERNEL_SYMBOL(window_sum)(float *y, const struct window *w, uint32_t n) {
    check(w->n_rows > 0);
    for (uint32_t c = 0; c < n; c += VEC_LANES) {
        uint32_t lanes = n - c < VEC_LANES ? n - c : VEC_LANES;
        vec m = vec_set(-INFINITY), l = vec_zero(), acc = vec_zero();
        for (uint32_t t = 0; t < w->n_rows; t++)
            m = vec_max(m, vec_add(part_of(w->gate[t], c, lanes), part_of(w->place[t], c, lanes)));
        for (uint32_t t = 0; t < w->n_rows; t++) {
            vec gate = vec_add(part_of(w->gate[t], c, lanes), part_of(w->place[t], c, lanes));
            vec p = vec_exp(vec_sub(gate, m));
            l = vec_add(l, p);
            acc = vec_fma(p, part_of(w->x[t], c, lanes), acc);
        }
        vec_store_n(y + c, vec_div(acc, l), lanes);
    }
}

// --- scores: rows in lanes, heads in rows of a register tile

struct entry_tile {
    struct tile_input in;
    const float *weights; // of the tile's heads
    float *sums;          // [16] so far
    uint32_t dim;
    float scale;
};

INLINE void entry_tile(const struct entry_tile *t, int rows) {
    vec acc[TILE_ROWS * 4], sum = vec_load(t->sums);
    tile_sum(acc, &t->in, rows, 1, DTYPE_F32, 0, t->dim);
    for (int r = 0; r < rows; r++) {
        vec s = vec_max(vec_zero(), vec_mul(acc[r], vec_set(t->scale)));
        sum = vec_fma(vec_set(t->weights[r]), s, sum);
    }
    vec_store(t->sums, sum);
}

#define DEFINE_ENTRY(rows, dtype)                                                                  \
    static void entry_##rows(const struct entry_tile *t) {                                         \
        entry_tile(t, rows);                                                                       \
    }
FOR_TILE_ROWS(DEFINE_ENTRY, F32)

#define NAME_ENTRY(rows, dtype) entry_##rows,
static void (*const entry_tiles[TILE_ROWS])(const struct entry_tile *) = {
    FOR_TILE_ROWS(NAME_ENTRY, F32)};

// The rows of the set from number `at` on, up to sixteen of them.
static void score_rows(const struct entry_job *job, const struct row_set *set, uint32_t at) {
    float panel[HEAD_DIM_MAX * BLOCK], sums[BLOCK] = {0};
    uint32_t n = set->n - at < BLOCK ? set->n - at : BLOCK;
    struct entry_tile t = {.dim = job->dim, .scale = job->scale, .sums = sums};
    fill_panel(set, panel, at);
    t.in.ldx = job->dim;
    t.in.panels[0] = (const unsigned char *)panel;
    for (uint32_t head = 0, rows; head < job->n_heads; head += rows) {
        rows = tile_rows(job->n_heads - head);
        t.in.x = job->q + (size_t)head * job->dim;
        t.weights = job->weights + head;
        entry_tiles[rows - 1](&t);
    }
    memcpy(job->out + at, sums, n * sizeof *sums);
}

void KERNEL_SYMBOL(entry_scores)(const struct entry_job *job) {
    check(dtype_is_kv(job->kv_dtype) && job->dim <= HEAD_DIM_MAX);
    const struct row_place at = {job->pages, job->block_stride, job->block_table, job->rate};
    struct entry_job part = *job;
    for (uint32_t begin = 0; begin < job->n; begin += ATTN_PARTITION_TOKENS) {
        uint32_t left = job->n - begin;
        struct row_set set = {.dim = job->dim, .value_dim = job->dim, .dtype = job->kv_dtype};
        for (uint32_t i = 0; i < left && i < ATTN_PARTITION_TOKENS; i++)
            add_row(&set, &at, job->first + begin + i);
        part.out = job->out + begin;
        for (uint32_t i = 0; i < set.n; i += BLOCK)
            score_rows(&part, &set, i);
    }
}
