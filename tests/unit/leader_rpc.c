// leader_rpc.c: Generate from gRPC to gRPC with a toy scheduler behind it: streams, slow readers,
// clients that leave, limits, stopping with live calls, memory that runs out.
#include "leader/rpc.h"

#include <check.h>
#include <grpc/status.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "generate.pb-c.h"
#include "leader/rpc_request.h"
#include "tests/harness/rpc_house.h"

#define MODEL SOURCE_ROOT "/models/seedling"
#define SCRIPT TOY_ANSWER

struct limits {
    uint32_t queue_max, calls_max;
    uint64_t bodies_bytes_max;
};
static const struct limits wide = {64, 64, 1u << 20};

static void house_start(struct rpc_house *h, struct toy_script script, struct limits limits) {
    struct rpc_house_config config = {.model = MODEL,
                                      .script = script,
                                      .queue_max = limits.queue_max,
                                      .calls_max = limits.calls_max,
                                      .bodies_bytes_max = limits.bodies_bytes_max};
    rpc_house_start(h, &config);
}

static struct rpc_client *ask(struct rpc_house *h, bool small_window) {
    return rpc_house_ask(h, NULL, small_window);
}

static void expect_whole(struct rpc_house *h, struct rpc_client *c) {
    struct rpc_heard heard;
    rpc_house_hear(&heard, c);
    ck_assert_msg(heard.code == GRPC_STATUS_OK, "status %d %s", heard.code, heard.status);
    ck_assert_str_eq(heard.choices[0].text.data, SCRIPT);
    ck_assert_uint_eq(heard.choices[0].n_ids, h->toy.answer.n + 1); // the stop id, too
    ck_assert_uint_eq(heard.choices[0].n_finishes, 1);
    rpc_heard_finish(&heard);
}

// --- streams

START_TEST(a_call_streams_its_answer_and_ends_well) {
    struct rpc_house h;
    house_start(&h, (struct toy_script){0}, wide);
    expect_whole(&h, ask(&h, false));
    rpc_house_stop(&h);
}
END_TEST

