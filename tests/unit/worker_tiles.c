// worker_tiles.c: which rows read pages together: every row stands in one tile, rows of a sequence
// and single rows with a common beginning share theirs, and no thread is left without work.
#include "worker/tiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/suite.h"
#include "worker/forward.h"

#define SLOTS 48
#define ROWS 1024
#define BLOCKS 64 // of each slot's table

static struct model_spec spec; // whose rows attend to all before them
static struct forward f;
static struct scratch memory;

static void lay(struct scratch *s) {
    batch_lay(&f.batch,
              &(struct batch_sizes){.n_slots = SLOTS,
                                    .rows_max = ROWS,
                                    .max_model_len = BLOCKS * KV_BLOCK_TOKENS,
                                    .kv_blocks = SLOTS * BLOCKS},
              s);
    f.kv.tables = scratch_take(s, SLOTS, sizeof *f.kv.tables);
    uint32_t *blocks = scratch_take(s, (size_t)SLOTS * BLOCKS, sizeof *blocks);
    for (uint32_t i = 0; blocks != NULL && i < SLOTS; i++)
        f.kv.tables[i] = (struct kv_table){blocks + (size_t)i * BLOCKS, BLOCKS};
    tiles_lay(&f, s);
}

// Tables of all slots differ from their first block on.
static void tables_differ(void) {
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        for (uint32_t i = 0; i < BLOCKS; i++)
            f.kv.tables[slot].blocks[i] = i * SLOTS + (slot * 29 + 5) % SLOTS;
}

static void setup(void) {
    struct err_text e;
    memset(&memory, 0, sizeof memory);
    f = (struct forward){.spec = &spec, .n_threads = 1, .kv = {.blocks_max = BLOCKS}};
    f.config.rows_max = ROWS;
    f.config.n_slots = SLOTS;
    f.attn.group = 1;
    f.slice.n_heads = f.slice.n_kv_heads = 1;
    lay(&memory);
    ck_assert_int_eq(scratch_allocate(&memory, &e), 0);
    lay(&memory);
    tables_differ();
}

static void teardown(void) {
    scratch_finish(&memory);
}

static void shape(uint32_t n_threads, uint32_t n_kv_heads, uint32_t group) {
    f.n_threads = n_threads;
    f.slice.n_kv_heads = n_kv_heads;
    f.slice.n_heads = n_kv_heads * group;
    f.attn.group = group;
}

// The slot runs n rows from this position on.
static void run(uint32_t slot, uint32_t position, uint32_t n) {
    struct batch *b = &f.batch;
    b->seqs[b->n_seqs++] = (struct batch_seq){.slot = slot, .row_begin = b->n_rows, .n_rows = n};
    for (uint32_t i = 0; i < n; i++) {
        b->slot[b->n_rows] = slot;
        b->position[b->n_rows++] = position + i;
    }
}

static void next_step(void) {
    f.batch.n_seqs = f.batch.n_rows = 0;
}

// The tables of both begin with the same n blocks.
static void share(uint32_t slot, uint32_t with, uint32_t n) {
    memcpy(f.kv.tables[slot].blocks, f.kv.tables[with].blocks, n * sizeof(uint32_t));
}

// --- what holds of any split

// Check's own asserts note each one that holds, which costs more than all else here.
#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) ck_abort_msg("%s", #condition);                                          \
    } while (0)

static const struct attn_tile *tile_of(uint32_t row) {
    const struct tiles *t = &f.attn.tiles;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->place[row] - t->tiles[i].begin < t->tiles[i].n_rows) return &t->tiles[i];
    ck_abort_msg("row %u is in no tile", row);
}

