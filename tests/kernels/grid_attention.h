// grid_attention.h: attend of one table against the oracle, over ranges that end in the middle of
// blocks and partitions.
#ifndef MOESAIC_TESTS_GRID_ATTENTION_H
#define MOESAIC_TESTS_GRID_ATTENTION_H

#include "tests/kernels/kernel_testing.h"

#define QUERIES_MAX 72 // more than pass over a partition together

static const enum dtype kv_types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_E4M3, DTYPE_I8};
#define N_KV_TYPES (sizeof kv_types / sizeof *kv_types)

struct attend_case {
    struct test_pages pages;
    uint32_t first[QUERIES_MAX], n[QUERIES_MAX], n_q;
    const uint32_t *const *tables; // NULL: that of the pages
    uint32_t n_shared;
};

static void attend_run(const struct kernel_ops *ops, struct attend_job *job, float *out,
                       size_t n_out) {
    size_t scratch_bytes =
        attend_scratch_floats(job->n_q, job->head_dim, job->value_dim) * sizeof(float);
    for (size_t i = 0; i < n_out; i++)
        out[i] = -77.5f;
    job->out = out;
    job->scratch = test_guarded(scratch_bytes);
    memset(job->scratch, 0xff, scratch_bytes);
    ops->attend(job);
    test_guarded_free(job->scratch, scratch_bytes);
}

// Sinks: a logit a query that only takes weight.
static void attend_compare_as(struct attend_case *c, bool finite, bool sinks) {
    struct attend_job job = test_pages_job(&c->pages);
    float sink[QUERIES_MAX];
    for (uint32_t i = 0; i < c->n_q; i++)
        sink[i] = 8.0f * test_uniform();
    if (sinks) job.sinks = sink;
    float factors[QUERIES_MAX];
    for (uint32_t i = 0; i < c->n_q; i++)
        factors[i] = 1.0f + 0.5f * test_uniform();
    if (test_random() % 4 == 0) job.softcap = 5.0f;
    if (test_random() % 4 == 0) job.factors = factors;
    uint32_t dim = job.head_dim;
    job.q_stride = dim + 1, job.out_stride = dim + 2;
    job.n_q = c->n_q, job.first_key = c->first, job.n_keys = c->n;
    job.tables = c->tables, job.n_shared = c->n_shared;
    size_t q_bytes = ((c->n_q - 1) * job.q_stride + dim) * sizeof(float),
           n_out = c->n_q * job.out_stride + 32;
    float *q = test_guarded(q_bytes), *got = mem_array(n_out, sizeof *got),
          *want = mem_array(n_out, sizeof *want);
    for (size_t i = 0; i < q_bytes / sizeof *q; i++)
        q[i] = 6.0f * test_uniform();
    job.q = q;
    attend_run(kernel_ops_ref(), &job, want, n_out);
    attend_run(table, &job, got, n_out);
    size_t at = test_first_difference(got, want, n_out);
    ck_assert_msg(at == n_out, "%s head_dim %u queries %u keys %u: element %zu is %a, must be %a",
                  dtype_name(job.kv_dtype), dim, c->n_q, c->pages.n_keys, at, got[at % n_out],
                  want[at % n_out]);
    for (size_t i = 0; i < n_out && finite; i++)
        ck_assert(isfinite(got[i]));
    test_guarded_free(q, q_bytes);
    mem_free(got);
    mem_free(want);
}

static void attend_compare(struct attend_case *c, bool finite) {
    attend_compare_as(c, finite, test_random() % 2);
}

// Ranges as a chunk's rows have them: each sees one key more than the one before; window 0 = from
// the first key.
static void attend_chunk(struct attend_case *c, uint32_t window) {
    for (uint32_t i = 0; i < c->n_q; i++) {
        uint32_t back = c->n_q - 1 - i;
        c->n[i] = c->pages.n_keys > back ? c->pages.n_keys - back : 1;
        c->first[i] = window != 0 && c->n[i] > window ? c->n[i] - window : 0;
    }
    attend_compare(c, true);
}

static void attend_grid(uint32_t dim, enum dtype dtype) {
    const uint32_t lengths[] = {1, 15, 16, 17, 511, 512, 513, 1100},
                   counts[] = {1, 2, 3, 5, 8, 9, 17};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        struct attend_case c = {.pages = test_pages_make(lengths[l], dim, dtype, l % 2)};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            c.n_q = counts[i];
            attend_chunk(&c, 0);
            attend_chunk(&c, i % 2 ? 1 : 100);
            for (uint32_t q = 0; q < c.n_q; q++) { // as heads of one row
                c.n[q] = lengths[l];
                c.first[q] = i % 2 ? 0 : lengths[l] / 3;
            }
            attend_compare(&c, true);
        }
        test_pages_free(&c.pages);
    }
}

