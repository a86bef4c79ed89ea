// grid_latent.h: attend_latent of one table against the oracle, over ranges that end in the middle
// of blocks and partitions, and over keys that were chosen.
#ifndef MOESAIC_TESTS_GRID_LATENT_H
#define MOESAIC_TESTS_GRID_LATENT_H

#include "tests/kernels/grid_attention.h"

#define LATENT_KEYS_MAX 1600

// Pages of latents in shuffled order; every slot past n_keys is NaN.
struct latent_pages {
    uint32_t n_keys, key_dim, value_dim, n_blocks;
    enum dtype dtype;
    size_t page_bytes;
    unsigned char *data;
    uint32_t *table;
};

static unsigned char *latent_page(const struct latent_pages *s, uint32_t key) {
    return s->data + s->table[key / 16] * s->page_bytes;
}

static void latent_put(struct latent_pages *s, uint32_t key, uint32_t d, float x) {
    size_t index = (size_t)(key % 16) * s->key_dim + d;
    unsigned char *at = latent_page(s, key) + index * dtype_bytes(s->dtype);
    if (s->dtype == DTYPE_I8)
        *at = (unsigned char)(int)x;
    else
        kernel_ops_ref()->pack(at, &x, s->dtype, 1);
}

static void latent_scales(struct latent_pages *s, uint32_t key, float value, float rest) {
    const float scales[] = {value, rest};
    if (s->dtype == DTYPE_I8)
        memcpy(latent_page(s, key) + (size_t)16 * s->key_dim + key % 16 * sizeof scales, scales,
               sizeof scales);
}

static void latent_poison(struct latent_pages *s, uint32_t key) {
    latent_scales(s, key, NAN, NAN);
    for (uint32_t d = 0; d < s->key_dim && s->dtype != DTYPE_I8; d++)
        latent_put(s, key, d, NAN);
}

static struct latent_pages latent_make(uint32_t n_keys, uint32_t key_dim, uint32_t value_dim,
                                       enum dtype dtype) {
    struct latent_pages s = {n_keys, key_dim, value_dim, (n_keys + 15) / 16, dtype, 0, NULL, NULL};
    bool codes = dtype == DTYPE_I8;
    s.page_bytes = 16 * latent_row_bytes(dtype, key_dim);
    s.data = test_guarded(s.n_blocks * s.page_bytes);
    s.table = mem_array(s.n_blocks, sizeof *s.table);
    for (uint32_t b = 0; b < s.n_blocks; b++)
        s.table[b] = s.n_blocks - 1 - b;
    for (uint32_t key = 0; key < n_keys; key++) {
        for (uint32_t d = 0; d < key_dim; d++)
            latent_put(&s, key, d, codes ? rintf(127.0f * test_uniform()) : test_uniform());
        latent_scales(&s, key, (0.5f + fabsf(test_uniform())) / 127.0f,
                      (0.5f + fabsf(test_uniform())) / 50.0f);
    }
    for (uint32_t key = n_keys; key < s.n_blocks * 16; key++)
        latent_poison(&s, key);
    return s;
}

static void latent_free(struct latent_pages *s) {
    test_guarded_free(s->data, s->n_blocks * s->page_bytes);
    mem_free(s->table);
}

static void latent_run(const struct kernel_ops *ops, struct latent_job *job, float *out,
                       size_t n_out) {
    size_t bytes = attend_latent_scratch_floats(job->key_dim, job->value_dim) * sizeof(float);
    for (size_t i = 0; i < n_out; i++)
        out[i] = -77.5f;
    job->out = out;
    job->scratch = test_guarded(bytes);
    memset(job->scratch, 0xff, bytes);
    ops->attend_latent(job);
    test_guarded_free(job->scratch, bytes);
}

// Runs the job of random queries with both tables; where they differ, it says which keys these
// were.
static void latent_equal(struct latent_job *job, bool finite, const char *keys) {
    size_t q_bytes = ((job->n_q - 1) * job->q_stride + job->key_dim) * sizeof(float),
           n_out = job->n_q * job->out_stride + 32;
    float *q = test_guarded(q_bytes), *got = mem_array(n_out, sizeof *got),
          *want = mem_array(n_out, sizeof *want);
    for (size_t i = 0; i < q_bytes / sizeof *q; i++)
        q[i] = 6.0f * test_uniform();
    job->q = q;
    latent_run(kernel_ops_ref(), job, want, n_out);
    latent_run(table, job, got, n_out);
    size_t at = test_first_difference(got, want, n_out);
    ck_assert_msg(at == n_out, "%s %u of %u queries %u %s: element %zu is %a, not %a",
                  dtype_name(job->kv_dtype), job->value_dim, job->key_dim, job->n_q, keys, at,
                  got[at % n_out], want[at % n_out]);
    for (size_t i = 0; i < n_out && finite; i++)
        ck_assert(isfinite(got[i]));
    test_guarded_free(q, q_bytes);
    mem_free(got);
    mem_free(want);
}

