// leader_api.c: the API from HTTP to HTTP with a toy scheduler behind it: shapes, streams, limits,
// errors, clients that leave.

#include <check.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "tests/harness/api_house.h"
#include "tests/harness/http_client.h"

#define MODEL SOURCE_ROOT "/models/seedling"
#define SCRIPT TOY_ANSWER
#define CHAT "/v1/chat/completions"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

// Starts everything; the test sets up the script's behaviour and limits first.
static void house_start_guarded(struct house *h, const struct toy_house_config *toy,
                                const struct keys *keys) {
    toy_house_start(&h->toy, toy);
    h->toy.serving->keys = keys;
    house_open(h);
}

static void house_start(struct house *h, struct toy_script script, uint32_t queue_max) {
    struct toy_house_config toy = {MODEL, script, queue_max, 256};
    house_start_guarded(h, &toy, NULL);
}

static json_t *post(struct house *h, const char *path, const char *body, int want_status) {
    struct buf out;
    http_client_post(h->port, path, body, &out);
    ck_assert_msg(http_client_status(&out) == want_status, "%s", out.data);
    char *text = http_client_body(&out);
    json_t *root = json_loads(text, 0, NULL);
    ck_assert_msg(root != NULL, "%s", text);
    free(text);
    buf_finish(&out);
    return root;
}

static const char *string_at(json_t *root, const char *a, const char *b) {
    return json_string_value(json_object_get(json_object_get(root, a), b));
}

static json_t *choice_at(json_t *root, size_t i) {
    return json_array_get(json_object_get(root, "choices"), i);
}

START_TEST(a_chat_answers_whole_with_usage_and_digest) {
    struct house h;
    house_start(&h, (struct toy_script){0}, 64);
    json_t *r = post(&h, CHAT, "{\"model\":\"seedling\",\"seed\":7," HELLO "}", 200);
    json_t *c = choice_at(r, 0);
    ck_assert_str_eq(string_at(c, "message", "content"), SCRIPT);
    ck_assert_str_eq(json_string_value(json_object_get(c, "finish_reason")), "stop");
    ck_assert_str_eq(json_string_value(json_object_get(c, "digest")), "00000000000003e7");
    ck_assert_int_eq(json_integer_value(json_object_get(r, "seed")), 7);
    json_t *usage = json_object_get(r, "usage");
    // The stop id was generated too.
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "completion_tokens")),
                     (int)h.toy.answer.n + 1);
    ck_assert(json_integer_value(json_object_get(usage, "prompt_tokens")) > 0);
    json_decref(r);
    house_stop(&h);
}
END_TEST

// Joins the deltas of all choices of a stream; *n_done counts the end markers, *errors the error
// events.
static char *joined(const char *body, const char *index, int *n_done, int *errors) {
    struct buf text;
    buf_init(&text, 0);
    *n_done = *errors = 0;
    const char *end;
    for (const char *at = body; (end = strstr(at, "\n\n")) != NULL; at = end + 2) {
        ck_assert(strncmp(at, "data: ", 6) == 0);
        if (strncmp(at + 6, "[DONE]", 6) == 0) {
            ++*n_done;
            continue;
        }
        json_t *chunk = json_loadb(at + 6, (size_t)(end - at) - 6, 0, NULL);
        ck_assert(chunk != NULL);
        json_t *c = choice_at(chunk, 0);
        const char *content = string_at(c, "delta", "content");
        char number[16];
        snprintf(number, sizeof number, "%lld", json_integer_value(json_object_get(c, "index")));
        if (content != NULL && strcmp(number, index) == 0) buf_text(&text, content);
        *errors += json_object_get(chunk, "error") != NULL;
        json_decref(chunk);
    }
    buf_add(&text, "", 1);
    return text.data;
}

static char *stream(struct house *h, const char *fields) {
    char body[1024];
    struct buf out;
    snprintf(body, sizeof body, "{\"stream\":true,%s" HELLO "}", fields);
    http_client_post(h->port, CHAT, body, &out);
    ck_assert_msg(http_client_status(&out) == 200, "%s", out.data);
    char *text = http_client_body(&out);
    buf_finish(&out);
    return text;
}

