// leader_rpc_calls.c: what leader_rpc.c leaves out of the gRPC service: choices, log-probabilities,
// request ids, Abort, and the methods that answer at once.
#include <check.h>
#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "leader/rpc_call.h"
#include "leader/rpc_info.h"
#include "tests/harness/rpc_house.h"

#define MODEL SOURCE_ROOT "/models/seedling"
#define ABORT "/moesaic.v1.Generate/Abort"

typedef Moesaic__V1__GenerateRequest Request;
static const Request empty = MOESAIC__V1__GENERATE_REQUEST__INIT;

static void house_start(struct rpc_house *h, struct toy_script script) {
    struct rpc_house_config config = {
        .model = MODEL, .script = script, .queue_max = 64, .calls_max = 64};
    rpc_house_start(h, &config);
}

static Request named(const char *id) {
    Request m = empty;
    m.request_id = (char *)(uintptr_t)id;
    return m;
}

static Request with_logprobs(uint32_t n_top) {
    Request m = empty;
    m.optional_logprobs_case = MOESAIC__V1__GENERATE_REQUEST__OPTIONAL_LOGPROBS_LOGPROBS;
    m.logprobs = n_top;
    return m;
}

// --- choices and log-probabilities

START_TEST(each_of_n_choices_is_told_whole_under_its_index) {
    struct rpc_house h;
    struct rpc_heard heard;
    Request m = empty;
    m.n = 3;
    house_start(&h, (struct toy_script){0});
    rpc_house_hear(&heard, rpc_house_ask(&h, &m, false));
    ck_assert_msg(heard.code == GRPC_STATUS_OK, "status %d %s", heard.code, heard.status);
    for (uint32_t i = 0; i < 3; i++) {
        const struct rpc_heard_choice *k = &heard.choices[i];
        ck_assert_str_eq(k->text.data, TOY_ANSWER);
        ck_assert_str_eq(k->finish, "stop");
        ck_assert_uint_eq(k->n_ids, h.toy.answer.n + 1);
    }
    ck_assert_uint_eq(heard.choices[3].n_ids, 0);
    rpc_heard_finish(&heard);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(every_id_has_its_logprobs_the_stop_id_too) {
    struct rpc_house h;
    struct rpc_heard heard;
    Request m = with_logprobs(2);
    house_start(&h, (struct toy_script){0});
    rpc_house_hear(&heard, rpc_house_ask(&h, &m, false));
    const struct rpc_heard_choice *k = &heard.choices[0];
    ck_assert_int_eq(heard.code, GRPC_STATUS_OK);
    ck_assert_uint_eq(k->n_logprobs, k->n_ids);
    ck_assert_uint_eq(k->n_top, 2 * k->n_ids);
    ck_assert_uint_eq(k->last_id, h.toy.spec.stop_ids[0]);
    ck_assert(k->last_logprob == -0.5F);
    rpc_heard_finish(&heard);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(logprobs_come_without_alternatives_or_not_at_all_as_asked) {
    struct rpc_house h;
    struct rpc_heard heard;
    Request m = with_logprobs(0);
    house_start(&h, (struct toy_script){0});
    rpc_house_hear(&heard, rpc_house_ask(&h, &m, false));
    ck_assert_uint_eq(heard.choices[0].n_logprobs, heard.choices[0].n_ids);
    ck_assert_uint_eq(heard.choices[0].n_top, 0);
    rpc_heard_finish(&heard);
    rpc_house_hear(&heard, rpc_house_ask(&h, NULL, false));
    ck_assert_uint_eq(heard.choices[0].n_logprobs, 0);
    rpc_heard_finish(&heard);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(the_stop_string_that_matched_is_named_once) {
    struct rpc_house h;
    struct rpc_heard heard;
    Request m = empty;
    char *stops[] = {(char *)"nothing", (char *)" Kenya"};
    m.n_stop = 2;
    m.stop = stops;
    house_start(&h, (struct toy_script){0});
    rpc_house_hear(&heard, rpc_house_ask(&h, &m, false));
    ck_assert_str_eq(heard.choices[0].text.data, "The capital of");
    ck_assert_str_eq(heard.choices[0].stop_reason, " Kenya");
    rpc_heard_finish(&heard);
    rpc_house_stop(&h);
}
END_TEST

// Two messages to the same peer at once are not possible, so many choices of a late reader are told
// in few.
START_TEST(choices_with_logprobs_do_not_outgrow_the_bound_of_a_slow_reader) {
    static uint32_t ids[20000];
    struct rpc_house h;
    char text[ERR_TEXT_MAX];
    Request m = with_logprobs(20);
    struct buf message;
    m.n = 4;
    for (uint32_t i = 0; i < 20000; i++)
        ids[i] = i % 2000;
    house_start(&h, (struct toy_script){.ids = ids, .n_ids = 20000, .tick_ns = 20000});
    struct rpc_client *c = rpc_house_ask(&h, &m, true);
    ck_assert(toy_engine_await(h.toy.toy, 4));
    ck_assert(toy_engine_await(h.toy.toy, 0));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).aborted, 4);
    buf_init(&message, 0);
    while (rpc_client_read(c, &message))
        ck_assert_uint_lt(message.bytes, STREAM_BUFFER_BYTES_MAX + 65536);
    ck_assert_int_eq(rpc_client_status(c, text, sizeof text), GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(text, "too slowly") != NULL, "%s", text);
    buf_finish(&message);
    rpc_client_close(c);
    rpc_house_stop(&h);
}
END_TEST

// --- request ids

START_TEST(an_id_in_flight_is_refused_and_free_again_after_the_end) {
    struct rpc_house h;
    struct buf message;
    struct rpc_heard heard;
    Request m = named("mine");
    buf_init(&message, 0);
    house_start(&h, (struct toy_script){.awaits_abort = true});
    struct rpc_client *first = rpc_house_ask(&h, &m, false);
    ck_assert(rpc_client_read(first, &message));
    rpc_house_expect(rpc_house_ask(&h, &m, false), GRPC_STATUS_ALREADY_EXISTS, "mine");
    rpc_client_close(first); // gone
    ck_assert(toy_engine_await(h.toy.toy, 0));
    rpc_house_stop(&h);
    house_start(&h, (struct toy_script){0});
    for (int i = 0; i < 20; i++) {
        rpc_house_hear(&heard, rpc_house_ask(&h, &m, false));
        ck_assert_msg(heard.code == GRPC_STATUS_OK, "round %d: %d %s", i, heard.code, heard.status);
        rpc_heard_finish(&heard);
    }
    buf_finish(&message);
    rpc_house_stop(&h);
}
END_TEST

// --- Abort

static uint32_t abort_ids(struct rpc_house *h, const char **ids, size_t n) {
    Moesaic__V1__AbortRequest m = MOESAIC__V1__ABORT_REQUEST__INIT;
    struct buf out;
    char text[ERR_TEXT_MAX];
    m.request_ids = (char **)(uintptr_t)ids;
    m.n_request_ids = n;
    buf_init(&out, 0);
    int code = rpc_house_call(h, ABORT, &m.base, &out, text);
    ck_assert_msg(code == GRPC_STATUS_OK, "status %d %s", code, text);
    Moesaic__V1__AbortResponse *answer =
        moesaic__v1__abort_response__unpack(NULL, out.bytes, (const uint8_t *)out.data);
    ck_assert_ptr_nonnull(answer);
    uint32_t found = answer->found;
    moesaic__v1__abort_response__free_unpacked(answer, NULL);
    buf_finish(&out);
    return found;
}

// Ends what was heard so far.
static void expect_rest_aborted(struct rpc_heard *heard, struct rpc_client *c) {
    rpc_house_hear_rest(heard, c);
    ck_assert_msg(heard->code == GRPC_STATUS_OK, "status %d %s", heard->code, heard->status);
    ck_assert_str_eq(heard->choices[0].finish, "abort");
    rpc_heard_finish(heard);
}

static void expect_aborted(struct rpc_client *c) {
    struct rpc_heard heard = {0};
    expect_rest_aborted(&heard, c);
}

START_TEST(abort_ends_the_running_and_the_waiting_and_counts_them) {
    struct rpc_house h;
    struct rpc_heard heard = {0};
    Request running = named("mine-runs"), waiting = named("mine-waits");
    const char *ids[] = {"mine-runs", "mine-waits", "mine-runs", "unknown"};
    house_start(&h, (struct toy_script){.slots = 1, .awaits_abort = true});
    struct rpc_client *first = rpc_house_ask(&h, &running, false);
    ck_assert(rpc_house_hear_next(&heard, first));
    struct rpc_client *second = rpc_house_ask(&h, &waiting, false);
    ck_assert(toy_engine_await(h.toy.toy, 2));
    ck_assert_uint_eq(abort_ids(&h, ids, 4), 2);
    expect_rest_aborted(&heard, first);
    expect_aborted(second);
    ck_assert(toy_engine_await(h.toy.toy, 0));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).aborted, 2);
    ck_assert_uint_eq(abort_ids(&h, ids, 4), 0);
    rpc_house_stop(&h);
}
END_TEST