START_TEST(an_engine_that_breaks_ends_the_call_with_its_status) {
    struct rpc_house h;
    house_start(&h, (struct toy_script){.fail_after = 3, .fails_when_told = true}, wide);
    struct rpc_heard heard = {0};
    struct rpc_client *c = ask(&h, false);
    ck_assert(rpc_house_hear_next(&heard, c));
    toy_engine_fail(h.toy.toy);
    rpc_house_hear_rest(&heard, c);
    ck_assert_int_eq(heard.code, GRPC_STATUS_ABORTED); // it had begun
    ck_assert_str_eq(heard.status, "worker 1 was lost");
    // gRPC's client drops what it has not yet read when an error arrives.
    ck_assert_uint_le(heard.choices[0].n_ids, 3);
    ck_assert_uint_eq(heard.choices[0].n_finishes, 0);
    rpc_heard_finish(&heard);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(errors_before_the_first_token_are_statuses) {
    struct rpc_house h;
    house_start(&h, (struct toy_script){.submit_error = ERR_REQ_QUEUE_FULL}, wide);
    rpc_house_expect(ask(&h, false), GRPC_STATUS_RESOURCE_EXHAUSTED, "too many requests");
    rpc_house_stop(&h);
    house_start(&h, (struct toy_script){.not_ready = true}, wide);
    rpc_house_expect(ask(&h, false), GRPC_STATUS_UNAVAILABLE, "no group");
    rpc_house_stop(&h);
    house_start(&h, (struct toy_script){.submit_error = ERR_REQ_UNAVAILABLE}, wide);
    rpc_house_expect(ask(&h, false), GRPC_STATUS_UNAVAILABLE, "no group");
    rpc_house_stop(&h);
    house_start(&h, (struct toy_script){.leaving = true}, wide);
    rpc_house_expect(ask(&h, false), GRPC_STATUS_UNAVAILABLE, "a worker drains");
    h.toy.serving->draining = true;
    rpc_house_expect(ask(&h, false), GRPC_STATUS_UNAVAILABLE, "shutting down");
    rpc_house_stop(&h);
}
END_TEST

START_TEST(a_call_is_taken_while_a_lost_group_forms_again) {
    struct rpc_house h;
    house_start(&h, (struct toy_script){.not_ready = true, .takes_requests = true}, wide);
    expect_whole(&h, ask(&h, false));
    h.toy.serving->draining = true;
    rpc_house_expect(ask(&h, false), GRPC_STATUS_UNAVAILABLE, "shutting down");
    rpc_house_stop(&h);
}
END_TEST

// What protobuf-c reads ends there, so this looks at the bytes: the text is a message's last field.
START_TEST(a_zero_byte_does_not_end_the_text) {
    struct rpc_house h;
    struct buf message;
    uint32_t zero = 0;
    size_t bytes = 0;
    house_start(&h, (struct toy_script){0}, wide);
    for (uint32_t i = 0; i < tokenizer_vocab(h.toy.tokenizer); i++) {
        const char *of = tokenizer_bytes(h.toy.tokenizer, i, &bytes);
        if (of != NULL && bytes == 1 && of[0] == '\0') zero = i;
    }
    rpc_house_stop(&h);
    house_start(&h, (struct toy_script){.ids = &zero, .n_ids = 1}, wide);
    struct rpc_client *c = ask(&h, false);
    bool seen = false;
    buf_init(&message, 0);
    while (rpc_client_read(c, &message))
        seen |= message.bytes > 3 && memcmp(message.data + message.bytes - 3, "\x12\1\0", 3) == 0;
    ck_assert(seen);
    buf_finish(&message);
    rpc_client_close(c);
    rpc_house_stop(&h);
}
END_TEST

// --- slow readers

// The longest token, many times.
static struct toy_script long_script(struct rpc_house *h, uint32_t *ids, uint32_t n_ids) {
    struct err_text e;
    size_t longest = 0;
    uint32_t id = 0;
    ck_assert_int_eq(tokenizer_load(&h->toy.tokenizer, MODEL, &e), 0);
    for (uint32_t i = 0; i < tokenizer_vocab(h->toy.tokenizer); i++) {
        size_t bytes = 0;
        if (tokenizer_bytes(h->toy.tokenizer, i, &bytes) == NULL || bytes <= longest) continue;
        longest = bytes;
        id = i;
    }
    tokenizer_destroy(h->toy.tokenizer);
    for (uint32_t i = 0; i < n_ids; i++)
        ids[i] = id;
    return (struct toy_script){.ids = ids, .n_ids = n_ids, .tick_ns = 20000};
}

START_TEST(a_client_that_never_reads_is_cut_and_its_request_aborted) {
    static uint32_t ids[80000];
    struct rpc_house h;
    char text[ERR_TEXT_MAX];
    struct toy_script script = long_script(&h, ids, 80000);
    house_start(&h, script, wide);
    struct rpc_client *c = ask(&h, true);
    ck_assert(toy_engine_await(h.toy.toy, 1));
    ck_assert(toy_engine_await(h.toy.toy, 0));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).aborted, 1);
    struct buf message;
    buf_init(&message, 0);
    while (rpc_client_read(c, &message))
        ck_assert_uint_lt(message.bytes, STREAM_BUFFER_BYTES_MAX + 65536);
    int code = rpc_client_status(c, text, sizeof text);
    ck_assert_msg(code == GRPC_STATUS_RESOURCE_EXHAUSTED, "status %d %s", code, text);
    ck_assert_msg(strstr(text, "too slowly") != NULL, "%s", text);
    buf_finish(&message);
    rpc_client_close(c);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(a_late_reader_gets_everything_in_few_messages) {
    static uint32_t ids[8000];
    struct rpc_house h;
    struct toy_script script = long_script(&h, ids, 8000);
    house_start(&h, script, wide);
    struct rpc_client *c = ask(&h, true);
    ck_assert(toy_engine_await(h.toy.toy, 1));
    ck_assert(toy_engine_await(h.toy.toy, 0)); // all was said, and nothing read
    struct rpc_heard heard;
    rpc_house_hear(&heard, c);
    ck_assert_msg(heard.code == GRPC_STATUS_OK, "status %d %s", heard.code, heard.status);
    ck_assert_uint_eq(heard.choices[0].n_ids, 8001);
    ck_assert_uint_lt(heard.n_messages, 4000);
    ck_assert_uint_eq(heard.choices[0].n_finishes, 1);
    rpc_heard_finish(&heard);
    rpc_house_stop(&h);
}
END_TEST