START_TEST(a_stream_joins_to_the_same_text_and_ends_once) {
    struct house h;
    int n_done, errors;
    house_start(&h, (struct toy_script){0}, 64);
    char *body = stream(&h, "\"n\":2,\"stream_options\":{\"include_usage\":true},");
    for (int i = 0; i < 2; i++) {
        char *text = joined(body, i == 0 ? "0" : "1", &n_done, &errors);
        ck_assert_str_eq(text, SCRIPT);
        ck_assert(n_done == 1 && errors == 0);
        free(text);
    }
    ck_assert(strstr(body, "\"choices\":[],\"usage\":{\"prompt_tokens\":") != NULL);
    ck_assert(strstr(body, "\"role\":\"assistant\"") != NULL);
    free(body);
    house_stop(&h);
}
END_TEST

#define HOLED "{\"stream\":true,\"logprobs\":true,\"return_token_ids\":true," HELLO "}"

// Everything until the server closes, while the n-th allocation after its first bytes fails. The
// client's own memory is not the server's.
static struct buf ask_without_memory(struct house *h, long n) {
    static char page[1 << 18];
    struct buf out;
    size_t bytes = 0;
    ssize_t got = 1;
    bool begun = false;
    buf_init(&out, 0);
    int fd = http_client_connect(h->port);
    buf_format(&out,
               "POST " CHAT " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
               "Content-Length: %zu\r\n\r\n" HOLED,
               strlen(HOLED));
    http_client_send(fd, out.data, out.bytes);
    while (got > 0 && bytes < sizeof page) {
        if (bytes != 0 && !begun) mem_fail_after(n);
        begun = bytes != 0;
        struct pollfd arrives = {.fd = fd, .events = POLLIN};
        ck_assert_msg(poll(&arrives, 1, 20000) > 0, "no end without allocation %ld", n);
        got = recv(fd, page + bytes, sizeof page - bytes, 0);
        bytes += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    mem_fail_after(0);
    ck_assert(toy_engine_await(h->toy.toy, 0));
    buf_reset(&out);
    buf_add(&out, page, bytes);
    buf_add(&out, "", 1);
    return out;
}

static void check_no_hole(struct house *h, const char *body) {
    size_t n_ids = 0, n_logprobs = 0;
    int n_done, errors;
    char *text = joined(body, "0", &n_done, &errors);
    const char *end;
    for (const char *at = body; (end = strstr(at, "\n\n")) != NULL; at = end + 2) {
        json_t *chunk = json_loadb(at + 6, (size_t)(end - at) - 6, 0, NULL);
        json_t *c = choice_at(chunk, 0);
        n_ids += json_array_size(json_object_get(c, "token_ids"));
        n_logprobs += json_array_size(json_object_get(json_object_get(c, "logprobs"), "content"));
        json_decref(chunk);
    }
    if (n_done == 1 && errors == 0) {
        ck_assert_str_eq(text, SCRIPT);
        ck_assert_uint_eq(n_ids, h->toy.answer.n + 1);
        ck_assert_uint_eq(n_logprobs, h->toy.answer.n);
    }
    mem_free(text);
}

START_TEST(a_stream_that_lost_something_does_not_end_well) {
    struct house h;
    house_start(&h, (struct toy_script){.tick_ns = 2 * NS_PER_MS}, 64);
    for (long n = 1; n < 60; n++) {
        struct buf out = ask_without_memory(&h, n);
        bool streams = strstr(out.data, "text/event-stream") != NULL;
        char *body = streams ? http_client_body(&out) : NULL;
        if (streams) check_no_hole(&h, body);
        free(body);
        buf_finish(&out);
    }
    house_stop(&h);
}
END_TEST

START_TEST(a_stop_string_ends_text_and_request) {
    struct house h;
    int n_done, errors;
    // What finds the string is another thread than what says the answer, which would end by itself
    // where the first one gets no core in time.
    house_start(&h, (struct toy_script){.awaits_abort = true}, 64);
    json_t *r = post(&h, CHAT, "{\"stop\":[\"Kenya is\"]," HELLO "}", 200);
    ck_assert_str_eq(string_at(choice_at(r, 0), "message", "content"), "The capital of ");
    ck_assert_str_eq(json_string_value(json_object_get(choice_at(r, 0), "stop_reason")),
                     "Kenya is");
    json_decref(r);
    char *body = stream(&h, "\"stop\":\"Kenya is\",");
    char *text = joined(body, "0", &n_done, &errors);
    ck_assert_str_eq(text, "The capital of ");
    ck_assert_int_eq(n_done, 1);
    free(text);
    free(body);
    ck_assert(toy_engine_await(h.toy.toy, 0));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).aborted, 2);
    house_stop(&h);
}
END_TEST

