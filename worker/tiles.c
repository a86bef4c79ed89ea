// tiles.c: see tiles.h.
#include "worker/tiles.h"

#include <string.h>

#include "worker/forward.h"
#include "worker/indexer.h"

// Items a thread before tiles are worth being large.
#define ITEMS_PER_THREAD 2
// Rows share a tile from so many common blocks on. Fewer are read by each for itself as quickly.
#define SHARED_BLOCKS_MIN 4

void tiles_lay(struct forward *f, struct scratch *s) {
    struct tiles *t = &f->attn.tiles;
    t->tiles = scratch_take(s, f->config.rows_max, sizeof *t->tiles);
    t->order = scratch_take(s, f->config.rows_max, sizeof *t->order);
    t->place = scratch_take(s, f->config.rows_max, sizeof *t->place);
    for (int i = 0; i < 2; i++)
        t->singles[i] = scratch_take(s, f->config.n_slots, sizeof **t->singles);
}

// --- single rows in the order of their tables, so that those that begin alike are neighbours

// The blocks of a row's sequence up to the row itself.
static const uint32_t *table_of(const struct forward *f, uint32_t row, uint32_t *n) {
    *n = kv_blocks_of(f->batch.position[row] + 1);
    return f->kv.tables[f->batch.slot[row]].blocks;
}

// Any order does that keeps equal beginnings together.
static bool comes_first(const struct forward *f, uint32_t a, uint32_t b) {
    uint32_t n_a, n_b;
    const uint32_t *x = table_of(f, a, &n_a), *y = table_of(f, b, &n_b);
    int difference = memcmp(x, y, (n_a < n_b ? n_a : n_b) * sizeof *x);
    return difference != 0 ? difference < 0 : n_a <= n_b;
}

static uint32_t common_blocks(const struct forward *f, uint32_t a, uint32_t b) {
    uint32_t n_a, n_b, n = 0;
    const uint32_t *x = table_of(f, a, &n_a), *y = table_of(f, b, &n_b);
    while (n < n_a && n < n_b && x[n] == y[n])
        n++;
    return n;
}

static void merge_runs(const struct forward *f, uint32_t *to, const uint32_t *from,
                       const uint32_t ends[3]) {
    uint32_t a = ends[0], b = ends[1];
    for (uint32_t i = ends[0]; i < ends[2]; i++) {
        bool first = b == ends[2] || (a < ends[1] && comes_first(f, from[a], from[b]));
        to[i] = first ? from[a++] : from[b++];
    }
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// Sorted, they are in singles[0].
static void sort_singles(struct forward *f, uint32_t n) {
    struct tiles *t = &f->attn.tiles;
    for (uint32_t length = 1; length < n; length *= 2) {
        for (uint32_t at = 0; at < n; at += 2 * length)
            merge_runs(
                f, t->singles[1], t->singles[0],
                (const uint32_t[3]){at, smaller(at + length, n), smaller(at + 2 * length, n)});
        uint32_t *sorted = t->singles[1];
        t->singles[1] = t->singles[0];
        t->singles[0] = sorted;
    }
}

// --- the split

// Latents are read by all heads of a row: where these are many, nothing is left to share.
static bool shares(const struct forward *f) {
    return !f->kv.latents;
}

static uint32_t find_singles(struct forward *f) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->batch.n_seqs; i++)
        if (f->batch.seqs[i].n_rows == 1)
            f->attn.tiles.singles[0][n++] = f->batch.seqs[i].row_begin;
    return n;
}

// Rows of sequences that run more than one, then the singles.
static void order_rows(struct forward *f, uint32_t n_singles) {
    struct tiles *t = &f->attn.tiles;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->batch.n_seqs; i++) {
        const struct batch_seq *seq = &f->batch.seqs[i];
        for (uint32_t row = 0; (seq->n_rows > 1 || n_singles == 0) && row < seq->n_rows; row++)
            t->order[n++] = seq->row_begin + row;
    }
    memcpy(t->order + n, t->singles[0], n_singles * sizeof *t->order);
    for (uint32_t i = 0; i < f->batch.n_rows; i++)
        t->place[t->order[i]] = i;
}

static void cut_sequences(struct forward *f, uint32_t end, uint32_t rows_per_tile) {
    struct tiles *t = &f->attn.tiles;
    for (uint32_t at = 0, n; at < end; at += n) {
        uint32_t row = t->order[at], slot = f->batch.slot[row];
        for (n = 1; n < rows_per_tile && at + n < end; n++)
            if (f->batch.slot[t->order[at + n]] != slot) break;
        n = indexer_tile_rows(f, row, n);
        t->tiles[t->n++] = (struct attn_tile){at, n, 0};
    }
}

// What a tile shares shrinks as it grows: sorted, each row begins less like the first than the one
// before. A row that would cost the others much of it begins a tile of its own.
static void cut_singles(struct forward *f, uint32_t begin, uint32_t rows_per_tile) {
    struct tiles *t = &f->attn.tiles;
    for (uint32_t at = begin, n; at < f->batch.n_rows; at += n) {
        uint32_t shared = f->kv.blocks_max;
        for (n = 1; n < rows_per_tile && at + n < f->batch.n_rows; n++) {
            uint32_t common = common_blocks(f, t->order[at], t->order[at + n]);
            if (common < SHARED_BLOCKS_MIN || (n > 1 && common < shared / 2)) break;
            shared = smaller(shared, common);
        }
        t->tiles[t->n++] = (struct attn_tile){at, n, n > 1 ? shared : 0};
    }
}

static void cut_tiles(struct forward *f, uint32_t n_singles, uint32_t rows_per_tile) {
    f->attn.tiles.n = 0;
    cut_sequences(f, f->batch.n_rows - n_singles, rows_per_tile);
    cut_singles(f, f->batch.n_rows - n_singles, rows_per_tile);
}

// Large tiles read pages seldom; but every thread wants work, so few tiles are cut smaller, and
// single rows by heads.
void tiles_plan(struct forward *f) {
    struct attn *a = &f->attn;
    uint32_t wanted = f->n_threads == 1 ? 1 : f->n_threads * ITEMS_PER_THREAD;
    uint32_t rows_per_tile = ATTN_ITEM_QUERIES / a->group;
    if (rows_per_tile == 0) rows_per_tile = 1;
    uint32_t n_singles = shares(f) ? find_singles(f) : 0;
    sort_singles(f, n_singles);
    order_rows(f, n_singles);
    cut_tiles(f, n_singles, rows_per_tile);
    while (rows_per_tile > 1 && a->tiles.n * f->slice.n_kv_heads < wanted) {
        rows_per_tile = (rows_per_tile + 1) / 2;
        cut_tiles(f, n_singles, rows_per_tile);
    }
    a->tiles.heads_per_item = a->group;
    uint32_t n_items = a->tiles.n * f->slice.n_kv_heads;
    while (rows_per_tile == 1 && a->tiles.heads_per_item % 2 == 0 && n_items < wanted) {
        a->tiles.heads_per_item /= 2;
        n_items *= 2;
    }
}
