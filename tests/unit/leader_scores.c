// leader_scores.c: how likely a prompt was, from HTTP to HTTP with a toy scheduler behind it: the
// shapes of prompt_logprobs and of echo with logprobs, whole and streamed, and their bounds.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/text/utf8.h"
#include "leader/api.h"
#include "tests/harness/http_client.h"
#include "tests/harness/suite.h"
#include "tests/harness/toy_house.h"

#define MODEL SOURCE_ROOT "/models/seedling"
#define TEXTS "/v1/completions"
#define PROMPT "\"prompt\":\"The capital of Kenya\""

static struct toy_house toy;
static struct api *api;
static uint16_t port;

static void setup_with(int64_t tick_ns, uint32_t max_model_len) {
    struct err_text e = {""};
    struct toy_house_config config = {MODEL, {.tick_ns = tick_ns}, 512, max_model_len};
    toy_house_start(&toy, &config);
    struct api_config api_config = {
        .serving = toy.serving, .host = "127.0.0.1", .connections_max = 64, .timeout_s = 75};
    ck_assert_msg(api_start(&api, &api_config, &port, &e) == 0, "%s", e.text);
}

static void setup(void) {
    setup_with(0, 256);
}

static void teardown(void) {
    api_stop(api);
    toy_engine_stop(toy.toy);
    api_destroy(api);
    toy_house_stop(&toy);
}

static char *post_text(const char *path, const char *body, int want_status) {
    struct buf out;
    http_client_post(port, path, body, &out);
    ck_assert_msg(http_client_status(&out) == want_status, "%s", out.data);
    char *text = http_client_body(&out);
    buf_finish(&out);
    return text;
}

static json_t *post(const char *path, const char *body, int want_status) {
    char *text = post_text(path, body, want_status);
    json_t *root = json_loads(text, 0, NULL);
    ck_assert_msg(root != NULL, "%s", text);
    free(text);
    return root;
}

static json_t *choice_of(const json_t *root, size_t i) {
    json_t *choice = json_array_get(json_object_get(root, "choices"), i);
    ck_assert_ptr_nonnull(choice);
    return choice;
}

static double number(const json_t *list, size_t i) {
    return json_number_value(json_array_get(list, i));
}

// The toy's numbers for token i of the prompt.
static void expect_entry(const json_t *entry, uint32_t id, size_t i, size_t n_top) {
    char key[16];
    snprintf(key, sizeof key, "%u", id);
    const json_t *own = json_object_get(entry, key);
    ck_assert_ptr_nonnull(own);
    ck_assert_double_eq(json_number_value(json_object_get(own, "logprob")), -(double)i / 4);
    ck_assert_int_eq(json_integer_value(json_object_get(own, "rank")), (int)i);
    ck_assert_str_eq(json_object_iter_key(json_object_iter((json_t *)entry)), key);
    ck_assert_uint_eq(json_object_size(entry), n_top + 1);
    for (size_t k = 0; k < n_top; k++) {
        snprintf(key, sizeof key, "%zu", k);
        const json_t *other = json_object_get(entry, key);
        ck_assert_int_eq(json_integer_value(json_object_get(other, "rank")), (int)k + 1);
        ck_assert_double_eq(json_number_value(json_object_get(other, "logprob")), -(double)k);
        ck_assert(json_is_string(json_object_get(other, "decoded_token")));
    }
}

START_TEST(prompt_logprobs_stand_in_each_choice_of_a_completion) {
    json_t *r = post(TEXTS,
                     "{\"prompt\":[[300,301,302],[9]],\"n\":2,\"prompt_logprobs\":2,"
                     "\"max_tokens\":1}",
                     200);
    for (size_t i = 0; i < 4; i++) {
        const json_t *list = json_object_get(choice_of(r, i), "prompt_logprobs");
        ck_assert_uint_eq(json_array_size(list), i < 2 ? 3 : 1);
        ck_assert(json_is_null(json_array_get(list, 0)));
        for (size_t t = 1; t < json_array_size(list); t++)
            expect_entry(json_array_get(list, t), 300 + (uint32_t)t, t, 2);
        ck_assert(json_is_null(json_object_get(choice_of(r, i), "logprobs")));
    }
    json_decref(r);
}
END_TEST

