// grid_rows.h: the operations on rows of one table against the oracle: all lengths of a tail, all
// kinds of numbers.
#ifndef MOESAIC_TESTS_GRID_ROWS_H
#define MOESAIC_TESTS_GRID_ROWS_H

#include "tests/kernels/kernel_testing.h"

#define ROW_MAX 5003

static float awkward_or_special(bool special) {
    if (special && test_random() % 8 == 0) {
        const float values[] = {INFINITY, -INFINITY, NAN, 3.4e38f, -3.4e38f, 88.7f, -87.4f, 104.0f};
        return values[test_random() % 8];
    }
    return test_random() % 2 ? test_awkward() : 20.0f * test_uniform();
}

// Four rows that end at guard pages; both tables get the same.
struct row_set {
    uint32_t n;
    float *row[4];
};

static struct row_set rows_make(uint32_t n, bool special) {
    struct row_set s = {.n = n};
    for (int r = 0; r < 4; r++) {
        s.row[r] = test_guarded(n * sizeof(float));
        for (uint32_t i = 0; i < n; i++)
            s.row[r][i] = awkward_or_special(special);
    }
    return s;
}

static struct row_set rows_copy(const struct row_set *s) {
    struct row_set copy = rows_make(s->n, false);
    for (int r = 0; r < 4; r++)
        memcpy(copy.row[r], s->row[r], s->n * sizeof(float));
    return copy;
}

static void rows_free(struct row_set *s) {
    for (int r = 0; r < 4; r++)
        test_guarded_free(s->row[r], s->n * sizeof(float));
}

static void op_rms_norm(const struct kernel_ops *o, struct row_set *s) {
    o->rms_norm(s->row[0], s->row[1], s->row[2], s->n, 1e-6f);
    o->rms_norm(s->row[3], s->row[3], s->row[2], s->n, 1e-5f);
}
static void op_layer_norm(const struct kernel_ops *o, struct row_set *s) {
    o->layer_norm(s->row[0], s->row[1], &(struct norm_weights){s->row[2], NULL}, s->n, 1e-6f);
    o->layer_norm(s->row[3], s->row[3], &(struct norm_weights){s->row[2], s->row[1]}, s->n, 1e-5f);
}
static void op_clamped_glu(const struct kernel_ops *o, struct row_set *s) {
    o->clamped_glu(s->row[0], s->row[1], &(struct clamped_glu){1.702f, 7.0f}, s->n);
    o->clamped_glu(s->row[3], s->row[2], &(struct clamped_glu){1.0f, 0.5f}, s->n);
}
static void op_limited_glu(const struct kernel_ops *o, struct row_set *s) {
    o->limited_glu(s->row[0], s->row[1], 10.0f, s->n);
    o->limited_glu(s->row[3], s->row[2], 0.5f, s->n);
}
// The rows as streams of a quarter each, so that every tail comes.
static void op_streams(const struct kernel_ops *o, struct row_set *s) {
    for (uint32_t n = 1; n <= 4; n++) {
        uint32_t dim = s->n / n;
        const struct stream_mix mix = {n, s->row[1], s->row[1] + n};
        if (dim == 0 || s->n < n * (n + 1)) continue;
        o->collapse(s->row[2], s->row[0], s->row[1], n, dim);
        o->expand(s->row[3], s->row[2], &mix, dim);
    }
    s->row[1][0] = o->inverse_rms(s->row[0], s->n, 1e-6f);
}
static void op_rope(const struct kernel_ops *o, struct row_set *s) {
    o->rope(s->row[0], s->row[1], s->row[2], s->n & ~1u);
}
static void op_silu_mul(const struct kernel_ops *o, struct row_set *s) {
    o->silu_mul(s->row[0], s->row[1], s->row[2], s->n);
    o->silu_mul(s->row[1], s->row[1], s->row[2], s->n);
    o->silu_mul(s->row[3], s->row[2], s->row[3], s->n);
}
static void op_gelu_mul(const struct kernel_ops *o, struct row_set *s) {
    o->gelu_mul(s->row[0], s->row[1], s->row[2], s->n);
    o->gelu_mul(s->row[1], s->row[1], s->row[2], s->n);
    o->gelu_mul(s->row[3], s->row[2], s->row[3], s->n);
}
static void op_softcap(const struct kernel_ops *o, struct row_set *s) {
    o->softcap(s->row[0], 30.0f, s->n);
    o->softcap(s->row[1], 0.7f, s->n);
}
static void op_add(const struct kernel_ops *o, struct row_set *s) {
    o->add(s->row[0], s->row[1], s->n);
}
static void op_scale(const struct kernel_ops *o, struct row_set *s) {
    o->scale(s->row[0], s->row[1], s->row[2][0], s->n);
    o->scale(s->row[3], s->row[3], -0.3f, s->n);
}
static void op_axpy(const struct kernel_ops *o, struct row_set *s) {
    o->axpy(s->row[0], s->row[1], s->row[2][0], s->n);
}
static void op_clamp(const struct kernel_ops *o, struct row_set *s) {
    o->clamp(s->row[0], 0.5f, s->n);
    o->clamp(s->row[1], fabsf(s->row[2][0]), s->n);
}
static void op_softmax(const struct kernel_ops *o, struct row_set *s) {
    o->softmax(s->row[0], s->n);
}
static void op_sigmoid(const struct kernel_ops *o, struct row_set *s) {
    o->sigmoid(s->row[0], s->n);
}
static void op_exp(const struct kernel_ops *o, struct row_set *s) {
    o->exp(s->row[0], s->n);
}
static void op_log_sum_exp(const struct kernel_ops *o, struct row_set *s) {
    float max = 1, lse = 2;
    bool finite = o->log_sum_exp(s->row[0], s->n, &max, &lse);
    s->row[1][0] = finite;
    s->row[2][0] = max;
    s->row[3][0] = lse;
}