// Whatever the moment, what was found ends with "abort" and what was not ends by itself.
START_TEST(an_abort_at_any_moment_ends_its_call) {
    struct rpc_house h;
    struct rpc_heard heard;
    uint32_t n_found = 0, n_aborted = 0;
    house_start(&h, (struct toy_script){.tick_ns = 100000});
    for (uint32_t i = 0; i < 200; i++) {
        char id[32];
        const char *ids[] = {id};
        snprintf(id, sizeof id, "mine-%u", i + 1000000);
        Request m = named(id);
        struct rpc_client *c = rpc_house_ask(&h, &m, false);
        n_found += abort_ids(&h, ids, 1);
        rpc_house_hear(&heard, c);
        ck_assert_msg(heard.code == GRPC_STATUS_OK, "status %d %s", heard.code, heard.status);
        n_aborted += strcmp(heard.choices[0].finish, "abort") == 0;
        rpc_heard_finish(&heard);
    }
    // One that was found in its last moment may end well.
    ck_assert_uint_le(n_aborted, n_found);
    ck_assert_uint_gt(n_aborted, 0);
    ck_assert(toy_engine_await(h.toy.toy, 0));
    rpc_house_stop(&h);
}
END_TEST

static struct rpc_house *watched;
static struct engine early;

static int abort_and_submit(void *self, struct request *r) {
    struct rpc_call *c = rpc_names_find(&watched->rpc->names, KEY_NONE, "mine-early");
    check(c != NULL && rpc_call_abort(c));
    rpc_call_release(c);
    return toy_engine_table(watched->toy.toy)->submit(self, r);
}

