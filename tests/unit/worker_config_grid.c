// worker_config_grid.c: every key of every config.json of the fuzzers' corpus, changed to each of a
// list of values: sizes of 0, 1 and far too much, those that nothing divides, other types, nothing
// at all. Each is refused by a name that the file has, or makes a spec whose tensors can be listed;
// and then the small checkpoint of that name is refused, or taken, by both who look at it.
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/checkpoint.h"
#include "common/model/tensors.h"
#include "tests/harness/suite.h"
#include "worker/weights_plan.h"

#define CORPUS SOURCE_ROOT "/tests/fuzz/corpus/config"
#define PLAN_BYTES_MAX (64u << 20) // a plan takes memory before it has looked at everything

static const char *const values[] = {
    "null",  "0",      "1",        "2",          "3",
    "-1",    "7",      "1000003",  "4294967297", "9223372036854775807",
    "1e308", "1e-308", "0.5",      "-2.5",       "true",
    "false", "\"\"",   "\"silu\"", "[]",         "{}",
    "[1]",
};
#define N_VALUES (sizeof values / sizeof *values)

// One file of the corpus, and the checkpoint that has its name, if any.
struct subject {
    const char *name;
    json_t *config;        // as it is changed
    struct err_text fault; // why it is refused as it is; empty: it is not
    const char *other;     // a second key that is changed, or NULL
    struct safetensors *st;
    size_t n_refused, n_taken, n_planned;
};

// --- what is expected of a spec

static bool list_tensor(void *context, const struct tensor_want *want) {
    const struct model_spec *spec = context;
    char name[TENSOR_NAME_MAX];
    const struct tensor_place place = tensor_want_place(spec, want);
    uint64_t elements = 1, cols = want->cols == 0 ? 1 : want->cols;
    tensor_want_name(spec, want, name);
    ck_assert(want->rows > 0 && place.n_dims >= 1 && place.n_dims <= 3);
    for (uint32_t i = 0; i < place.n_dims; i++)
        elements *= place.dims[i];
    ck_assert_msg(place.offset + (want->rows - 1) * place.row_stride +
                          (cols - 1) * place.column_stride <
                      elements,
                  "%s: a matrix reaches past its tensor", name);
    return true;
}

static void count_problem(void *context, const char *text) {
    size_t *n = context;
    ck_assert_uint_gt(strlen(text), 10);
    ++*n;
}

// The plan of a rank, without its reads.
static bool plan_is_made(const struct model_spec *spec, const struct safetensors *st,
                         struct err_text *e) {
    struct layout layout;
    struct weights_plan plan;
    struct weights *w = mem_zalloc(sizeof *w);
    ck_assert_int_eq(layout_make(&layout, 2, e), 0);
    struct weights_config config = {
        .folder = "", .spec = spec, .layout = &layout, .dtype = spec->dtype, .n_threads = 1};
    int rc = weights_plan_make(&plan, w, &config, st, e);
    if (rc == 0) weights_plan_finish(&plan);
    weights_destroy(w);
    ck_assert_msg(rc == 0 || rc == ERR_FATAL_MODEL, "%d %s", rc, e->text);
    return rc == 0;
}

static void expect_sound(struct subject *s, const struct model_spec *spec, const char *change) {
    struct err_text e = {""};
    struct checkpoint_sizes sizes;
    size_t n_problems = 0;
    const struct problems problems = {count_problem, &n_problems};
    ck_assert_msg(spec_check(spec, &e) == 0, "%s with %s: %s", s->name, change, e.text);
    ck_assert(tensors_each(spec, list_tensor, (void *)spec));
    checkpoint_sizes(&sizes, spec);
    s->n_taken++;
    if (s->st == NULL) return;
    ck_assert_int_eq(checkpoint_check(spec, s->st, &problems, &e), 0);
    if (checkpoint_rank_bytes(&sizes, spec, 1) > PLAN_BYTES_MAX) return;
    s->n_planned++;
    bool made = plan_is_made(spec, s->st, &e);
    ck_assert_msg(made == (n_problems == 0), "%s with %s: %zu problems, but the plan says \"%s\"",
                  s->name, change, n_problems, made ? "fine" : e.text);
}

// --- what is expected of a refusal

// Where a refusal is of how several keys fit, or of a key that another one gives its meaning to, it
// may name that one, or what both are for.
static const struct relation {
    const char *key, *words;
} relations[] = {
    {"num_experts", "number of experts"},
    {"n_routed_experts", "number of experts"},
    {"moe_num_experts", "number of experts"},
    {"num_local_experts", "number of experts"},
    {"moe_top_k", "num_experts_per_tok"},
    {"kv_n_heads", "num_key_value_heads"},
    {"moe_intermediate_size", "the shared expert's width"},
    {"num_hidden_layers", "layer_types"},
    {"num_hidden_layers", "no_rope_layers"},
    {"num_hidden_layers", "mlp_only_layers"},
    {"hidden_size", "short_factor"},
    {"d_model", "short_factor"},
    {"num_attention_heads", "short_factor"},
    {"type", "rope_scaling."},
    {"rope_type", "rope_scaling."},
    {"rope_type", "rope_parameters"},
    {"main", "rope_parameters.compress"},
    {"compress", "rope_parameters.main"},
    {"name", "ffn_act_fn"},
};

static bool is_named(const char *text, const char *key) {
    if (strstr(text, key) != NULL) return true;
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++) {
        if (strcmp(relations[i].key, key) == 0 && strstr(text, relations[i].words) != NULL)
            return true;
    }
    return false;
}