static void rows_compare(void (*op)(const struct kernel_ops *, struct row_set *), uint32_t n,
                         bool special) {
    struct row_set got = rows_make(n, special), want = rows_copy(&got);
    op(kernel_ops_ref(), &want);
    op(table, &got);
    for (int r = 0; r < 4; r++) {
        size_t at = test_first_difference(got.row[r], want.row[r], n);
        ck_assert_msg(at == n, "n %u row %d element %zu is %a, must be %a", n, r, at,
                      got.row[r][at % n], want.row[r][at % n]);
    }
    rows_free(&got);
    rows_free(&want);
}

static void rows_grid(void (*op)(const struct kernel_ops *, struct row_set *)) {
    const uint32_t longer[] = {127, 511, 512, 513, 1009, ROW_MAX};
    for (int special = 0; special <= 1; special++) {
        for (int round = 0; round < 3; round++)
            for (uint32_t n = 1; n <= 70; n++)
                rows_compare(op, n, special);
        for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
            rows_compare(op, longer[i], special);
    }
}

START_TEST(rms_norm_equals_the_oracle) {
    rows_grid(op_rms_norm);
}
END_TEST
START_TEST(layer_norm_equals_the_oracle) {
    rows_grid(op_layer_norm);
}
END_TEST
START_TEST(clamped_glu_equals_the_oracle) {
    rows_grid(op_clamped_glu);
}
END_TEST

START_TEST(limited_glu_equals_the_oracle) {
    rows_grid(op_limited_glu);
}
END_TEST

