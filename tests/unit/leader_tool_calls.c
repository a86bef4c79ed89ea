// leader_tool_calls.c: what of an answer is content and what calls, however the text is cut into
// pieces; and that what is no call stays text, letter for letter.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "leader/tool_calls.h"
#include "tests/harness/suite.h"

static json_t *tools;

static void load_tools(void) {
    tools = json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},\"b\":{\"type\":"
        "\"boolean\"},\"o\":{\"type\":\"object\"},\"u\":{\"type\":[\"integer\",\"null\"]}}}}}]",
        0, NULL);
    ck_assert_ptr_nonnull(tools);
}

static void free_tools(void) {
    json_decref(tools);
}

// "content | name arguments | name arguments"; ids when they are not ours.
static char *read_in_pieces(const char *format, const char *text, size_t bytes, size_t piece) {
    struct tool_reader r = {.format = tool_format_find(format), .tools = tools, .id_seed = 5};
    struct buf out;
    ck_assert_ptr_nonnull(r.format);
    buf_init(&out, 0);
    for (size_t i = 0; i < bytes; i += piece)
        tool_reader_push(&r, text + i, bytes - i < piece ? bytes - i : piece, &out);
    tool_reader_end(&r, &out);
    for (size_t i = 0; i < json_array_size(r.calls); i++) {
        const json_t *call = json_array_get(r.calls, i);
        const char *id = json_string_value(json_object_get(call, "id"));
        buf_format(&out, " | %s %s", json_string_value(json_object_get(call, "name")),
                   json_string_value(json_object_get(call, "arguments")));
        if (strncmp(id, "call_", 5) != 0 && !r.format->short_ids) buf_format(&out, " %s", id);
        if (r.format->short_ids) ck_assert_uint_eq(strlen(id), 9);
    }
    tool_reader_finish(&r);
    buf_add(&out, "", 1);
    ck_assert(!out.failed);
    return out.data;
}

// The same for every size of the pieces, so for every place where one may end.
static void reads(const char *format, const char *text, const char *wanted) {
    size_t n = strlen(text);
    for (size_t piece = 1; piece <= n + 1; piece++) {
        char *got = read_in_pieces(format, text, n, piece);
        ck_assert_msg(strcmp(got, wanted) == 0, "%s in pieces of %zu\n%s\ngave\n%s\nnot\n%s",
                      format, piece, text, got, wanted);
        mem_free(got);
    }
}

static void stays_text(const char *format, const char *text) {
    reads(format, text, text);
}

START_TEST(hermes_calls_are_read) {
    reads("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1.50}}\n</tool_call>",
          " | f {\"a\": 1.50}");
    reads("hermes",
          "Let me see.\n\n<tool_call>{\"arguments\":{},\"name\":\"f\"}</tool_call>\n<tool_call>\n{"
          "\"name\":\"g\",\"arguments\":{\"x\":[{\"name\":\"}\"}]}}</tool_call>\n",
          "Let me see. | f {} | g {\"x\":[{\"name\":\"}\"}]}");
    reads("hermes", "<tool_call>{\"name\":\"f\"}</tool_call>", " | f {}");
    reads("hermes", "<tool_call>{\"name\":\"f\",\"arguments\":null,\"parameters\":{\"a\":2}}",
          "<tool_call>{\"name\":\"f\",\"arguments\":null,\"parameters\":{\"a\":2}}");
    reads("hermes",
          "<tool_call>{\"name\":\"f\",\"x\":\"arguments\",\"arguments\":{\"y\":\"\\\"\"}}",
          " | f {\"y\":\"\\\"\"}");
    reads("hermes", "a <tool_call>{\"name\":\"f\"}</tool_call> b", "a b | f {}");
    reads("hermes", "<think>\nhm\n</think>\n\n<tool_call>{\"name\":\"f\"}</tool_call>",
          "<think>\nhm\n</think> | f {}");
}
END_TEST