static void abort_early(struct rpc_house *h) {
    watched = h;
    early = *h->toy.serving->engine;
    early.submit = abort_and_submit;
    h->toy.serving->engine = &early;
}

// The scheduler does not know the request yet when the abort comes.
START_TEST(an_abort_just_before_the_request_is_queued_is_not_lost) {
    struct rpc_house h;
    Request m = named("mine-early");
    struct rpc_house_config config = {.model = MODEL,
                                      .script = {.awaits_abort = true},
                                      .queue_max = 64,
                                      .calls_max = 64,
                                      .prepare = abort_early};
    rpc_house_start(&h, &config);
    expect_aborted(rpc_house_ask(&h, &m, false));
    ck_assert_uint_eq(toy_engine_counts(h.toy.toy).aborted, 1);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(abort_refuses_what_is_no_list_of_ids) {
    static const char *const bad[] = {"", "a b", "caf\xc3\xa9"};
    struct rpc_house h;
    struct buf out;
    char text[ERR_TEXT_MAX];
    Moesaic__V1__AbortRequest m = MOESAIC__V1__ABORT_REQUEST__INIT;
    char *one[1];
    buf_init(&out, 0);
    house_start(&h, (struct toy_script){0});
    int code = rpc_house_call(&h, ABORT, &m.base, &out, text);
    ck_assert_int_eq(code, GRPC_STATUS_INVALID_ARGUMENT);
    m.request_ids = one;
    m.n_request_ids = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        one[0] = (char *)(uintptr_t)bad[i];
        code = rpc_house_call(&h, ABORT, &m.base, &out, text);
        ck_assert_msg(code == GRPC_STATUS_INVALID_ARGUMENT, "'%s': %d", bad[i], code);
        ck_assert_msg(strstr(text, "request_ids") != NULL, "%s", text);
    }
    buf_finish(&out);
    rpc_house_stop(&h);
}
END_TEST

// --- methods that answer at once

static const char *const infos[] = {"/moesaic.v1.Generate/GetModelInfo",
                                    "/moesaic.v1.Generate/GetServerInfo",
                                    "/moesaic.v1.Generate/GetLoad"};