static bool await_no_call(const struct rpc_house *h) {
    struct waker *w = NULL;
    ck_assert_int_eq(waker_create(h->toy.env, &w), 0);
    for (int i = 0; i < 2000 && rpc_n_calls(h->rpc) != 0; i++)
        waker_wait(w, env_now_ns(h->toy.env) + 10 * NS_PER_MS);
    waker_destroy(w);
    return rpc_n_calls(h->rpc) == 0;
}

// Nothing else would ever end it: its connection is alive, and too little waits for it to be cut.
START_TEST(an_answer_that_has_ended_and_is_not_read_holds_its_call_only_so_long) {
    static uint32_t ids[8000];
    struct rpc_house h;
    struct rpc_house_config config = {.model = MODEL,
                                      .script = long_script(&h, ids, 8000),
                                      .queue_max = 64,
                                      .calls_max = 64,
                                      .idle_ns = NS_PER_S};
    rpc_house_start(&h, &config);
    struct rpc_client *c = ask(&h, true);
    ck_assert(toy_engine_await(h.toy.toy, 1));
    ck_assert(toy_engine_await(h.toy.toy, 0));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).aborted, 0); // it was not cut
    ck_assert(await_no_call(&h));
    rpc_client_close(c);
    rpc_house_stop(&h);
}
END_TEST

// --- clients that leave, limits, the end

START_TEST(a_client_that_leaves_ends_its_request_whether_it_waits_or_runs) {
    struct rpc_house h;
    struct buf message;
    buf_init(&message, 0);
    house_start(&h, (struct toy_script){.slots = 1, .awaits_abort = true}, wide);
    struct rpc_client *running = ask(&h, false);
    ck_assert(rpc_client_read(running, &message));
    struct rpc_client *waiting = ask(&h, false);
    ck_assert(toy_engine_await(h.toy.toy, 2));
    rpc_client_cancel(waiting);
    ck_assert(toy_engine_await(h.toy.toy, 1));
    rpc_client_close(waiting);
    rpc_client_close(running);
    ck_assert(toy_engine_await(h.toy.toy, 0));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).aborted, 2);
    buf_finish(&message);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(calls_above_the_limits_are_refused) {
    struct rpc_house h;
    house_start(&h, (struct toy_script){.awaits_abort = true}, (struct limits){64, 2, 1u << 20});
    struct rpc_client *first = ask(&h, false);
    struct rpc_client *second = ask(&h, false);
    ck_assert(toy_engine_await(h.toy.toy, 2));
    rpc_house_expect(ask(&h, false), GRPC_STATUS_RESOURCE_EXHAUSTED, "too many calls");
    rpc_client_close(first);
    rpc_client_close(second);
    rpc_house_stop(&h);
    house_start(&h, (struct toy_script){0}, (struct limits){64, 64, 4});
    rpc_house_expect(ask(&h, false), GRPC_STATUS_RESOURCE_EXHAUSTED, "too many bytes");
    rpc_house_stop(&h);
    house_start(&h, (struct toy_script){0}, (struct limits){0, 64, 1u << 20});
    rpc_house_expect(ask(&h, false), GRPC_STATUS_RESOURCE_EXHAUSTED, "0 waiting and running");
    rpc_house_stop(&h);
}
END_TEST

