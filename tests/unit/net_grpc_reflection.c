// net_grpc_reflection.c: reflection as a stream: a question an answer, in order, and an end for
// clients that only ask.
#include "common/net/grpc_reflection.h"

#include <grpc/status.h>
#include <string.h>

#include "reflection.pb-c.h"
#include "tests/harness/rpc_client.h"
#include "tests/harness/suite.h"

#define PATH "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define SERVICES "\x3a\x01*"                           // list_services
#define GENERATE "\x22\x13moesaic.v1.Generate"         // file_containing_symbol
#define SYMBOL "\x22\x1dgrpc.reflection.v1alpha.Error" // file_containing_symbol, not there

struct house {
    struct env *env;
    struct grpc_server_host *host;
    struct grpc_reflection *reflection;
    uint16_t port;
};

static void house_start(struct house *h) {
    struct err_text e = {""};
    h->env = env_real_create();
    struct grpc_server_config config = {
        .env = h->env, .address = "127.0.0.1:0", .message_bytes_max = 1 << 20};
    ck_assert_int_eq(grpc_server_host_create(&h->host, &config, &e), 0);
    ck_assert_int_eq(grpc_reflection_create(&h->reflection, h->host, &e), 0);
    ck_assert_msg(grpc_server_host_start(h->host, &h->port, &e) == 0, "%s", e.text);
}

static void house_stop(struct house *h) {
    grpc_server_host_destroy(h->host);
    grpc_reflection_destroy(h->reflection);
    env_real_destroy(h->env);
}

// Reads to the end; how many answers there were.
static int count_answers(struct rpc_client *c) {
    struct buf message;
    int n = 0;
    buf_init(&message, 0);
    while (rpc_client_read(c, &message))
        n++;
    buf_finish(&message);
    return n;
}

START_TEST(each_question_has_an_answer_and_the_last_ends_the_call) {
    struct house h;
    struct buf message;
    char text[256];
    house_start(&h);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    buf_init(&message, 0);
    rpc_client_send(c, SERVICES, 3);
    ck_assert(rpc_client_read(c, &message));
    Grpc__Reflection__V1__ServerReflectionResponse *r =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, message.bytes,
                                                                 (const uint8_t *)message.data);
    ck_assert_uint_eq(r->list_services_response->n_service, 2); // v1 and v1alpha
    ck_assert_str_eq(r->list_services_response->service[0]->name,
                     "grpc.reflection.v1.ServerReflection");
    grpc__reflection__v1__server_reflection_response__free_unpacked(r, NULL);
    buf_finish(&message);
    for (int i = 0; i < 3; i++)
        rpc_client_send(c, SYMBOL, sizeof SYMBOL - 1);
    rpc_client_half_close(c);
    ck_assert_int_eq(count_answers(c), 3);
    ck_assert_int_eq(rpc_client_status(c, text, sizeof text), GRPC_STATUS_OK);
    rpc_client_close(c);
    house_stop(&h);
}
END_TEST

START_TEST(a_client_that_asks_without_reading_is_sent_away) {
    enum { ASKED = 10000 }; // gRPC itself takes some megabytes of answers
    struct house h;
    char text[256];
    house_start(&h);
    struct rpc_client *c = rpc_client_open(h.port, PATH, true);
    for (int i = 0; i < ASKED; i++)
        rpc_client_send(c, GENERATE, sizeof GENERATE - 1);
    ck_assert_int_lt(count_answers(c), ASKED);
    ck_assert_int_eq(rpc_client_status(c, text, sizeof text), GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(text, "too many answers wait to be read");
    rpc_client_close(c);
    house_stop(&h);
}
END_TEST

START_TEST(streams_are_refused_above_their_number) {
    struct rpc_client *open[GRPC_REFLECTION_STREAMS_MAX];
    struct house h;
    struct buf message;
    char text[256];
    house_start(&h);
    buf_init(&message, 0);
    for (int i = 0; i < GRPC_REFLECTION_STREAMS_MAX; i++) {
        open[i] = rpc_client_open(h.port, PATH, false);
        rpc_client_send(open[i], SERVICES, 3);
        ck_assert(rpc_client_read(open[i], &message));
    }
    struct rpc_client *above = rpc_client_open(h.port, PATH, false);
    ck_assert_int_eq(rpc_client_status(above, text, sizeof text), GRPC_STATUS_RESOURCE_EXHAUSTED);
    rpc_client_close(above);
    for (int i = 0; i < GRPC_REFLECTION_STREAMS_MAX; i++)
        rpc_client_close(open[i]);
    buf_finish(&message);
    house_stop(&h);
}
END_TEST

START_TEST(a_message_that_is_no_question_ends_the_call) {
    struct house h;
    char text[256];
    house_start(&h);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, "\x22\xff", 2);
    ck_assert_int_eq(count_answers(c), 0);
    ck_assert_int_eq(rpc_client_status(c, text, sizeof text), GRPC_STATUS_INVALID_ARGUMENT);
    rpc_client_close(c);
    house_stop(&h);
}
END_TEST

int main(void) {
    Suite *s = suite_create("net_grpc_reflection");
    TCase *t = tcase_create("reflection");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, each_question_has_an_answer_and_the_last_ends_the_call);
    tcase_add_test(t, a_client_that_asks_without_reading_is_sent_away);
    tcase_add_test(t, streams_are_refused_above_their_number);
    tcase_add_test(t, a_message_that_is_no_question_ends_the_call);
    suite_add_tcase(s, t);
    setenv("CK_FORK", "no", 1); // gRPC does not survive a fork
    return suite_run(s);
}