// What is wrong with the file as it was is not the fault of what was changed.
static void expect_named(const struct subject *s, const char *key, const struct err_text *e,
                         const char *change) {
    if (s->fault.text[0] != '\0' && strcmp(e->text, s->fault.text) == 0) return;
    bool named = is_named(e->text, key) || (s->other != NULL && is_named(e->text, s->other));
    ck_assert_msg(named, "%s with %s: \"%s\" names another", s->name, change, e->text);
}

static int parse(const struct subject *s, struct model_spec *spec, struct err_text *e) {
    char *text = json_dumps(s->config, 0);
    const struct spec_source source = {.config = text, .config_bytes = strlen(text)};
    int rc = spec_parse(spec, &source, e);
    free(text);
    return rc;
}

static void find_fault(struct subject *s) {
    struct model_spec spec;
    if (parse(s, &spec, &s->fault) == 0) s->fault.text[0] = '\0';
}

static void try_config(struct subject *s, const char *key, const char *change) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = parse(s, &spec, &e);
    if (rc == 0) {
        expect_sound(s, &spec, change);
        return;
    }
    ck_assert_msg(rc == ERR_FATAL_MODEL, "%s with %s: %d %s", s->name, change, rc, e.text);
    expect_named(s, key, &e, change);
    s->n_refused++;
}

// --- the changes

// old may be none.
static void put_back(json_t *object, const char *key, json_t *old) {
    if (old == NULL)
        json_object_del(object, key);
    else
        json_object_set_new(object, key, old);
}

static void try_value(struct subject *s, json_t *object, const char *key, json_t *value) {
    char change[256], *text = json_dumps(value, JSON_ENCODE_ANY);
    json_t *old = json_incref(json_object_get(object, key));
    snprintf(change, sizeof change, "%.100s = %.100s", key, text == NULL ? "nothing" : text);
    if (value == NULL)
        json_object_del(object, key);
    else
        json_object_set(object, key, value);
    try_config(s, key, change);
    put_back(object, key, old);
    free(text);
}

static void try_key(struct subject *s, json_t *object, const char *key) {
    const json_t *old = json_object_get(object, key);
    try_value(s, object, key, NULL);
    for (size_t i = 0; i < N_VALUES; i++) {
        json_t *value = json_loads(values[i], JSON_DECODE_ANY, NULL);
        try_value(s, object, key, value);
        json_decref(value);
    }
    json_int_t n = json_integer_value(old);
    const json_int_t near[] = {n - 1, n + 1, 2 * n, -n, n * 65537};
    for (size_t i = 0; json_is_integer(old) && i < sizeof near / sizeof *near; i++) {
        json_t *value = json_integer(near[i]);
        try_value(s, object, key, value);
        json_decref(value);
    }
}

// Of an object and those inside it; the keys are taken first, as changes move them.
static void try_object(struct subject *s, json_t *object) {
    const char *keys[128], *key;
    json_t *value;
    size_t n = 0;
    json_object_foreach(object, key, value) {
        ck_assert_uint_lt(n, 128);
        keys[n++] = strdup(key);
    }
    for (size_t i = 0; i < n; i++) {
        json_t *inner = json_object_get(object, keys[i]);
        if (json_is_object(inner)) try_object(s, inner);
        try_key(s, object, keys[i]);
        free((char *)keys[i]);
    }
}

// Keys that must fit each other, where each alone could be anything.
static void try_pairs(struct subject *s) {
    static const char *const pairs[][2] = {{"o_groups", "num_attention_heads"},
                                           {"compress_rate_csa", "compress_rate_hca"},
                                           {"index_head_dim", "qk_rope_head_dim"},
                                           {"hc_mult", "hidden_size"}};
    static const json_int_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 48, 64, 256, 1024};
    const size_t n = sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs * n * n; i++) {
        const char *const *pair = pairs[i / (n * n)];
        json_t *old = json_incref(json_object_get(s->config, pair[0]));
        json_t *second = json_integer(sizes[i % n]);
        json_object_set_new(s->config, pair[0], json_integer(sizes[i / n % n]));
        s->other = pair[0];
        try_value(s, s->config, pair[1], second);
        json_decref(second);
        s->other = NULL;
        put_back(s->config, pair[0], old);
    }
}

static void try_file(const char *name) {
    char path[512];
    struct err_text e;
    struct subject s = {.name = name};
    snprintf(path, sizeof path, CORPUS "/%.200s", name);
    s.config = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(s.config)) { // a seed of the fuzzer that is no file of a model
        json_decref(s.config);
        return;
    }
    find_fault(&s);
    snprintf(path, sizeof path, TEST_DATA "/models/%.200s", name);
    if (safetensors_open(&s.st, path, &e) != 0) s.st = NULL;
    try_object(&s, s.config);
    if (json_object_get(s.config, "o_groups") != NULL) try_pairs(&s);
    printf("%s: %zu refused, %zu taken, %zu of them planned\n", name, s.n_refused, s.n_taken,
           s.n_planned);
    safetensors_close(s.st);
    json_decref(s.config);
}

START_TEST(a_changed_config_is_refused_by_name_or_sound) {
    size_t n = 0;
    DIR *files = opendir(CORPUS);
    ck_assert_ptr_nonnull(files);
    for (const struct dirent *d; (d = readdir(files)) != NULL;) {
        if (d->d_name[0] == '.') continue;
        try_file(d->d_name);
        n++;
    }
    closedir(files);
    ck_assert_uint_ge(n, 30);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("config_grid");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, a_changed_config_is_refused_by_name_or_sound);
    Suite *s = suite_create("worker_config_grid");
    suite_add_tcase(s, c);
    return suite_run(s);
}