static const Moesaic__V1__GetLoadRequest nothing = MOESAIC__V1__GET_LOAD_REQUEST__INIT;

START_TEST(infos_answer_an_empty_message_and_refuse_another) {
    struct rpc_house h;
    struct buf out;
    char text[ERR_TEXT_MAX];
    Moesaic__V1__Alternative other = MOESAIC__V1__ALTERNATIVE__INIT;
    other.token_id = 5;
    buf_init(&out, 0);
    house_start(&h, (struct toy_script){0});
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(rpc_house_call(&h, infos[i], &nothing.base, &out, text), GRPC_STATUS_OK);
        int code = rpc_house_call(&h, infos[i], &other.base, &out, text);
        ck_assert_int_eq(code, GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert_str_eq(text, "field 1 is not supported.");
    }
    buf_finish(&out);
    rpc_house_stop(&h);
}
END_TEST

typedef int answer_fn(struct rpc *r, const struct rpc_message *message, struct buf *out,
                      struct api_error *e);

// Fails each allocation in turn; the number of failures until it went through.
static int count_failures(struct rpc *r, answer_fn *answer, const struct rpc_message *message) {
    for (int n = 0; n < 100; n++) {
        struct api_error e = {0};
        struct buf out;
        buf_init(&out, 0);
        mem_fail_after(n + 1);
        int rc = answer(r, message, &out, &e);
        mem_fail_after(0);
        bool done = rc == 0 && !out.failed;
        ck_assert_msg(rc == 0 || e.status == 500, "allocation %d: %s", n, e.message);
        buf_finish(&out);
        if (done) return n;
    }
    return -1;
}

