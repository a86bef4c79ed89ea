// grid_dense.h: matmul of one table against the oracle, over sizes that end in the middle of
// everything.
#ifndef MOESAIC_TESTS_GRID_DENSE_H
#define MOESAIC_TESTS_GRID_DENSE_H

#include "tests/kernels/kernel_testing.h"

static const struct kernel_ops *table; // under test

static const uint32_t dense_rows[] = {0, 1, 2, 3, 7, 8, 9, 33};
#define DENSE_CANARY (-77.5f)

struct dense_case {
    uint32_t n_out, n_in, n_segments, n_rows, panel_begin, panel_end;
    enum dtype dtype;
};

static const char *dense_name(const struct dense_case *c) {
    static char text[160];
    snprintf(text, sizeof text, "%s n_out %u n_in %u segments %u rows %u panels %u..%u",
             dtype_name(c->dtype), c->n_out, c->n_in, c->n_segments, c->n_rows, c->panel_begin,
             c->panel_end);
    return text;
}

// x ends at a guard page; y has canaries between its rows and around the panels.
static void dense_compare(const struct dense_case *c, const struct matrix *w) {
    size_t ldx = c->n_in + 3, ldy = c->n_out + 5;
    size_t x_bytes = c->n_rows ? ((c->n_rows - 1) * ldx + c->n_in) * sizeof(float) : 0;
    size_t n_y = c->n_rows * ldy + 64;
    float *x = test_guarded(x_bytes), *got = mem_array(n_y, sizeof *got),
          *want = mem_array(n_y, sizeof *want);
    for (size_t i = 0; i < x_bytes / sizeof *x; i++)
        x[i] = test_awkward();
    for (size_t i = 0; i < n_y; i++)
        got[i] = want[i] = DENSE_CANARY;
    kernel_ops_ref()->matmul(want, ldy, x, ldx, c->n_rows, w, c->panel_begin, c->panel_end);
    table->matmul(got, ldy, x, ldx, c->n_rows, w, c->panel_begin, c->panel_end);
    size_t at = test_first_difference(got, want, n_y);
    ck_assert_msg(at == n_y, "%s: element %zu is %a, must be %a", dense_name(c), at, got[at % n_y],
                  want[at % n_y]);
    test_guarded_free(x, x_bytes);
    mem_free(got);
    mem_free(want);
}

static void dense_compare_rows(struct dense_case c) {
    float *source = mem_array((size_t)c.n_out * c.n_in, sizeof *source);
    for (size_t i = 0; i < (size_t)c.n_out * c.n_in; i++)
        source[i] = test_awkward();
    struct matrix w = test_matrix(c.n_out, c.n_in, c.n_segments, c.dtype, source);
    for (size_t r = 0; r < sizeof dense_rows / sizeof *dense_rows; r++) {
        c.n_rows = dense_rows[r];
        c.panel_begin = test_random() % 3 ? 0 : test_random() % matrix_panels(&w);
        c.panel_end =
            matrix_panels(&w) - (c.panel_begin + 1 < matrix_panels(&w) && test_random() % 3 == 0);
        dense_compare(&c, &w);
    }
    test_matrix_free(&w);
    mem_free(source);
}

// Every width up to 40 at one depth, a few of them at the others.
static void dense_widths(uint32_t n_in, uint32_t n_segments, enum dtype dtype) {
    uint32_t step = n_in == 16 ? 1 : 13;
    for (uint32_t n_out = 1 + n_in % 5; n_out <= 90; n_out += n_out < 40 ? step : 25)
        dense_compare_rows((struct dense_case){
            .n_out = n_out, .n_in = n_in, .n_segments = n_segments, .dtype = dtype});
}

START_TEST(matmul_equals_the_oracle_on_awkward_sizes) {
    const uint32_t n_ins[] = {1, 15, 16, 17, 80, 160, 320};
    for (size_t i = 0; i < 4 * sizeof n_ins / sizeof *n_ins; i++) {
        uint32_t n_in = n_ins[i / 4], n_segments = 1u << i % 4;
        if (n_in % n_segments != 0) continue;
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
            dense_widths(n_in, n_segments, (enum dtype)dtype);
    }
}
END_TEST

START_TEST(matmul_equals_the_oracle_on_a_vocabulary) {
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        dense_compare_rows((struct dense_case){
            .n_out = 1009, .n_in = 80, .n_segments = 1, .dtype = (enum dtype)dtype});
}
END_TEST

START_TEST(matmul_equals_the_oracle_across_blocks_of_rows) {
    // More floats of x than the kernel keeps in a cache: 40 rows of 9,000.
    struct dense_case c = {.n_out = 20,
                           .n_in = 9000,
                           .n_segments = 8,
                           .n_rows = 40,
                           .panel_end = 2,
                           .dtype = DTYPE_BF16};
    float *source = mem_array((size_t)c.n_out * c.n_in, sizeof *source);
    test_fill(source, (size_t)c.n_out * c.n_in);
    struct matrix w = test_matrix(c.n_out, c.n_in, c.n_segments, c.dtype, source);
    dense_compare(&c, &w);
    test_matrix_free(&w);
    mem_free(source);
}
END_TEST

START_TEST(matmul_carries_infinities_and_nan_as_the_oracle) {
    float source[40 * 20], x[5 * 20], got[5 * 40], want[5 * 40];
    test_fill(source, 40 * 20);
    test_fill(x, 5 * 20);
    source[7] = INFINITY, source[90] = -INFINITY, source[300] = NAN, x[45] = INFINITY, x[70] = NAN,
    x[3] = 0;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        struct matrix w = test_matrix(40, 20, 4, (enum dtype)dtype, source);
        kernel_ops_ref()->matmul(want, 40, x, 20, 5, &w, 0, 3);
        table->matmul(got, 40, x, 20, 5, &w, 0, 3);
        ck_assert_uint_eq(test_first_difference(got, want, 5 * 40), 5 * 40);
        test_matrix_free(&w);
    }
}
END_TEST

#endif
