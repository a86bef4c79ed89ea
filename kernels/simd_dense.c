// simd_dense.c: matrix products on packed panels: register tiles of rows x panels, one chain of
// additions per column.
//
// A row's sums never meet another row's or column's, so the tiling is free: it is chosen for
// registers and caches only.
#include "common/base/check.h"
#include "common/base/limits.h"
#include "kernels/simd_tables.h"
#include "kernels/simd_tile.h"

// Panels whose weights are used for all rows of a block before the next ones are read.
#define GROUP_PANELS 4
// Floats of x in a block of rows: half of a second-level cache of 1 MiB.
#define BLOCK_FLOATS (128u << 10)

// A tile's input and where its sums go.
struct dense_tile {
    struct tile_input in;
    float *y;
    size_t ldy;
    uint32_t n_in, n_segments;
    uint32_t n_cols_last; // columns that exist in the last panel, 1 to 16
};

// Adds the segments' sums in the balanced tree of neighbours: pending[i] holds the sum of 2^i
// segments that waits for its neighbour.
INLINE void sum_segments(vec *acc, const struct dense_tile *t, int rows, int n_panels,
                         enum dtype dtype) {
    vec pending[4][TILE_ROWS * 4];
    uint32_t length = t->n_in / t->n_segments, s = 0;
    do {
        tile_sum(acc, &t->in, rows, n_panels, dtype, s * length, (s + 1) * length);
        int level = 0;
        for (; s >> level & 1; level++)
            for (int i = 0; i < rows * n_panels; i++)
                acc[i] = vec_add(pending[level][i], acc[i]);
        for (int i = 0; i < rows * n_panels; i++)
            pending[level][i] = acc[i];
    } while (++s < t->n_segments);
}

INLINE void dense_tile(const struct dense_tile *t, int rows, int n_panels, enum dtype dtype) {
    vec acc[TILE_ROWS * 4];
    if (t->n_segments == 1)
        tile_sum(acc, &t->in, rows, n_panels, dtype, 0, t->n_in);
    else
        sum_segments(acc, t, rows, n_panels, dtype);
    for (int r = 0; r < rows; r++) {
        float *y = t->y + (size_t)r * t->ldy;
        for (int p = 0; p < n_panels; p++) {
            uint32_t n = p == n_panels - 1 ? t->n_cols_last : PANEL_COLS;
            vec_store_n(y + p * PANEL_COLS, acc[r * n_panels + p], n);
        }
    }
}

#define DEFINE_TILE(rows, n_panels, kind, dtype)                                                   \
    static void dense_##dtype##_##rows##_##kind(const struct dense_tile *t) {                      \
        dense_tile(t, rows, n_panels, DTYPE_##dtype);                                              \
    }
#define DEFINE_ROWS(rows, dtype) FOR_TILES_OF_ROWS(DEFINE_TILE, rows, dtype)
FOR_TILE_ROWS(DEFINE_ROWS, F32)
FOR_TILE_ROWS(DEFINE_ROWS, F16)
FOR_TILE_ROWS(DEFINE_ROWS, BF16)

#define NAME_ROWS(rows, dtype) {dense_##dtype##_##rows##_one, dense_##dtype##_##rows##_full},
static void (*const tiles[DTYPE_COUNT][TILE_ROWS][2])(const struct dense_tile *) = {
    [DTYPE_F32] = {FOR_TILE_ROWS(NAME_ROWS, F32)},
    [DTYPE_F16] = {FOR_TILE_ROWS(NAME_ROWS, F16)},
    [DTYPE_BF16] = {FOR_TILE_ROWS(NAME_ROWS, BF16)},
};

// One call's arguments.
struct product {
    float *y;
    size_t ldy;
    const float *x;
    size_t ldx;
    const struct matrix *w;
};

static void run_tile(const struct product *m, uint32_t row, uint32_t rows, uint32_t panel,
                     bool full) {
    const struct matrix *w = m->w;
    uint32_t n_panels = full ? TILE_PANELS(rows) : 1;
    uint32_t left = w->n_out - (panel + n_panels - 1) * PANEL_COLS;
    struct dense_tile t = {
        .in = {.x = m->x + row * m->ldx, .ldx = m->ldx},
        .y = m->y + row * m->ldy + (size_t)panel * PANEL_COLS,
        .ldy = m->ldy,
        .n_in = w->n_in,
        .n_segments = w->n_segments,
        .n_cols_last = left < PANEL_COLS ? left : PANEL_COLS,
    };
    size_t panel_bytes = (size_t)w->n_in * PANEL_COLS * dtype_bytes(w->dtype);
    for (uint32_t p = 0; p < n_panels; p++)
        t.in.panels[p] = (const unsigned char *)w->data + (panel + p) * panel_bytes;
    tiles[w->dtype][rows - 1][full](&t);
}

// rows (at most a tile's) against a group of panels.
static void run_rows(const struct product *m, uint32_t row, uint32_t rows, uint32_t panel,
                     uint32_t panel_end) {
    uint32_t step = TILE_PANELS(rows);
    for (; panel_end - panel >= step; panel += step)
        run_tile(m, row, rows, panel, true);
    for (; panel < panel_end; panel++)
        run_tile(m, row, rows, panel, false);
}

// All rows of a block against a group of panels.
static void run_group(const struct product *m, uint32_t row, uint32_t end, uint32_t panel,
                      uint32_t panel_end) {
    while (row < end) {
        uint32_t rows = tile_rows(end - row);
        run_rows(m, row, rows, panel, panel_end);
        row += rows;
    }
}

void KERNEL_SYMBOL(matmul)(float *y, size_t ldy, const float *x, size_t ldx, uint32_t n_rows,
                           const struct matrix *w, uint32_t panel_begin, uint32_t panel_end) {
    check(panel_begin <= panel_end && panel_end <= matrix_panels(w));
    check(w->n_segments >= 1 && w->n_segments <= SEGMENTS_MAX && w->n_in % w->n_segments == 0);
    struct product m = {.y = y, .ldy = ldy, .x = x, .ldx = ldx, .w = w};
    uint32_t block = BLOCK_FLOATS / w->n_in / TILE_ROWS * TILE_ROWS;
    if (block == 0) block = TILE_ROWS;
    for (uint32_t row = 0; row < n_rows; row += block) {
        uint32_t row_end = n_rows - row < block ? n_rows : row + block;
        for (uint32_t panel = panel_begin; panel < panel_end; panel += GROUP_PANELS) {
            uint32_t end = panel_end - panel < GROUP_PANELS ? panel_end : panel + GROUP_PANELS;
            run_group(&m, row, row_end, panel, end);
        }
    }
}
