// grid_entries.h: what compressed attention needs of one table against the oracle: rows of windows
// and of tokens in one softmax, with sinks; the index's scores of such rows; windows that become
// rows.
#ifndef MOESAIC_TESTS_GRID_ENTRIES_H
#define MOESAIC_TESTS_GRID_ENTRIES_H

#include "common/base/limits.h"
#include "tests/kernels/grid_latent.h"
#include "tests/kernels/grid_rows.h"

#define ENTRY_DIM_MAX 96

// The pages of one sequence: rows of windows, then of tokens. What was not written is NaN.
struct entry_pages {
    uint32_t n_tokens, rate, key_dim, value_dim, n_blocks;
    enum dtype dtype;
    size_t entry_bytes, page_bytes; // the windows' part, and all of it
    unsigned char *data;
    uint32_t *table;
};

static unsigned char *entry_part(const struct entry_pages *s, uint32_t rate, uint32_t row) {
    return s->data + s->table[latent_block(row, rate)] * s->page_bytes +
           (rate == 1 ? s->entry_bytes : 0);
}

static void entry_put(struct entry_pages *s, uint32_t rate, uint32_t row, bool finite) {
    unsigned char *part = entry_part(s, rate, row);
    uint32_t n = latent_page_rows(rate), at = row % n;
    float x[ENTRY_DIM_MAX], scales[2] = {(0.5f + fabsf(test_uniform())) / 127.0f,
                                         (0.5f + fabsf(test_uniform())) / 50.0f};
    test_fill(x, s->key_dim);
    if (!finite) scales[0] = scales[1] = NAN;
    for (uint32_t d = 0; d < s->key_dim && !finite; d++)
        x[d] = NAN;
    if (s->dtype != DTYPE_I8) {
        kernel_ops_ref()->pack(part + (size_t)at * s->key_dim * dtype_bytes(s->dtype), x, s->dtype,
                               s->key_dim);
        return;
    }
    for (uint32_t d = 0; d < s->key_dim; d++)
        part[(size_t)at * s->key_dim + d] = (unsigned char)(int)rintf(finite ? 127.0f * x[d] : 0);
    memcpy(part + (size_t)n * s->key_dim + at * sizeof scales, scales, sizeof scales);
}

static struct entry_pages entry_make(uint32_t n_tokens, uint32_t rate, const uint32_t dims[2],
                                     enum dtype dtype) {
    struct entry_pages s = {.n_tokens = n_tokens,
                            .rate = rate,
                            .key_dim = dims[0],
                            .value_dim = dims[1],
                            .n_blocks = (n_tokens + 15) / 16,
                            .dtype = dtype};
    s.entry_bytes = latent_page_rows(rate) * latent_row_bytes(dtype, s.key_dim);
    s.page_bytes = s.entry_bytes + 16 * latent_row_bytes(dtype, s.key_dim);
    s.data = test_guarded(s.n_blocks * s.page_bytes);
    s.table = mem_array(s.n_blocks, sizeof *s.table);
    for (uint32_t b = 0; b < s.n_blocks; b++)
        s.table[b] = s.n_blocks - 1 - b;
    for (uint32_t token = 0; token < s.n_blocks * 16; token++)
        entry_put(&s, 1, token, token < n_tokens);
    for (uint32_t row = 0; (row + 1) * rate <= s.n_blocks * 16; row++)
        entry_put(&s, rate, row, (row + 1) * rate <= n_tokens);
    return s;
}

static void entry_free(struct entry_pages *s) {
    test_guarded_free(s->data, s->n_blocks * s->page_bytes);
    mem_free(s->table);
}

struct entry_case {
    struct entry_pages pages;
    uint32_t first[QUERIES_MAX], n[QUERIES_MAX], entries[QUERIES_MAX], n_q;
    uint32_t chosen[LATENT_KEYS_MAX], n_chosen; // 0 = all
    bool finite, sinks;
};