START_TEST(a_server_that_stops_ends_silent_waiting_and_running_calls) {
    enum { N = 12 };
    struct rpc_client *clients[N];
    struct rpc_house h;
    struct buf message;
    char text[ERR_TEXT_MAX];
    buf_init(&message, 0);
    house_start(&h, (struct toy_script){.slots = 4, .awaits_abort = true}, wide);
    for (int i = 0; i < N; i++)
        clients[i] = i < 3 ? rpc_client_open(h.port, RPC_HOUSE_GENERATE, false) : ask(&h, false);
    ck_assert(rpc_client_read(clients[3], &message));
    ck_assert(toy_engine_await(h.toy.toy, N - 3));
    ck_assert_uint_eq(rpc_n_calls(h.rpc), N - 3);
    rpc_stop(h.rpc);
    ck_assert(toy_engine_await(h.toy.toy, 0));
    for (int i = 0; i < N; i++) {
        while (rpc_client_read(clients[i], &message)) {
        }
        int code = rpc_client_status(clients[i], text, sizeof text);
        ck_assert_msg(code == GRPC_STATUS_UNAVAILABLE, "call %d: status %d %s", i, code, text);
        rpc_client_close(clients[i]);
    }
    buf_finish(&message);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(metrics_count_calls_by_their_status) {
    struct rpc_house h;
    struct buf page;
    buf_init(&page, 0);
    house_start(&h, (struct toy_script){0}, wide);
    expect_whole(&h, ask(&h, false));
    struct rpc_client *c = rpc_client_open(h.port, RPC_HOUSE_GENERATE, false);
    rpc_client_half_close(c);
    rpc_house_expect(c, GRPC_STATUS_INVALID_ARGUMENT, "without a request");
    rpc_metrics(h.rpc, &page);
    buf_add(&page, "", 1);
    ck_assert(strstr(page.data, "moesaic_grpc_calls_total{code=\"0\"} 1") != NULL);
    ck_assert(strstr(page.data, "moesaic_grpc_calls_total{code=\"3\"} 1") != NULL);
    ck_assert(strstr(page.data, "moesaic_grpc_disconnects_total 0") != NULL);
    buf_finish(&page);
    rpc_house_stop(&h);
}
END_TEST

// --- requests

static size_t pack_everything(uint8_t *out, size_t bytes_max) {
    char *stops[] = {(char *)"end", (char *)"stop"};
    uint32_t stop_ids[] = {1, 2};
    Moesaic__V1__ChatMessage message = MOESAIC__V1__CHAT_MESSAGE__INIT;
    Moesaic__V1__ChatMessage *messages[] = {&message};
    Moesaic__V1__TokenBias one = MOESAIC__V1__TOKEN_BIAS__INIT, other = one;
    Moesaic__V1__TokenBias *biases[] = {&one, &other};
    Moesaic__V1__GenerateRequest m = MOESAIC__V1__GENERATE_REQUEST__INIT;
    one.token_id = 7;
    one.bias = -100;
    other.token_id = 99;
    message.role = (char *)"user";
    message.content = (char *)"hi";
    m.n_messages = 1;
    m.messages = messages;
    m.max_tokens = 7;
    m.optional_temperature_case = MOESAIC__V1__GENERATE_REQUEST__OPTIONAL_TEMPERATURE_TEMPERATURE;
    m.temperature = 0.5F;
    m.optional_seed_case = MOESAIC__V1__GENERATE_REQUEST__OPTIONAL_SEED_SEED;
    m.seed = UINT64_MAX;
    m.n_stop = 2;
    m.stop = stops;
    m.n_stop_token_ids = 2;
    m.stop_token_ids = stop_ids;
    m.ignore_eos = true;
    m.model = (char *)"seedling";
    m.n = 5;
    m.presence_penalty = 0.5F;
    m.frequency_penalty = -2;
    m.optional_repetition_penalty_case =
        MOESAIC__V1__GENERATE_REQUEST__OPTIONAL_REPETITION_PENALTY_REPETITION_PENALTY;
    m.repetition_penalty = 1.25F;
    m.n_logit_bias = 2;
    m.logit_bias = biases;
    m.n_allowed_token_ids = 2;
    m.allowed_token_ids = stop_ids;
    m.n_bad_words = 2;
    m.bad_words = stops;
    m.min_tokens = 3;
    m.show_special_tokens = true;
    m.optional_logprobs_case = MOESAIC__V1__GENERATE_REQUEST__OPTIONAL_LOGPROBS_LOGPROBS;
    m.logprobs = 20;
    check(moesaic__v1__generate_request__get_packed_size(&m) <= bytes_max);
    return moesaic__v1__generate_request__pack(&m, out);
}

START_TEST(every_field_arrives) {
    static const struct openai_defaults defaults = {
        .temperature = 1, .top_p = 0.25F, .top_k = 9, .vocab = 100};
    uint8_t packed[512];
    char id[REQUEST_ID_BYTES_MAX + 1];
    struct rpc_message message = {.data = packed};
    message.bytes = pack_everything(packed, sizeof packed);
    struct openai_request r;
    struct api_error e;
    ck_assert_int_eq(rpc_request_parse(&r, id, &message, &defaults, &e), 0);
    ck_assert(r.chat && r.ignore_eos && r.has_seed && r.max_tokens == 7);
    ck_assert(r.sampling.temperature == 0.5F && r.sampling.top_p == 0.25F);
    ck_assert_uint_eq(r.sampling.top_k, 9);
    ck_assert_uint_eq((uint64_t)r.seed, UINT64_MAX);
    ck_assert_uint_eq(r.stop.n, 2);
    ck_assert_str_eq(r.stop.text[1], "stop");
    ck_assert_uint_eq(r.n_stop_ids, 2);
    ck_assert_uint_eq(r.stop_ids[1], 2);
    ck_assert_str_eq(r.model, "seedling");
    ck_assert_uint_eq(r.n, 5);
    const struct steering *s = &r.steering;
    ck_assert(s->presence_penalty == 0.5F && s->frequency_penalty == -2);
    ck_assert(s->repetition_penalty == 1.25F && s->min_tokens == 3 && !r.skip_special_tokens);
    ck_assert(s->n_bias == 2 && s->bias_ids[0] == 7 && s->bias[0] == -100);
    ck_assert(s->bias_ids[1] == 99 && s->bias[1] == 0);
    ck_assert(s->n_allowed == 2 && s->allowed_ids[1] == 2);
    ck_assert_uint_eq(json_array_size(r.bad_words), 2);
    ck_assert(r.sampling.want_logprob && r.sampling.n_logprobs == 20);
    ck_assert_str_eq(id, "");
    openai_request_finish(&r);
}
END_TEST

START_TEST(calls_are_not_read_out_of_answers) {
    struct openai_defaults defaults = {.temperature = 1, .top_p = 1, .vocab = 100};
    Moesaic__V1__ChatMessage hello = MOESAIC__V1__CHAT_MESSAGE__INIT, *messages[] = {&hello};
    Moesaic__V1__GenerateRequest m = MOESAIC__V1__GENERATE_REQUEST__INIT;
    uint8_t packed[256];
    char id[REQUEST_ID_BYTES_MAX + 1];
    struct openai_request r;
    struct api_error e;
    hello.role = "user";
    hello.content = "hi";
    m.n_messages = 1;
    m.messages = messages;
    m.tools = "[{\"function\":{\"name\":\"f\"}}]";
    struct rpc_message message = {.data = packed};
    message.bytes = moesaic__v1__generate_request__pack(&m, packed);
    ck_assert_int_eq(rpc_request_parse(&r, id, &message, &defaults, &e), ERR_REQ_INVALID);
    ck_assert_str_eq(e.param, "tool_choice");
    defaults.tool_format = tool_format_find("hermes");
    ck_assert_int_eq(rpc_request_parse(&r, id, &message, &defaults, &e), 0);
    ck_assert(r.tools != NULL && r.tool_format == NULL);
    openai_request_finish(&r);
}
END_TEST

START_TEST(parsing_survives_every_failed_allocation) {
    static const struct openai_defaults defaults = {.temperature = 1, .top_p = 1, .vocab = 100};
    uint8_t packed[512];
    char id[REQUEST_ID_BYTES_MAX + 1];
    struct rpc_message message = {.data = packed};
    message.bytes = pack_everything(packed, sizeof packed);
    int rc = -1, n = 0;
    json_set_alloc_funcs(mem_alloc, mem_free);
    for (; rc != 0 && n < 1000; n++) {
        struct openai_request r;
        struct api_error e;
        mem_fail_after(n + 1);
        rc = rpc_request_parse(&r, id, &message, &defaults, &e);
        mem_fail_after(0);
        if (rc != 0)
            ck_assert_msg(e.status == 500, "allocation %d: %d %s", n, e.status, e.message);
        else
            openai_request_finish(&r);
    }
    ck_assert_int_gt(n, 10);
    ck_assert_int_eq(rc, 0);
}
END_TEST

// Two bytes each on the wire, a hundred and more in memory.
START_TEST(a_message_that_would_unpack_into_too_much_is_refused) {
    static const struct openai_defaults defaults = {.temperature = 1, .top_p = 1, .vocab = 100};
    enum { BYTES = 8 << 20 };
    uint8_t *data = mem_alloc(BYTES);
    char id[REQUEST_ID_BYTES_MAX + 1];
    struct rpc_message message = {.data = data, .bytes = BYTES};
    struct openai_request r;
    struct api_error e;
    for (size_t i = 0; i < BYTES; i += 2) {
        data[i] = 3 << 3 | 2;
        data[i + 1] = 0;
    }
    ck_assert_int_eq(rpc_request_parse(&r, id, &message, &defaults, &e), ERR_REQ_INVALID);
    ck_assert_int_eq(e.status, 400);
    ck_assert(strstr(e.message, "too many parts") != NULL);
    mem_free(data);
}
END_TEST

// n messages of 32 calls each.
static int parse_calls(size_t n, struct api_error *e) {
    static const struct openai_defaults defaults = {.temperature = 1, .top_p = 1, .vocab = 100};
    Moesaic__V1__GenerateRequest m = MOESAIC__V1__GENERATE_REQUEST__INIT;
    Moesaic__V1__ChatMessage one = MOESAIC__V1__CHAT_MESSAGE__INIT;
    Moesaic__V1__ToolCall call = MOESAIC__V1__TOOL_CALL__INIT, *calls[32];
    Moesaic__V1__ChatMessage **messages = mem_array(n, sizeof(void *));
    char id[REQUEST_ID_BYTES_MAX + 1];
    struct openai_request r;
    call.name = (char *)"f";
    call.arguments = (char *)"{}";
    one.role = (char *)"assistant";
    one.n_tool_calls = 32;
    one.tool_calls = calls;
    for (size_t i = 0; i < 32; i++)
        calls[i] = &call;
    for (size_t i = 0; i < n; i++)
        messages[i] = &one;
    m.n_messages = n;
    m.messages = messages;
    struct rpc_message packed = {.bytes = moesaic__v1__generate_request__get_packed_size(&m)};
    uint8_t *data = mem_alloc(packed.bytes);
    packed.data = data;
    moesaic__v1__generate_request__pack(&m, data);
    int rc = rpc_request_parse(&r, id, &packed, &defaults, e);
    if (rc == 0) openai_request_finish(&r);
    mem_free(data);
    mem_free(messages);
    return rc;
}

// A message is an object, a call two and its arguments one.
START_TEST(lists_and_objects_of_calls_are_bounded_as_over_http) {
    struct api_error e = {0};
    ck_assert_msg(parse_calls(JSON_CONTAINERS_MAX / 97, &e) == 0, "%s", e.message);
    ck_assert_int_eq(parse_calls(JSON_CONTAINERS_MAX / 97 + 1, &e), ERR_REQ_INVALID);
    ck_assert_int_eq(parse_calls(JSON_CONTAINERS_MAX / 65 + 1, &e), ERR_REQ_INVALID);
    ck_assert_int_eq(e.status, 400);
    ck_assert_str_eq(e.param, "messages");
    ck_assert(strstr(e.message, "lists and objects") != NULL);
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_rpc");
    TCase *t = tcase_create("rpc");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_call_streams_its_answer_and_ends_well);
    tcase_add_test(t, a_zero_byte_does_not_end_the_text);
    tcase_add_test(t, lists_and_objects_of_calls_are_bounded_as_over_http);
    tcase_add_test(t, an_engine_that_breaks_ends_the_call_with_its_status);
    tcase_add_test(t, errors_before_the_first_token_are_statuses);
    tcase_add_test(t, a_call_is_taken_while_a_lost_group_forms_again);
    tcase_add_test(t, a_client_that_never_reads_is_cut_and_its_request_aborted);
    tcase_add_test(t, a_late_reader_gets_everything_in_few_messages);
    tcase_add_test(t, an_answer_that_has_ended_and_is_not_read_holds_its_call_only_so_long);
    tcase_add_test(t, a_client_that_leaves_ends_its_request_whether_it_waits_or_runs);
    tcase_add_test(t, calls_above_the_limits_are_refused);
    tcase_add_test(t, a_server_that_stops_ends_silent_waiting_and_running_calls);
    tcase_add_test(t, metrics_count_calls_by_their_status);
    tcase_add_test(t, every_field_arrives);
    tcase_add_test(t, calls_are_not_read_out_of_answers);
    tcase_add_test(t, parsing_survives_every_failed_allocation);
    tcase_add_test(t, a_message_that_would_unpack_into_too_much_is_refused);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK); // gRPC does not survive a fork
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? 0 : 1;
}