START_TEST(what_is_no_call_stays_text) {
    static const char *const texts[] = {
        "",
        " \n plain text, \n\n",
        "<tool_call>",
        "<tool_call",
        "x \n <tool_c",
        "</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}\n</tool_call>\n",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>",
        "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call> after",
        "<tool_call>{\"name\":\"f\",\"name\":\"g\",\"arguments\":{}}</tool_call>",
        "<tool_call>{\"name\":\"f\",\"argu\\u006dents\":{}}</tool_call>",
        "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":NaN}}</tool_call>",
        "<tool_call>{\"name\":\"f\",\"arguments\":{}} trailing</tool_call>",
        "<tool_call>{\"name\":\"f\",\"arguments\":{}},</tool_call>",
        "<tool_call>[{\"name\":\"f\"};{\"name\":\"g\"}]</tool_call>",
        "<tool_call>[{\"name\":\"f\"}</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>}{</tool_call>",
        "<tool_call>\"name\"</tool_call>",
        "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>\"}}</tool_call>",
        "<tool_call> <tool_call> </tool_call> </tool_call>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        stays_text("hermes", texts[i]);
}
END_TEST

START_TEST(a_call_behind_a_broken_one_is_read) {
    reads("hermes", "<tool_call>{\"name\":</tool_call>\n<tool_call>{\"name\":\"f\"}</tool_call>",
          "<tool_call>{\"name\":</tool_call> | f {}");
    reads("hermes", "<tool_call> oh <tool_call>{\"name\":\"f\"}</tool_call>",
          "<tool_call> oh | f {}");
    reads("hermes", "<tool_call><tool_call>{\"name\":\"f\"}", "<tool_call> | f {}");
    reads("hermes", "<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{", "<tool_call>{ | f {}");
}
END_TEST

START_TEST(only_the_first_call_counts_where_the_client_says_so) {
    const char *text =
        "<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"g\"}</tool_call>x";
    struct tool_reader r = {.format = tool_format_find("hermes"), .only_one = true};
    struct buf out;
    buf_init(&out, 0);
    tool_reader_push(&r, text, strlen(text), &out);
    tool_reader_end(&r, &out);
    ck_assert_uint_eq(tool_reader_n_calls(&r), 1);
    ck_assert(out.bytes == 1 && out.data[0] == 'x');
    tool_reader_finish(&r);
    buf_finish(&out);
}
END_TEST

START_TEST(calls_of_one_answer_have_ids_of_their_own) {
    const char *text = "[{\"name\":\"f\"},{\"name\":\"f\"}]";
    static const char *const formats[] = {"hermes", "mistral"};
    for (size_t i = 0; i < 2; i++) {
        struct tool_reader r = {.format = tool_format_find(formats[i]),
                                .id_seed = tool_id_seed("chatcmpl-1", 0)};
        struct buf out;
        buf_init(&out, 0);
        tool_reader_push(&r, r.format->open, strlen(r.format->open), &out);
        tool_reader_push(&r, text, strlen(text), &out);
        tool_reader_end(&r, &out);
        ck_assert_uint_eq(tool_reader_n_calls(&r), 2);
        ck_assert_str_ne(json_string_value(json_object_get(json_array_get(r.calls, 0), "id")),
                         json_string_value(json_object_get(json_array_get(r.calls, 1), "id")));
        tool_reader_finish(&r);
        buf_finish(&out);
    }
    ck_assert(tool_id_seed("chatcmpl-1", 0) != tool_id_seed("chatcmpl-1", 1));
    ck_assert(tool_id_seed("chatcmpl-1", 0) != tool_id_seed("chatcmpl-2", 0));
}
END_TEST