START_TEST(streams_are_mixed_as_by_the_oracle) {
    rows_grid(op_streams);
}
END_TEST
START_TEST(rope_equals_the_oracle) {
    rows_grid(op_rope);
}
END_TEST
START_TEST(silu_mul_equals_the_oracle) {
    rows_grid(op_silu_mul);
}
END_TEST
START_TEST(gelu_mul_and_softcap_equal_the_oracle) {
    rows_grid(op_gelu_mul);
    rows_grid(op_softcap);
}
END_TEST
START_TEST(add_scale_and_axpy_equal_the_oracle) {
    rows_grid(op_add);
    rows_grid(op_scale);
    rows_grid(op_axpy);
}
END_TEST
START_TEST(clamp_equals_the_oracle) {
    rows_grid(op_clamp);
}
END_TEST
START_TEST(softmax_equals_the_oracle) {
    rows_grid(op_softmax);
}
END_TEST
START_TEST(sigmoid_and_exp_equal_the_oracle) {
    rows_grid(op_sigmoid);
    rows_grid(op_exp);
}
END_TEST
START_TEST(log_sum_exp_equals_the_oracle) {
    rows_grid(op_log_sum_exp);
}
END_TEST

START_TEST(sums_of_similar_elements_equal_the_oracle) {
    // Every element counts in the last bits, so every change of the order shows.
    for (uint32_t n = 100; n < 4000; n += 61) {
        float x[4000], max[2], lse[2], want[4000];
        for (uint32_t i = 0; i < n; i++)
            want[i] = x[i] = 3.0f * test_uniform();
        ck_assert(kernel_ops_ref()->log_sum_exp(x, n, &max[0], &lse[0]));
        ck_assert(table->log_sum_exp(x, n, &max[1], &lse[1]));
        ck_assert(max[0] == max[1] && lse[0] == lse[1]);
        kernel_ops_ref()->softmax(want, n);
        table->softmax(x, n);
        ck_assert_mem_eq(x, want, n * sizeof *x);
    }
}
END_TEST

START_TEST(zero_of_either_sign_is_the_same_maximum) {
    for (uint32_t n = 1; n <= 40; n++) {
        float x[40], want[2], got[2];
        for (uint32_t i = 0; i < n; i++)
            x[i] = test_random() % 2 ? 0.0f : -0.0f;
        ck_assert(kernel_ops_ref()->log_sum_exp(x, n, &want[0], &want[1]));
        ck_assert(table->log_sum_exp(x, n, &got[0], &got[1]));
        ck_assert_uint_eq(test_first_difference(got, want, 2), 2);
    }
}
END_TEST

// Elements [first, first + 4096) of the 2^32 bit patterns.
static void exp_compare(uint32_t first, uint32_t step) {
    float got[4096], want[4096];
    for (uint32_t i = 0; i < 4096; i++)
        got[i] = want[i] = bits_to_f32(first + i * step);
    table->exp(got, 4096);
    for (uint32_t i = 0; i < 4096; i++)
        want[i] = elementary_exp(want[i]);
    size_t at = test_first_difference(got, want, 4096);
    ck_assert_msg(at == 4096, "exp of bits %08x is %a, must be %a", first + (uint32_t)at * step,
                  got[at % 4096], want[at % 4096]);
}

// EXHAUSTIVE=1 takes all 2^32 floats (about two minutes in a release build); otherwise one in
// 1,021.
START_TEST(exp_equals_its_scalar_form_on_all_floats) {
    uint32_t step = getenv("EXHAUSTIVE") ? 1 : 1021;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 4096u * step)
        exp_compare((uint32_t)bits, step);
}
END_TEST

// Any bits, often right between two numbers of a 16-bit format, or of E4M3.
static float pack_element(void) {
    const uint32_t ties[] = {0x8000u, 0x1000u, 0x18000u, 0x3000u};
    uint32_t bits = test_random();
    switch (test_random() % 6) {
    case 4: return e4m3_to_f32((uint8_t)bits) * (1.0f + (float)(bits >> 8 & 7) * 0x1p-5f);
    case 5: return 520.0f * test_uniform();
    case 0: return awkward_or_special(true);
    case 1: return bits_to_f32((bits & 0xffff0000u) ^ ties[bits & 3]);
    case 2: return bits_to_f32((0x38000000u + (bits & 0x87ffe000u)) ^ ties[bits & 3]);
    default: return bits_to_f32(bits);
    }
}

