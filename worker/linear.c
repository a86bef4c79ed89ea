// linear.c: see linear.h.
#include "worker/linear.h"

// Several items a thread, so that a late thread costs little; but none so small that handing it out
// shows.
#define ITEMS_PER_THREAD 4
#define ITEM_PRODUCTS_MIN 16384

struct linear_split {
    const struct linear *l;
    uint32_t n_tiles, rows_per_tile, panels_per_item;
};

// Panels of one work item when the rows are cut into n_tiles.
static uint32_t panels_per_item(struct pool *pool, const struct linear *l, uint32_t n_tiles) {
    const struct matrix *w = l->w;
    uint64_t panels = matrix_panels(w);
    uint64_t wanted = ((uint64_t)pool_threads(pool) * ITEMS_PER_THREAD + n_tiles - 1) / n_tiles;
    uint64_t per_item = (panels + wanted - 1) / wanted;
    uint64_t tile_rows = (l->n_rows + n_tiles - 1) / n_tiles;
    uint64_t panel_products = tile_rows * w->n_in * PANEL_COLS;
    uint64_t least = (ITEM_PRODUCTS_MIN + panel_products - 1) / panel_products;
    if (per_item < least) per_item = least;
    return (uint32_t)(per_item < panels ? per_item : panels);
}

static void finish_rows(const struct linear *l, uint32_t row_begin, uint32_t row_end,
                        const uint32_t cols[2]) {
    uint32_t n = cols[1] - cols[0];
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *y = l->y + row * l->ldy + cols[0];
        if (l->bias != NULL) l->ops->add(y, l->bias + cols[0], n);
        if (l->residual == NULL) continue;
        float *residual = l->residual + (size_t)row * l->w->n_out + cols[0];
        if (l->residual_scale == 0)
            l->ops->add(residual, y, n);
        else
            l->ops->axpy(residual, y, l->residual_scale, n);
    }
}

// Row tiles run fastest: items that follow each other share their panels.
static void linear_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct linear_split *split = context;
    const struct linear *l = split->l;
    uint32_t row = i % split->n_tiles * split->rows_per_tile;
    uint32_t n_rows =
        l->n_rows - row < split->rows_per_tile ? l->n_rows - row : split->rows_per_tile;
    uint32_t begin = i / split->n_tiles * split->panels_per_item;
    uint32_t panels = matrix_panels(l->w);
    uint32_t end =
        panels - begin < split->panels_per_item ? panels : begin + split->panels_per_item;
    l->ops->matmul(l->y + row * l->ldy, l->ldy, l->x + row * l->ldx, l->ldx, n_rows, l->w, begin,
                   end);
    uint32_t col_end = end == panels ? l->w->n_out : end * PANEL_COLS;
    finish_rows(l, row, row + n_rows, (const uint32_t[2]){begin * PANEL_COLS, col_end});
}

void linear_run(struct pool *pool, const struct linear *l) {
    if (l->n_rows == 0) return;
    uint32_t n_tiles = (l->n_rows + ROW_TILE - 1) / ROW_TILE;
    uint32_t rows_per_tile = (l->n_rows + n_tiles - 1) / n_tiles;
    n_tiles = (l->n_rows + rows_per_tile - 1) / rows_per_tile;
    struct linear_split split = {l, n_tiles, rows_per_tile, panels_per_item(pool, l, n_tiles)};
    uint32_t n_ranges = (matrix_panels(l->w) + split.panels_per_item - 1) / split.panels_per_item;
    pool_run(pool, n_tiles * n_ranges, linear_item, &split);
}
