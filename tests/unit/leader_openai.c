// leader_openai.c: what bodies are accepted, what they mean, and what is refused by which name.
#include "leader/openai.h"
#include "tests/harness/suite.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct openai_defaults defaults = {
    .temperature = 0.7f, .top_p = 0.9f, .min_p = 0, .top_k = 0, .vocab = 2048};

static int parse(struct openai_request *r, bool chat, const char *body, struct api_error *e) {
    struct openai_body b = {.chat = chat, .text = body, .bytes = strlen(body)};
    return openai_parse(r, &b, &defaults, e);
}

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

// A chat body with one more field.
static int parse_field(struct openai_request *r, bool chat, const char *field,
                       struct api_error *e) {
    char body[4096];
    snprintf(body, sizeof body, "{%s%s%s}", chat ? MESSAGES : "\"prompt\":\"hi\"",
             field[0] ? "," : "", field);
    return parse(r, chat, body, e);
}

static void refused(bool chat, const char *field, const char *param) {
    struct openai_request r;
    struct api_error e;
    memset(&e, 0, sizeof e);
    ck_assert_msg(parse_field(&r, chat, field, &e) == ERR_REQ_INVALID, "%s was accepted", field);
    ck_assert_int_eq(e.status, 400);
    ck_assert_msg(strcmp(e.param, param) == 0, "%s blamed on %s", field, e.param);
    ck_assert(e.message[0] != '\0');
}

static void accepted(bool chat, const char *field) {
    struct openai_request r;
    struct api_error e;
    int rc = parse_field(&r, chat, field, &e);
    ck_assert_msg(rc == 0, "%s: %s", field, rc == 0 ? "" : e.message);
    openai_request_finish(&r);
}

START_TEST(fields_not_given_take_the_defaults) {
    struct openai_request r;
    struct api_error e;
    ck_assert_int_eq(parse_field(&r, true, "", &e), 0);
    ck_assert(r.sampling.temperature == 0.7f && r.sampling.top_p == 0.9f);
    ck_assert_uint_eq(r.n, 1);
    ck_assert_uint_eq(r.max_tokens, 0);
    ck_assert(!r.has_seed && !r.stream && !r.sampling.want_logprob && r.model == NULL);
    openai_request_finish(&r);
}
END_TEST

START_TEST(given_fields_are_read) {
    struct openai_request r;
    struct api_error e;
    const char *fields =
        "\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
        "\"temperature\":0.5,\"top_p\":1,\"top_k\":40,\"min_p\":0.1,\"seed\":-5,\"n\":3,"
        "\"max_tokens\":7,\"max_completion_tokens\":9,\"stop\":[\"a\",\"bc\"],\"logprobs\":true,"
        "\"top_logprobs\":4,\"stop_token_ids\":[5],\"ignore_eos\":true";
    ck_assert_int_eq(parse_field(&r, true, fields, &e), 0);
    ck_assert_str_eq(r.model, "m");
    ck_assert(r.stream && r.include_usage && r.ignore_eos);
    ck_assert(r.sampling.temperature == 0.5f && r.sampling.top_p == 1 && r.sampling.min_p == 0.1f);
    ck_assert_uint_eq(r.sampling.top_k, 40);
    ck_assert(r.has_seed && r.seed == -5);
    ck_assert_uint_eq(r.n, 3);
    ck_assert_uint_eq(r.max_tokens, 9);
    ck_assert(r.stop.n == 2 && r.stop.bytes[1] == 2 && memcmp(r.stop.text[1], "bc", 2) == 0);
    ck_assert(r.sampling.want_logprob && r.sampling.n_logprobs == 4);
    ck_assert(r.n_stop_ids == 1 && r.stop_ids[0] == 5);
    openai_request_finish(&r);
}
END_TEST

START_TEST(null_means_not_given) {
    static const char *const names[] = {"temperature",    "top_p",      "seed",   "n",
                                        "max_tokens",     "stop",       "stream", "logprobs",
                                        "tools",          "logit_bias", "model",  "response_format",
                                        "stream_options", "user"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char field[64];
        snprintf(field, sizeof field, "\"%s\":null", names[i]);
        accepted(true, field);
        accepted(false, field);
    }
}
END_TEST