START_TEST(mistral_calls_are_read) {
    reads("mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\":\"g\"}]",
          " | f {\"a\": 1} | g {}");
    reads("mistral", "so [TOOL_CALLS] [{\"name\":\"f\"}]", "so | f {}");
    reads("mistral", "[TOOL_CALLS]f[ARGS]{\"a\":[1]}[TOOL_CALLS]g[ARGS]{}",
          " | f {\"a\":[1]} | g {}");
    reads("mistral", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}", " | f {}");
    reads("mistral", "[TOOL_CALLS]f{\"a\":\"[TOOL_CALLS]\"}", " | f {\"a\":\"[TOOL_CALLS]\"}");
    stays_text("mistral", "[TOOL_CALLS]");
    stays_text("mistral", "[TOOL_CALLS]f");
    stays_text("mistral", "[TOOL_CALLS]f[ARGS]{\"a\":1");
    stays_text("mistral", "[TOOL_CALLS]f[CALL_ID]x{}");
    stays_text("mistral", "[TOOL_CALLS]f[ARGS]{} and more");
    stays_text("mistral", "[TOOL_CALLS][{\"name\":\"f\"}");
    stays_text("mistral", "[TOOL_CALLS]f[ARGS]{\"a\":}");
}
END_TEST

START_TEST(llama3_json_is_the_whole_answer_or_none) {
    reads("llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", " | f {\"a\": 1}");
    reads("llama3_json", "\n<|python_tag|>{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\"}",
          " | f {} | g {}");
    stays_text("llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": 1}} is what I would call");
    stays_text("llama3_json", "  {\"a\": 1}");
    stays_text("llama3_json", "so {\"name\": \"f\", \"parameters\": {}}");
    stays_text("llama3_json", "<|python_ta");
    stays_text("llama3_json", "<|python_tag|>import os");
    stays_text("llama3_json", "   ");
}
END_TEST

#define SPACES_16 "                "
#define SPACES_64 SPACES_16 SPACES_16 SPACES_16 SPACES_16

START_TEST(spaces_without_end_are_no_layout_of_a_call) {
    struct tool_reader r = {.format = tool_format_find("llama3_json")};
    struct buf out;
    reads("llama3_json", SPACES_64 "{\"name\":\"f\"}", " | f {}");
    stays_text("llama3_json", SPACES_64 " {\"name\":\"f\"}");
    stays_text("llama3_json", SPACES_64 "\n<|python_tag|>{\"name\":\"f\"}");
    stays_text("llama3_json", SPACES_64 SPACES_64);
    buf_init(&out, 0);
    for (int i = 0; i < 100; i++)
        tool_reader_push(&r, SPACES_16, 16, &out);
    ck_assert_uint_eq(out.bytes, 1600); // before the end
    tool_reader_finish(&r);
    buf_finish(&out);
}
END_TEST

#define DS_OPEN "<｜tool▁calls▁begin｜>"
#define DS_CLOSE "<｜tool▁calls▁end｜>"
#define DS_CALL "<｜tool▁call▁begin｜>"
#define DS_SEP "<｜tool▁sep｜>"
#define DS_END "<｜tool▁call▁end｜>"

START_TEST(deepseek_calls_are_read) {
    reads("deepseek_v3",
          "hm\n" DS_OPEN DS_CALL "function" DS_SEP "f\n```json\n{\"a\": 1}\n```" DS_END "\n" DS_CALL
          "function" DS_SEP "g\n```json\n{}\n```" DS_END DS_CLOSE,
          "hm | f {\"a\": 1} | g {}");
    reads("deepseek_v31",
          DS_OPEN DS_CALL "f" DS_SEP "{\"a\": 1}" DS_END DS_CALL "g" DS_SEP "{}" DS_END DS_CLOSE,
          " | f {\"a\": 1} | g {}");
    reads("deepseek_v31", DS_OPEN DS_CALL "f" DS_SEP "{}" DS_END, " | f {}");
    stays_text("deepseek_v31", DS_OPEN DS_CALL "f" DS_SEP "{\"a\": 1" DS_END DS_CLOSE);
    stays_text("deepseek_v31", DS_OPEN DS_CALL "f" DS_SEP "{}" DS_CLOSE "x");
    stays_text("deepseek_v31", DS_OPEN DS_CALL DS_SEP "{}" DS_END DS_CLOSE);
    stays_text("deepseek_v3", DS_OPEN DS_CALL "f" DS_SEP "{}" DS_END DS_CLOSE);
}
END_TEST

