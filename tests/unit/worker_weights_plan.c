// worker_weights_plan.c: what a plan of a rank's weights takes: memory for its own layers only, a
// place for every tensor of the checkpoint, and no longer than whoever loads wants it.
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "tests/harness/folder_copy.h"
#include "tests/harness/suite.h"
#include "worker/slice.h"
#include "worker/weights_plan.h"

#define ALLOCATIONS_MAX 2000

// A model's folder, and the rank and layout to plan for.
struct subject {
    struct model_spec spec;
    struct safetensors *st;
    struct layout layout;
    struct weights_config config;
};

static void subject_open(struct subject *s, const char *folder, struct layout layout) {
    struct err_text e = {""};
    *s = (struct subject){.layout = layout};
    ck_assert_msg(spec_load(&s->spec, folder, &e) == 0, "%s: %s", folder, e.text);
    ck_assert_msg(safetensors_open(&s->st, folder, &e) == 0, "%s: %s", folder, e.text);
    s->config = (struct weights_config){.folder = folder,
                                        .spec = &s->spec,
                                        .layout = &s->layout,
                                        .dtype = s->spec.dtype,
                                        .n_threads = 1};
}

static void subject_close(struct subject *s) {
    safetensors_close(s->st);
}

static int make_plan(const struct subject *s, struct err_text *e) {
    struct weights_plan plan;
    struct weights *w = mem_zalloc(sizeof *w);
    ck_assert_ptr_nonnull(w);
    int rc = weights_plan_make(&plan, w, &s->config, s->st, e);
    if (rc == 0) weights_plan_finish(&plan);
    weights_destroy(w);
    return rc;
}

// Allocations that a plan makes: the first that does not fail it is one too far. The first is not
// the plan's but weights'.
static long count_allocations(struct subject *s, uint32_t rank) {
    struct err_text e = {""};
    int rc = ERR_FATAL_NOMEM;
    long n = 1;
    s->config.rank = rank;
    for (; rc != 0 && n < ALLOCATIONS_MAX; n++) {
        mem_fail_after(n + 1);
        rc = make_plan(s, &e);
        mem_fail_after(0);
        ck_assert_msg(rc == 0 || rc == ERR_FATAL_NOMEM, "%s", e.text);
    }
    ck_assert_int_eq(rc, 0);
    return n - 2;
}

// Latent attention with a shared expert and a dense layer; recurrent layers; sinks, and down biases
// beside split experts.
static const struct {
    const char *folder;
    uint32_t tp;
} staged[] = {
    {TEST_DATA "/models/deepseek-v3", 1},
    {TEST_DATA "/models/qwen3-next", 1},
    {TEST_DATA "/models/gpt-oss", 2},
    {TEST_DATA "/models/deepseek-v4", 1},
};
#define N_STAGED (int)(sizeof staged / sizeof *staged)

START_TEST(layers_of_other_stages_take_no_memory) {
    uint32_t tp = staged[_i].tp;
    struct layout layout = {.n_ranks = tp, .pp = 1, .dp = 1, .tp = tp, .ep = 1, .etp = tp};
    struct subject s;
    subject_open(&s, staged[_i].folder, layout);
    long whole = count_allocations(&s, 0);
    s.layout.pp = 2;
    s.layout.n_ranks *= 2;
    long first = count_allocations(&s, 0), last = count_allocations(&s, tp);
    // Both have a plan, a list of what was used, and a list of layers, which are weights' memory
    // (two allocations each).
    ck_assert_int_eq(first + last, whole + 2 + 2);
    subject_close(&s);
}
END_TEST

