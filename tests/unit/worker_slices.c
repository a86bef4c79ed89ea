// worker_slices.c: the weights of every rank of a TP group are the parts of those of one rank,
// element by element, in every format and however the checkpoint stores them; and a rank reads no
// more than its part.
#include <string.h>

#include "common/base/mem.h"
#include "common/model/legal.h"
#include "tests/harness/suite.h"
#include "worker/slice.h"
#include "worker/weights.h"

// Split and copied KV heads, biases, sinks, latents, shared experts, a tied head, stacked q, k and
// v, norms over all heads, dense layers that can be split and such that cannot, recurrent layers
// whose projections stand by key heads and such that stand by kind.
static const char *const models[] = {
    TEST_DATA "/models/tiny-qwen3-moe", SOURCE_ROOT "/models/seedling",
    TEST_DATA "/models/gpt-oss",        TEST_DATA "/models/dbrx",
    TEST_DATA "/models/deepseek-v2",    TEST_DATA "/models/minimax-m2",
    TEST_DATA "/models/qwen2",          TEST_DATA "/models/phimoe",
    TEST_DATA "/models/qwen3-next",     TEST_DATA "/models/qwen3-5"};
#define N_MODELS (int)(sizeof models / sizeof *models)

struct loaded {
    struct layout layout;
    struct slice slice;
    struct weights_progress progress;
    struct weights *w;
};

static struct model_spec spec;
static struct loaded whole, part;

static void load(struct loaded *l, const char *folder, uint32_t tp, uint32_t rank) {
    struct err_text e = {""};
    *l = (struct loaded){.layout = {.n_ranks = tp, .pp = 1, .dp = 1, .tp = tp, .ep = tp, .etp = 1}};
    struct weights_config config = {.folder = folder,
                                    .spec = &spec,
                                    .layout = &l->layout,
                                    .rank = rank,
                                    .dtype = rank % 2 == 0 ? DTYPE_BF16 : DTYPE_F32,
                                    .n_threads = 2,
                                    .progress = &l->progress};
    l->slice = slice_of(&spec, &l->layout, rank);
    ck_assert_msg(weights_load(&l->w, &config, &e) == 0, "%s: %s", folder, e.text);
}

static float element(const struct matrix *m, size_t row, size_t col) {
    size_t at = (row / PANEL_COLS * m->n_in + col) * PANEL_COLS + row % PANEL_COLS;
    float x;
    kernel_ops_ref()->unpack(&x, (const uint8_t *)m->data + at * dtype_bytes(m->dtype), m->dtype,
                             1);
    return x;
}

// Rows [row, row + n) of a rank's matrix are those from first[0] on of the whole one, and its
// columns those from first[1] on.
static void same_part(const struct matrix *got, const struct matrix *want, const uint32_t rows[2],
                      const uint32_t first[2]) {
    for (uint32_t r = 0; r < rows[1]; r++) {
        for (uint32_t c = 0; c < got->n_in; c++) {
            float x = element(got, rows[0] + r, c), y = element(want, first[0] + r, first[1] + c);
            if (got->dtype != want->dtype) x = bf16_to_f32(f32_to_bf16(x));
            if (f32_to_bits(x) != f32_to_bits(y))
                ck_abort_msg("row %u column %u: %a instead of %a", rows[0] + r, c, x, y);
        }
    }
}

static void same_rows(const struct matrix *got, const struct matrix *want, uint32_t first,
                      uint32_t n) {
    ck_assert_uint_eq(got->n_out, n);
    ck_assert_uint_eq(got->n_in, want->n_in);
    same_part(got, want, (uint32_t[]){0, n}, (uint32_t[]){first, 0});
}

static void same_columns(const struct matrix *got, const struct matrix *want, uint32_t first,
                         uint32_t n) {
    ck_assert_uint_eq(got->n_in, n);
    ck_assert_uint_eq(got->n_out, want->n_out);
    ck_assert_uint_eq(want->n_in / n * got->n_segments, want->n_segments);
    same_part(got, want, (uint32_t[]){0, got->n_out}, (uint32_t[]){0, first});
}

static void same_vector(const float *got, const float *want, uint32_t n) {
    ck_assert_int_eq(got == NULL, want == NULL);
    if (want != NULL) ck_assert_mem_eq(got, want, n * sizeof *want);
}

