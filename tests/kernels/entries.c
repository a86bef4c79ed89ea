// entries.c: the oracle's compressed attention against plain formulas in double precision.
#include "tests/kernels/kernel_testing.h"

static const struct kernel_ops *ref;

#define DIM 12
#define RATE 4
#define TOKENS 1200
#define BLOCKS (TOKENS / 16)
#define ENTRIES (TOKENS / RATE)

// Pages of float32: entries, then tokens, as a layer that compresses has them.
struct pages {
    float entries[16 / RATE][DIM], tokens[16][DIM];
};
static struct pages pages[BLOCKS];
static uint32_t blocks[BLOCKS];

static void fill_pages(void) {
    for (uint32_t b = 0; b < BLOCKS; b++)
        blocks[b] = BLOCKS - 1 - b;
    test_fill(&pages[0].entries[0][0], BLOCKS * sizeof *pages / 4);
}

static const float *token_row(uint32_t token) {
    return pages[blocks[token / 16]].tokens[token % 16];
}

// Entry i ends with token 4 i + 3 and stands in the page of that one.
static const float *entry_row(uint32_t i) {
    return pages[blocks[(4 * i + 3) / 16]].entries[i % 4];
}

static double dot(const float *a, const float *b) {
    double sum = 0;
    for (int d = 0; d < DIM; d++)
        sum += (double)a[d] * (double)b[d];
    return sum;
}

static void attend_plain(const float *q, const float **rows, uint32_t n, float sink, double *out) {
    double sum = exp((double)sink);
    for (int d = 0; d < DIM; d++)
        out[d] = 0;
    for (uint32_t i = 0; i < n; i++) {
        double weight = exp(0.4 * dot(q, rows[i]));
        sum += weight;
        for (int d = 0; d < DIM; d++)
            out[d] += weight * (double)rows[i][d];
    }
    for (int d = 0; d < DIM; d++)
        out[d] /= sum;
}

static void check_attention(uint32_t position, uint32_t window, bool choose) {
    const float *rows[ENTRIES + TOKENS];
    float q[DIM], got[DIM], sink = 2.0f * test_uniform();
    uint32_t chosen[ENTRIES], n_chosen = 0, n = 0, n_tokens = position + 1,
                              first = n_tokens > window ? n_tokens - window : 0,
                              n_entries = n_tokens / RATE;
    test_fill(q, DIM);
    for (uint32_t i = 0; i < n_entries; i++)
        if (!choose || i % 7 == 3) chosen[n_chosen++] = i;
    for (uint32_t i = 0; i < n_chosen; i++)
        rows[n++] = entry_row(chosen[i]);
    for (uint32_t token = first; token < n_tokens; token++)
        rows[n++] = token_row(token);
    const struct latent_keys kinds[] = {
        {pages[0].entries, sizeof *pages, RATE, NULL, &n_entries, choose ? chosen : NULL, n_chosen},
        {pages[0].tokens, sizeof *pages, 1, &first, &n_tokens, NULL, 0}};
    struct latent_job job = {.q = q,
                             .out = got,
                             .q_stride = DIM,
                             .out_stride = DIM,
                             .n_q = 1,
                             .key_dim = DIM,
                             .value_dim = DIM,
                             .kinds = kinds,
                             .n_kinds = 2,
                             .block_table = blocks,
                             .kv_dtype = DTYPE_F32,
                             .scale = 0.4f,
                             .sinks = &sink,
                             .scratch = mem_array(attend_latent_scratch_floats(DIM, DIM), 4)};
    double want[DIM];
    ref->attend_latent(&job);
    attend_plain(q, rows, n, sink, want);
    for (int d = 0; d < DIM; d++)
        ck_assert_double_le(fabs((double)got[d] - want[d]), 2e-6);
    mem_free(job.scratch);
}

START_TEST(attention_over_entries_and_tokens_is_one_softmax_with_the_sink) {
    fill_pages();
    const uint32_t positions[] = {0, 2, 3, 4, 15, 127, 130, 600, 1199};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        check_attention(positions[i], 128, false);
        check_attention(positions[i], 1, false);
        check_attention(positions[i], TOKENS, false);
        if (positions[i] > 15) check_attention(positions[i], 128, true);
    }
}
END_TEST

START_TEST(entry_scores_are_weighted_sums_of_positive_products) {
    enum { HEADS = 5 };
    float q[HEADS * DIM], weights[HEADS], got[ENTRIES];
    fill_pages();
    test_fill(q, HEADS * DIM);
    test_fill(weights, HEADS);
    struct entry_job job = {.q = q,
                            .weights = weights,
                            .n_heads = HEADS,
                            .dim = DIM,
                            .first = 3,
                            .n = ENTRIES - 3,
                            .rate = RATE,
                            .block_table = blocks,
                            .pages = pages,
                            .block_stride = sizeof *pages,
                            .kv_dtype = DTYPE_F32,
                            .scale = 0.25f,
                            .out = got};
    ref->entry_scores(&job);
    for (uint32_t i = 0; i < job.n; i++) {
        double want = 0;
        for (int h = 0; h < HEADS; h++)
            want += (double)weights[h] * fmax(0, 0.25 * dot(q + h * DIM, entry_row(3 + i)));
        ck_assert_double_le(fabs((double)got[i] - want), 2e-6);
    }
}
END_TEST

START_TEST(a_window_is_summed_with_the_softmax_of_its_gates_channel_by_channel) {
    enum { ROWS = 8, CHANNELS = 37 };
    float x[ROWS][CHANNELS], gate[ROWS][CHANNELS], place[ROWS][CHANNELS], got[CHANNELS];
    const float *rows[3][ROWS];
    test_fill(&x[0][0], ROWS * CHANNELS);
    test_fill(&gate[0][0], ROWS * CHANNELS);
    test_fill(&place[0][0], ROWS * CHANNELS);
    for (int t = 0; t < ROWS; t++) {
        rows[0][t] = x[t];
        rows[1][t] = gate[t];
        rows[2][t] = place[t];
    }
    ref->window_sum(got, &(struct window){rows[0], rows[1], rows[2], ROWS}, CHANNELS);
    for (int c = 0; c < CHANNELS; c++) {
        double sum = 0, want = 0;
        for (int t = 0; t < ROWS; t++) {
            double weight = exp((double)gate[t][c] + (double)place[t][c]);
            sum += weight;
            want += weight * (double)x[t][c];
        }
        ck_assert_double_le(fabs((double)got[c] - want / sum), 2e-6);
    }
}
END_TEST

int main(void) {
    test_seed();
    kernel_thread_init();
    ref = kernel_ops_ref();
    const TTest *const tests[] = {
        attention_over_entries_and_tokens_is_one_softmax_with_the_sink,
        entry_scores_are_weighted_sums_of_positive_products,
        a_window_is_summed_with_the_softmax_of_its_gates_channel_by_channel,
    };
    return test_run("entries", tests, sizeof tests / sizeof *tests);
}