struct latent_case {
    struct latent_pages pages;
    uint32_t n[QUERIES_MAX], n_q;
    uint32_t chosen[LATENT_KEYS_MAX], n_chosen; // 0 = all
    bool finite;
};

static void latent_compare(struct latent_case *c) {
    const struct latent_pages *pages = &c->pages;
    const struct latent_keys keys = {.pages = pages->data,
                                     .block_stride = pages->page_bytes,
                                     .rate = 1,
                                     .n = c->n,
                                     .chosen = c->n_chosen != 0 ? c->chosen : NULL,
                                     .n_chosen = c->n_chosen};
    struct latent_job job = {.q_stride = pages->key_dim + 1,
                             .out_stride = pages->value_dim + 2,
                             .n_q = c->n_q,
                             .key_dim = pages->key_dim,
                             .value_dim = pages->value_dim,
                             .kinds = &keys,
                             .n_kinds = 1,
                             .block_table = pages->table,
                             .kv_dtype = pages->dtype,
                             .scale = 0.3f};
    char words[64];
    snprintf(words, sizeof words, "keys %u chosen %u", pages->n_keys, c->n_chosen);
    latent_equal(&job, c->finite, words);
}

// Every key with odds of one in so many; the first of them always.
static void latent_choose(struct latent_case *c, uint32_t one_in) {
    c->n_chosen = 0;
    for (uint32_t key = test_random() % one_in % c->pages.n_keys; key < c->pages.n_keys; key++)
        if (c->n_chosen == 0 || test_random() % one_in == 0) c->chosen[c->n_chosen++] = key;
}

static void latent_grid(uint32_t key_dim, uint32_t value_dim, enum dtype dtype) {
    const uint32_t lengths[] = {1, 15, 17, 64, 65, 512, 513, 1100}, counts[] = {1, 3, 8, 33};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        static struct latent_case c;
        c = (struct latent_case){.pages = latent_make(lengths[l], key_dim, value_dim, dtype),
                                 .finite = true};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            c.n_q = counts[i];
            c.n_chosen = 0;
            for (uint32_t q = 0; q < c.n_q; q++) // as a chunk's rows
                c.n[q] = lengths[l] > c.n_q - 1 - q ? lengths[l] - (c.n_q - 1 - q) : 1;
            latent_compare(&c);
            for (uint32_t q = 0; q < c.n_q; q++) // as heads of one row
                c.n[q] = lengths[l];
            latent_compare(&c);
            latent_choose(&c, i == 0 ? 200 : i == 1 ? 30 : 2);
            latent_compare(&c);
        }
        latent_free(&c.pages);
    }
}

START_TEST(attend_latent_equals_the_oracle_on_awkward_sizes) {
    const uint32_t dims[][2] = {{3, 1}, {24, 16}, {57, 40}, {96, 64}, {16, 16}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        for (size_t t = 0; t < N_KV_TYPES; t++)
            if (t < 2 || t % 2 == i % 2) latent_grid(dims[i][0], dims[i][1], kv_types[t]);
    }
}
END_TEST

START_TEST(attend_latent_equals_the_oracle_on_unrelated_lengths) {
    for (int round = 0; round < 24; round++) {
        static struct latent_case c;
        c = (struct latent_case){
            .pages = latent_make(LATENT_KEYS_MAX, 40, 33, kv_types[(size_t)round % N_KV_TYPES]),
            .n_q = 1 + test_random() % QUERIES_MAX,
            .finite = true};
        for (uint32_t i = 0; i < c.n_q; i++)
            c.n[i] = 1 + test_random() % LATENT_KEYS_MAX;
        latent_compare(&c);
        latent_free(&c.pages);
    }
}
END_TEST

START_TEST(attend_latent_reads_no_key_that_was_not_chosen) {
    for (int round = 0; round < 24; round++) {
        static struct latent_case c;
        c = (struct latent_case){
            .pages = latent_make(1100, 24, 16, kv_types[(size_t)round % N_KV_TYPES]),
            .n_q = 9,
            .finite = true};
        latent_choose(&c, 1 + (uint32_t)round * 4);
        for (uint32_t i = 0; i < c.n_q; i++)
            c.n[i] = 1100;
        for (uint32_t key = 0, at = 0; key < 1100; key++) {
            if (at < c.n_chosen && c.chosen[at] == key)
                at++;
            else
                latent_poison(&c.pages, key);
        }
        latent_compare(&c);
        latent_free(&c.pages);
    }
}
END_TEST