static void pack_compare(uint32_t n, enum dtype dtype) {
    size_t packed_bytes = n * dtype_bytes(dtype);
    float *x = test_guarded(n * sizeof *x), *got = test_guarded(n * sizeof *x),
          *want = test_guarded(n * sizeof *x);
    unsigned char *packed = test_guarded(packed_bytes), *packed_want = test_guarded(packed_bytes);
    for (uint32_t i = 0; i < n; i++)
        x[i] = pack_element();
    if (dtype != DTYPE_I8) {
        table->pack(packed, x, dtype, n);
        kernel_ops_ref()->pack(packed_want, x, dtype, n);
        ck_assert_mem_eq(packed, packed_want, packed_bytes);
    }
    for (size_t i = 0; i < packed_bytes; i++)
        packed[i] = (unsigned char)test_random();
    table->unpack(got, packed, dtype, n);
    kernel_ops_ref()->unpack(want, packed, dtype, n);
    ck_assert_mem_eq(got, want, n * sizeof *got);
    test_guarded_free(x, n * sizeof *x);
    test_guarded_free(got, n * sizeof *x);
    test_guarded_free(want, n * sizeof *x);
    test_guarded_free(packed, packed_bytes);
    test_guarded_free(packed_want, packed_bytes);
}

START_TEST(pack_and_unpack_equal_the_oracle_on_any_bits) {
    for (int dtype = 0; dtype < DTYPE_KV_COUNT; dtype++) {
        if (dtype == DTYPE_COUNT) continue;
        for (uint32_t n = 1; n <= 70; n++)
            pack_compare(n, (enum dtype)dtype);
        for (int round = 0; round < 20; round++)
            pack_compare(ROW_MAX, (enum dtype)dtype);
    }
}
END_TEST

// Rows of very different sizes, as one scale must cover them; some with a number that is none.
static void pack_int8_compare(uint32_t n, int round) {
    float *x = test_guarded(n * sizeof *x);
    int8_t *got = test_guarded(n), *want = test_guarded(n);
    float size = ldexpf(1.0f, (int)(test_random() % 280) - 150);
    for (uint32_t i = 0; i < n; i++)
        x[i] = round % 4 == 0 ? awkward_or_special(true) : size * test_uniform();
    if (round % 4 == 1) x[test_random() % n] = round % 8 == 1 ? NAN : -INFINITY;
    if (round % 4 == 2) memset(x, 0, n * sizeof *x);
    memset(got, 77, n);
    float scale = table->pack_int8(got, x, n), scale_want = kernel_ops_ref()->pack_int8(want, x, n);
    ck_assert_uint_eq(test_first_difference(&scale, &scale_want, 1), 1);
    ck_assert_mem_eq(got, want, n);
    test_guarded_free(x, n * sizeof *x);
    test_guarded_free(got, n);
    test_guarded_free(want, n);
}

START_TEST(pack_int8_equals_the_oracle) {
    for (int round = 0; round < 40; round++) {
        for (uint32_t n = 1; n <= 70; n++)
            pack_int8_compare(n, round);
        pack_int8_compare(ROW_MAX, round);
    }
}
END_TEST

START_TEST(unpack_reads_at_odd_addresses) {
    unsigned char bytes[1 + 40 * 4];
    float got[40], want[40];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37);
    for (int dtype = 0; dtype < DTYPE_KV_COUNT; dtype++) {
        if (dtype == DTYPE_COUNT) continue;
        table->unpack(got, bytes + 1, (enum dtype)dtype, 40);
        kernel_ops_ref()->unpack(want, bytes + 1, (enum dtype)dtype, 40);
        ck_assert_mem_eq(got, want, sizeof got);
    }
}
END_TEST

#endif
