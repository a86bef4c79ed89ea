// accuracy.c: the oracle itself against sums in double precision, and what it must leave alone.
#include "tests/kernels/kernel_testing.h"

static const struct kernel_ops *ref;

static void check_matmul(uint32_t n_out, uint32_t n_in, uint32_t n_segments, enum dtype dtype) {
    float source[40 * 160], x[3 * 160], y[3 * 48];
    test_fill(source, (size_t)n_out * n_in);
    test_fill(x, (size_t)3 * n_in);
    for (int i = 0; i < 3 * 48; i++)
        y[i] = -7.0f;
    struct matrix w = test_matrix(n_out, n_in, n_segments, dtype, source);
    ref->matmul(y, 48, x, n_in, 3, &w, 0, matrix_panels(&w));
    for (uint32_t r = 0; r < 3; r++) {
        for (uint32_t c = 0; c < n_out; c++) {
            double truth = 0, size = 0;
            for (uint32_t k = 0; k < n_in; k++) {
                double product =
                    (double)test_rounded(source[c * n_in + k], dtype) * (double)x[r * n_in + k];
                truth += product;
                size += fabs(product);
            }
            ck_assert_double_le(fabs((double)y[r * 48 + c] - truth), size * 1e-6);
        }
        for (uint32_t c = n_out; c < 48; c++)
            ck_assert_float_eq(y[r * 48 + c], -7.0f);
    }
    test_matrix_free(&w);
}

START_TEST(matmul_is_the_product_with_the_packed_weights) {
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        check_matmul(1, 1, 1, (enum dtype)dtype);
        check_matmul(17, 15, 1, (enum dtype)dtype);
        check_matmul(40, 160, 8, (enum dtype)dtype);
        check_matmul(33, 80, 4, (enum dtype)dtype);
    }
}
END_TEST

START_TEST(matmul_adds_segments_as_a_tree_of_neighbours) {
    // Segment sums 1, -1, tiny, tiny: (1 + -1) + (tiny + tiny) keeps both; any running order loses
    // one.
    float source[4] = {1.0f, -1.0f, 0x1p-30f, 0x1p-30f}, x[4] = {1.0f, 1.0f, 1.0f, 1.0f}, y;
    struct matrix w = test_matrix(1, 4, 4, DTYPE_F32, source);
    ref->matmul(&y, 1, x, 4, 1, &w, 0, 1);
    ck_assert_float_eq(y, 0x1p-29f);
    float swapped[4] = {1.0f, 0x1p-30f, -1.0f, 0x1p-30f};
    test_matrix_free(&w);
    w = test_matrix(1, 4, 4, DTYPE_F32, swapped);
    ref->matmul(&y, 1, x, 4, 1, &w, 0, 1);
    ck_assert_float_eq(y, 0.0f);
    test_matrix_free(&w);
}
END_TEST

// 19 columns of 66 elements, row stride 70, from an odd address.
static void check_pack(enum dtype from, enum dtype to) {
    unsigned char bytes[1 + 19 * 70 * 4];
    float value[19 * 70], panels[2 * 66 * 16];
    test_fill(value, 19 * 70);
    ref->pack(bytes + 1, value, from, 19 * 70);
    struct matrix w = {.dtype = to, .n_out = 19, .n_in = 66, .n_segments = 1};
    void *data = mem_pages(matrix_bytes(&w), 64);
    memset(data, 0xff, matrix_bytes(&w));
    matrix_pack(&w, data, bytes + 1, from, 70);
    ref->unpack(panels, data, to, 2 * 66 * 16);
    for (uint32_t i = 0; i < 2 * 66 * 16; i++) {
        uint32_t c = i / (66 * 16) * 16 + i % 16, k = i / 16 % 66;
        float want = c < 19 ? test_rounded(test_rounded(value[c * 70 + k], from), to) : 0.0f;
        ck_assert_float_eq(panels[i], want);
    }
    mem_pages_free(data, matrix_bytes(&w));
}

START_TEST(matrix_pack_reads_any_stride_alignment_and_format) {
    for (int from = 0; from < DTYPE_COUNT; from++)
        for (int to = 0; to < DTYPE_COUNT; to++)
            check_pack((enum dtype)from, (enum dtype)to);
}
END_TEST

// What becomes of a score: nothing, or a soft cap and a factor.
struct shape {
    float cap, factor;
};

