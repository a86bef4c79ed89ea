// simd_index.c: scores of sparse attention's index: keys in lanes, heads in rows of a register
// tile. A key's sum over heads goes on from one tile to the next in the order of the heads.
#include "common/base/check.h"
#include "common/base/limits.h"
#include "kernels/simd_tables.h"
#include "kernels/simd_tile.h"

#define BLOCK KV_BLOCK_TOKENS

static_assert(BLOCK == VEC_LANES, "a block of keys fills the lanes");

struct index_tile {
    struct tile_input in;
    const float *weights; // of the tile's heads
    float *out;           // [n_blocks][16], the sums so far
    uint32_t dim;
    float scale;
};

INLINE void index_tile(const struct index_tile *t, int rows, int n_blocks, enum dtype dtype) {
    vec acc[TILE_ROWS * 4];
    tile_sum(acc, &t->in, rows, n_blocks, dtype, 0, t->dim);
    for (int b = 0; b < n_blocks; b++) {
        vec sum = vec_load(t->out + b * BLOCK), scales = vec_set(1.0f);
        if (dtype == DTYPE_I8) scales = vec_load(t->in.panels[b] + (size_t)t->dim * BLOCK);
        for (int r = 0; r < rows; r++) {
            vec s = acc[r * n_blocks + b];
            if (dtype == DTYPE_I8) s = vec_mul(s, scales);
            s = vec_max(vec_zero(), vec_mul(s, vec_set(t->scale)));
            sum = vec_fma(vec_set(t->weights[r]), s, sum);
        }
        vec_store(t->out + b * BLOCK, sum);
    }
}

#define DEFINE_INDEX(rows, n, kind, dtype)                                                         \
    static void index_##dtype##_##rows##_##kind(const struct index_tile *t) {                      \
        index_tile(t, rows, n, DTYPE_##dtype);                                                     \
    }
#define DEFINE_INDEXES(rows, dtype) FOR_TILES_OF_ROWS(DEFINE_INDEX, rows, dtype)
FOR_TILE_ROWS(DEFINE_INDEXES, F32)
FOR_TILE_ROWS(DEFINE_INDEXES, BF16)
FOR_TILE_ROWS(DEFINE_INDEXES, E4M3)
FOR_TILE_ROWS(DEFINE_INDEXES, I8)

#define NAME_INDEXES(rows, dtype) {index_##dtype##_##rows##_one, index_##dtype##_##rows##_full},
static void (*const index_tiles[DTYPE_KV_COUNT][TILE_ROWS][2])(const struct index_tile *) = {
    [DTYPE_F32] = {FOR_TILE_ROWS(NAME_INDEXES, F32)},
    [DTYPE_BF16] = {FOR_TILE_ROWS(NAME_INDEXES, BF16)},
    [DTYPE_E4M3] = {FOR_TILE_ROWS(NAME_INDEXES, E4M3)},
    [DTYPE_I8] = {FOR_TILE_ROWS(NAME_INDEXES, I8)},
};

static void add_heads(const struct index_job *job, uint32_t head, uint32_t rows) {
    struct index_tile t = {.dim = job->dim, .scale = job->scale, .weights = job->weights + head};
    t.in.x = job->q + (size_t)head * job->dim;
    t.in.ldx = job->dim;
    for (uint32_t b = 0, n; b < job->n_blocks; b += n) {
        bool full = job->n_blocks - b >= (uint32_t)TILE_PANELS(rows);
        n = full ? TILE_PANELS(rows) : 1;
        for (uint32_t i = 0; i < n; i++)
            t.in.panels[i] = (const unsigned char *)job->pages +
                             job->block_table[job->first_block + b + i] * job->block_stride;
        t.out = job->out + (size_t)b * BLOCK;
        index_tiles[job->kv_dtype][rows - 1][full](&t);
    }
}

void KERNEL_SYMBOL(index_scores)(const struct index_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    memset(job->out, 0, (size_t)job->n_blocks * BLOCK * sizeof *job->out);
    for (uint32_t head = 0, rows; head < job->n_heads; head += rows) {
        rows = tile_rows(job->n_heads - head);
        add_heads(job, head, rows);
    }
}