static void entry_compare(struct entry_case *c) {
    const struct entry_pages *s = &c->pages;
    float sinks[QUERIES_MAX];
    for (uint32_t i = 0; i < c->n_q; i++)
        sinks[i] = 8.0f * test_uniform();
    const struct latent_keys kinds[] = {{.pages = s->data,
                                         .block_stride = s->page_bytes,
                                         .rate = s->rate,
                                         .n = c->entries,
                                         .chosen = c->n_chosen != 0 ? c->chosen : NULL,
                                         .n_chosen = c->n_chosen},
                                        {.pages = s->data + s->entry_bytes,
                                         .block_stride = s->page_bytes,
                                         .rate = 1,
                                         .first = c->first,
                                         .n = c->n}};
    struct latent_job job = {.q_stride = s->key_dim + 1,
                             .out_stride = s->value_dim + 2,
                             .n_q = c->n_q,
                             .key_dim = s->key_dim,
                             .value_dim = s->value_dim,
                             .kinds = kinds,
                             .n_kinds = 2,
                             .block_table = s->table,
                             .kv_dtype = s->dtype,
                             .scale = 0.3f,
                             .sinks = c->sinks ? sinks : NULL};
    char words[64];
    snprintf(words, sizeof words, "tokens %u rate %u", s->n_tokens, s->rate);
    latent_equal(&job, c->finite, words);
}

// Query i stands at `last` minus what is behind it, and sees a window and all entries before it.
static void entry_rows(struct entry_case *c, uint32_t window) {
    uint32_t last = c->pages.n_tokens - 1;
    for (uint32_t i = 0; i < c->n_q; i++) {
        uint32_t position = last > c->n_q - 1 - i ? last - (c->n_q - 1 - i) : 0;
        c->n[i] = position + 1;
        c->first[i] = c->n[i] > window ? c->n[i] - window : 0;
        c->entries[i] = c->n[i] / c->pages.rate;
    }
}

START_TEST(attend_latent_over_entries_and_tokens_equals_the_oracle) {
    const uint32_t dims[][2] = {{3, 3}, {24, 16}, {57, 40}, {64, 64}};
    const uint32_t lengths[] = {1, 17, 130, 513, 1300}, rates[] = {1, 2, 4, 8, 16, 32, 128};
    for (int round = 0; round < 140; round++) {
        static struct entry_case c;
        uint32_t n_q[] = {1, 2, 9, 33};
        c = (struct entry_case){.finite = true, .sinks = round % 3 != 0};
        c.pages = entry_make(lengths[round % 5], rates[round % 7], dims[round / 5 % 4],
                             kv_types[(size_t)round / 2 % N_KV_TYPES]);
        c.n_q = n_q[test_random() % 4];
        entry_rows(&c, 1 + test_random() % 700);
        entry_compare(&c);
        for (uint32_t i = 0; i < c.n_q; i++) { // as heads of one row
            c.n[i] = c.n[c.n_q - 1];
            c.first[i] = c.first[c.n_q - 1];
            c.entries[i] = c.entries[c.n_q - 1];
        }
        entry_compare(&c);
        for (uint32_t i = 0; i < c.n_q; i++) { // unrelated ones
            c.n[i] = 1 + test_random() % c.pages.n_tokens;
            c.first[i] = test_random() % c.n[i];
            c.entries[i] = test_random() % (c.n[i] / c.pages.rate + 1);
        }
        entry_compare(&c);
        entry_free(&c.pages);
    }
}
END_TEST

START_TEST(attend_latent_over_chosen_entries_equals_the_oracle) {
    for (int round = 0; round < 60; round++) {
        static struct entry_case c;
        const uint32_t rates[] = {2, 4, 16}, dims[] = {40, 40};
        c = (struct entry_case){.finite = true, .sinks = true, .n_q = 1 + test_random() % 33};
        c.pages = entry_make(1600, rates[round % 3], dims, kv_types[(size_t)round % N_KV_TYPES]);
        uint32_t last = 1599 - test_random() % 100, entries = (last + 1) / c.pages.rate;
        for (uint32_t i = 0; i < c.n_q; i++) {
            c.n[i] = last + 1;
            c.first[i] = last + 1 - 128;
            c.entries[i] = entries;
        }
        for (uint32_t row = 0; row < entries; row++) {
            if (c.n_chosen == 0 || test_random() % 3 == 0)
                c.chosen[c.n_chosen++] = row;
            else
                entry_put(&c.pages, c.pages.rate, row, false); // is not read
        }
        entry_compare(&c);
        entry_free(&c.pages);
    }
}
END_TEST