START_TEST(a_token_among_the_most_likely_is_listed_once_with_its_place) {
    json_t *r = post(TEXTS, "{\"prompt\":[5,1,1],\"prompt_logprobs\":3,\"max_tokens\":0}", 200);
    const json_t *entry = json_array_get(json_object_get(choice_of(r, 0), "prompt_logprobs"), 2);
    ck_assert_uint_eq(json_object_size(entry), 3);
    ck_assert_str_eq(json_object_iter_key(json_object_iter((json_t *)entry)), "1");
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(entry, "1"), "rank")), 2);
    json_decref(r);
}
END_TEST

START_TEST(prompt_logprobs_of_a_chat_stand_at_its_top) {
    json_t *r = post("/v1/chat/completions",
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"n\":2,"
                     "\"prompt_logprobs\":0,\"max_tokens\":2}",
                     200);
    const json_t *list = json_object_get(r, "prompt_logprobs");
    json_int_t n =
        json_integer_value(json_object_get(json_object_get(r, "usage"), "prompt_tokens"));
    ck_assert_int_eq((json_int_t)json_array_size(list), n);
    ck_assert_uint_eq(json_object_size(json_array_get(list, 2)), 1);
    ck_assert_ptr_null(json_object_get(choice_of(r, 1), "prompt_logprobs"));
    json_decref(r);
    r = post("/v1/chat/completions",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":2}", 200);
    ck_assert_ptr_null(json_object_get(r, "prompt_logprobs"));
    json_decref(r);
}
END_TEST

// Characters of the text between two offsets.
static void expect_offsets(const json_t *logprobs, const char *text) {
    const json_t *offsets = json_object_get(logprobs, "text_offset");
    const json_t *tokens = json_object_get(logprobs, "tokens");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        size_t at = (size_t)number(offsets, i);
        ck_assert_msg(strncmp(text + at, token, strlen(token)) == 0, "token %zu at %zu", i, at);
    }
}

// Where the tokenizer writes a letter and its mark as one, what is said is still about the text
// that was sent.
START_TEST(offsets_count_in_the_text_that_was_sent_also_where_it_is_normalised) {
    json_t *r = post(TEXTS,
                     "{\"prompt\":\"e\\u0301a\\u0301 fox, a\\u030a fox\",\"echo\":true,"
                     "\"logprobs\":1,\"max_tokens\":0}",
                     200);
    const char *text = json_string_value(json_object_get(choice_of(r, 0), "text"));
    const json_t *l = json_object_get(choice_of(r, 0), "logprobs");
    const json_t *tokens = json_object_get(l, "tokens"),
                 *offsets = json_object_get(l, "text_offset");
    uint32_t n_foxes = 0;
    ck_assert_uint_eq(utf8_count(text, strlen(text)), 16);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        size_t at = (size_t)number(offsets, i);
        if (strcmp(token, ",") == 0) ck_assert_uint_eq(at, 8);
        if (strcmp(token, " fox") != 0) continue;
        ck_assert_uint_eq(at, n_foxes++ == 0 ? 4 : 12);
    }
    ck_assert_uint_eq(n_foxes, 2);
    json_decref(r);
}
END_TEST