// Query, key and value rows behind each other in both.
static void same_qkv(const struct layer_weights *got, const struct layer_weights *want) {
    const struct slice *s = &part.slice;
    uint32_t hd = spec.head_dim, q_dim = spec_query_dim(&spec), at = 0, behind = 0;
    const uint32_t runs[][4] = {{spec.n_heads, s->first_head, s->n_heads, q_dim},
                                {spec.n_kv_heads, s->first_kv_head, s->n_kv_heads, hd},
                                {spec.n_kv_heads, s->first_kv_head, s->n_kv_heads, hd}};
    for (int i = 0; i < 3; i++) {
        uint32_t first = behind + runs[i][1] * runs[i][3], n = runs[i][2] * runs[i][3];
        same_part(&got->qkv, &want->qkv, (uint32_t[]){at, n}, (uint32_t[]){first, 0});
        if (want->qkv_bias != NULL) same_vector(got->qkv_bias + at, want->qkv_bias + first, n);
        at += n;
        behind += runs[i][0] * runs[i][3];
    }
    ck_assert_uint_eq(got->qkv.n_out, at);
    ck_assert_int_eq(got->qkv_bias == NULL, want->qkv_bias == NULL);
}

static void same_latents(const struct mla_weights *got, const struct mla_weights *want) {
    const struct slice *s = &part.slice;
    uint32_t dim = spec.mla.nope_dim + spec.rope.dim;
    same_rows(&got->q, &want->q, s->first_head * dim, s->n_heads * dim);
    same_rows(&got->kv_a, &want->kv_a, 0, want->kv_a.n_out);
    if (spec.mla.q_rank != 0) same_rows(&got->q_a, &want->q_a, 0, want->q_a.n_out);
    for (uint32_t h = 0; h < s->n_heads; h++) {
        same_rows(&got->uk[h], &want->uk[s->first_head + h], 0, spec.mla.kv_rank);
        same_rows(&got->uv[h], &want->uv[s->first_head + h], 0, spec.mla.value_dim);
    }
}

static void same_attention(const struct layer_weights *got, const struct layer_weights *want) {
    const struct slice *s = &part.slice;
    uint32_t out = spec_out_dim(&spec), wide = spec.qk_norm == QK_NORM_WIDE;
    if (spec.mla.kv_rank != 0)
        same_latents(&got->mla, &want->mla);
    else
        same_qkv(got, want);
    same_columns(&got->o, &want->o, s->first_head * out, s->n_heads * out);
    same_vector(got->o_bias, want->o_bias, spec.hidden);
    same_vector(got->q_norm, want->q_norm, (wide ? spec.n_heads : 1) * spec.head_dim);
    same_vector(got->k_norm, want->k_norm, (wide ? spec.n_kv_heads : 1) * spec.head_dim);
    ck_assert_int_eq(got->sinks == NULL, want->sinks == NULL);
    if (spec.sinks) same_vector(got->sinks, want->sinks + s->first_head, s->n_heads);
}

// Rows of the parts of a row behind each other in both: how many all heads have, the first of this
// rank's and their number.
static void same_runs(const struct matrix *got, const struct matrix *want,
                      const uint32_t (*runs)[3], int n_runs) {
    uint32_t at = 0, behind = 0;
    for (int i = 0; i < n_runs; behind += runs[i][0], at += runs[i][2], i++)
        same_part(got, want, (uint32_t[]){at, runs[i][2]}, (uint32_t[]){behind + runs[i][1], 0});
    ck_assert_uint_eq(got->n_out, at);
    ck_assert_uint_eq(want->n_out, behind);
}

