// leader_api_tools.c: tool calls from HTTP to HTTP with a toy scheduler behind it that says what a
// model would: whole and streamed, broken and cut.
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/api_house.h"
#include "tests/harness/http_client.h"
#include "tests/harness/suite.h"

#define MODEL SOURCE_ROOT "/models/seedling"
#define CHAT "/v1/chat/completions"
#define BODY                                                                                       \
    "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[{\"type\":\"function\","     \
    "\"function\":{\"name\":\"look\"}}]"
#define CALL                                                                                       \
    "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"the <sea>\"}}\n</tool_call>"
#define ARGUMENTS "{\"at\": \"the <sea>\"}"

static void house_start(struct house *h, const char *answer, const char *parser) {
    struct toy_script script = {.answer = answer, .tool_call_parser = parser};
    struct toy_house_config toy = {MODEL, script, 64, 256};
    toy_house_start(&h->toy, &toy);
    house_open(h);
}

static char *ask(struct house *h, const char *fields, int want_status) {
    char body[1024];
    struct buf out;
    snprintf(body, sizeof body, "{%s" BODY "}", fields);
    http_client_post(h->port, CHAT, body, &out);
    ck_assert_msg(http_client_status(&out) == want_status, "%s", out.data);
    char *text = http_client_body(&out);
    buf_finish(&out);
    return text;
}

static json_t *load(const char *text, size_t bytes) {
    json_t *root = json_loadb(text, bytes, 0, NULL);
    ck_assert_msg(root != NULL, "%s", text);
    return root;
}

// "content | name arguments | ... (finish)", content "-" for null, of choice 0.
static char *whole(struct house *h, const char *fields) {
    char *text = ask(h, fields, 200);
    json_t *root = load(text, strlen(text));
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *message = json_object_get(choice, "message"), *call;
    const char *content = json_string_value(json_object_get(message, "content"));
    struct buf out;
    size_t i;
    buf_init(&out, 0);
    ck_assert(content != NULL || json_is_null(json_object_get(message, "content")));
    buf_text(&out, content == NULL ? "-" : content);
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        const json_t *f = json_object_get(call, "function");
        ck_assert_str_eq(json_string_value(json_object_get(call, "type")), "function");
        ck_assert_ptr_nonnull(json_string_value(json_object_get(call, "id")));
        ck_assert_ptr_null(json_object_get(call, "index"));
        buf_format(&out, " | %s %s", json_string_value(json_object_get(f, "name")),
                   json_string_value(json_object_get(f, "arguments")));
    }
    buf_format(&out, " (%s)", json_string_value(json_object_get(choice, "finish_reason")));
    buf_add(&out, "", 1);
    json_decref(root);
    free(text);
    return out.data;
}

struct streamed {
    struct buf content, calls;
    size_t n_calls;
    char finish[16];
};

static void take_call(struct streamed *s, const json_t *call) {
    const json_t *f = json_object_get(call, "function");
    ck_assert_int_eq(json_integer_value(json_object_get(call, "index")), (json_int_t)s->n_calls++);
    ck_assert_ptr_nonnull(json_string_value(json_object_get(call, "id")));
    buf_format(&s->calls, " | %s %s", json_string_value(json_object_get(f, "name")),
               json_string_value(json_object_get(f, "arguments")));
}

static void take_chunk(struct streamed *s, const json_t *choice) {
    const json_t *delta = json_object_get(choice, "delta"), *call;
    const json_t *content = json_object_get(delta, "content");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    size_t i;
    ck_assert(content == NULL || json_is_string(content));
    if (content != NULL) buf_text(&s->content, json_string_value(content));
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call) take_call(s, call);
    ck_assert_str_eq(s->finish, "");
    if (finish != NULL) snprintf(s->finish, sizeof s->finish, "%s", finish);
}

static char *streamed(struct house *h, const char *fields) {
    char all[512];
    struct streamed s = {0};
    snprintf(all, sizeof all, "\"stream\":true,%s", fields);
    char *text = ask(h, all, 200);
    const char *end;
    for (const char *at = text; (end = strstr(at, "\n\n")) != NULL; at = end + 2) {
        if (strncmp(at + 6, "[DONE]", 6) == 0) continue;
        json_t *chunk = load(at + 6, (size_t)(end - at) - 6);
        take_chunk(&s, json_array_get(json_object_get(chunk, "choices"), 0));
        json_decref(chunk);
    }
    if (s.content.bytes == 0 && s.n_calls != 0) buf_text(&s.content, "-");
    buf_add(&s.content, s.calls.data, s.calls.bytes);
    buf_format(&s.content, " (%s)", s.finish);
    buf_add(&s.content, "", 1);
    buf_finish(&s.calls);
    free(text);
    return s.content.data;
}

