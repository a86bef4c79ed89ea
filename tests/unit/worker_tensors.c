// worker_tensors.c: the list of tensors that a spec asks for (common/model/tensors.h) against what
// the worker plans to read, on every small checkpoint; and the sizes that are told before a load
// against those behind it.
#include "common/model/tensors.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/checkpoint.h"
#include "tests/harness/loaded.h"
#include "tests/harness/suite.h"
#include "worker/weights_plan.h"

#define MODELS TEST_DATA "/models"

// One matrix or vector in the checkpoint.
struct piece {
    char name[TENSOR_NAME_MAX];
    uint64_t rows, cols, offset, row_stride, column_stride;
};

struct pieces {
    struct piece *list; // owned
    size_t n, capacity;
    const struct model_spec *spec;
};

static struct piece *add_piece(struct pieces *p) {
    if (p->n == p->capacity) {
        p->capacity = p->capacity == 0 ? 64 : 2 * p->capacity;
        p->list = mem_resize(p->list, p->capacity * sizeof *p->list);
        ck_assert_ptr_nonnull(p->list);
    }
    memset(&p->list[p->n], 0, sizeof *p->list);
    return &p->list[p->n++];
}

static bool wanted(void *context, const struct tensor_want *want) {
    struct pieces *p = context;
    struct piece *piece = add_piece(p);
    const struct tensor_place place = tensor_want_place(p->spec, want);
    tensor_want_name(p->spec, want, piece->name);
    piece->rows = want->rows;
    piece->cols = want->cols == 0 ? 1 : want->cols;
    piece->offset = place.offset;
    piece->row_stride = place.row_stride;
    piece->column_stride = place.column_stride;
    return true;
}

static void planned(struct pieces *p, const struct weights_plan *plan) {
    for (size_t i = 0; i < plan->n_items; i++) {
        const struct weights_item *item = &plan->items[i];
        for (uint32_t k = 0; k < item->n_sources; k++) {
            const struct weights_source *source = &item->sources[k];
            struct piece *piece = add_piece(p);
            snprintf(piece->name, sizeof piece->name, "%s", source->tensor->name);
            piece->rows = source->n_rows;
            piece->cols = item->n_cols;
            piece->offset = source->offset;
            piece->row_stride = source->row_stride;
            piece->column_stride = source->column_stride;
        }
    }
    for (uint32_t i = 0; i < plan->n_tables; i++) {
        const struct safetensors_tensor *t = plan->tables[i].tensor;
        struct piece *piece = add_piece(p);
        snprintf(piece->name, sizeof piece->name, "%s", t->name);
        piece->rows = (uint32_t)t->shape[0];
        piece->cols = (uint32_t)t->shape[1];
        piece->row_stride = t->shape[1];
        piece->column_stride = 1;
    }
}

static int in_order(const void *a, const void *b) {
    return memcmp(a, b, sizeof(struct piece));
}

static void expect_agreement(const char *folder) {
    struct err_text e = {""};
    struct model_spec spec;
    struct layout layout;
    struct safetensors *st;
    struct weights_plan plan;
    ck_assert_msg(spec_load(&spec, folder, &e) == 0, "%s: %s", folder, e.text);
    ck_assert_int_eq(layout_make(&layout, 1, &e), 0);
    ck_assert_int_eq(safetensors_open(&st, folder, &e), 0);
    struct weights *w = mem_zalloc(sizeof *w);
    struct weights_config config = {
        .folder = folder, .spec = &spec, .layout = &layout, .dtype = spec.dtype, .n_threads = 1};
    ck_assert_msg(weights_plan_make(&plan, w, &config, st, &e) == 0, "%s: %s", folder, e.text);
    struct pieces want = {.spec = &spec}, plans = {.spec = &spec};
    ck_assert(tensors_each(&spec, wanted, &want));
    planned(&plans, &plan);
    qsort(want.list, want.n, sizeof *want.list, in_order);
    qsort(plans.list, plans.n, sizeof *plans.list, in_order);
    for (size_t i = 0; i < want.n && i < plans.n; i++)
        ck_assert_msg(in_order(&want.list[i], &plans.list[i]) == 0,
                      "%s: the list has %s, the plan %s", folder, want.list[i].name,
                      plans.list[i].name);
    ck_assert_uint_eq(want.n, plans.n);
    mem_free(want.list);
    mem_free(plans.list);
    weights_plan_finish(&plan);
    weights_destroy(w);
    safetensors_close(st);
}

static void for_each_model(void (*body)(const char *folder)) {
    char folder[512];
    size_t n = 0;
    DIR *models = opendir(MODELS);
    ck_assert_ptr_nonnull(models);
    for (const struct dirent *d; (d = readdir(models)) != NULL;) {
        if (d->d_name[0] == '.') continue;
        snprintf(folder, sizeof folder, MODELS "/%.200s", d->d_name);
        body(folder);
        n++;
    }
    closedir(models);
    ck_assert_uint_ge(n, 26);
    body(SOURCE_ROOT "/models/seedling");
}

START_TEST(the_list_is_what_a_rank_plans_to_read) {
    for_each_model(expect_agreement);
}
END_TEST

static void refuse_text(void *context, const char *text) {
    ck_abort_msg("%s: %s", (const char *)context, text);
}

static void expect_fine(const char *folder) {
    struct err_text e = {""};
    struct model_spec spec;
    struct safetensors *st;
    const struct problems problems = {refuse_text, (void *)folder};
    ck_assert_int_eq(spec_load(&spec, folder, &e), 0);
    ck_assert_int_eq(safetensors_open_saying(&st, folder, &problems, &e), 0);
    ck_assert_int_eq(checkpoint_check(&spec, st, &problems, &e), 0);
    ck_assert_int_eq(checkpoint_check_values(&spec, st, &problems, &e), 0);
    safetensors_close(st);
}

START_TEST(what_is_loaded_has_no_problems) {
    for_each_model(expect_fine);
}
END_TEST

START_TEST(a_rank_holds_about_what_was_told) {
    const char *folder = SOURCE_ROOT "/models/seedling";
    for (uint32_t n_ranks = 1; n_ranks <= 16; n_ranks *= 4) {
        struct loaded l = {.layout.n_ranks = n_ranks};
        struct err_text e = {""};
        struct weights_config config = {.dtype = DTYPE_BF16};
        struct checkpoint_sizes sizes;
        ck_assert_int_eq(loaded_try(&l, folder, &config, &e), 0);
        checkpoint_sizes(&sizes, &l.spec);
        double told = (double)checkpoint_rank_bytes(&sizes, &l.spec, n_ranks);
        ck_assert_double_ge((double)l.w->bytes / told, 0.99);
        ck_assert_double_le((double)l.w->bytes / told, 1.1);
        weights_destroy(l.w);
    }
}
END_TEST

int main(void) {
    TCase *c = tcase_create("tensors");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, the_list_is_what_a_rank_plans_to_read);
    tcase_add_test(c, what_is_loaded_has_no_problems);
    tcase_add_test(c, a_rank_holds_about_what_was_told);
    Suite *s = suite_create("worker_tensors");
    suite_add_tcase(s, c);
    return suite_run(s);
}
