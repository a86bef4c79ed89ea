// kernel_testing.h: what the kernel tests share: random numbers, buffers with canaries, paged
// sequences.
#ifndef MOESAIC_TESTS_KERNEL_TESTING_H
#define MOESAIC_TESTS_KERNEL_TESTING_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "kernels/ops.h"

static uint64_t test_random_state = 88172645463325252u;

static inline uint32_t test_random(void) {
    test_random_state ^= test_random_state << 13;
    test_random_state ^= test_random_state >> 7;
    test_random_state ^= test_random_state << 17;
    return (uint32_t)(test_random_state >> 32);
}

// Within [-1, 1].
static inline float test_uniform(void) {
    return (float)(int32_t)test_random() * 0x1p-31f;
}

static inline void test_fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = test_uniform();
}

// Numbers that go wrong first: zeros of both signs, denormals, tiny and large values among ordinary
// ones. Never NaN.
static inline float test_awkward(void) {
    switch (test_random() % 16) {
    case 0: return 0.0f;
    case 1: return -0.0f;
    case 2: return bits_to_f32(test_random() & 0x807fffffu);
    case 3: return test_uniform() * 0x1p-120f;
    case 4: return test_uniform() * 0x1p+60f;
    default: return test_uniform();
    }
}

// A seed given as SEED= repeats a run; it is printed when a test fails.
static inline uint64_t test_seed(void) {
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 20240229u;
    test_random_state = seed * 2654435761u + 88172645463325252u;
    return seed;
}

// Memory that ends where an unreadable page begins: what reads or writes one byte too far dies,
// masked or not.
static inline size_t test_guard_mapped(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page + page;
}

static inline void *test_guarded(size_t bytes) {
    size_t mapped = test_guard_mapped(bytes), page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p =
        mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(p != MAP_FAILED);
    ck_assert_int_eq(mprotect(p + mapped - page, page, PROT_NONE), 0);
    return p + mapped - page - bytes;
}

static inline void test_guarded_free(void *p, size_t bytes) {
    size_t mapped = test_guard_mapped(bytes), page = (size_t)sysconf(_SC_PAGESIZE);
    munmap((unsigned char *)p + bytes + page - mapped, mapped);
}

// Equal in every bit, where all NaNs are one (docs/arithmetic.md). Returns the first index that
// differs, or n.
static inline size_t test_first_difference(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (f32_to_bits(a[i]) != f32_to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return i;
    return n;
}

// A packed matrix of random weights. data is owned.
static inline struct matrix test_matrix(uint32_t n_out, uint32_t n_in, uint32_t n_segments,
                                        enum dtype dtype, const float *source) {
    struct matrix w = {.dtype = dtype, .n_out = n_out, .n_in = n_in, .n_segments = n_segments};
    void *data = mem_pages(matrix_bytes(&w), 64);
    ck_assert_ptr_nonnull(data);
    matrix_pack(&w, data, source, DTYPE_F32, n_in);
    w.data = data;
    return w;
}

static inline void test_matrix_free(struct matrix *w) {
    mem_pages_free((void *)w->data, matrix_bytes(w));
}

// Values as the format holds them.
static inline float test_rounded(float x, enum dtype dtype) {
    if (dtype == DTYPE_F16) return f16_to_f32(f32_to_f16(x));
    if (dtype == DTYPE_E4M3) return e4m3_to_f32(f32_to_e4m3(x));
    return dtype == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(x)) : x;
}

// One sequence's pages of one KV head, in shuffled order, K and V in one block; every slot past
// n_keys is NaN (of int8: its scale).
struct test_pages {
    uint32_t n_keys, head_dim, value_dim, n_blocks;
    enum dtype dtype;
    size_t key_bytes, page_bytes; // of K; of K and V
    unsigned char *data;
    uint32_t *table;
    float *k, *v; // [n_keys, head_dim] and [n_keys, value_dim], as stored
};

static inline unsigned char *test_page(const struct test_pages *s, uint32_t key, bool value) {
    return s->data + s->table[key / 16] * s->page_bytes + (value ? s->key_bytes : 0);
}

static inline uint32_t test_page_dim(const struct test_pages *s, bool value) {
    return value ? s->value_dim : s->head_dim;
}