START_TEST(echo_with_logprobs_goes_on_from_the_prompt_to_the_answer) {
    for (int n = 1; n <= 2; n++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{" PROMPT ",\"n\":%d,\"echo\":true,\"logprobs\":1,\"max_tokens\":3}", n);
        json_t *r = post(TEXTS, body, 200);
        size_t n_prompt = (size_t)json_integer_value(
            json_object_get(json_object_get(r, "usage"), "prompt_tokens"));
        for (int i = 0; i < n; i++) {
            const json_t *choice = choice_of(r, (size_t)i);
            const char *text = json_string_value(json_object_get(choice, "text"));
            const json_t *l = json_object_get(choice, "logprobs");
            const json_t *values = json_object_get(l, "token_logprobs");
            ck_assert_ptr_eq(strstr(text, "The capital of Kenya"), text);
            ck_assert_uint_eq(json_array_size(values), n_prompt + 3);
            ck_assert_uint_eq(json_array_size(json_object_get(l, "top_logprobs")), n_prompt + 3);
            ck_assert(json_is_null(json_array_get(values, 0)));
            ck_assert(json_is_null(json_array_get(json_object_get(l, "top_logprobs"), 0)));
            ck_assert_double_eq(number(values, 2), -0.5);
            expect_offsets(l, text);
            ck_assert_ptr_null(json_object_get(choice, "prompt_logprobs"));
        }
        json_decref(r);
    }
}
END_TEST

START_TEST(max_tokens_0_answers_the_prompt_alone) {
    json_t *r = post(
        TEXTS, "{\"prompt\":[\"a b\",[7]],\"echo\":true,\"logprobs\":0,\"max_tokens\":0}", 200);
    ck_assert_str_eq(json_string_value(json_object_get(choice_of(r, 0), "text")), "a b");
    ck_assert_str_eq(json_string_value(json_object_get(choice_of(r, 0), "finish_reason")),
                     "length");
    const json_t *l = json_object_get(choice_of(r, 1), "logprobs");
    ck_assert_uint_eq(json_array_size(json_object_get(l, "tokens")), 1);
    ck_assert(json_is_null(json_array_get(json_object_get(l, "token_logprobs"), 0)));
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(r, "usage"), "completion_tokens")), 0);
    json_decref(r);
    r = post(TEXTS, "{" PROMPT ",\"echo\":true,\"max_tokens\":0}", 200);
    ck_assert_str_eq(json_string_value(json_object_get(choice_of(r, 0), "text")),
                     "The capital of Kenya");
    ck_assert(json_is_null(json_object_get(choice_of(r, 0), "logprobs")));
    json_decref(r);
}
END_TEST

START_TEST(a_prompt_that_fills_the_context_can_be_read) {
    struct buf body;
    buf_init(&body, 0);
    buf_text(&body, "{\"prompt\":[1");
    for (int i = 1; i < 256; i++)
        buf_text(&body, ",2");
    buf_text(&body, "],\"prompt_logprobs\":0,\"max_tokens\":0}");
    buf_add(&body, "", 1);
    json_t *r = post(TEXTS, body.data, 200);
    ck_assert_uint_eq(json_array_size(json_object_get(choice_of(r, 0), "prompt_logprobs")), 256);
    json_decref(r);
    strstr(body.data, "\"max_tokens\":0")[13] = '1';
    json_decref(post(TEXTS, body.data, 400));
    buf_finish(&body);
}
END_TEST

// What the events of a stream say of one choice, put together.
struct heard {
    struct buf text;
    json_t *tokens, *values, *offsets;
};

static void hear(struct heard *h, const char *stream, json_int_t index) {
    *h = (struct heard){.tokens = json_array(), .values = json_array(), .offsets = json_array()};
    buf_init(&h->text, 0);
    for (const char *at = stream; (at = strstr(at, "data: {")) != NULL; at++) {
        json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *choice = choice_of(event, 0), *l = json_object_get(choice, "logprobs");
        if (json_integer_value(json_object_get(choice, "index")) == index) {
            const char *text = json_string_value(json_object_get(choice, "text"));
            buf_text(&h->text, text);
            json_array_extend(h->tokens, json_object_get(l, "tokens"));
            json_array_extend(h->values, json_object_get(l, "token_logprobs"));
            json_array_extend(h->offsets, json_object_get(l, "text_offset"));
        }
        json_decref(event);
    }
    buf_add(&h->text, "", 1);
}

