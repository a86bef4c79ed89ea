// text_chat_models.c: released models' chat templates over a few hundred conversations each: the
// text is the one that Hugging Face transformers render.
//
// TEMPLATES names another folder with *.jinja and its expected.jsonl (make_conversations.py there).
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/chat.h"
#include "tests/harness/suite.h"

#define FOLDER TEST_DATA "/text/templates"
// 2026-11-29 12:00:00 UTC, what make_conversations.py calls now.
#define NOW_NS (INT64_C(1795953600) * 1000000000)

static json_t *conversations; // list of variables

static void load_conversations(void) {
    FILE *f = fopen(FOLDER "/conversations.jsonl", "r");
    ck_assert_ptr_nonnull(f);
    char *line = NULL;
    size_t capacity = 0;
    conversations = json_array();
    while (getline(&line, &capacity, f) > 0) {
        json_t *one = json_loads(line, JSON_ALLOW_NUL, NULL);
        ck_assert_ptr_nonnull(one);
        json_array_append_new(conversations, one);
    }
    free(line);
    fclose(f);
}

static struct chat_template *load_template(const char *folder, const char *name) {
    struct file_bytes file;
    struct chat_template *t = NULL;
    struct err_text e;
    ck_assert_int_eq(file_read_whole(&file, folder, name, TEMPLATE_BYTES_MAX, &e), 0);
    int rc = chat_template_parse(&t, file.data, file.bytes, &e);
    ck_assert_msg(rc == 0, "%s: %s", name, e.text);
    mem_free(file.data);
    return t;
}

// wanted: a digest in hex, or null where Python raises.
static bool renders_as(const struct chat_template *t, const json_t *variables,
                       const json_t *wanted) {
    struct chat_output out = {0};
    struct err_text e = {""};
    char digest[17] = "";
    int rc = chat_template_render(t, variables, NOW_NS, &out, &e);
    if (rc == 0)
        snprintf(digest, sizeof digest, "%016llx",
                 (unsigned long long)XXH3_64bits(out.text, out.bytes));
    bool same =
        json_is_null(wanted) ? rc != 0 : rc == 0 && strcmp(digest, json_string_value(wanted)) == 0;
    if (!same) {
        char *text = json_dumps(variables, JSON_COMPACT);
        printf("%.1500s\ngot rc %d %s\n%.*s\n\n", text, rc, e.text, (int)out.bytes,
               rc == 0 ? out.text : "");
        free(text);
        fflush(stdout);
    }
    chat_output_finish(&out);
    return same;
}

static void check_template(const char *folder, const json_t *row) {
    const char *name = json_string_value(json_object_get(row, "template"));
    const json_t *texts = json_object_get(row, "texts");
    struct chat_template *t = load_template(folder, name);
    size_t n = json_array_size(texts), wrong = 0, n_texts = 0;
    ck_assert_uint_eq(n, json_array_size(conversations));
    for (size_t i = 0; i < n; i++) {
        const json_t *wanted = json_array_get(texts, i);
        wrong += !renders_as(t, json_array_get(conversations, i), wanted);
        n_texts += !json_is_null(wanted);
    }
    chat_template_destroy(t);
    ck_assert_msg(wrong == 0, "%s: %zu of %zu conversations differ", name, wrong, n);
    ck_assert_msg(n_texts > n / 4, "%s: only %zu conversations render", name, n_texts);
}

START_TEST(released_templates_render_as_hugging_face_renders_them) {
    const char *other = getenv("TEMPLATES"), *folder = other != NULL ? other : FOLDER;
    char path[PATH_BYTES_MAX], *line = NULL;
    size_t capacity = 0, n = 0;
    snprintf(path, sizeof path, "%s/expected.jsonl", folder);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    load_conversations();
    for (; getline(&line, &capacity, f) > 0; n++) {
        json_t *row = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(row);
        check_template(folder, row);
        json_decref(row);
    }
    free(line);
    fclose(f);
    json_decref(conversations);
    ck_assert_uint_gt(n, 0);
}
END_TEST

int main(void) {
    setenv("TZ", "UTC", 1);
    tzset();
    Suite *suite = suite_create("text_chat_models");
    TCase *tests = tcase_create("released");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, released_templates_render_as_hugging_face_renders_them);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
