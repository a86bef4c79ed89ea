// leader_openai_tools.c: tools, tool_choice, documents and the developer's role: what the template
// gets of them, and what is refused by which name.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leader/openai.h"
#include "tests/harness/suite.h"

static const struct openai_defaults defaults = {.temperature = 1, .top_p = 1, .vocab = 2048};

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static int parse(struct openai_request *r, const struct openai_defaults *d, const char *field,
                 struct api_error *e) {
    char body[4096];
    snprintf(body, sizeof body, "{" MESSAGES ",%s}", field);
    struct openai_body b = {.chat = true, .text = body, .bytes = strlen(body)};
    memset(e, 0, sizeof *e);
    return openai_parse(r, &b, d, e);
}

static void refused(const char *field, const char *param) {
    struct openai_request r;
    struct api_error e;
    ck_assert_msg(parse(&r, &defaults, field, &e) == ERR_REQ_INVALID, "%s was accepted", field);
    ck_assert_int_eq(e.status, 400);
    ck_assert_msg(strcmp(e.param, param) == 0, "%s blamed on %s", field, e.param);
}

static void accepted(const char *field) {
    struct openai_request r;
    struct api_error e;
    int rc = parse(&r, &defaults, field, &e);
    ck_assert_msg(rc == 0, "%s: %s", field, e.message);
    openai_request_finish(&r);
}

// The request's tools as the template gets them.
static void tools_become(const char *given, const char *wanted) {
    struct openai_request r;
    struct api_error e;
    char field[2048];
    snprintf(field, sizeof field, "\"tool_choice\":\"none\",\"tools\":%s", given);
    int rc = parse(&r, &defaults, field, &e);
    ck_assert_msg(rc == 0, "%s: %s", given, e.message);
    char *text = r.tools == NULL ? NULL : json_dumps(r.tools, 0);
    ck_assert_str_eq(text == NULL ? "none" : text, wanted);
    free(text);
    openai_request_finish(&r);
}

START_TEST(tools_reach_the_template_in_one_order_and_without_nulls) {
    tools_become("[{\"function\":{\"strict\":true,\"parameters\":{\"z\":null,\"a\":1},"
                 "\"description\":\"d\",\"name\":\"f-1_X\",\"x\":null},\"type\":\"function\","
                 "\"cache\":1}]",
                 "[{\"type\": \"function\", \"function\": {\"name\": \"f-1_X\", \"description\": "
                 "\"d\", \"parameters\": {\"z\": null, \"a\": 1}, \"strict\": true}}]");
    tools_become("[{\"function\":{\"name\":\"f\",\"description\":null}}]",
                 "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]");
    tools_become("[]", "none");
    tools_become("null", "none");
}
END_TEST

