// leader_openapi.c: the document of the API is made from the tables, and the committed one is not
// old.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "leader/api.h"
#include "leader/http.h"
#include "leader/openai_fields.h"
#include "tests/harness/suite.h"

static json_t *load(const char *text) {
    json_error_t error;
    json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(document != NULL, "%s", error.text);
    return document;
}

static json_t *document_of(const struct openapi_facts *facts) {
    static const struct http_route route = {
        "/x", HTTP_POST, NULL, true, {"x", "X.", .gives = "Version"}};
    struct buf text;
    buf_init(&text, 0);
    openapi_write(&text, facts, &route, 1);
    ck_assert(!text.failed);
    buf_add(&text, "", 1);
    json_t *document = load(text.data);
    buf_finish(&text);
    return document;
}

static json_t *schema(json_t *document, const char *name) {
    return json_object_get(json_object_get(json_object_get(document, "components"), "schemas"),
                           name);
}

static json_t *property(json_t *document, const char *body, const char *name) {
    return json_object_get(json_object_get(schema(document, body), "properties"), name);
}

static double maximum(json_t *schema) {
    return json_number_value(json_object_get(schema, "maximum"));
}

START_TEST(the_committed_document_is_the_programs) {
    struct buf text;
    buf_init(&text, 0);
    FILE *file = fopen(SOURCE_ROOT "/docs/openapi.json", "r");
    ck_assert_ptr_nonnull(file);
    char *page = calloc(1, 1 << 20);
    json_t *committed = load((page[fread(page, 1, (1 << 20) - 1, file)] = '\0', page));
    fclose(file);
    const char *version =
        json_string_value(json_object_get(json_object_get(committed, "info"), "version"));
    api_openapi(&text, version);
    buf_add(&text, "", 1);
    ck_assert_msg(strcmp(page, text.data) == 0, "docs/openapi.json is old: make docs");
    json_decref(committed);
    buf_finish(&text);
    free(page);
}
END_TEST

static void check_table(const struct openai_field_table *t, json_t *document) {
    for (size_t i = 0; i < t->n; i++) {
        const struct openai_field *f = &t->fields[i];
        ck_assert_msg(f->about != NULL && f->about[strlen(f->about) - 1] == '.', "%s", f->name);
        if (f->where & CHAT) ck_assert_ptr_nonnull(property(document, "ChatRequest", f->name));
        if (f->where & COMPLETION)
            ck_assert_ptr_nonnull(property(document, "CompletionRequest", f->name));
        if (f->where & TOKENIZE) ck_assert_ptr_nonnull(property(document, "TokenizeText", f->name));
        if (f->where & DETOKENIZE)
            ck_assert_ptr_nonnull(property(document, "DetokenizeRequest", f->name));
    }
}

START_TEST(every_field_of_the_tables_is_in_its_bodies) {
    const struct openapi_facts facts = {.version = "1"};
    json_t *document = document_of(&facts);
    check_table(&openai_fields_taken, document);
    check_table(&openai_fields_refused, document);
    json_decref(document);
}
END_TEST

START_TEST(what_a_server_knows_bounds_its_fields) {
    const struct openai_defaults defaults = {.temperature = 0.7f, .top_p = 1, .vocab = 97};
    const struct openapi_facts facts = {.version = "1",
                                        .model = "toy",
                                        .defaults = &defaults,
                                        .max_model_len = 300,
                                        .vocab = 97,
                                        .choices_max = 5,
                                        .keys = OPENAPI_KEYS_NEEDED};
    json_t *document = document_of(&facts);
    json_t *model = json_object_get(property(document, "ChatRequest", "model"), "enum");
    ck_assert_str_eq(json_string_value(json_array_get(model, 0)), "toy");
    ck_assert(maximum(property(document, "ChatRequest", "max_tokens")) == 299);
    ck_assert(maximum(property(document, "ChatRequest", "n")) == 5);
    json_t *ids = property(document, "DetokenizeRequest", "tokens");
    ck_assert(maximum(json_object_get(ids, "items")) == 96);
    ck_assert(json_integer_value(json_object_get(ids, "maxItems")) == 300);
    json_t *t = json_object_get(property(document, "ChatRequest", "temperature"), "default");
    ck_assert(json_number_value(t) == 0.7);
    json_decref(document);
}
END_TEST

START_TEST(defaults_are_those_of_a_request_without_a_word) {
    const struct openapi_facts facts = {.version = "1"};
    json_t *document = document_of(&facts);
    json_t *n = json_object_get(property(document, "ChatRequest", "n"), "default");
    json_t *skip =
        json_object_get(property(document, "ChatRequest", "skip_special_tokens"), "default");
    ck_assert(json_integer_value(n) == 1 && json_is_true(skip));
    ck_assert_ptr_null(json_object_get(property(document, "ChatRequest", "max_tokens"), "default"));
    json_t *special = property(document, "TokenizeText", "add_special_tokens");
    ck_assert(json_is_true(json_object_get(special, "default")));
    json_decref(document);
}
END_TEST

int main(void) {
    json_set_alloc_funcs(mem_alloc, mem_free);
    Suite *suite = suite_create("openapi");
    TCase *tc = tcase_create("openapi");
    tcase_add_test(tc, the_committed_document_is_the_programs);
    tcase_add_test(tc, every_field_of_the_tables_is_in_its_bodies);
    tcase_add_test(tc, what_a_server_knows_bounds_its_fields);
    tcase_add_test(tc, defaults_are_those_of_a_request_without_a_word);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