START_TEST(completions_take_lists_and_number_their_choices) {
    struct house h;
    house_start(&h, (struct toy_script){0}, 64);
    json_t *r = post(&h, "/v1/completions",
                     "{\"prompt\":[\"a\",\"b c d\"],\"n\":2,\"max_tokens\":3,\"logprobs\":2}", 200);
    ck_assert_uint_eq(json_array_size(json_object_get(r, "choices")), 4);
    for (size_t i = 0; i < 4; i++) {
        json_t *c = choice_at(r, i);
        ck_assert_int_eq(json_integer_value(json_object_get(c, "index")), (int)i);
        ck_assert_str_eq(json_string_value(json_object_get(c, "finish_reason")), "length");
        json_t *l = json_object_get(c, "logprobs");
        ck_assert_uint_eq(json_array_size(json_object_get(l, "tokens")), 3);
        ck_assert_uint_eq(json_array_size(json_object_get(l, "top_logprobs")), 3);
        ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(l, "text_offset"), 0)),
                         0);
    }
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(r, "usage"), "completion_tokens")), 12);
    json_decref(r);
    house_stop(&h);
}
END_TEST

START_TEST(chat_logprobs_carry_bytes_and_alternatives) {
    struct house h;
    house_start(&h, (struct toy_script){0}, 64);
    json_t *r =
        post(&h, CHAT, "{\"logprobs\":true,\"top_logprobs\":2,\"max_tokens\":2," HELLO "}", 200);
    json_t *content = json_object_get(json_object_get(choice_at(r, 0), "logprobs"), "content");
    ck_assert_uint_eq(json_array_size(content), 2);
    json_t *first = json_array_get(content, 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "token")), "The");
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(first, "bytes"), 0)), 'T');
    ck_assert_uint_eq(json_array_size(json_object_get(first, "top_logprobs")), 2);
    json_decref(r);
    house_stop(&h);
}
END_TEST

// Of a template that does too much nobody knows how long its prompt would have been.
START_TEST(a_template_that_exceeds_its_limits_is_told_apart_from_a_long_prompt) {
    static const char endless[] = "{% for i in range(90000) %}{% for j in range(90000) %}"
                                  "{% set x = i %}{% endfor %}{% endfor %}";
    struct house h;
    struct chat_template *t = NULL;
    struct err_text e;
    ck_assert_int_eq(chat_template_parse(&t, endless, sizeof endless - 1, &e), 0);
    toy_house_start(&h.toy, &(struct toy_house_config){MODEL, {0}, 64, 256});
    h.toy.serving->chat_template = t;
    house_open(&h);
    json_t *r = post(&h, CHAT, "{" HELLO "}", 400);
    ck_assert_str_eq(string_at(r, "error", "message"),
                     "'messages' cannot be rendered: chat template: rendering takes more than "
                     "20000000 steps");
    ck_assert_str_eq(string_at(r, "error", "param"), "messages");
    ck_assert(json_is_null(json_object_get(json_object_get(r, "error"), "code")));
    json_decref(r);
    house_stop(&h);
    chat_template_destroy(t);
}
END_TEST

START_TEST(wrong_models_lengths_and_bodies_are_refused_before_the_scheduler) {
    struct house h;
    house_start(&h, (struct toy_script){0}, 64);
    json_t *r = post(&h, CHAT, "{\"model\":\"nope\"," HELLO "}", 404);
    ck_assert_str_eq(string_at(r, "error", "code"), "model_not_found");
    json_decref(r);
    r = post(&h, CHAT, "{\"max_tokens\":256," HELLO "}", 400);
    ck_assert_str_eq(string_at(r, "error", "code"), "context_length_exceeded");
    json_decref(r);
    char body[4096] = "{\"prompt\":\"";
    size_t n = strlen(body);
    memset(body + n, 'q', 3000);
    strcpy(body + n + 3000, "\"}");
    r = post(&h, "/v1/completions", body, 400);
    ck_assert_str_eq(string_at(r, "error", "code"), "context_length_exceeded");
    json_decref(r);
    r = post(&h, "/v1/completions", "{\"prompt\":\"\"}", 400);
    ck_assert_str_eq(string_at(r, "error", "param"), "prompt");
    json_decref(r);
    json_decref(post(&h, CHAT, "{", 400));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).submitted, 0);
    house_stop(&h);
}
END_TEST