START_TEST(attend_equals_the_oracle_on_awkward_lengths) {
    const uint32_t dims[] = {1, 8, 16, 24, 80, 144};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        for (size_t t = 0; t < N_KV_TYPES; t++) {
            // The narrow types take turns: what differs is how elements are loaded.
            if (t < 2 || t % 2 == i % 2) attend_grid(dims[i], kv_types[t]);
        }
    }
}
END_TEST

START_TEST(attend_equals_the_oracle_on_unrelated_ranges) {
    for (int round = 0; round < 40; round++) {
        enum dtype dtype = kv_types[(size_t)round % N_KV_TYPES];
        struct attend_case c = {.pages = test_pages_make(1600, 40, dtype, round % 3 == 0),
                                .n_q = 1 + test_random() % QUERIES_MAX};
        for (uint32_t i = 0; i < c.n_q; i++) {
            c.n[i] = 1 + test_random() % 1600;
            c.first[i] = test_random() % 2 ? 0 : test_random() % c.n[i];
        }
        attend_compare(&c, true);
        test_pages_free(&c.pages);
    }
}
END_TEST

#define SHARED_BLOCKS 72 // 1,152 keys: more than two partitions

// Rows of several sequences, with heads queries each, that have n_shared blocks in common; behind
// those each has pages of its own.
static void attend_shared(enum dtype dtype, uint32_t n_shared, uint32_t heads, uint32_t window) {
    struct attend_case c = {.pages = test_pages_make(SHARED_BLOCKS * 16, 24, dtype, heads % 2),
                            .n_q = QUERIES_MAX,
                            .n_shared = n_shared};
    static uint32_t blocks[QUERIES_MAX][SHARED_BLOCKS];
    const uint32_t *tables[QUERIES_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c.n_q; i++) {
        uint32_t seq = i / heads;
        for (uint32_t b = 0; b < SHARED_BLOCKS; b++)
            blocks[seq][b] =
                b < n_shared ? c.pages.table[b] : (b * 5 + seq * 7 + 1) % SHARED_BLOCKS;
        tables[i] = blocks[seq];
        if (i % heads == 0) n = 1 + test_random() % (SHARED_BLOCKS * 16);
        c.n[i] = n;
        c.first[i] = window != 0 && n > window ? n - window : 0;
    }
    c.tables = tables;
    attend_compare(&c, true);
    test_pages_free(&c.pages);
}

START_TEST(attend_equals_the_oracle_where_sequences_share_their_first_pages) {
    const uint32_t shared[] = {1, 31, 32, 33, 64, SHARED_BLOCKS};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        for (uint32_t heads = 1; heads <= 8; heads++) {
            enum dtype dtype = kv_types[(i + heads) % N_KV_TYPES];
            attend_shared(dtype, shared[i], heads, heads % 3 == 0 ? 300 : 0);
        }
    }
}
END_TEST

START_TEST(attend_reads_no_key_outside_of_a_querys_range) {
    // A key of NaN in the middle: ranges end before it or begin behind it, in the same tile.
    for (uint32_t poison = 500; poison < 530; poison++) {
        struct attend_case c = {
            .pages = test_pages_make(600, 24, kv_types[poison % N_KV_TYPES], poison % 3 == 1),
            .n_q = poison / 4 % 2 ? 16 : 48};
        test_page_poison(&c.pages, poison);
        for (uint32_t i = 0; i < c.n_q; i++) {
            bool before = i % 3 != 0;
            c.first[i] = before ? i : poison + 1 + i % 2;
            c.n[i] = before ? poison - i % 2 : 600 - i;
        }
        attend_compare_as(&c, true, poison % 3 == 0);
        test_pages_free(&c.pages);
    }
}
END_TEST

START_TEST(attend_carries_infinities_and_nan_as_the_oracle) {
    const float bad[] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f};
    for (int round = 0; round < 180; round++) {
        bool many = round >= 120; // pages are turned into float32 once for all of them
        static const enum dtype types[] = {DTYPE_F32, DTYPE_E4M3, DTYPE_I8};
        struct attend_case c = {.pages = test_pages_make(540, 16, types[round % 3], false),
                                .n_q = many ? 24 : 6};
        for (int i = 0; i < 3; i++) {
            float x = bad[test_random() % 5];
            uint32_t key = test_random() % 540;
            test_page_scale(&c.pages, key, round & 1, x);
            if (types[round % 3] != DTYPE_I8)
                test_page_put(&c.pages, key, test_random() % 16, round & 1, x);
        }
        for (uint32_t i = 0; i < c.n_q; i++)
            c.n[i] = 540 - i, c.first[i] = i * (many ? 20 : 50);
        attend_compare(&c, false);
        test_pages_free(&c.pages);
    }
}
END_TEST

#endif