static void check_attend(uint32_t first, uint32_t n, enum dtype dtype, const struct shape *shape) {
    enum { DIM = 24 };
    struct test_pages s = test_pages_make(n, DIM, dtype, false);
    struct attend_job job = test_pages_job(&s);
    float q[DIM], out[DIM];
    test_fill(q, DIM);
    for (int d = 0; d < DIM; d++)
        q[d] *= 8.0f;
    job.q = q, job.out = out, job.n_q = 1, job.first_key = &first, job.n_keys = &n;
    job.scratch = mem_array(attend_scratch_floats(1, DIM, DIM), sizeof(float));
    job.softcap = shape->cap;
    if (shape->factor != 1) job.factors = &shape->factor;
    ref->attend(&job);
    double top = -INFINITY, sum = 0, acc[DIM] = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t key = first; key < n; key++) {
            double score = 0;
            for (int d = 0; d < DIM; d++)
                score += (double)q[d] * (double)s.k[key * DIM + d];
            score *= (double)job.scale;
            if (shape->cap != 0) score = (double)shape->cap * tanh(score / (double)shape->cap);
            score *= (double)shape->factor;
            if (pass == 0) top = fmax(top, score);
            if (pass == 0) continue;
            double p = exp(score - top);
            sum += p;
            for (int d = 0; d < DIM; d++)
                acc[d] += p * (double)s.v[key * DIM + d];
        }
    }
    for (int d = 0; d < DIM; d++)
        ck_assert_double_le(fabs((double)out[d] - acc[d] / sum), 2e-6);
    mem_free(job.scratch);
    test_pages_free(&s);
}

START_TEST(attend_is_softmax_of_scores_times_values) {
    const uint32_t lengths[] = {1, 15, 16, 17, 511, 512, 513, 1100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int dtype = 0; dtype < DTYPE_KV_COUNT; dtype++) {
            if (!dtype_is_kv((enum dtype)dtype)) continue;
            const struct shape plain = {0, 1}, capped = {2, 1}, both = {2, 1.5f};
            check_attend(0, lengths[i], (enum dtype)dtype, &plain);
            check_attend(lengths[i] / 2, lengths[i], (enum dtype)dtype, &capped);
            check_attend(lengths[i] / 2, lengths[i], (enum dtype)dtype, &both);
            check_attend(lengths[i] - 1, lengths[i], (enum dtype)dtype, &plain);
        }
    }
}
END_TEST

START_TEST(int8_is_within_half_a_step_of_the_largest) {
    float x[333];
    int8_t codes[333];
    for (int round = 0; round < 50; round++) {
        float largest = 0, size = ldexpf(1.0f, round * 5 - 120);
        test_fill(x, 333);
        for (int i = 0; i < 333; i++) {
            x[i] *= size;
            largest = fmaxf(largest, fabsf(x[i]));
        }
        float scale = ref->pack_int8(codes, x, 333);
        ck_assert_float_eq(scale, largest / 127.0f);
        for (int i = 0; i < 333; i++)
            ck_assert_double_le(fabs((double)codes[i] * (double)scale - (double)x[i]),
                                0.5001 * (double)scale);
    }
}
END_TEST

START_TEST(int8_of_zeros_or_of_what_is_no_number) {
    float x[5] = {0.0f, -0.0f, 0.0f, 0.0f, 0.0f};
    int8_t codes[5] = {1, 1, 1, 1, 1};
    ck_assert_float_eq(ref->pack_int8(codes, x, 5), 0.0f);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(codes[i], 0);
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        x[0] = 1.0f, x[3] = bad[i];
        ck_assert(isnan(ref->pack_int8(codes, x, 5)));
        ck_assert_int_eq(codes[0], 0);
    }
    // Of the smallest numbers not even the scale is exact: codes do not leave their range.
    x[3] = 190 * 0x1p-149f, x[0] = -x[3];
    ck_assert_float_eq(ref->pack_int8(codes, x, 5), 0x1p-149f);
    ck_assert(codes[3] == 127 && codes[0] == -127);
}
END_TEST