// Of int8, x is the code.
static inline void test_page_put(struct test_pages *s, uint32_t key, uint32_t d, bool value,
                                 float x) {
    unsigned char *page = test_page(s, key, value);
    size_t index = value ? (size_t)(key % 16) * s->value_dim + d : (size_t)d * 16 + key % 16;
    uint16_t half = f32_to_bf16(x);
    if (s->dtype == DTYPE_F32)
        memcpy(page + index * 4, &x, 4);
    else if (s->dtype == DTYPE_BF16)
        memcpy(page + index * 2, &half, 2);
    else if (s->dtype == DTYPE_E4M3)
        page[index] = f32_to_e4m3(x);
    else
        page[index] = (unsigned char)(int)(isnan(x) ? 0 : x);
}

static inline void test_page_scale(struct test_pages *s, uint32_t key, bool value, float scale) {
    unsigned char *scales = test_page(s, key, value) + (size_t)16 * test_page_dim(s, value);
    if (s->dtype == DTYPE_I8) memcpy(scales + key % 16 * sizeof scale, &scale, sizeof scale);
}

// Whoever looks at this key gets NaN.
static inline void test_page_poison(struct test_pages *s, uint32_t key) {
    for (int value = 0; value <= 1; value++) {
        for (uint32_t d = 0; d < test_page_dim(s, value); d++)
            test_page_put(s, key, d, value, NAN);
        test_page_scale(s, key, value, NAN);
    }
}

static inline void test_page_fill(struct test_pages *s, uint32_t key, bool value) {
    uint32_t dim = test_page_dim(s, value);
    bool codes = s->dtype == DTYPE_I8;
    float scale = codes ? (0.5f + fabsf(test_uniform())) / 127.0f : 1.0f;
    float *stored = (value ? s->v : s->k) + (size_t)key * dim;
    test_page_scale(s, key, value, scale);
    for (uint32_t d = 0; d < dim; d++) {
        float x = codes ? rintf(127.0f * test_uniform()) : test_rounded(test_uniform(), s->dtype);
        test_page_put(s, key, d, value, x);
        stored[d] = x * scale;
    }
}

// Narrow: values have half the dimensions of keys.
static inline struct test_pages test_pages_make(uint32_t n_keys, uint32_t head_dim,
                                                enum dtype dtype, bool narrow) {
    struct test_pages s = {
        .n_keys = n_keys, .head_dim = head_dim, .dtype = dtype, .n_blocks = (n_keys + 15) / 16};
    s.value_dim = narrow ? (head_dim + 1) / 2 : head_dim;
    s.key_bytes = 16 * kv_row_bytes(dtype, head_dim);
    s.page_bytes = s.key_bytes + 16 * kv_row_bytes(dtype, s.value_dim);
    s.data = test_guarded(s.n_blocks * s.page_bytes);
    s.table = mem_array(s.n_blocks, sizeof *s.table);
    s.k = mem_array((size_t)n_keys * head_dim, sizeof(float));
    s.v = mem_array((size_t)n_keys * s.value_dim, sizeof(float));
    for (uint32_t b = 0; b < s.n_blocks; b++)
        s.table[b] = s.n_blocks - 1 - b;
    for (uint32_t key = 0; key < n_keys; key++) {
        test_page_fill(&s, key, false);
        test_page_fill(&s, key, true);
    }
    for (uint32_t key = n_keys; key < s.n_blocks * 16; key++)
        test_page_poison(&s, key);
    return s;
}

static inline void test_pages_free(struct test_pages *s) {
    test_guarded_free(s->data, s->n_blocks * s->page_bytes);
    mem_free(s->table);
    mem_free(s->k);
    mem_free(s->v);
}

// The job's pages; queries, ranges and outputs are the caller's.
static inline struct attend_job test_pages_job(const struct test_pages *s) {
    return (struct attend_job){
        .head_dim = s->head_dim,
        .value_dim = s->value_dim,
        .block_table = s->table,
        .k_base = s->data,
        .v_base = s->data + s->key_bytes,
        .block_stride = s->page_bytes,
        .kv_dtype = s->dtype,
        .scale = 1.0f / sqrtf((float)s->head_dim),
    };
}

// Runs one suite of one case; what main returns.
static inline int test_run(const char *name, const TTest *const *tests, size_t n) {
    TCase *t = tcase_create(name);
    tcase_set_timeout(t, 600);
    for (size_t i = 0; i < n; i++)
        tcase_add_test(t, tests[i]);
    Suite *suite = suite_create(name);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