static void hear_finish(struct heard *h) {
    json_decref(h->tokens);
    json_decref(h->values);
    json_decref(h->offsets);
    buf_finish(&h->text);
}

START_TEST(a_stream_says_what_the_whole_answer_says) {
    json_t *r =
        post(TEXTS, "{" PROMPT ",\"n\":2,\"echo\":true,\"logprobs\":2,\"max_tokens\":3,\"seed\":1}",
             200);
    char *stream = post_text(TEXTS,
                             "{" PROMPT ",\"n\":2,\"echo\":true,\"logprobs\":2,\"max_tokens\":3,"
                             "\"seed\":1,\"stream\":true}",
                             200);
    for (int i = 0; i < 2; i++) {
        struct heard h;
        const json_t *choice = choice_of(r, (size_t)i), *l = json_object_get(choice, "logprobs");
        hear(&h, stream, i);
        ck_assert_str_eq(h.text.data, json_string_value(json_object_get(choice, "text")));
        ck_assert(json_equal(h.tokens, json_object_get(l, "tokens")));
        ck_assert(json_equal(h.values, json_object_get(l, "token_logprobs")));
        ck_assert(json_equal(h.offsets, json_object_get(l, "text_offset")));
        hear_finish(&h);
    }
    free(stream);
    json_decref(r);
}
END_TEST

// A prompt of 2,000 tokens for n choices, with all alternatives: about 4 MB of answer for each.
static void make_large(struct buf *body, int n) {
    buf_reset(body);
    buf_format(body, "{\"n\":%d,\"prompt_logprobs\":20,\"max_tokens\":1,\"prompt\":[1", n);
    for (int i = 1; i < 2000; i++)
        buf_text(body, ",2");
    buf_text(body, "]}");
    buf_add(body, "", 1);
}

static int send_post(const char *body) {
    struct buf head;
    int fd = http_client_connect(port);
    buf_init(&head, 0);
    buf_format(&head, "POST " TEXTS " HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
               strlen(body));
    buf_text(&head, body);
    http_client_send(fd, head.data, head.bytes);
    buf_finish(&head);
    return fd;
}

START_TEST(answers_that_are_too_large_are_refused_and_what_is_held_comes_back) {
    struct buf body;
    int fds[4];
    buf_init(&body, 0);
    teardown();
    setup_with(3600 * NS_PER_S, 2048); // nothing runs
    make_large(&body, 40);
    json_t *r = post(TEXTS, body.data, 400);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(r, "error"), "param")),
                     "prompt_logprobs");
    json_decref(r);
    make_large(&body, 31);
    for (uint32_t i = 0; i < 4; i++) {
        fds[i] = send_post(body.data);
        ck_assert(toy_engine_await(toy.toy, 31 * (i + 1)));
    }
    json_decref(post(TEXTS, body.data, 503));
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    teardown();
    setup_with(0, 2048);
    make_large(&body, 1);
    for (int i = 0; i < 3; i++)
        json_decref(post(TEXTS, body.data, 200));
    buf_finish(&body);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("leader_scores");
    TCase *t = tcase_create("scores");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, prompt_logprobs_stand_in_each_choice_of_a_completion);
    tcase_add_test(t, a_token_among_the_most_likely_is_listed_once_with_its_place);
    tcase_add_test(t, prompt_logprobs_of_a_chat_stand_at_its_top);
    tcase_add_test(t, offsets_count_in_the_text_that_was_sent_also_where_it_is_normalised);
    tcase_add_test(t, echo_with_logprobs_goes_on_from_the_prompt_to_the_answer);
    tcase_add_test(t, max_tokens_0_answers_the_prompt_alone);
    tcase_add_test(t, a_prompt_that_fills_the_context_can_be_read);
    tcase_add_test(t, a_stream_says_what_the_whole_answer_says);
    tcase_add_test(t, answers_that_are_too_large_are_refused_and_what_is_held_comes_back);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