START_TEST(rows_match_double_precision) {
    enum { N = 333 };
    float x[N], w[N], y[N], up[N];
    test_fill(x, N);
    test_fill(w, N);
    test_fill(up, N);
    double squares = 0, sum = 0, top = -INFINITY;
    for (int i = 0; i < N; i++)
        squares += (double)x[i] * (double)x[i];
    ref->rms_norm(y, x, w, N, 1e-6f);
    for (int i = 0; i < N; i++)
        ck_assert_double_le(
            fabs((double)y[i] - (double)x[i] / sqrt(squares / N + 1e-6) * (double)w[i]), 1e-6);
    ref->silu_mul(y, x, up, N);
    for (int i = 0; i < N; i++)
        ck_assert_double_le(
            fabs((double)y[i] - (double)x[i] / (1 + exp(-(double)x[i])) * (double)up[i]), 1e-6);
    ref->gelu_mul(y, x, up, N);
    for (int i = 0; i < N; i++) {
        double v = (double)x[i];
        double gelu = 0.5 * v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
        ck_assert_double_le(fabs((double)y[i] - gelu * (double)up[i]), 1e-6);
    }
    memcpy(y, x, sizeof y);
    ref->softcap(y, 0.3f, N);
    for (int i = 0; i < N; i++)
        ck_assert_double_le(fabs((double)y[i] - 0.3 * tanh((double)x[i] / 0.3)), 1e-6);
    float odd[] = {INFINITY, -INFINITY, NAN, -0.0f, 3e38f};
    ref->softcap(odd, 0.3f, 5);
    ck_assert(isnan(odd[0]) && isnan(odd[1]) && isnan(odd[2]));
    ck_assert(odd[3] == 0 && odd[4] == 0.3f);
    for (int i = 0; i < N; i++)
        x[i] *= 30.0f, top = fmax(top, (double)x[i]);
    for (int i = 0; i < N; i++)
        sum += exp((double)x[i] - top);
    float max, lse;
    ck_assert(ref->log_sum_exp(x, N, &max, &lse));
    ck_assert_double_eq((double)max, top);
    ck_assert_double_le(fabs((double)lse - (top + log(sum))), 1e-5);
    memcpy(y, x, sizeof y);
    ref->softmax(y, N);
    for (int i = 0; i < N; i++)
        ck_assert_double_le(fabs((double)y[i] - exp((double)x[i] - top) / sum), 1e-6);
}
END_TEST

START_TEST(rope_rotates_pairs_of_the_two_halves) {
    float x[7] = {1, 2, 3, 4, 5, 6, 99}, cosine[3] = {1, 0, 0.5f}, sine[3] = {0, 1, 0.25f};
    ref->rope(x, cosine, sine, 6);
    const float want[7] = {1, -5, 0, 4, 2, 3.75f, 99};
    for (int i = 0; i < 7; i++)
        ck_assert_float_eq(x[i], want[i]);
}
END_TEST

START_TEST(log_sum_exp_refuses_what_is_not_finite) {
    float x[40], max = 5, lse = 6;
    for (int bad = 0; bad < 40; bad++) {
        test_fill(x, 40);
        x[bad] = bad % 3 == 0 ? NAN : bad % 3 == 1 ? INFINITY : -INFINITY;
        ck_assert(!ref->log_sum_exp(x, 40, &max, &lse));
    }
    ck_assert(max == 5 && lse == 6);
}
END_TEST

START_TEST(select_knows_its_tables_and_refuses_others) {
    ck_assert_str_eq(kernel_ops_select("ref")->name, "ref");
    ck_assert_ptr_eq(kernel_ops_select(NULL), kernel_ops_select("auto"));
    ck_assert_ptr_null(kernel_ops_select("avx1024"));
    ck_assert_ptr_null(kernel_ops_select(""));
    const char *names = kernel_ops_available();
    ck_assert_ptr_nonnull(strstr(names, "ref"));
    ck_assert_int_eq(
        strncmp(names, kernel_ops_select("auto")->name, strlen(kernel_ops_select("auto")->name)),
        0);
}
END_TEST

int main(void) {
    ref = kernel_ops_ref();
    printf("seed %llu\n", (unsigned long long)test_seed());
    const TTest *const tests[] = {
        matmul_is_the_product_with_the_packed_weights,
        matmul_adds_segments_as_a_tree_of_neighbours,
        matrix_pack_reads_any_stride_alignment_and_format,
        attend_is_softmax_of_scores_times_values,
        int8_is_within_half_a_step_of_the_largest,
        int8_of_zeros_or_of_what_is_no_number,
        rows_match_double_precision,
        rope_rotates_pairs_of_the_two_halves,
        log_sum_exp_refuses_what_is_not_finite,
        select_knows_its_tables_and_refuses_others,
    };
    return test_run("accuracy", tests, sizeof tests / sizeof *tests);
}