static void same_delta(const struct layer_weights *got, const struct layer_weights *want) {
    const struct slice *s = &part.slice;
    const struct delta_spec *d = &spec.delta;
    const struct delta_weights *x = &got->delta, *y = &want->delta;
    uint32_t keys[] = {d->n_k_heads * d->k_dim, s->first_k_head * d->k_dim,
                       s->n_k_heads * d->k_dim},
             values[] = {d->n_v_heads * d->v_dim, s->first_v_head * d->v_dim,
                         s->n_v_heads * d->v_dim};
    uint32_t runs[4][3], heads[2][3];
    for (int i = 0; i < 4; i++)
        memcpy(runs[i], i < 2 ? keys : values, sizeof keys);
    for (int i = 0; i < 2; i++)
        memcpy(heads[i], (uint32_t[]){d->n_v_heads, s->first_v_head, s->n_v_heads}, sizeof keys);
    if (d->by_head) {
        uint32_t row = y->in.n_out / d->n_k_heads, gates = y->gates.n_out / d->n_k_heads;
        same_rows(&x->in, &y->in, s->first_k_head * row, s->n_k_heads * row);
        same_rows(&x->gates, &y->gates, s->first_k_head * gates, s->n_k_heads * gates);
    } else {
        same_runs(&x->in, &y->in, runs, 4);
        same_runs(&x->gates, &y->gates, heads, 2);
    }
    const float *conv = x->conv, *all = y->conv;
    for (uint32_t run = 0; run < 3 * d->kernel; all += runs[run % 3][0], run++) {
        same_vector(conv, all + runs[run % 3][1], runs[run % 3][2]);
        conv += runs[run % 3][2];
    }
    same_vector(x->a_log, y->a_log + s->first_v_head, s->n_v_heads);
    same_vector(x->dt_bias, y->dt_bias + s->first_v_head, s->n_v_heads);
    same_vector(x->norm, y->norm, d->v_dim);
    same_columns(&got->o, &want->o, values[1], values[2]);
}

static void same_layer(const struct layer_weights *got, const struct layer_weights *want) {
    const struct slice *s = &part.slice;
    if (want->delta.conv != NULL)
        same_delta(got, want);
    else
        same_attention(got, want);
    if (want->dense.gate.n_out == 0) return;
    same_rows(&got->dense.gate, &want->dense.gate, s->first_inner, s->n_inner);
    same_rows(&got->dense.up, &want->dense.up, s->first_inner, s->n_inner);
    same_columns(&got->dense.down, &want->dense.down, s->first_inner, s->n_inner);
}

START_TEST(a_rank_holds_its_part_of_the_model) {
    struct err_text e;
    ck_assert_msg(spec_load(&spec, models[_i], &e) == 0, "%s", e.text);
    load(&whole, models[_i], 1, 0);
    for (uint32_t tp = 2; tp <= legal_tp_max(&spec); tp *= 2) {
        uint32_t tokens = 0;
        for (uint32_t rank = 0; rank < tp; rank++) {
            load(&part, models[_i], tp, rank);
            ck_assert_uint_eq(part.slice.first_token, tokens);
            if (part.slice.n_tokens > 0)
                same_rows(&part.w->head, &whole.w->head, tokens, part.slice.n_tokens);
            if (whole.w->head_bias != NULL && part.slice.n_tokens > 0)
                same_vector(part.w->head_bias, whole.w->head_bias + tokens, part.slice.n_tokens);
            tokens += part.slice.n_tokens;
            for (uint32_t i = 0; i < spec.n_layers; i++)
                same_layer(&part.w->layers[i], &whole.w->layers[i]);
            ck_assert_uint_eq(part.progress.bytes_done, part.progress.bytes_total);
            ck_assert_uint_lt(part.progress.bytes_total, whole.progress.bytes_total);
            weights_destroy(part.w);
        }
        ck_assert_uint_eq(tokens, spec.vocab);
    }
    weights_destroy(whole.w);
}
END_TEST

// The digest tells parts apart, and equal parts are equal whatever their rank.
START_TEST(digests_are_equal_where_the_parts_are) {
    struct err_text e;
    uint64_t digests[2];
    ck_assert_int_eq(spec_load(&spec, models[0], &e), 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        load(&part, models[0], 2, rank);
        digests[rank] = part.w->shared_digest;
        weights_destroy(part.w);
    }
    ck_assert_uint_ne(digests[0], digests[1]);
    const struct layout two = {.n_ranks = 4, .pp = 1, .dp = 2, .tp = 2, .ep = 4, .etp = 1};
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct weights *w;
        struct weights_config config = {.folder = models[0],
                                        .spec = &spec,
                                        .layout = &two,
                                        .rank = rank,
                                        .dtype = DTYPE_F32,
                                        .n_threads = 1};
        ck_assert_int_eq(weights_load(&w, &config, &e), 0);
        ck_assert_uint_eq(w->shared_digest, digests[rank % 2]);
        weights_destroy(w);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("slices");
    TCase *tests = tcase_create("slices");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, a_rank_holds_its_part_of_the_model, 0, N_MODELS);
    tcase_add_test(tests, digests_are_equal_where_the_parts_are);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