START_TEST(tools_are_checked_one_by_one) {
    static const char *const rows[][2] = {
        {"5", "tools"},
        {"{}", "tools"},
        {"[5]", "tools[0]"},
        {"[{\"type\":\"function\"}]", "tools[0].function"},
        {"[{\"type\":\"web_search\",\"function\":{\"name\":\"f\"}}]", "tools[0].type"},
        {"[{\"type\":1,\"function\":{\"name\":\"f\"}}]", "tools[0].type"},
        {"[{\"function\":{}}]", "tools[0].function.name"},
        {"[{\"function\":{\"name\":\"\"}}]", "tools[0].function.name"},
        {"[{\"function\":{\"name\":\"a b\"}}]", "tools[0].function.name"},
        {"[{\"function\":{\"name\":\"\\u0000\"}}]", "tools"},
        {"[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"f\",\"parameters\":[]}}]",
         "tools[1].function.parameters"},
        {"[{\"function\":{\"name\":\"f\",\"description\":5}}]", "tools[0].function.description"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char field[512];
        snprintf(field, sizeof field, "\"tool_choice\":\"none\",\"tools\":%s", rows[i][0]);
        refused(field, rows[i][1]);
    }
}
END_TEST

// The body of begin, one as often as n says, and end.
static void check_body(const char *begin, const char *one, size_t n, const char *end,
                       const char *param) {
    struct openai_request r;
    struct api_error e = {0};
    struct buf body;
    buf_init(&body, 0);
    buf_text(&body, begin);
    for (size_t i = 0; i < n; i++)
        buf_text(&body, one);
    buf_text(&body, end);
    struct openai_body b = {.chat = true, .text = body.data, .bytes = body.bytes};
    int rc = openai_parse(&r, &b, &defaults, &e);
    ck_assert_msg((rc == 0) == (param == NULL), "%.80s", e.message);
    if (param != NULL) ck_assert_str_eq(e.param, param);
    if (rc == 0) openai_request_finish(&r);
    buf_finish(&body);
}

START_TEST(tools_and_documents_have_limits) {
    const char *tool = "{\"function\":{\"name\":\"f\"}},";
    const char *begin = "{" MESSAGES ",\"tool_choice\":\"none\",\"tools\":[";
    const char *end = "{\"function\":{\"name\":\"f\"}}]}";
    check_body(begin, tool, TOOLS_MAX - 1, end, NULL);
    check_body(begin, tool, TOOLS_MAX, end, "tools");
    begin = "{" MESSAGES
            ",\"tool_choice\":\"none\",\"tools\":[{\"function\":{\"name\":\"f\",\"description\":"
            "\"";
    check_body(begin, "x", TOOLS_BYTES_MAX - 100, "\"}}]}", NULL);
    check_body(begin, "x", TOOLS_BYTES_MAX, "\"}}]}", "tools");
    begin = "{" MESSAGES ",\"documents\":[";
    check_body(begin, "{},", DOCUMENTS_MAX - 1, "{}]}", NULL);
    check_body(begin, "{},", DOCUMENTS_MAX, "{}]}", "documents");
}
END_TEST

#define TOOL "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

START_TEST(calls_that_cannot_be_answered_are_refused) {
    refused(TOOL, "tool_choice");
    refused(TOOL ",\"tool_choice\":null", "tool_choice");
    refused(TOOL ",\"tool_choice\":\"auto\"", "tool_choice");
    refused(TOOL ",\"tool_choice\":\"required\"", "tool_choice");
    refused(TOOL ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
            "tool_choice");
    refused(TOOL ",\"tool_choice\":\"any\"", "tool_choice");
    refused(TOOL ",\"tool_choice\":7", "tool_choice");
    refused("\"tool_choice\":\"required\"", "tool_choice");
    accepted(TOOL ",\"tool_choice\":\"none\"");
    accepted("\"tool_choice\":\"auto\"");
}
END_TEST

START_TEST(unused_tools_are_hidden_where_the_server_says_so) {
    struct openai_defaults d = defaults;
    struct openai_request r;
    struct api_error e;
    const char *body = "{" MESSAGES "," TOOL ",\"tool_choice\":\"none\"}";
    struct openai_body b = {.chat = true, .text = body, .bytes = strlen(body)};
    for (int i = 0; i < 2; i++) {
        d.hides_unused_tools = i == 1;
        ck_assert_int_eq(openai_parse(&r, &b, &d, &e), 0);
        ck_assert((r.tools == NULL) == d.hides_unused_tools);
        openai_request_finish(&r);
    }
}
END_TEST

START_TEST(documents_are_objects_of_strings) {
    struct openai_request r;
    struct api_error e;
    ck_assert_int_eq(
        parse(&r, &defaults, "\"documents\":[{\"title\":\"t\",\"text\":\"x\"},{}]", &e), 0);
    ck_assert_uint_eq(json_array_size(r.documents), 2);
    openai_request_finish(&r);
    refused("\"documents\":{}", "documents");
    refused("\"documents\":[\"x\"]", "documents");
    refused("\"documents\":[{\"text\":5}]", "documents");
}
END_TEST

static void developer_becomes(bool known, const char *role) {
    struct openai_defaults d = defaults;
    struct openai_request r;
    struct api_error e;
    const char *body = "{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"}]}";
    struct openai_body b = {.chat = true, .text = body, .bytes = strlen(body)};
    d.knows_developer = known;
    ck_assert_int_eq(openai_parse(&r, &b, &d, &e), 0);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(r.messages, 0), "role")),
                     role);
    openai_request_finish(&r);
}

START_TEST(developer_is_another_word_for_system_where_the_template_has_it_not) {
    developer_becomes(false, "system");
    developer_becomes(true, "developer");
}
END_TEST

int main(void) {
    Suite *s = suite_create("openai_tools");
    TCase *t = tcase_create("fields");
    tcase_add_test(t, tools_reach_the_template_in_one_order_and_without_nulls);
    tcase_add_test(t, tools_are_checked_one_by_one);
    tcase_add_test(t, tools_and_documents_have_limits);
    tcase_add_test(t, calls_that_cannot_be_answered_are_refused);
    tcase_add_test(t, unused_tools_are_hidden_where_the_server_says_so);
    tcase_add_test(t, documents_are_objects_of_strings);
    tcase_add_test(t, developer_is_another_word_for_system_where_the_template_has_it_not);
    suite_add_tcase(s, t);
    return suite_run(s);
}