START_TEST(kimi_calls_keep_their_ids) {
    reads(
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
        "\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g.h:1<|tool_call_argument_begin|> "
        "{}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        " | f {\"a\": 1} functions.f:0 | g.h {} functions.g.h:1");
    stays_text("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_"
                          "begin|>{}<|tool_call_end|><|tool_calls_section_end|>");
}
END_TEST

START_TEST(tagged_values_have_the_types_of_the_tool) {
    reads("qwen3_coder",
          "<tool_call>\n<function=f>\n<parameter=s>\n5\n</parameter>\n<parameter=i>\n5\n</"
          "parameter>\n"
          "<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{\"a\": "
          "[1]}\n</parameter>\n</function>\n"
          "</tool_call>",
          " | f {\"s\": \"5\", \"i\": 5, \"b\": true, \"o\": {\"a\": [1]}}");
    reads("qwen3_coder",
          "<tool_call><function=f><parameter=s> <b>\n\"x\"\n </b>\n</parameter><parameter=i>five"
          "</parameter><parameter=new>1</parameter></function></tool_call>",
          " | f {\"s\": \" <b>\\n\\\"x\\\"\\n </b>\", \"i\": \"five\", \"new\": \"1\"}");
    reads("qwen3_coder", "<tool_call><function=none></function></tool_call>", " | none {}");
    reads("qwen3_coder", "<tool_call><function=f><parameter=u>None</parameter></function>",
          " | f {\"u\": \"None\"}");
    reads("qwen3_coder", "<tool_call><function=f><parameter=i>1, \"x\": 2</parameter></function>",
          " | f {\"i\": \"1, \\\"x\\\": 2\"}");
    reads("qwen3_coder", "<tool_call><function=f><parameter=i>None</parameter></function>",
          " | f {\"i\": null}");
    stays_text("qwen3_coder", "<tool_call><function=f><parameter=s>1</function></tool_call>");
    stays_text("qwen3_coder", "<tool_call><function=f><parameter=s>1</parameter></tool_call>");
    stays_text("qwen3_coder", "<tool_call><function=f</tool_call>");
    stays_text("qwen3_coder", "<tool_call><function=f><parameter=s>1</parameter><parameter=s>2"
                              "</parameter></function></tool_call>");
    stays_text("qwen3_coder", "<tool_call>{\"name\":\"f\"}</tool_call>");
    reads("glm45",
          "ok\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>5</arg_value>\n<arg_key>i</arg_key>\n"
          "<arg_value>5</arg_value>\n</tool_call>",
          "ok | f {\"s\": \"5\", \"i\": 5}");
    reads("glm45", "<tool_call>f</tool_call>", " | f {}");
    stays_text("glm45", "<tool_call>f <arg_key>s</arg_key></tool_call>");
    stays_text("glm45", "<tool_call>f g</tool_call>");
    stays_text("glm45", "<tool_call>f");
    stays_text("glm45", "<tool_call>f\n<arg_key>i</arg_key>\n<arg_value>5</arg_value>\n");
    stays_text("glm45", "<tool_call>f</tool_call");
    reads("glm45", "用<tool_call>标记。<tool_call>f</tool_call>", "用<tool_call>标记。 | f {}");
}
END_TEST

static void add_often(struct buf *b, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        buf_text(b, text);
}

// Whatever a model repeats for a whole context is read in linear time, and no call grows for ever.
START_TEST(endless_marks_and_spaces_are_read_quickly) {
    static const char *const texts[] = {"<tool_call>",
                                        "<tool_call>{",
                                        "<tool_call></tool_call>",
                                        " ",
                                        "\n<",
                                        "{\"name\":\"f\"}",
                                        "<tool_call>{\"name\":\"f\"}</tool_call>"};
    static const char *const formats[] = {"hermes", "glm45", "llama3_json", "qwen3_coder"};
    for (size_t k = 0; k < 4 * sizeof texts / sizeof *texts; k++) {
        struct buf text;
        buf_init(&text, 0);
        add_often(&text, texts[k / 4], 100000);
        char *got = read_in_pieces(formats[k % 4], text.data, text.bytes, 5);
        mem_free(got);
        buf_finish(&text);
    }
    struct buf text;
    buf_init(&text, 0);
    add_often(&text, "<tool_call>{\"name\":\"f\",\"arguments\":{\"x\":\"", 1);
    add_often(&text, "yyyyyyyyyy", TOOL_BODY_BYTES_MAX / 10 + 1000);
    add_often(&text, "\"}}</tool_call>", 1);
    char *got = read_in_pieces("hermes", text.data, text.bytes, 1000);
    ck_assert(strncmp(got, text.data, text.bytes) == 0 && strlen(got) == text.bytes);
    mem_free(got);
    buf_finish(&text);
}
END_TEST

// Shreds of all formats in any order: the cut into pieces never matters, and nothing is lost: what
// is no call is in the content in its order.
START_TEST(random_shreds_read_the_same_however_they_are_cut) {
    static const char *const shreds[] = {"<tool_call>",
                                         "</tool_call>",
                                         "{\"name\":\"f\"}",
                                         " ",
                                         "\n",
                                         "x",
                                         "{",
                                         "}",
                                         "<function=f>",
                                         "</function>",
                                         "<parameter=i>",
                                         "</parameter>",
                                         "5",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "f",
                                         ",",
                                         ";",
                                         "<arg_key>",
                                         "</arg_key>",
                                         "<arg_value>",
                                         "</arg_value>",
                                         "<",
                                         "\"",
                                         "\\",
                                         "é",
                                         "[",
                                         "]"};
    static const char *const formats[] = {"hermes", "qwen3_coder", "glm45", "mistral",
                                          "llama3_json"};
    const char *given = getenv("SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : 20261130;
    printf("SEED=%u\n", seed);
    srand(seed);
    for (int round = 0; round < 4000; round++) {
        struct buf text;
        buf_init(&text, 0);
        for (int n = rand() % 14; n >= 0; n--)
            buf_text(&text, shreds[(size_t)rand() % (sizeof shreds / sizeof *shreds)]);
        const char *format = formats[round % 5];
        char *whole = read_in_pieces(format, text.data, text.bytes, text.bytes);
        for (size_t piece = 1; piece < 5; piece++) {
            char *got = read_in_pieces(format, text.data, text.bytes, piece);
            ck_assert_msg(strcmp(got, whole) == 0, "%s %.*s: %s, whole %s", format, (int)text.bytes,
                          text.data, got, whole);
            mem_free(got);
        }
        mem_free(whole);
        buf_finish(&text);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("tool_calls");
    TCase *t = tcase_create("formats");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, load_tools, free_tools);
    tcase_add_test(t, hermes_calls_are_read);
    tcase_add_test(t, what_is_no_call_stays_text);
    tcase_add_test(t, a_call_behind_a_broken_one_is_read);
    tcase_add_test(t, only_the_first_call_counts_where_the_client_says_so);
    tcase_add_test(t, calls_of_one_answer_have_ids_of_their_own);
    tcase_add_test(t, mistral_calls_are_read);
    tcase_add_test(t, llama3_json_is_the_whole_answer_or_none);
    tcase_add_test(t, spaces_without_end_are_no_layout_of_a_call);
    tcase_add_test(t, deepseek_calls_are_read);
    tcase_add_test(t, kimi_calls_keep_their_ids);
    tcase_add_test(t, tagged_values_have_the_types_of_the_tool);
    tcase_add_test(t, endless_marks_and_spaces_are_read_quickly);
    tcase_add_test(t, random_shreds_read_the_same_however_they_are_cut);
    suite_add_tcase(s, t);
    return suite_run(s);
}