START_TEST(answers_survive_every_failed_allocation) {
    static const uint8_t one_id[] = {0x0a, 1, 'x'};
    static const struct rpc_message abort = {one_id, sizeof one_id, KEY_NONE};
    static const struct rpc_message nil = {one_id, 0, KEY_NONE};
    struct rpc_house h;
    struct rpc *r = mem_zalloc(sizeof *r);
    ck_assert_ptr_nonnull(r);
    house_start(&h, (struct toy_script){0});
    r->config.serving = h.toy.serving;
    rpc_names_init(&r->names);
    ck_assert_int_gt(count_failures(r, rpc_model_info, &nil), 0);
    ck_assert_int_gt(count_failures(r, rpc_server_info, &nil), 0);
    ck_assert_int_gt(count_failures(r, rpc_load, &nil), 0);
    ck_assert_int_gt(count_failures(r, rpc_abort, &abort), 0);
    rpc_names_finish(&r->names);
    mem_free(r);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(a_call_without_a_message_is_refused) {
    struct rpc_house h;
    struct buf out;
    char text[ERR_TEXT_MAX];
    buf_init(&out, 0);
    house_start(&h, (struct toy_script){0});
    struct rpc_client *c = rpc_client_open(h.port, infos[0], false);
    rpc_client_half_close(c);
    ck_assert(!rpc_client_read(c, &out));
    ck_assert_int_eq(rpc_client_status(c, text, sizeof text), GRPC_STATUS_INVALID_ARGUMENT);
    rpc_client_close(c);
    buf_finish(&out);
    rpc_house_stop(&h);
}
END_TEST

// --- refusals

START_TEST(what_will_pass_is_pushed_back_and_what_will_not_is_not) {
    struct rpc_house h;
    struct rpc_heard heard;
    Request wrong_model = empty;
    wrong_model.model = (char *)"other";
    house_start(&h, (struct toy_script){.not_ready = true});
    rpc_house_hear(&heard, rpc_house_ask(&h, NULL, false));
    ck_assert_int_eq(heard.code, GRPC_STATUS_UNAVAILABLE);
    ck_assert_str_eq(heard.pushback, "1000");
    rpc_heard_finish(&heard);
    rpc_house_stop(&h);
    house_start(&h, (struct toy_script){.submit_error = ERR_REQ_QUEUE_FULL});
    rpc_house_hear(&heard, rpc_house_ask(&h, NULL, false));
    ck_assert_int_eq(heard.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(heard.pushback, "1000");
    rpc_heard_finish(&heard);
    rpc_house_hear(&heard, rpc_house_ask(&h, &wrong_model, false));
    ck_assert_int_eq(heard.code, GRPC_STATUS_NOT_FOUND);
    ck_assert_str_eq(heard.pushback, "");
    rpc_heard_finish(&heard);
    rpc_house_stop(&h);
}
END_TEST

START_TEST(a_pushback_is_the_time_that_http_tells) {
    struct api_error e;
    struct rpc_end how;
    api_error_set(&e, 429, NULL, "full");
    e.retry_after_s = 7;
    rpc_end_of(&how, false, &e);
    ck_assert_uint_eq(how.pushback_ms, 7000);
    rpc_end_of(&how, true, &e); // something was done
    ck_assert_uint_eq(how.pushback_ms, 0);
    e.retry_after_s = 0;
    rpc_end_of(&how, false, &e);
    ck_assert_uint_eq(how.pushback_ms, 1000);
    api_error_set(&e, 404, NULL, "none");
    rpc_end_of(&how, false, &e);
    ck_assert_uint_eq(how.pushback_ms, 0);
}
END_TEST

static void forget_template(struct rpc_house *h) {
    h->toy.serving->chat_template = NULL;
}

START_TEST(what_the_server_cannot_do_now_is_a_failed_precondition) {
    struct rpc_house h;
    Moesaic__V1__ChatMessage hi = MOESAIC__V1__CHAT_MESSAGE__INIT;
    Moesaic__V1__ChatMessage *messages[] = {&hi};
    Request m = empty;
    hi.role = (char *)"user";
    hi.content = (char *)"hi";
    m.n_messages = 1;
    m.messages = messages;
    struct rpc_house_config config = {.model = MODEL,
                                      .script = {.submit_error = ERR_REQ_TOO_LARGE},
                                      .queue_max = 64,
                                      .calls_max = 64,
                                      .prepare = forget_template};
    rpc_house_start(&h, &config);
    rpc_house_expect(rpc_house_ask(&h, NULL, false), GRPC_STATUS_FAILED_PRECONDITION, "KV cache");
    rpc_house_expect(rpc_house_ask(&h, &m, false), GRPC_STATUS_FAILED_PRECONDITION, "template");
    rpc_house_stop(&h);
}
END_TEST

START_TEST(a_bad_word_that_has_no_token_is_refused_not_forgotten) {
    static char *words[] = {(char *)"hill", (char *)"  "};
    struct rpc_house h;
    Request m = empty;
    m.n_bad_words = 2;
    m.bad_words = words;
    house_start(&h, (struct toy_script){0});
    rpc_house_expect(rpc_house_ask(&h, &m, false), GRPC_STATUS_INVALID_ARGUMENT,
                     "'bad_words' have one without a token");
    rpc_house_stop(&h);
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_rpc_calls");
    TCase *t = tcase_create("calls");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, each_of_n_choices_is_told_whole_under_its_index);
    tcase_add_test(t, every_id_has_its_logprobs_the_stop_id_too);
    tcase_add_test(t, logprobs_come_without_alternatives_or_not_at_all_as_asked);
    tcase_add_test(t, the_stop_string_that_matched_is_named_once);
    tcase_add_test(t, choices_with_logprobs_do_not_outgrow_the_bound_of_a_slow_reader);
    tcase_add_test(t, an_id_in_flight_is_refused_and_free_again_after_the_end);
    tcase_add_test(t, abort_ends_the_running_and_the_waiting_and_counts_them);
    tcase_add_test(t, an_abort_at_any_moment_ends_its_call);
    tcase_add_test(t, an_abort_just_before_the_request_is_queued_is_not_lost);
    tcase_add_test(t, abort_refuses_what_is_no_list_of_ids);
    tcase_add_test(t, infos_answer_an_empty_message_and_refuse_another);
    tcase_add_test(t, answers_survive_every_failed_allocation);
    tcase_add_test(t, a_call_without_a_message_is_refused);
    tcase_add_test(t, a_pushback_is_the_time_that_http_tells);
    tcase_add_test(t, what_will_pass_is_pushed_back_and_what_will_not_is_not);
    tcase_add_test(t, what_the_server_cannot_do_now_is_a_failed_precondition);
    tcase_add_test(t, a_bad_word_that_has_no_token_is_refused_not_forgotten);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK); // gRPC does not survive a fork
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? 0 : 1;
}
