// grid_delta.h: the operations of recurrent layers of one table against the oracle: heads of all
// sizes, tokens in one call and in many.
#ifndef MOESAIC_TESTS_GRID_DELTA_H
#define MOESAIC_TESTS_GRID_DELTA_H

#include "common/base/limits.h"
#include "tests/kernels/grid_rows.h"

// One head's numbers, each array at a guard page. Both tables get the same.
struct delta_set {
    uint32_t n_tokens, k_dim, v_dim;
    size_t qkv_floats, state_floats;
    float *qkv, *state, *gates, *out; // gates: decay and beta of a token beside each other
};

static struct delta_set delta_make(uint32_t n_tokens, uint32_t k_dim, uint32_t v_dim,
                                   bool special) {
    struct delta_set s = {.n_tokens = n_tokens, .k_dim = k_dim, .v_dim = v_dim};
    s.qkv_floats = (size_t)n_tokens * (2 * k_dim + v_dim);
    s.state_floats = (size_t)k_dim * v_dim;
    s.qkv = test_guarded(s.qkv_floats * sizeof(float));
    s.state = test_guarded(s.state_floats * sizeof(float));
    s.gates = test_guarded(2 * n_tokens * sizeof(float));
    s.out = test_guarded((size_t)n_tokens * v_dim * sizeof(float));
    test_fill(s.qkv, s.qkv_floats);
    for (size_t i = 0; i < s.state_floats; i++)
        s.state[i] = special ? test_awkward() : test_uniform();
    for (uint32_t i = 0; i < 2 * n_tokens; i++)
        s.gates[i] = fabsf(test_uniform());
    if (special) s.qkv[test_random() % s.qkv_floats] = test_random() % 2 ? NAN : INFINITY;
    if (special) s.gates[0] = 0.0f;
    return s;
}

static struct delta_set delta_copy(const struct delta_set *s) {
    struct delta_set copy = delta_make(s->n_tokens, s->k_dim, s->v_dim, false);
    memcpy(copy.qkv, s->qkv, s->qkv_floats * sizeof(float));
    memcpy(copy.state, s->state, s->state_floats * sizeof(float));
    memcpy(copy.gates, s->gates, 2 * s->n_tokens * sizeof(float));
    return copy;
}

static void delta_free(struct delta_set *s) {
    test_guarded_free(s->qkv, s->qkv_floats * sizeof(float));
    test_guarded_free(s->state, s->state_floats * sizeof(float));
    test_guarded_free(s->gates, 2 * s->n_tokens * sizeof(float));
    test_guarded_free(s->out, (size_t)s->n_tokens * s->v_dim * sizeof(float));
}

// The tokens [begin, end).
static void delta_run(const struct kernel_ops *o, struct delta_set *s, uint32_t begin,
                      uint32_t end) {
    size_t stride = 2 * s->k_dim + s->v_dim;
    const float *q = s->qkv + begin * stride;
    struct delta_job job = {.state = s->state,
                            .q = q,
                            .k = q + s->k_dim,
                            .v = q + 2 * s->k_dim,
                            .out = s->out + (size_t)begin * s->v_dim,
                            .decay = s->gates + 2 * begin,
                            .beta = s->gates + 2 * begin + 1,
                            .qkv_stride = stride,
                            .out_stride = s->v_dim,
                            .gate_stride = 2,
                            .n_tokens = end - begin,
                            .k_dim = s->k_dim,
                            .v_dim = s->v_dim};
    o->delta_rule(&job);
}

static void delta_expect(const struct delta_set *got, const struct delta_set *want) {
    size_t n = (size_t)got->n_tokens * got->v_dim;
    size_t at = test_first_difference(got->out, want->out, n);
    ck_assert_msg(at == n, "%u tokens %u by %u: output %zu is %a, must be %a", got->n_tokens,
                  got->k_dim, got->v_dim, at, got->out[at % n], want->out[at % n]);
    at = test_first_difference(got->state, want->state, got->state_floats);
    ck_assert_msg(at == got->state_floats, "%u tokens %u by %u: state %zu", got->n_tokens,
                  got->k_dim, got->v_dim, at);
}

static void delta_compare(uint32_t n_tokens, uint32_t k_dim, uint32_t v_dim, bool special) {
    struct delta_set got = delta_make(n_tokens, k_dim, v_dim, special), want = delta_copy(&got);
    delta_run(kernel_ops_ref(), &want, 0, n_tokens);
    delta_run(table, &got, 0, n_tokens);
    delta_expect(&got, &want);
    delta_free(&got);
    delta_free(&want);
}

START_TEST(delta_rule_equals_the_oracle_on_heads_of_all_sizes) {
    const uint32_t k_dims[] = {1, 2, 3, 12, 16, 17, 64, 100, 128};
    for (int special = 0; special <= 1; special++) {
        for (size_t k = 0; k < sizeof k_dims / sizeof *k_dims; k++)
            for (uint32_t v_dim = 1; v_dim <= 70; v_dim++)
                delta_compare(3, k_dims[k], v_dim, special);
        delta_compare(20, 128, 128, special);
        delta_compare(9, 96, 257, special);
        delta_compare(2, 512, 512, special);
    }
}
END_TEST

START_TEST(delta_rule_has_one_answer_for_all_cuts_of_its_tokens) {
    for (int round = 0; round < 20; round++) {
        uint32_t n = 2 + test_random() % 30;
        struct delta_set whole = delta_make(n, 32, 48, false), cut = delta_copy(&whole);
        delta_run(table, &whole, 0, n);
        for (uint32_t at = 0, end; at < n; at = end) {
            end = at + 1 + test_random() % (n - at);
            delta_run(table, &cut, at, end);
        }
        delta_expect(&cut, &whole);
        delta_free(&whole);
        delta_free(&cut);
    }
}
END_TEST

static void op_conv_silu(const struct kernel_ops *o, struct row_set *s) {
    const float *x[CONV_KERNEL_MAX];
    for (uint32_t t = 0; t < CONV_KERNEL_MAX; t++)
        x[t] = s->row[t % 2];
    struct conv_taps taps = {.x = x, .w = s->row[2], .w_stride = 0, .n_taps = 1 + s->n % 16};
    o->conv_silu(s->row[3], &taps, s->n);
    // Weights of each tap for itself, of a part of the channels.
    taps.w_stride = s->n / 2;
    taps.n_taps = 2;
    o->conv_silu(s->row[3], &taps, s->n / 2);
}

static void op_sigmoid_mul(const struct kernel_ops *o, struct row_set *s) {
    o->sigmoid_mul(s->row[0], s->row[1], s->n);
}

START_TEST(conv_silu_and_sigmoid_mul_equal_the_oracle) {
    rows_grid(op_conv_silu);
    rows_grid(op_sigmoid_mul);
}
END_TEST

#endif