// The same whole and streamed.
static void answers(struct house *h, const char *fields, const char *wanted) {
    char *(*const ways[])(struct house *, const char *) = {whole, streamed};
    for (size_t i = 0; i < 2; i++) {
        char *got = ways[i](h, fields);
        ck_assert_msg(strcmp(got, wanted) == 0, "%s: %s", i == 0 ? "whole" : "streamed", got);
        mem_free(got);
    }
}

static void says(const char *answer, const char *fields, const char *wanted) {
    struct house h;
    house_start(&h, answer, "hermes");
    answers(&h, fields, wanted);
    house_stop(&h);
}

START_TEST(calls_are_answered_whole_and_streamed) {
    says(CALL, "", "- | look " ARGUMENTS " (tool_calls)");
    says("Let me look.\n" CALL "\n" CALL, "\"tool_choice\":\"auto\",",
         "Let me look. | look " ARGUMENTS " | look " ARGUMENTS " (tool_calls)");
    says("No need.", "", "No need. (stop)");
}
END_TEST

START_TEST(what_is_no_call_is_answered_as_text) {
    says("<tool_call>\n{\"name\": \"look\", \"arguments\": {\n</tool_call>", "",
         "<tool_call>\n{\"name\": \"look\", \"arguments\": {\n</tool_call> (stop)");
    says(CALL, "\"tool_choice\":\"none\",", CALL " (stop)");
}
END_TEST

START_TEST(fields_about_the_answer_go_with_calls) {
    struct house h;
    house_start(&h, "x\n" CALL CALL, "hermes");
    answers(&h, "\"parallel_tool_calls\":false,", "x | look " ARGUMENTS " (tool_calls)");
    answers(&h, "\"stop\":\"sea\",",
            "x\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": "
            "\"the < (stop)");
    answers(&h, "\"logprobs\":true,\"return_token_ids\":true,",
            "x | look " ARGUMENTS " | look " ARGUMENTS " (tool_calls)");
    answers(&h, "\"max_tokens\":1,", "x (length)");
    house_stop(&h);
}
END_TEST

// A format without a mark behind its calls has them up to the end.
START_TEST(a_stop_token_that_is_asked_for_does_not_spoil_calls) {
    static const char *const rows[][2] = {{"llama3_json", "{\"name\": \"look\"}"},
                                          {"mistral", "[TOOL_CALLS]look[ARGS]{}"}};
    for (size_t i = 0; i < 2; i++) {
        struct house h;
        house_start(&h, rows[i][1], rows[i][0]);
        answers(&h, "\"include_stop_str_in_output\":true,", "- | look {} (tool_calls)");
        house_stop(&h);
    }
}
END_TEST

START_TEST(each_choice_has_calls_of_its_own) {
    struct house h;
    house_start(&h, CALL, "hermes");
    char *text = ask(&h, "\"n\":2,", 200);
    json_t *root = load(text, strlen(text));
    const char *ids[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *m =
            json_object_get(json_array_get(json_object_get(root, "choices"), i), "message");
        const json_t *calls = json_object_get(m, "tool_calls");
        ck_assert_uint_eq(json_array_size(calls), 1);
        ids[i] = json_string_value(json_object_get(json_array_get(calls, 0), "id"));
    }
    ck_assert_str_ne(ids[0], ids[1]);
    json_decref(root);
    free(text);
    house_stop(&h);
}
END_TEST

START_TEST(without_a_parser_calls_are_refused_with_the_flags_names) {
    struct house h;
    house_start(&h, CALL, NULL);
    char *text = ask(&h, "", 400);
    ck_assert_ptr_nonnull(strstr(text, "--enable-auto-tool-choice and --tool-call-parser"));
    ck_assert_ptr_nonnull(strstr(text, "\"param\":\"tool_choice\""));
    free(text);
    answers(&h, "\"tool_choice\":\"none\",", CALL " (stop)");
    house_stop(&h);
}
END_TEST

int main(void) {
    Suite *s = suite_create("api_tools");
    TCase *t = tcase_create("calls");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, calls_are_answered_whole_and_streamed);
    tcase_add_test(t, what_is_no_call_is_answered_as_text);
    tcase_add_test(t, fields_about_the_answer_go_with_calls);
    tcase_add_test(t, a_stop_token_that_is_asked_for_does_not_spoil_calls);
    tcase_add_test(t, each_choice_has_calls_of_its_own);
    tcase_add_test(t, without_a_parser_calls_are_refused_with_the_flags_names);
    suite_add_tcase(s, t);
    return suite_run(s);
}
