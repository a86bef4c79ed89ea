// leader_rpc_tokens.c: Tokenize and Detokenize over gRPC: what they answer, clients that leave,
// bounds, and the way out.
#include <check.h>
#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/harness/rpc_house.h"
#include "tests/harness/suite.h"

#define MODEL SOURCE_ROOT "/models/seedling"
#define TOKENIZE "/moesaic.v1.Generate/Tokenize"
#define DETOKENIZE "/moesaic.v1.Generate/Detokenize"
#define TEXT "The capital of Kenya is Nairobi."

typedef Moesaic__V1__TokenizeRequest Ask;
static struct rpc_house house;
static struct buf out;
static char text[ERR_TEXT_MAX];

static void start(uint64_t bodies_bytes_max, uint32_t queue_max) {
    struct rpc_house_config config = {.model = MODEL,
                                      .queue_max = queue_max,
                                      .calls_max = 64,
                                      .bodies_bytes_max = bodies_bytes_max};
    rpc_house_start(&house, &config);
}

static void setup(void) {
    start(0, 64);
    buf_init(&out, 0);
}

static void teardown(void) {
    buf_finish(&out);
    rpc_house_stop(&house);
}

static Ask ask_of(const char *words) {
    Ask m = MOESAIC__V1__TOKENIZE_REQUEST__INIT;
    m.text = (char *)(uintptr_t)words;
    return m;
}

static int tokenize(const Ask *m) {
    return rpc_house_call(&house, TOKENIZE, &m->base, &out, text);
}

static Moesaic__V1__TokenizeResponse *answer(void) {
    return moesaic__v1__tokenize_response__unpack(NULL, out.bytes, (const uint8_t *)out.data);
}

START_TEST(ids_go_there_and_back) {
    Ask m = ask_of(TEXT);
    m.return_tokens = true;
    ck_assert_int_eq(tokenize(&m), GRPC_STATUS_OK);
    Moesaic__V1__TokenizeResponse *r = answer();
    ck_assert_uint_eq(r->n_token_ids, house.toy.answer.n);
    ck_assert_mem_eq(r->token_ids, house.toy.answer.ids, r->n_token_ids * sizeof *r->token_ids);
    ck_assert_uint_eq(r->n_tokens, r->n_token_ids);
    ck_assert_int_eq(memcmp(r->tokens[0].data, TEXT, r->tokens[0].len), 0);
    Moesaic__V1__DetokenizeRequest back = MOESAIC__V1__DETOKENIZE_REQUEST__INIT;
    back.n_token_ids = r->n_token_ids;
    back.token_ids = r->token_ids;
    ck_assert_int_eq(rpc_house_call(&house, DETOKENIZE, &back.base, &out, text), GRPC_STATUS_OK);
    Moesaic__V1__DetokenizeResponse *said =
        moesaic__v1__detokenize_response__unpack(NULL, out.bytes, (const uint8_t *)out.data);
    ck_assert_str_eq(said->text, TEXT);
    moesaic__v1__detokenize_response__free_unpacked(said, NULL);
    moesaic__v1__tokenize_response__free_unpacked(r, NULL);
}
END_TEST

// What protobuf-c reads ends there, so this looks at the bytes.
START_TEST(a_zero_byte_does_not_end_the_text) {
    Moesaic__V1__DetokenizeRequest m = MOESAIC__V1__DETOKENIZE_REQUEST__INIT;
    uint32_t zero = 0, ids[3];
    size_t bytes = 0;
    const char *of = "x";
    for (zero = 0; zero < tokenizer_vocab(house.toy.tokenizer); zero++) {
        of = tokenizer_bytes(house.toy.tokenizer, zero, &bytes);
        if (of != NULL && bytes == 1 && of[0] == '\0') break;
    }
    ck_assert(of != NULL && of[0] == '\0');
    ids[0] = ids[2] = house.toy.answer.ids[0];
    ids[1] = zero;
    m.n_token_ids = 3;
    m.token_ids = ids;
    ck_assert_int_eq(rpc_house_call(&house, DETOKENIZE, &m.base, &out, text), GRPC_STATUS_OK);
    ck_assert_ptr_nonnull(tokenizer_bytes(house.toy.tokenizer, ids[0], &bytes));
    size_t n = 2 * bytes + 1;
    ck_assert_uint_eq(out.bytes, 2 + n);
    ck_assert(out.data[0] == 0x0a && (size_t)out.data[1] == n);
    ck_assert(out.data[2 + bytes] == '\0' && out.data[3 + bytes] == out.data[2]);
}
END_TEST