START_TEST(attend_latent_with_sinks_carries_infinities_and_nan_as_the_oracle) {
    const uint32_t dims[] = {20, 20};
    for (int round = 0; round < 40; round++) {
        static struct entry_case c;
        c = (struct entry_case){.n_q = 6, .sinks = round % 2};
        c.pages = entry_make(700, 4, dims, round % 4 < 2 ? DTYPE_F32 : DTYPE_I8);
        entry_rows(&c, 100);
        entry_put(&c.pages, 1, 690 + test_random() % 10, false);
        if (round % 3 == 0) entry_put(&c.pages, 4, test_random() % 170, false);
        entry_compare(&c);
        entry_free(&c.pages);
    }
}
END_TEST

START_TEST(entry_scores_equal_the_oracle) {
    const uint32_t dims[] = {1, 8, 33, 64}, heads[] = {1, 3, 4, 9, 64}, rates[] = {1, 2, 4, 16, 64};
    for (int round = 0; round < 80; round++) {
        uint32_t rate = rates[round / 5 % 5], dim = dims[round % 4], n_heads = heads[round % 5];
        uint32_t n_tokens = rate * (1 + test_random() % (2400 / rate)), n_rows = n_tokens / rate;
        struct entry_pages pages = entry_make(n_tokens, rate, (const uint32_t[]){dim, dim},
                                              kv_types[(size_t)(round / 4) % N_KV_TYPES]);
        float *q = test_guarded(n_heads * dim * sizeof *q), weights[64];
        test_fill(q, (size_t)n_heads * dim);
        test_fill(weights, n_heads);
        uint32_t first = test_random() % n_rows, n = n_rows - first;
        struct entry_job job = {.q = q,
                                .weights = weights,
                                .n_heads = n_heads,
                                .dim = dim,
                                .first = first,
                                .n = n,
                                .rate = rate,
                                .block_table = pages.table,
                                .pages = pages.data,
                                .block_stride = pages.page_bytes,
                                .kv_dtype = pages.dtype,
                                .scale = 0.3f};
        size_t bytes = n * sizeof(float);
        float *got = test_guarded(bytes), *want = test_guarded(bytes);
        job.out = want;
        kernel_ops_ref()->entry_scores(&job);
        job.out = got;
        table->entry_scores(&job);
        size_t at = test_first_difference(got, want, n);
        ck_assert_msg(at == n, "%s dim %u heads %u rows %u rate %u: %zu is %a, not %a",
                      dtype_name(pages.dtype), dim, n_heads, n_rows, rate, at, got[at % n],
                      want[at % n]);
        for (uint32_t i = 0; i < n; i++)
            ck_assert(isfinite(got[i]));
        test_guarded_free(got, bytes);
        test_guarded_free(want, bytes);
        test_guarded_free(q, n_heads * dim * sizeof *q);
        entry_free(&pages);
    }
}
END_TEST

static void op_window_sum(const struct kernel_ops *o, struct row_set *s) {
    const float *x[128], *gate[128], *place[128];
    const uint32_t counts[] = {1, 2, 4, 8, 128};
    struct window w = {x, gate, place, counts[s->n % 5]};
    for (uint32_t t = 0; t < w.n_rows; t++) {
        x[t] = s->row[t % 3];
        gate[t] = s->row[(t + 1) % 3];
        place[t] = s->row[(t / 3 + 2) % 3];
    }
    o->window_sum(s->row[3], &w, s->n);
}

START_TEST(window_sum_equals_the_oracle) {
    rows_grid(op_window_sum);
}
END_TEST

#endif