START_TEST(attend_latent_over_all_keys_chosen_is_attention_over_all) {
    static struct latent_case c;
    c = (struct latent_case){.pages = latent_make(1100, 24, 16, DTYPE_BF16)};
    float q[24], out[2][16];
    const uint32_t n_keys = 1100;
    test_fill(q, 24);
    latent_choose(&c, 1);
    ck_assert_uint_eq(c.n_chosen, n_keys);
    for (int chosen = 0; chosen < 2; chosen++) {
        const struct latent_keys keys = {.pages = c.pages.data,
                                         .block_stride = c.pages.page_bytes,
                                         .rate = 1,
                                         .n = &n_keys,
                                         .chosen = chosen ? c.chosen : NULL,
                                         .n_chosen = c.n_chosen};
        struct latent_job job = {.q = q,
                                 .q_stride = 24,
                                 .out_stride = 16,
                                 .n_q = 1,
                                 .key_dim = 24,
                                 .value_dim = 16,
                                 .kinds = &keys,
                                 .n_kinds = 1,
                                 .block_table = c.pages.table,
                                 .kv_dtype = DTYPE_BF16,
                                 .scale = 0.3f};
        latent_run(table, &job, out[chosen], 16);
    }
    ck_assert_mem_eq(out[0], out[1], sizeof out[0]);
    latent_free(&c.pages);
}
END_TEST

START_TEST(attend_latent_carries_infinities_and_nan_as_the_oracle) {
    const float bad[] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f};
    for (int round = 0; round < 60; round++) {
        static struct latent_case c;
        enum dtype dtype = round % 2 ? DTYPE_F32 : DTYPE_I8;
        c = (struct latent_case){.pages = latent_make(540, 20, 16, dtype), .n_q = 6};
        for (int i = 0; i < 3; i++) {
            uint32_t key = test_random() % 540;
            float x = bad[test_random() % 5];
            if (dtype == DTYPE_I8)
                latent_scales(&c.pages, key, round % 4 ? x : 1.0f, round % 4 ? 1.0f : x);
            else
                latent_put(&c.pages, key, test_random() % 20, x);
        }
        for (uint32_t i = 0; i < c.n_q; i++)
            c.n[i] = 540;
        if (round % 3 == 0) latent_choose(&c, 3);
        latent_compare(&c);
        latent_free(&c.pages);
    }
}
END_TEST

// Index keys are laid out as the keys of attend_job: pages of those serve.
START_TEST(index_scores_equal_the_oracle) {
    const uint32_t dims[] = {1, 8, 33, 128}, heads[] = {1, 3, 4, 9, 64};
    for (int round = 0; round < 80; round++) {
        uint32_t dim = dims[round % 4], n_heads = heads[round % 5],
                 n_keys = 1 + test_random() % 400;
        struct test_pages pages =
            test_pages_make(n_keys, dim, kv_types[(size_t)(round / 4) % N_KV_TYPES], false);
        float *q = test_guarded(n_heads * dim * sizeof *q), weights[64];
        test_fill(q, (size_t)n_heads * dim);
        test_fill(weights, n_heads);
        uint32_t first = test_random() % pages.n_blocks;
        struct index_job job = {.q = q,
                                .weights = weights,
                                .n_heads = n_heads,
                                .dim = dim,
                                .first_block = first,
                                .n_blocks = pages.n_blocks - first,
                                .block_table = pages.table,
                                .pages = pages.data,
                                .block_stride = pages.page_bytes,
                                .kv_dtype = pages.dtype,
                                .scale = 0.3f};
        uint32_t n = n_keys - first * 16;
        size_t bytes = (size_t)job.n_blocks * 16 * sizeof(float);
        float *got = test_guarded(bytes), *want = test_guarded(bytes);
        job.out = want;
        kernel_ops_ref()->index_scores(&job);
        job.out = got;
        table->index_scores(&job);
        size_t at = test_first_difference(got, want, n);
        ck_assert_msg(at == n, "%s dim %u heads %u keys %u: %zu is %a, not %a",
                      dtype_name(pages.dtype), dim, n_heads, n_keys, at, got[at % n], want[at % n]);
        for (uint32_t i = 0; i < n; i++)
            ck_assert(isfinite(got[i]));
        test_guarded_free(got, bytes);
        test_guarded_free(want, bytes);
        test_guarded_free(q, n_heads * dim * sizeof *q);
        test_pages_free(&pages);
    }
}
END_TEST

#endif