START_TEST(a_full_queue_answers_429_and_frees_its_places) {
    struct house h;
    struct buf out;
    house_start(&h, (struct toy_script){0}, 3);
    json_t *r = post(&h, CHAT, "{\"n\":4," HELLO "}", 400); // never, however long it waits
    ck_assert_str_eq(string_at(r, "error", "param"), "n");
    json_decref(r);
    ck_assert(admit_reserve(&h.toy.serving->admit, 1));
    http_client_post(h.port, CHAT, "{\"n\":3," HELLO "}", &out);
    admit_release(&h.toy.serving->admit, 1);
    ck_assert_int_eq(http_client_status(&out), 429);
    ck_assert(strstr(out.data, "Retry-After: 1\r\n") != NULL);
    buf_finish(&out);
    for (int i = 0; i < 5; i++)
        json_decref(post(&h, CHAT, "{\"n\":3," HELLO "}", 200));
    house_stop(&h);
}
END_TEST

START_TEST(without_a_group_requests_and_readiness_get_503) {
    struct house h;
    struct buf out;
    house_start(&h, (struct toy_script){.not_ready = true}, 64);
    json_decref(post(&h, CHAT, "{" HELLO "}", 503));
    http_client_get(h.port, "/ready", &out);
    ck_assert_int_eq(http_client_status(&out), 503);
    ck_assert(strstr(out.data, "waiting for 1 of 2 workers") != NULL);
    buf_finish(&out);
    http_client_get(h.port, "/health", &out);
    ck_assert_int_eq(http_client_status(&out), 200);
    buf_finish(&out);
    house_stop(&h);
}
END_TEST

START_TEST(while_a_lost_group_forms_again_requests_are_taken_and_readiness_is_503) {
    struct house h;
    struct buf out;
    house_start(&h, (struct toy_script){.not_ready = true, .takes_requests = true}, 64);
    json_decref(post(&h, CHAT, "{" HELLO "}", 200));
    http_client_get(h.port, "/ready", &out);
    ck_assert_int_eq(http_client_status(&out), 503);
    buf_finish(&out);
    h.toy.serving->draining = true;
    json_decref(post(&h, CHAT, "{" HELLO "}", 503));
    house_stop(&h);
}
END_TEST

START_TEST(a_request_that_the_scheduler_does_not_take_gets_its_status) {
    struct house h;
    house_start(&h, (struct toy_script){.submit_error = ERR_REQ_UNAVAILABLE}, 64);
    json_decref(post(&h, CHAT, "{\"n\":3," HELLO "}", 503));
    json_decref(post(&h, CHAT, "{\"stream\":true," HELLO "}", 503));
    house_stop(&h);
    house_start(&h, (struct toy_script){.submit_error = ERR_REQ_QUEUE_FULL}, 64);
    json_decref(post(&h, CHAT, "{" HELLO "}", 429));
    house_stop(&h);
}
END_TEST

START_TEST(an_error_after_the_headers_is_one_event_then_done) {
    struct house h;
    int n_done, errors;
    // Slow enough that the headers are out before it fails, also where others use the machine.
    house_start(&h, (struct toy_script){.fail_after = 3, .tick_ns = 40 * NS_PER_MS}, 64);
    char *body = stream(&h, "\"n\":3,");
    char *text = joined(body, "0", &n_done, &errors);
    ck_assert_int_eq(errors, 1);
    ck_assert_int_eq(n_done, 1);
    ck_assert(strstr(body, "worker 1 was lost") != NULL);
    free(text);
    free(body);
    json_t *r = post(&h, CHAT, "{" HELLO "}", 503);
    ck_assert_str_eq(string_at(r, "error", "type"), "server_error");
    json_decref(r);
    house_stop(&h);
}
END_TEST

static int open_call(struct house *h, const char *fields) {
    char body[512], request[1024];
    snprintf(body, sizeof body, "{%s" HELLO "}", fields);
    snprintf(request, sizeof request,
             "POST " CHAT " HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
             body);
    int fd = http_client_connect(h->port);
    http_client_send(fd, request, strlen(request));
    return fd;
}