static void check_rows(const struct attn_tile *tile) {
    const struct tiles *t = &f.attn.tiles;
    const uint32_t *rows = t->order + tile->begin, *slot = f.batch.slot;
    bool one_sequence = true;
    for (uint32_t i = 1; i < tile->n_rows; i++)
        one_sequence &= slot[rows[i]] == slot[rows[0]];
    for (uint32_t i = 0; i < tile->n_rows; i++) {
        if (one_sequence) must(rows[i] == rows[0] + i);
        must(tile->n_shared <= kv_blocks_of(f.batch.position[rows[i]] + 1));
        must(memcmp(f.kv.tables[slot[rows[i]]].blocks, f.kv.tables[slot[rows[0]]].blocks,
                    tile->n_shared * sizeof(uint32_t)) == 0);
    }
    // A tile reads the shared pages once, so there must be some.
    if (!one_sequence) must(tile->n_shared > 0);
}

static void plan(void) {
    static uint8_t seen[ROWS];
    const struct tiles *t = &f.attn.tiles;
    uint32_t at = 0;
    tiles_plan(&f);
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < f.batch.n_rows; i++) {
        must(t->order[i] < f.batch.n_rows);
        must(seen[t->order[i]]++ == 0);
        must(t->place[t->order[i]] == i);
    }
    for (uint32_t i = 0; i < t->n; at += t->tiles[i++].n_rows) {
        must(t->tiles[i].begin == at);
        must(t->tiles[i].n_rows > 0);
        check_rows(&t->tiles[i]);
    }
    must(at == f.batch.n_rows);
    must(t->heads_per_item > 0);
    must(f.attn.group % t->heads_per_item == 0);
}

static uint32_t n_items(void) {
    const struct tiles *t = &f.attn.tiles;
    return t->n * f.slice.n_kv_heads * (f.attn.group / t->heads_per_item);
}

// --- sequences

START_TEST(rows_of_a_sequence_read_its_pages_together_and_not_with_others) {
    run(0, 0, 64);
    run(1, 100, 1);
    run(2, 300, 40);
    run(3, 7, 1);
    share(2, 0, BLOCKS); // a whole table of another, and still a sequence of its own
    plan();
    ck_assert_uint_eq(f.attn.tiles.n, 4);
    ck_assert_uint_eq(tile_of(0)->n_rows, 64);
    ck_assert_uint_eq(tile_of(65)->n_rows, 40);
}
END_TEST

START_TEST(a_long_run_is_cut_so_that_an_item_has_its_queries_and_no_more) {
    static const uint32_t groups[] = {1, 4, 5, 64, 100};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        shape(1, 2, groups[i]);
        next_step();
        run(9, 0, 300);
        plan();
        uint32_t most = groups[i] > ATTN_ITEM_QUERIES ? 1 : ATTN_ITEM_QUERIES / groups[i];
        for (uint32_t tile = 0; tile < f.attn.tiles.n; tile++)
            ck_assert_uint_le(f.attn.tiles.tiles[tile].n_rows, most);
        ck_assert_uint_eq(f.attn.tiles.n, (300 + most - 1) / most);
    }
}
END_TEST

// --- single rows

#define FAMILIES 3
#define COMMON 20 // blocks of a family

START_TEST(single_rows_that_begin_alike_share_a_tile_in_whatever_order_they_come) {
    for (uint32_t turn = 0; turn < 16; turn++) {
        tables_differ();
        next_step();
        for (uint32_t i = 0; i < 8 * FAMILIES; i++) {
            uint32_t slot = (i * 7 + turn * 5) % (8 * FAMILIES), family = slot % FAMILIES;
            if (slot != family) share(slot, family, COMMON);
            run(slot, (COMMON + slot + turn) * KV_BLOCK_TOKENS, 1);
        }
        plan();
        ck_assert_uint_eq(f.attn.tiles.n, FAMILIES);
        for (uint32_t row = 0; row < f.batch.n_rows; row++) {
            const struct attn_tile *tile = tile_of(row);
            ck_assert_uint_eq(tile->n_rows, 8);
            ck_assert_uint_eq(tile->n_shared, COMMON);
        }
    }
}
END_TEST

START_TEST(single_rows_that_begin_otherwise_read_for_themselves) {
    for (uint32_t slot = 0; slot < 30; slot++)
        run(slot, slot * 30, 1);
    plan();
    ck_assert_uint_eq(f.attn.tiles.n, 30);
}
END_TEST