// The tensors of a folder's only file with another number of tokens; all elements are 0.
static void write_vocabulary(const struct folder_copy *c, json_int_t from, json_int_t to) {
    char path[FOLDER_PATH_MAX];
    uint64_t n_bytes, end = 0;
    const char *name;
    json_t *tensor;
    folder_copy_path(c, "model.safetensors", path);
    FILE *f = fopen(path, "r+b");
    ck_assert(f != NULL && fread(&n_bytes, sizeof n_bytes, 1, f) == 1);
    json_t *header = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
    ck_assert_ptr_nonnull(header);
    json_object_del(header, "__metadata__");
    json_object_foreach(header, name, tensor) {
        json_t *shape = json_object_get(tensor, "shape"), *first = json_array_get(shape, 0);
        if (json_integer_value(first) == from) json_integer_set(first, to);
        uint64_t bytes = strcmp(json_string_value(json_object_get(tensor, "dtype")), "F32") ? 2 : 4;
        for (size_t i = 0; i < json_array_size(shape); i++)
            bytes *= (uint64_t)json_integer_value(json_array_get(shape, i));
        json_object_set_new(tensor, "data_offsets", json_pack("[I, I]", end, end + bytes));
        end += bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    n_bytes = strlen(text);
    rewind(f);
    ck_assert(fwrite(&n_bytes, sizeof n_bytes, 1, f) == 1 && fwrite(text, n_bytes, 1, f) == 1);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(truncate(path, (off_t)(sizeof n_bytes + n_bytes + end)), 0);
    free(text);
    json_decref(header);
}

// 48 tokens are three panels, too few for each of four ranks.
START_TEST(a_rank_without_columns_of_the_head_looks_at_it) {
    static const struct {
        const char *from, *to, *word;
    } cases[] = {
        {"", "", NULL},
        {"lm_head.bias", "lm_hexd.bias", "tensor lm_head.bias is missing"},
        {"\"BF16\",\"shape\":[48]", "\"I16\", \"shape\":[48]", "tensor lm_head.bias has type I16"},
        {"\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[48,32]",
         "\"lm_head.weight\":{\"dtype\":\"BF16\",\"shape\":[32,48]", "tensor lm_head.weight: "},
    };
    struct err_text e = {""};
    struct folder_copy c;
    struct subject s;
    folder_copy_make(&c, TEST_DATA "/models/phimoe");
    folder_copy_edit(&c, "config.json", "\"vocab_size\": 128", "\"vocab_size\":  48");
    write_vocabulary(&c, 128, 48);
    folder_copy_edit(&c, "model.safetensors", cases[_i].from, cases[_i].to);
    subject_open(&s, c.folder, (struct layout){4, 1, 1, 4, 4, 1});
    ck_assert_uint_eq(slice_of(&s.spec, &s.layout, 0).n_tokens, 0);
    for (s.config.rank = 0; s.config.rank < 4; s.config.rank++) {
        int rc = make_plan(&s, &e);
        ck_assert_msg(rc == (cases[_i].word == NULL ? 0 : ERR_FATAL_MODEL), "rank %u: %d %s",
                      s.config.rank, rc, e.text);
        if (rc != 0) ck_assert_msg(strstr(e.text, cases[_i].word) != NULL, "%s", e.text);
    }
    subject_close(&s);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(planning_and_reading_can_be_cancelled) {
    struct err_text e = {""};
    struct subject s;
    struct weights_plan plan;
    struct weights_progress progress = {0};
    _Atomic bool cancel = false;
    struct weights *w = mem_zalloc(sizeof *w);
    subject_open(&s, TEST_DATA "/models/tiny-mixtral", (struct layout){1, 1, 1, 1, 1, 1});
    s.config.cancel = &cancel;
    s.config.progress = &progress;
    ck_assert_msg(weights_plan_make(&plan, w, &s.config, s.st, &e) == 0, "%s", e.text);
    cancel = true;
    ck_assert_int_eq(weights_read(w, &plan, &s.config, s.st, &e), ERR_FATAL_STOPPED);
    ck_assert_uint_eq(progress.bytes_done, 0);
    ck_assert_int_eq(make_plan(&s, &e), ERR_FATAL_STOPPED);
    ck_assert_str_eq(e.text, "loading was cancelled");
    weights_plan_finish(&plan);
    weights_destroy(w);
    subject_close(&s);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("weights plan");
    TCase *tests = tcase_create("weights plan");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, layers_of_other_stages_take_no_memory, 0, N_STAGED);
    tcase_add_loop_test(tests, a_rank_without_columns_of_the_head_looks_at_it, 0, 4);
    tcase_add_test(tests, planning_and_reading_can_be_cancelled);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