START_TEST(clients_that_leave_are_aborted_streaming_waiting_and_queued) {
    struct house h;
    // One slot, and the first request never ends by itself: it runs, the others are queued.
    house_start(&h, (struct toy_script){.slots = 1, .awaits_abort = true}, 64);
    int streaming = open_call(&h, "\"stream\":true,");
    struct buf out;
    buf_init(&out, 0);
    ck_assert(http_client_read(streaming, &out, "\"content\":\"The"));
    buf_finish(&out);
    int queued = open_call(&h, "\"stream\":true,");
    int whole = open_call(&h, "\"n\":2,");
    ck_assert(toy_engine_await(h.toy.toy, 4));
    close(queued);
    close(whole);
    ck_assert(toy_engine_await(h.toy.toy, 1));
    close(streaming);
    ck_assert(toy_engine_await(h.toy.toy, 0));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).aborted, 4);
    house_stop(&h);
}
END_TEST

START_TEST(stopping_ends_calls_in_flight) {
    struct house h;
    house_start(&h, (struct toy_script){.slots = 1, .awaits_abort = true}, 64);
    int a = open_call(&h, "\"stream\":true,"), b = open_call(&h, "");
    ck_assert(toy_engine_await(h.toy.toy, 2));
    house_stop(&h);
    close(a);
    close(b);
}
END_TEST

START_TEST(tokens_are_counted_without_a_group_and_take_a_place) {
    struct house h;
    house_start(&h, (struct toy_script){.not_ready = true}, 1);
    json_t *r = post(&h, "/tokenize", "{" HELLO ",\"return_token_strs\":true}", 200);
    size_t n = json_array_size(json_object_get(r, "tokens"));
    ck_assert(n > 3 && json_integer_value(json_object_get(r, "count")) == (json_int_t)n);
    ck_assert_uint_eq(json_array_size(json_object_get(r, "token_strs")), n);
    ck_assert_int_eq(json_integer_value(json_object_get(r, "max_model_len")), 256);
    json_decref(r);
    // The place is free again once the answer is made.
    while (h.toy.serving->admit.in_flight != 0)
        usleep(1000);
    ck_assert(admit_reserve(&h.toy.serving->admit, 1));
    json_decref(post(&h, "/tokenize", "{\"prompt\":\"a\"}", 429));
    admit_release(&h.toy.serving->admit, 1);
    api_drain(h.api);
    json_decref(post(&h, "/detokenize", "{\"tokens\":[1]}", 503));
    house_stop(&h);
}
END_TEST

START_TEST(an_api_key_guards_v1_and_status) {
    struct house h;
    struct buf out;
    struct keys *set;
    ck_assert_int_eq(keys_create_one(&set, "secret", NULL), 0);
    struct toy_house_config toy = {MODEL, (struct toy_script){0}, 64, 256};
    house_start_guarded(&h, &toy, set);
    json_t *r = post(&h, CHAT, "{" HELLO "}", 401);
    ck_assert_str_eq(string_at(r, "error", "code"), "invalid_api_key");
    json_decref(r);
    json_decref(post(&h, "/tokenize", "{\"prompt\":\"a\"}", 401));
    json_decref(post(&h, "/detokenize", "{\"tokens\":[1]}", 401));
    static const char *const keys[] = {"secre", "secret", "secretsecret", "x"};
    for (size_t i = 0; i < 4; i++) {
        char request[256];
        snprintf(request, sizeof request,
                 "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                 "Authorization: Bearer %s\r\n\r\n",
                 keys[i]);
        int fd = http_client_connect(h.port);
        buf_init(&out, 0);
        http_client_send(fd, request, strlen(request));
        http_client_read(fd, &out, NULL);
        ck_assert_int_eq(http_client_status(&out), i == 1 ? 200 : 401);
        buf_finish(&out);
        close(fd);
    }
    http_client_get(h.port, "/metrics", &out);
    ck_assert_int_eq(http_client_status(&out), 200);
    buf_finish(&out);
    http_client_get(h.port, "/status", &out); // it names machines
    ck_assert_int_eq(http_client_status(&out), 401);
    buf_finish(&out);
    house_stop(&h);
    keys_destroy(set);
}
END_TEST

static double number_at(const json_t *root, const char *a, const char *b) {
    return json_number_value(json_object_get(json_object_get(root, a), b));
}

