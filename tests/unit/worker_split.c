// worker_split.c: what ranks hold when experts are split over ETP and layers over stages: just
// their parts of what one rank alone holds, which worker_weights.c compares with the files.
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/legal.h"
#include "tests/harness/suite.h"
#include "worker/weights.h"

static const char *const models[] = {TEST_DATA "/models/tiny-qwen3-moe",
                                     TEST_DATA "/models/awkward",
                                     TEST_DATA "/models/granitemoeshared",
                                     TEST_DATA "/models/gpt-oss",
                                     TEST_DATA "/models/dbrx",
                                     TEST_DATA "/models/llama4-nested",
                                     TEST_DATA "/models/deepseek-v3",
                                     TEST_DATA "/models/llama"};
#define N_MODELS (int)(sizeof models / sizeof *models)

struct loaded {
    struct weights_progress progress;
    struct weights *w;
};

static struct model_spec spec;

static void load(struct loaded *out, const char *folder, const struct layout *l, uint32_t rank) {
    struct err_text e = {""};
    *out = (struct loaded){0};
    struct weights_config config = {.folder = folder,
                                    .spec = &spec,
                                    .layout = l,
                                    .rank = rank,
                                    .dtype = spec.dtype,
                                    .n_threads = 1 + rank % 2,
                                    .progress = &out->progress};
    ck_assert_msg(weights_load(&out->w, &config, &e) == 0, "%s: %s", folder, e.text);
}

static const uint8_t *element(const struct matrix *m, uint32_t row, uint32_t col) {
    size_t at = ((size_t)(row / PANEL_COLS) * m->n_in + col) * PANEL_COLS + row % PANEL_COLS;
    return (const uint8_t *)m->data + at * dtype_bytes(m->dtype);
}

// part is whole from (row, col) on.
static void same_part(const struct matrix *part, const struct matrix *whole, uint32_t row,
                      uint32_t col) {
    size_t bytes = dtype_bytes(whole->dtype), n_different = 0;
    ck_assert_int_eq(part->dtype, whole->dtype);
    ck_assert_ptr_nonnull(part->data);
    for (uint32_t r = 0; r < part->n_out; r++) {
        for (uint32_t c = 0; c < part->n_in; c++)
            n_different +=
                memcmp(element(part, r, c), element(whole, row + r, col + c), bytes) != 0;
    }
    ck_assert_msg(n_different == 0, "%zu of %ux%u elements differ", n_different, part->n_out,
                  part->n_in);
}

static void same_bias(const float *part, const float *whole, uint32_t first, uint32_t n) {
    ck_assert_ptr_nonnull(part);
    ck_assert_mem_eq(part, whole + first, n * sizeof *part);
}

static void same_expert(const struct expert_weights *part, const struct expert_weights *whole,
                        const struct layout *l, uint32_t etp) {
    uint32_t n = spec.inner_expert / l->etp, first = etp * n;
    ck_assert(part->gate.n_out == n && part->up.n_out == n && part->down.n_in == n);
    ck_assert_uint_eq(part->down.n_segments * l->etp, whole->down.n_segments);
    ck_assert_uint_eq((uintptr_t)part->gate.data % EXPERT_ALIGN, 0);
    same_part(&part->gate, &whole->gate, first, 0);
    same_part(&part->up, &whole->up, first, 0);
    same_part(&part->down, &whole->down, 0, first);
    ck_assert_int_eq(part->gate_bias != NULL, spec.expert_bias);
    ck_assert_int_eq(part->down_bias != NULL, spec.expert_bias && l->etp == 1);
    if (!spec.expert_bias) return;
    same_bias(part->gate_bias, whole->gate_bias, first, n);
    same_bias(part->up_bias, whole->up_bias, first, n);
    if (l->etp == 1) same_bias(part->down_bias, whole->down_bias, 0, spec.hidden);
}

static void same_layer(const struct weights *w, const struct weights *whole, const struct layout *l,
                       uint32_t layer) {
    static const struct layer_weights empty;
    const struct layer_weights *part = &w->layers[layer], *all = &whole->layers[layer];
    struct layout_place place = layout_place(l, w->rank);
    uint32_t first = layout_layer_first(l, spec.n_layers, place.stage);
    uint32_t end = layout_layer_first(l, spec.n_layers, place.stage + 1);
    if (layer < first || layer >= end) {
        ck_assert_mem_eq(part, &empty, sizeof empty);
        return;
    }
    same_bias(part->attn_norm, all->attn_norm, 0, spec.hidden);
    same_part(&part->o, &all->o, 0, 0);
    if (spec.ffn[layer] == FFN_DENSE) {
        same_part(&part->dense.down, &all->dense.down, 0, 0);
        return;
    }
    same_part(&part->router, &all->router, 0, 0);
    for (uint32_t i = 0; i < w->n_local_experts; i++)
        same_expert(&part->experts[i], &all->experts[w->first_expert + i], l, place.etp);
    ck_assert_int_eq(part->down_biases != NULL, spec.expert_bias && l->etp > 1);
    for (uint32_t x = 0; part->down_biases != NULL && x < spec.router.n_experts; x++)
        same_bias(part->down_biases + (size_t)x * spec.hidden, all->experts[x].down_bias, 0,
                  spec.hidden);
}