START_TEST(numbers_of_wrong_type_or_range_are_refused_by_name) {
    static const struct {
        const char *name;
        const char *bad[12];
    } rows[] = {
        {"temperature", {"-0.1", "2.1", "\"1\"", "true", "[1]", "{}"}},
        {"top_p", {"-0.1", "1.1", "\"1\"", "false"}},
        {"min_p", {"-1", "1.5", "\"0\"", "true"}},
        {"top_k", {"-2", "1.5", "\"1\"", "true", "4294967296"}},
        {"n", {"0", "-1", "129", "1.5", "\"2\"", "true", "1e300", "-0.0"}},
        {"max_tokens", {"0", "-1", "1.5", "\"5\"", "true", "4294967297", "9223372036854775807"}},
        {"seed", {"1.5", "\"1\"", "true"}},
        {"stop_token_ids", {"5", "[-1]", "[2048]", "[\"a\"]", "[1,2,3,4,5,6,7,8,9]"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; rows[i].bad[k] != NULL; k++) {
            char field[128];
            snprintf(field, sizeof field, "\"%s\":%s", rows[i].name, rows[i].bad[k]);
            refused(true, field, rows[i].name);
            refused(false, field, rows[i].name);
        }
    }
    refused(true, "\"max_completion_tokens\":0", "max_completion_tokens");
    refused(true, "\"logprobs\":1", "logprobs");
    refused(true, "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs");
    refused(true, "\"top_logprobs\":2", "top_logprobs");
    refused(false, "\"logprobs\":true", "logprobs");
    refused(false, "\"logprobs\":-1", "logprobs");
    refused(true, "\"stream\":1", "stream");
    refused(true, "\"stream_options\":{}", "stream_options");
    refused(true, "\"stream\":true,\"stream_options\":{\"include_usage\":1}",
            "stream_options.include_usage");
    refused(true, "\"model\":7", "model");
}
END_TEST

START_TEST(numbers_beyond_json_are_refused) {
    static const char *const bad[] = {
        "1e400", "9223372036854775808", "NaN", "Infinity", "-", "01", "0x10", "1.", ".5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char field[64];
        snprintf(field, sizeof field, "\"temperature\":%s", bad[i]);
        refused(true, field, "temperature");
    }
}
END_TEST

START_TEST(whole_numbers_may_be_written_with_a_point) {
    struct openai_request r;
    struct api_error e;
    const char *fields =
        "\"n\":2.0,\"seed\":-3.0,\"max_tokens\":1e1,\"top_k\":-1.0,\"stop_token_ids\":[5.0]";
    ck_assert_int_eq(parse_field(&r, true, fields, &e), 0);
    ck_assert(r.n == 2 && r.seed == -3 && r.max_tokens == 10 && r.sampling.top_k == 0);
    ck_assert(r.n_stop_ids == 1 && r.stop_ids[0] == 5);
    openai_request_finish(&r);
    refused(true, "\"seed\":1e16", "seed"); // beyond 2^53 a double is no exact integer
    refused(true, "\"stop_token_ids\":[1.5]", "stop_token_ids");
}
END_TEST

START_TEST(a_json_error_names_the_member_that_it_is_in) {
    struct openai_request r;
    struct api_error e;
    static const char *const rows[][2] = {
        {"{\"prompt\":\"a\",\"seed\":1e999}", "seed"},
        {"{\"prompt\":[1,[2,{\"x\":01}]]}", "prompt"},
        {"{\"a\\\"b\":1,\"top_p\":{\"n\":\"}\\\\\",\"k\":nan}}", "top_p"},
        {"{\"n\":1,}", ""},
        {"{\"n\":1} 2", ""}, // behind it
        {"{\"prompt\":\"\\u0000\"}", "prompt"},
        {"{\"<script>\":nan}", ""},
        {"nan", ""},
        {"{\"a_name_that_is_longer_than_any_field_has_it\":nan}", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_int_eq(parse(&r, false, rows[i][0], &e), ERR_REQ_INVALID);
        ck_assert_msg(strcmp(e.param, rows[i][1]) == 0, "%s: '%s'", rows[i][0], e.param);
        ck_assert_msg(strstr(e.message, "JSON_") == NULL, "%s", e.message); // a programmer's word
    }
}
END_TEST

START_TEST(tiny_temperature_is_greedy_and_top_p_0_keeps_one) {
    struct openai_request r;
    struct api_error e;
    ck_assert_int_eq(parse_field(&r, true, "\"temperature\":1e-9,\"top_p\":0", &e), 0);
    ck_assert(r.sampling.temperature == 0 && r.sampling.top_p > 0);
    openai_request_finish(&r);
    ck_assert_int_eq(parse_field(&r, true, "\"top_k\":-1", &e), 0);
    ck_assert_uint_eq(r.sampling.top_k, 0);
    openai_request_finish(&r);
    ck_assert_int_eq(parse_field(&r, true, "\"top_k\":-2", &e), ERR_REQ_INVALID);
    ck_assert_str_eq(e.message, "'top_k' must be -1, or between 0 and 2147483647.");
}
END_TEST

START_TEST(what_would_change_the_answer_is_refused_by_name) {
    static const char *const rows[][2] = {
        {"tool_choice", "\"required\""},
        {"response_format", "{\"type\":\"json_object\"}"},
        {"guided_json", "{}"},
        {"reasoning_effort", "\"low\""},
        {"echo", "true"},
        {"best_of", "2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char field[128];
        snprintf(field, sizeof field, "\"%s\":%s", rows[i][0], rows[i][1]);
        refused(true, field, rows[i][0]);
    }
    refused(false, "\"suffix\":\"x\"", "suffix");
    refused(true, "\"continue_final_message\":true", "continue_final_message");
    refused(true, "\"priority\":-1", "priority");
    refused(false, "\"best_of\":3", "best_of");
}
END_TEST

START_TEST(steering_is_read_and_checked) {
    struct openai_request r;
    struct api_error e;
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                       "\"logit_bias\":{\"5\":-1.5,\"0\":100},\"presence_penalty\":-2,"
                       "\"frequency_penalty\":0.5,\"repetition_penalty\":1.25,\"min_tokens\":3,"
                       "\"allowed_token_ids\":[7,5],\"bad_words\":[\"a\",\"b c\"]}";
    ck_assert_int_eq(parse(&r, true, body, &e), 0);
    const struct steering *s = &r.steering;
    ck_assert(s->presence_penalty == -2 && s->frequency_penalty == 0.5f);
    ck_assert(s->repetition_penalty == 1.25f && s->min_tokens == 3);
    ck_assert(s->n_bias == 2 && s->n_allowed == 2 && s->allowed_ids[1] == 5);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_float_eq(s->bias[i], s->bias_ids[i] == 5 ? -1.5f : 100);
    ck_assert_ptr_nonnull(r.bad_words);
    openai_request_finish(&r);
    refused(true, "\"logit_bias\":{\"5x\":1}", "logit_bias");
    refused(true, "\"logit_bias\":{\"18446744073709551621\":1}", "logit_bias");
    refused(true, "\"logit_bias\":{\"\":1}", "logit_bias");
    refused(true, "\"min_tokens\":9,\"max_tokens\":8", "min_tokens");
}
END_TEST

START_TEST(fields_about_the_prompt_are_read) {
    struct openai_request r;
    struct api_error e;
    const char *fields =
        "\"continue_final_message\":true,\"add_generation_prompt\":false,"
        "\"truncate_prompt_tokens\":7.0,\"chat_template_kwargs\":{\"a\":[1]},"
        "\"include_stop_str_in_output\":true,\"request_id\":\"r-1\",\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}";
    ck_assert_int_eq(parse_field(&r, true, fields, &e), 0);
    ck_assert(r.continue_final_message && !r.add_generation_prompt && r.stop.keep);
    ck_assert(r.truncate_prompt == 7 && r.continuous_usage);
    ck_assert_str_eq(r.request_id, "r-1");
    ck_assert_uint_eq(json_object_size(r.template_kwargs), 1);
    openai_request_finish(&r);
    ck_assert_int_eq(parse_field(&r, false, "\"truncate_prompt_tokens\":-1,\"echo\":true", &e), 0);
    ck_assert(r.truncate_prompt == TRUNCATE_TO_FIT && r.echo);
    openai_request_finish(&r);
    refused(true, "\"chat_template_kwargs\":{\"x_token\":1}", "chat_template_kwargs");
    refused(false, "\"truncate_prompt_tokens\":0", "truncate_prompt_tokens");
}
END_TEST

START_TEST(scores_of_the_prompt_are_asked_for_by_three_fields) {
    struct openai_request r;
    struct api_error e;
    ck_assert_int_eq(parse_field(&r, true, "\"prompt_logprobs\":3", &e), 0);
    ck_assert(r.prompt_logprobs && !r.echo_logprobs && openai_score_top(&r) == 3);
    openai_request_finish(&r);
    const char *both = "\"echo\":true,\"logprobs\":5,\"prompt_logprobs\":0,\"max_tokens\":0";
    ck_assert_int_eq(parse_field(&r, false, both, &e), 0);
    ck_assert(r.prompt_only && r.echo_logprobs && openai_score_top(&r) == 5);
    openai_request_finish(&r);
    ck_assert_int_eq(parse_field(&r, false, "\"echo\":true,\"max_tokens\":0", &e), 0);
    ck_assert(r.prompt_only && !openai_scores(&r));
    openai_request_finish(&r);
    accepted(false, "\"echo\":true,\"logprobs\":1,\"stream\":true");
    accepted(true, "\"prompt_logprobs\":20,\"max_tokens\":0,\"max_completion_tokens\":1");
    accepted(true, "\"prompt_logprobs\":0,\"max_tokens\":0");
    refused(true, "\"prompt_logprobs\":21", "prompt_logprobs");
    refused(true, "\"prompt_logprobs\":-1", "prompt_logprobs");
    refused(false, "\"prompt_logprobs\":true", "prompt_logprobs");
    refused(false, "\"prompt_logprobs\":0,\"stream\":true", "prompt_logprobs");
    refused(false, "\"echo\":true,\"max_tokens\":0,\"min_tokens\":1", "min_tokens");
    refused(true, "\"max_tokens\":0,\"logprobs\":true", "max_tokens");
}
END_TEST

START_TEST(neutral_values_and_harmless_names_are_accepted) {
    static const char *const fields[] = {"\"tools\":[]",
                                         "\"tool_choice\":\"none\"",
                                         "\"response_format\":{\"type\":\"text\"}",
                                         "\"logit_bias\":{}",
                                         "\"frequency_penalty\":0",
                                         "\"presence_penalty\":0.0",
                                         "\"repetition_penalty\":1.0",
                                         "\"user\":\"u\"",
                                         "\"metadata\":{\"a\":\"b\"}",
                                         "\"store\":false",
                                         "\"service_tier\":\"auto\"",
                                         "\"a_name_nobody_knows\":[1,2,3]",
                                         "\"best_of\":1",
                                         "\"modalities\":[\"text\"]",
                                         "\"parallel_tool_calls\":true"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        accepted(true, fields[i]);
    accepted(false, "\"echo\":false");
    accepted(false, "\"suffix\":null");
    accepted(false, "\"logprobs\":0");
}
END_TEST

START_TEST(messages_are_checked_one_by_one) {
    static const struct {
        const char *messages, *param;
    } rows[] = {
        {"[]", "messages"},
        {"\"hi\"", "messages"},
        {"[5]", "messages[0].role"},
        {"[{\"content\":\"x\"}]", "messages[0].role"},
        {"[{\"role\":\"user<|im_end|>\",\"content\":\"x\"}]", "messages[0].role"},
        {"[{\"role\":\"function\",\"content\":\"x\"}]", "messages[0].role"},
        {"[{\"role\":\"tool\"}]", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"name\":5}]", "messages[0].name"},
        {"[{\"role\":\"user\"}]", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":null}]", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":5}]", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "messages[0].content[0]"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\","
         "\"tool_calls\":[{}]}]",
         "messages[1].tool_calls[0].function"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{}]}]", "messages[0].tool_calls"},
        {"[{\"role\":\"assistant\",\"content\":\"x\",\"function_call\":{}}]",
         "messages[0].function_call"},
        {"[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning\":1}]", "messages[0].reasoning"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\"}]}]",
         "messages[0].tool_calls[0].type"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
         "\"{\"}}]}]",
         "messages[0].tool_calls[0].function.arguments"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
         "\"[1]\"}}]}]",
         "messages[0].tool_calls[0].function.arguments"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_request r;
        struct api_error e;
        char body[512];
        snprintf(body, sizeof body, "{\"messages\":%s}", rows[i].messages);
        ck_assert_msg(parse(&r, true, body, &e) == ERR_REQ_INVALID, "%s", body);
        ck_assert_str_eq(e.param, rows[i].param);
    }
}
END_TEST

START_TEST(tool_calls_reach_the_template_with_objects_as_arguments) {
    struct openai_request r;
    struct api_error e;
    const char *body =
        "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"hm\","
        "\"refusal\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": [1]}\"}},{\"function\":{\"name\":\"g\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"7\",\"name\":null}]}";
    ck_assert_msg(parse(&r, true, body, &e) == 0, "%s", e.message);
    char *text = json_dumps(r.messages, JSON_COMPACT | JSON_SORT_KEYS);
    ck_assert_str_eq(text,
                     "[{\"content\":\"\",\"reasoning\":\"hm\",\"reasoning_content\":\"hm\","
                     "\"role\":\"assistant\","
                     "\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":[1]},\"name\":\"f\"},"
                     "\"id\":\"c1\",\"type\":\"function\"},{\"function\":{\"arguments\":{},"
                     "\"name\":\"g\"},\"type\":\"function\"}]},"
                     "{\"content\":\"7\",\"role\":\"tool\",\"tool_call_id\":\"c1\"}]");
    free(text);
    openai_request_finish(&r);
}
END_TEST

static void repeat(struct buf *out, const char *text, size_t n) {
    while (n-- > 0)
        buf_text(out, text);
}

// Seven for each comma, and no deeper than is allowed.
START_TEST(lists_and_objects_of_a_body_are_bounded_whatever_separates_them) {
    struct openai_request r;
    struct api_error e;
    struct buf body;
    buf_init(&body, 0);
    buf_text(&body, "{\"prompt\":[0");
    repeat(&body, ",[{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}}]", JSON_CONTAINERS_MAX / 7);
    buf_add(&body, "]}", 3);
    ck_assert(!body.failed);
    ck_assert_int_eq(parse(&r, false, body.data, &e), ERR_REQ_INVALID);
    ck_assert_msg(strstr(e.message, "lists and objects") != NULL, "%s", e.message);
    buf_finish(&body);
}
END_TEST

static void add_calls(struct buf *body, size_t n_lists) {
    buf_text(body, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[");
    for (int i = 0; i < 3; i++) {
        buf_text(body, i == 0 ? "" : ",");
        buf_text(body, "{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[0");
        repeat(body, ",[]", n_lists);
        buf_text(body, "]}\"}}");
    }
    buf_add(body, "]}]}", 5);
}

// In the body they are one text each, whose commas and brackets it does not count.
START_TEST(arguments_of_tool_calls_are_bounded_together) {
    struct openai_request r;
    struct api_error e;
    struct buf body;
    buf_init(&body, 0);
    add_calls(&body, JSON_CONTAINERS_MAX / 4);
    ck_assert_msg(parse(&r, true, body.data, &e) == 0, "%s", e.message);
    openai_request_finish(&r);
    buf_finish(&body);
    buf_init(&body, 0);
    add_calls(&body, JSON_CONTAINERS_MAX / 2);
    ck_assert_int_eq(parse(&r, true, body.data, &e), ERR_REQ_INVALID);
    ck_assert_str_eq(e.param, "messages[0].tool_calls[1].function.arguments");
    buf_finish(&body);
}
END_TEST

START_TEST(text_parts_are_joined_and_developer_is_system) {
    struct openai_request r;
    struct api_error e;
    const char *body = "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\","
                       "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}],\"name\":\"x\"}]}";
    ck_assert_int_eq(parse(&r, true, body, &e), 0);
    const json_t *m = json_array_get(r.messages, 0);
    ck_assert_str_eq(json_string_value(json_object_get(m, "role")), "system");
    ck_assert_str_eq(json_string_value(json_object_get(m, "content")), "a\nb");
    ck_assert_str_eq(json_string_value(json_object_get(m, "name")), "x");
    openai_request_finish(&r);
}
END_TEST

START_TEST(prompts_have_four_forms) {
    struct openai_request r;
    struct api_error e;
    ck_assert_int_eq(parse(&r, false, "{\"prompt\":\"abc\"}", &e), 0);
    ck_assert(r.n_prompts == 1 && r.prompts[0].text_bytes == 3);
    openai_request_finish(&r);
    ck_assert_int_eq(parse(&r, false, "{\"prompt\":[\"a\",\"bc\"]}", &e), 0);
    ck_assert(r.n_prompts == 2 && r.prompts[1].text_bytes == 2);
    openai_request_finish(&r);
    ck_assert_int_eq(parse(&r, false, "{\"prompt\":[1,2,3]}", &e), 0);
    ck_assert(r.n_prompts == 1 && r.prompts[0].n_ids == 3 && r.prompts[0].ids[2] == 3);
    openai_request_finish(&r);
    ck_assert_int_eq(parse(&r, false, "{\"prompt\":[[1],[2,2047]]}", &e), 0);
    ck_assert(r.n_prompts == 2 && r.prompts[1].ids[1] == 2047);
    openai_request_finish(&r);
    ck_assert_int_eq(parse(&r, false, "{\"prompt\":[]}", &e), ERR_REQ_INVALID);
    ck_assert_str_eq(e.message, "'prompt' is an empty list.");
    static const char *const bad[] = {"[]",        "[[]]",   "5",    "{}",    "null",   "[1,\"a\"]",
                                      "[\"a\",1]", "[2048]", "[-1]", "[1.5]", "[true]", "[[1],2]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char body[64];
        snprintf(body, sizeof body, "{\"prompt\":%s}", bad[i]);
        ck_assert_msg(parse(&r, false, body, &e) == ERR_REQ_INVALID, "%s", body);
        ck_assert_str_eq(e.param, "prompt");
    }
}
END_TEST

START_TEST(stop_strings_are_bounded) {
    refused(true, "\"stop\":5", "stop");
    refused(true, "\"stop\":\"\"", "stop");
    refused(true, "\"stop\":[\"a\",5]", "stop");
    refused(true,
            "\"stop\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
            "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]",
            "stop");
    char field[STOP_STRING_BYTES_MAX + 64];
    memset(field, 'x', sizeof field);
    memcpy(field, "\"stop\":\"", 8);
    strcpy(field + 8 + STOP_STRING_BYTES_MAX, "\"");
    accepted(true, field);
    strcpy(field + 8 + STOP_STRING_BYTES_MAX, "x\"");
    refused(true, field, "stop");
}
END_TEST

START_TEST(bodies_that_are_no_object_deep_or_doubled_are_refused) {
    struct openai_request r;
    struct api_error e;
    static const char *const bad[] = {
        "",
        " ",
        "[]",
        "5",
        "{",
        "{}x",
        "{\"a\":1,\"a\":2}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
        "{\"a\":\"\\ud800\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(parse(&r, true, bad[i], &e) == ERR_REQ_INVALID, "%s", bad[i]);
        ck_assert_int_eq(e.status, 400);
    }
    size_t n = 3u << 20;
    char *deep = malloc(n + 1);
    memset(deep, '[', n);
    deep[n] = '\0';
    ck_assert_int_eq(parse(&r, true, deep, &e), ERR_REQ_INVALID);
    memset(deep, ',', n);
    memcpy(deep, "{\"prompt\":[1", 12);
    ck_assert_int_eq(parse(&r, false, deep, &e), ERR_REQ_INVALID);
    ck_assert(strstr(e.message, "values") == NULL); // 3 million may be a prompt
    free(deep);
    n = 5u << 20;
    deep = malloc(n + 1);
    memset(deep, ',', n);
    deep[n] = '\0';
    ck_assert_int_eq(parse(&r, false, deep, &e), ERR_REQ_INVALID);
    ck_assert(strstr(e.message, "values") != NULL);
    free(deep);
    // Brackets inside strings are no depth.
    accepted(true, "\"user\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[\"");
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_openai");
    TCase *t = tcase_create("openai");
    tcase_add_test(t, fields_not_given_take_the_defaults);
    tcase_add_test(t, given_fields_are_read);
    tcase_add_test(t, null_means_not_given);
    tcase_add_test(t, numbers_of_wrong_type_or_range_are_refused_by_name);
    tcase_add_test(t, numbers_beyond_json_are_refused);
    tcase_add_test(t, whole_numbers_may_be_written_with_a_point);
    tcase_add_test(t, a_json_error_names_the_member_that_it_is_in);
    tcase_add_test(t, tiny_temperature_is_greedy_and_top_p_0_keeps_one);
    tcase_add_test(t, what_would_change_the_answer_is_refused_by_name);
    tcase_add_test(t, steering_is_read_and_checked);
    tcase_add_test(t, fields_about_the_prompt_are_read);
    tcase_add_test(t, neutral_values_and_harmless_names_are_accepted);
    tcase_add_test(t, scores_of_the_prompt_are_asked_for_by_three_fields);
    tcase_add_test(t, messages_are_checked_one_by_one);
    tcase_add_test(t, tool_calls_reach_the_template_with_objects_as_arguments);
    tcase_add_test(t, lists_and_objects_of_a_body_are_bounded_whatever_separates_them);
    tcase_add_test(t, arguments_of_tool_calls_are_bounded_together);
    tcase_add_test(t, text_parts_are_joined_and_developer_is_system);
    tcase_add_test(t, prompts_have_four_forms);
    tcase_add_test(t, stop_strings_are_bounded);
    tcase_add_test(t, bodies_that_are_no_object_deep_or_doubled_are_refused);
    suite_add_tcase(s, t);
    return suite_run(s);
}