static struct rpc_client *send_text(void) {
    Ask m = ask_of(TEXT);
    uint8_t packed[256];
    struct rpc_client *c = rpc_client_open(house.port, TOKENIZE, false);
    rpc_client_send(c, packed, moesaic__v1__tokenize_request__pack(&m, packed));
    return c;
}

// rpc_destroy checks that nothing of them is left.
START_TEST(clients_that_leave_at_once_leave_nothing) {
    for (int i = 0; i < 60; i++) {
        struct rpc_client *c = send_text();
        if (i % 3 == 0) rpc_client_cancel(c);
        if (i % 3 == 1) ck_assert(rpc_client_read(c, &out));
        rpc_client_close(c);
    }
}
END_TEST

START_TEST(a_call_without_a_request_is_told_so) {
    struct rpc_client *c = rpc_client_open(house.port, DETOKENIZE, false);
    rpc_client_half_close(c);
    ck_assert_int_eq(rpc_client_status(c, text, sizeof text), GRPC_STATUS_INVALID_ARGUMENT);
    rpc_client_close(c);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_and_may_come_again) {
    Ask m = ask_of(TEXT);
    teardown();
    start(20, 64);
    ck_assert_int_eq(tokenize(&m), GRPC_STATUS_RESOURCE_EXHAUSTED);
    m = ask_of("short");
    ck_assert_int_eq(tokenize(&m), GRPC_STATUS_OK);
    house.toy.serving->draining = true;
    ck_assert_int_eq(tokenize(&m), GRPC_STATUS_UNAVAILABLE);
}
END_TEST

START_TEST(a_call_too_many_is_pushed_back_like_others) {
    char pushback[256];
    teardown();
    struct rpc_house_config config = {.model = MODEL, .queue_max = 64, .calls_max = 0};
    rpc_house_start(&house, &config);
    struct rpc_client *c = send_text();
    ck_assert_int_eq(rpc_client_status(c, text, sizeof text), GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert(rpc_client_trailer(c, "grpc-retry-pushback-ms", pushback));
    ck_assert_str_eq(pushback, "1000");
    rpc_client_close(c);
}
END_TEST

START_TEST(strings_are_walked_before_they_are_read) {
    static const uint8_t zero[] = {0x0a, 3, 'a', 0, 'b'}, bytes[] = {0x1a, 2, 0xff, 'x'};
    static const struct {
        const uint8_t *data;
        size_t bytes;
        const char *words;
    } rows[] = {{zero, sizeof zero, "'text' must not contain a zero byte."},
                {bytes, sizeof bytes, "'model' must be UTF-8."}};
    for (int i = 0; i < 2; i++) {
        struct rpc_client *c = rpc_client_open(house.port, TOKENIZE, false);
        rpc_client_send(c, rows[i].data, rows[i].bytes);
        ck_assert_int_eq(rpc_client_status(c, text, sizeof text), GRPC_STATUS_INVALID_ARGUMENT);
        ck_assert_str_eq(text, rows[i].words);
        rpc_client_close(c);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("leader_rpc_tokens");
    TCase *t = tcase_create("tokens");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, ids_go_there_and_back);
    tcase_add_test(t, a_zero_byte_does_not_end_the_text);
    tcase_add_test(t, a_call_too_many_is_pushed_back_like_others);
    tcase_add_test(t, clients_that_leave_at_once_leave_nothing);
    tcase_add_test(t, a_call_without_a_request_is_told_so);
    tcase_add_test(t, what_does_not_fit_is_refused_and_may_come_again);
    tcase_add_test(t, strings_are_walked_before_they_are_read);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