START_TEST(status_is_one_object_with_the_same_numbers_as_metrics) {
    struct house h;
    struct buf out;
    house_start(&h, (struct toy_script){0}, 64);
    json_decref(post(&h, CHAT, "{\"n\":2," HELLO "}", 200));
    json_decref(post(&h, CHAT, "{\"max_tokens\":1," HELLO "}", 200));
    http_client_get(h.port, "/status", &out);
    ck_assert_int_eq(http_client_status(&out), 200);
    char *text = http_client_body(&out);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(root != NULL, "%s", text);
    ck_assert_str_eq(json_string_value(json_object_get(root, "object")), "moesaic.status");
    ck_assert_str_eq(json_string_value(json_object_get(root, "model")), "seedling");
    const json_t *requests = json_object_get(root, "requests");
    ck_assert(number_at(requests, "finished", "stop") == 2);
    ck_assert(number_at(requests, "finished", "length") == 1);
    ck_assert(number_at(root, "requests", "admitted_max") == 64);
    const json_t *recent = json_object_get(root, "recent");
    double p50 = number_at(recent, "first_token_s", "p50");
    double p95 = number_at(recent, "first_token_s", "p95");
    ck_assert(p50 > 0 && p95 >= p50);
    ck_assert(json_is_array(json_object_get(root, "workers")));
    json_decref(root);
    free(text);
    buf_finish(&out);
    house_stop(&h);
}
END_TEST

START_TEST(metrics_count_what_happened) {
    struct house h;
    struct buf out;
    house_start(&h, (struct toy_script){0}, 64);
    json_decref(post(&h, CHAT, "{\"n\":2," HELLO "}", 200));
    json_decref(post(&h, CHAT, "{\"max_tokens\":1," HELLO "}", 200));
    http_client_get(h.port, "/metrics", &out);
    static const char *const lines[] = {
        "vllm:request_success_total{model_name=\"seedling\",engine=\"0\",finished_reason=\"stop\"} "
        "2\n",
        "vllm:request_success_total{model_name=\"seedling\",engine=\"0\",finished_reason="
        "\"length\"} 1\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"seedling\",engine=\"0\"} 3\n",
        "vllm:num_requests_running{model_name=\"seedling\",engine=\"0\"} 0\n",
        "moesaic_requests_admitted 0\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(strstr(out.data, lines[i]) != NULL, "%s is not in\n%s", lines[i], out.data);
    buf_finish(&out);
    http_client_get(h.port, "/v1/models/seedling", &out);
    ck_assert(strstr(out.data, "\"max_model_len\":256") != NULL);
    buf_finish(&out);
    http_client_get(h.port, "/v1/models/other", &out);
    ck_assert_int_eq(http_client_status(&out), 404);
    buf_finish(&out);
    house_stop(&h);
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_api");
    TCase *t = tcase_create("api");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_chat_answers_whole_with_usage_and_digest);
    tcase_add_test(t, a_stream_joins_to_the_same_text_and_ends_once);
    tcase_add_test(t, a_stream_that_lost_something_does_not_end_well);
    tcase_add_test(t, a_stop_string_ends_text_and_request);
    tcase_add_test(t, completions_take_lists_and_number_their_choices);
    tcase_add_test(t, chat_logprobs_carry_bytes_and_alternatives);
    tcase_add_test(t, a_template_that_exceeds_its_limits_is_told_apart_from_a_long_prompt);
    tcase_add_test(t, wrong_models_lengths_and_bodies_are_refused_before_the_scheduler);
    tcase_add_test(t, a_full_queue_answers_429_and_frees_its_places);
    tcase_add_test(t, without_a_group_requests_and_readiness_get_503);
    tcase_add_test(t, while_a_lost_group_forms_again_requests_are_taken_and_readiness_is_503);
    tcase_add_test(t, a_request_that_the_scheduler_does_not_take_gets_its_status);
    tcase_add_test(t, an_error_after_the_headers_is_one_event_then_done);
    tcase_add_test(t, clients_that_leave_are_aborted_streaming_waiting_and_queued);
    tcase_add_test(t, stopping_ends_calls_in_flight);
    tcase_add_test(t, tokens_are_counted_without_a_group_and_take_a_place);
    tcase_add_test(t, an_api_key_guards_v1_and_status);
    tcase_add_test(t, status_is_one_object_with_the_same_numbers_as_metrics);
    tcase_add_test(t, metrics_count_what_happened);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK); // sanitizers see leaks at the end of this process
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