// Only the first stage looks tokens up, only the last one has a head.
static void same_ends(const struct weights *w, const struct weights *whole,
                      const struct layout *l) {
    uint32_t stage = layout_place(l, w->rank).stage;
    bool last = stage + 1 == l->pp;
    ck_assert_int_eq(w->embed != NULL, stage == 0);
    if (stage == 0)
        ck_assert_mem_eq(w->embed, whole->embed,
                         (size_t)spec.vocab * spec.hidden * dtype_bytes(w->dtype));
    ck_assert_int_eq(w->head.data != NULL, last);
    ck_assert_int_eq(w->final_norm != NULL, last);
    if (!last) return;
    same_part(&w->head, &whole->head, 0, 0);
    same_bias(w->final_norm, whole->final_norm, 0, spec.hidden);
}

// Bytes of all experts in the file, and of what every rank of ETP reads of them.
static uint64_t expert_bytes(bool whole) {
    uint64_t n_layers = 0, each = 0, bytes = dtype_bytes(spec.dtype);
    for (uint32_t i = 0; i < spec.n_layers; i++)
        n_layers += spec.ffn[i] == FFN_MOE;
    if (whole) each = UINT64_C(3) * spec.inner_expert * spec.hidden;
    if (whole && spec.expert_bias) each += UINT64_C(2) * spec.inner_expert;
    if (!whole && spec.expert_bias) each += spec.hidden;
    return n_layers * spec.router.n_experts * each * bytes;
}

static void check_layout(const char *folder, const struct layout *l, const struct loaded *one) {
    uint64_t read = 0, digests[RANKS_MAX] = {0}, stage_ranks = layout_stage_ranks(l);
    for (uint32_t rank = 0; rank < l->n_ranks; rank++) {
        struct loaded part;
        load(&part, folder, l, rank);
        same_ends(part.w, one->w, l);
        for (uint32_t layer = 0; layer < spec.n_layers; layer++)
            same_layer(part.w, one->w, l, layer);
        uint32_t stage = layout_place(l, rank).stage;
        if (digests[stage] == 0) digests[stage] = part.w->shared_digest;
        ck_assert_uint_eq(part.w->shared_digest, digests[stage]);
        ck_assert_uint_eq(part.progress.bytes_done, part.progress.bytes_total);
        read += part.progress.bytes_done;
        weights_destroy(part.w);
    }
    // The stages together read every tensor once for each of their ranks, and a tied embedding
    // twice; but experts once, or so much of their biases as is not shared.
    uint64_t experts = expert_bytes(true) + (l->etp == 1 ? expert_bytes(false) : 0);
    uint64_t rest = one->progress.bytes_done - experts;
    if (l->pp > 1 && spec.tied_embeddings)
        rest += (uint64_t)spec.vocab * spec.hidden * dtype_bytes(spec.dtype);
    ck_assert_uint_eq(read, stage_ranks * rest + experts);
}

START_TEST(ranks_hold_their_parts_of_the_weights) {
    static struct layout all[LEGAL_LAYOUTS_MAX];
    const struct layout alone = {1, 1, 1, 1, 1, 1};
    const char *folder = models[_i];
    struct err_text e;
    struct loaded one;
    uint32_t n_etp = 0, n_pp = 0;
    ck_assert_msg(spec_load(&spec, folder, &e) == 0, "%s", e.text);
    load(&one, folder, &alone, 0);
    for (uint32_t n_ranks = 2; n_ranks <= 4; n_ranks++) {
        uint32_t n = legal_list(&spec, n_ranks, all);
        for (uint32_t i = 0; i < n; i++) {
            if (all[i].tp > 1 || (all[i].etp == 1 && all[i].pp == 1)) continue;
            check_layout(folder, &all[i], &one);
            n_etp += all[i].etp > 1;
            n_pp += all[i].pp > 1;
        }
    }
    printf("%s: %u layouts with ETP, %u with stages\n", folder, n_etp, n_pp);
    ck_assert_uint_gt(n_pp, 0);
    weights_destroy(one.w);
}
END_TEST

START_TEST(a_split_load_survives_every_failed_allocation) {
    const struct layout l = {.n_ranks = 4, .pp = 2, .dp = 2, .tp = 1, .ep = 1, .etp = 2};
    const char *folder = TEST_DATA "/models/gpt-oss";
    struct err_text e;
    ck_assert_msg(spec_load(&spec, folder, &e) == 0, "%s", e.text);
    struct weights_config config = {.folder = folder,
                                    .spec = &spec,
                                    .layout = &l,
                                    .rank = 3,
                                    .dtype = spec.dtype,
                                    .n_threads = 1};
    struct weights *w = NULL;
    long n = 0;
    for (int rc = ERR_FATAL_NOMEM; rc != 0; n++) {
        mem_fail_after(n + 1);
        rc = weights_load(&w, &config, &e);
        mem_fail_after(0);
        ck_assert_msg(rc == 0 || rc == ERR_FATAL_NOMEM, "%d %s", rc, e.text);
    }
    ck_assert_int_gt(n, 40);
    weights_destroy(w);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("split");
    TCase *tests = tcase_create("split");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, ranks_hold_their_parts_of_the_weights, 0, N_MODELS);
    tcase_add_test(tests, a_split_load_survives_every_failed_allocation);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