// Blocks that stand in the table for later positions are not shared yet.
START_TEST(only_blocks_up_to_a_rows_own_position_are_shared) {
    share(1, 0, BLOCKS);
    run(0, 40 * KV_BLOCK_TOKENS + 3, 1);
    run(1, 30 * KV_BLOCK_TOKENS - 1, 1);
    plan();
    ck_assert_uint_eq(tile_of(0)->n_rows, 2);
    ck_assert_uint_eq(tile_of(0)->n_shared, 30);
}
END_TEST

// --- work for all threads

START_TEST(few_tiles_are_cut_smaller_until_every_thread_has_work) {
    for (uint32_t n_threads = 2; n_threads <= 16; n_threads *= 2) {
        shape(n_threads, 1, 4);
        next_step();
        run(0, 0, 64);
        plan();
        ck_assert_uint_ge(n_items(), n_threads);
        shape(n_threads, 2, 8); // 16 heads of a single row
        next_step();
        run(0, 500, 1);
        plan();
        ck_assert_uint_ge(n_items(), n_threads);
        next_step(); // single rows that share
        for (uint32_t slot = 0; slot < 8; slot++) {
            share(slot, 0, slot == 0 ? 0 : COMMON);
            run(slot, 500, 1);
        }
        plan();
        ck_assert_uint_ge(n_items(), n_threads);
    }
}
END_TEST

START_TEST(many_tiles_are_left_large) {
    shape(4, 1, 1);
    for (uint32_t slot = 0; slot < 16; slot++)
        run(slot, 0, 64);
    plan();
    ck_assert_uint_eq(f.attn.tiles.n, 16);
    ck_assert_uint_eq(f.attn.tiles.heads_per_item, 1);
}
END_TEST

START_TEST(a_step_without_rows_has_no_tiles) {
    shape(8, 1, 8);
    plan();
    ck_assert_uint_eq(f.attn.tiles.n, 0);
}
END_TEST

// --- any step

static uint64_t random_state;

static uint32_t draw(uint32_t below) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static void random_step(void) {
    static const uint32_t groups[] = {1, 2, 3, 6, 8, 64, 80};
    shape(1 + draw(8), 1 + draw(4), groups[draw(7)]);
    f.kv.latents = draw(4) == 0;
    tables_differ();
    next_step();
    uint32_t n_seqs = draw(SLOTS + 1), first = draw(SLOTS);
    for (uint32_t i = 0; i < n_seqs; i++) {
        uint32_t slot = (first + i * 5) % SLOTS, n = draw(3) == 0 ? 1 + draw(40) : 1;
        if (i > 0) share(slot, f.batch.seqs[draw(i)].slot, draw(BLOCKS + 1));
        if (f.batch.n_rows + n > ROWS) n = 1;
        run(slot, draw(BLOCKS * KV_BLOCK_TOKENS - n + 1), n);
    }
}

START_TEST(every_step_has_each_row_once_beside_rows_that_read_the_same) {
    const char *given = getenv("SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 1;
    for (uint32_t i = 0; i < 1000; i++) {
        random_state = seed + i;
        draw(2);
        random_step();
        plan();
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_tiles");
    TCase *t = tcase_create("tiles");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, rows_of_a_sequence_read_its_pages_together_and_not_with_others);
    tcase_add_test(t, a_long_run_is_cut_so_that_an_item_has_its_queries_and_no_more);
    tcase_add_test(t, single_rows_that_begin_alike_share_a_tile_in_whatever_order_they_come);
    tcase_add_test(t, single_rows_that_begin_otherwise_read_for_themselves);
    tcase_add_test(t, only_blocks_up_to_a_rows_own_position_are_shared);
    tcase_add_test(t, few_tiles_are_cut_smaller_until_every_thread_has_work);
    tcase_add_test(t, many_tiles_are_left_large);
    tcase_add_test(t, a_step_without_rows_has_no_tiles);
    tcase_add_test(t, every_step_has_each_row_once_beside_rows_that_read_the_same);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
