// net_grpc_server.c: what the server promises every method: the order of callbacks, one status, and
// an end for calls that do not ask or do not read.
#include "common/net/grpc_server.h"

#include <check.h>
#include <grpc/status.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/rpc_client.h"

#define PATH "/test.Service/Method"
#define MESSAGE_BYTES 40000 // one fits into the small window, two do not

// A method that sends n_answers messages, each when the one before was taken, and then ends.
struct method {
    int n_answers;
    bool end_at_once; // after the last was given to gRPC, not after it was taken
    bool push_back;
    struct grpc_server_call *call;
    atomic_int n_opened, n_messages, n_half_closed, n_sent, n_closed;
    atomic_bool lost;
};

static char payload[MESSAGE_BYTES];
static char heard[256]; // its user-agent

static void opened(void *context, struct grpc_server_call *call, void **state) {
    struct method *m = context;
    *state = m;
    m->call = call;
    m->n_opened++;
    grpc_server_call_metadata(call, "user-agent", heard, sizeof heard);
    ck_assert(!grpc_server_call_metadata(call, "x-none", heard + 1, 1));
    ck_assert(grpc_server_call_add_metadata(call, "x-request-id", "r-1"));
    ck_assert(!grpc_server_call_add_metadata(call, "X-Upper", "a"));
    ck_assert(!grpc_server_call_add_metadata(call, "x-line", "a\nb"));
}

static void answer(struct method *m) {
    if (m->n_sent < m->n_answers) grpc_server_call_send(m->call, payload, sizeof payload);
    int left = m->end_at_once ? 1 : 0;
    if (m->n_sent + left < m->n_answers) return;
    if (m->push_back)
        grpc_server_call_end_pushback(m->call, GRPC_STATUS_UNAVAILABLE, "come again", 1500);
    else
        grpc_server_call_end(m->call, GRPC_STATUS_OUT_OF_RANGE, "that is all");
}

static void message(void *context, void *state, const uint8_t *data, size_t bytes) {
    struct method *m = context;
    ck_assert(state == m && bytes == 5 && memcmp(data, "hello", 5) == 0);
    m->n_messages++;
    answer(m);
}

static void half_closed(void *context, void *state) {
    (void)state;
    ((struct method *)context)->n_half_closed++;
}

static void sent(void *context, void *state) {
    struct method *m = context;
    (void)state;
    m->n_sent++;
    answer(m);
}

static void closed(void *context, void *state, bool connection_lost) {
    struct method *m = context;
    (void)state;
    m->lost = connection_lost;
    m->n_closed++;
}

struct house {
    struct env *env;
    struct grpc_server_host *host;
    struct grpc_runtime_limits limits;
    int message_bytes_max; // 0: 100
    uint32_t method_bytes_max;
    uint16_t port;
};

static void house_start(struct house *h, struct method *m, int64_t first_ns, int64_t end_ns) {
    struct err_text e = {""};
    h->env = env_real_create();
    struct grpc_server_config config = {.env = h->env,
                                        .address = "127.0.0.1:0",
                                        .message_bytes_max =
                                            h->message_bytes_max != 0 ? h->message_bytes_max : 100,
                                        .keepalive_ms = 5000,
                                        .limits = h->limits};
    struct grpc_method method = {.path = PATH,
                                 .message_bytes_max = h->method_bytes_max,
                                 .first_ns = first_ns,
                                 .end_ns = end_ns,
                                 .context = m,
                                 .opened = opened,
                                 .message = message,
                                 .half_closed = half_closed,
                                 .sent = sent,
                                 .closed = closed};
    ck_assert_int_eq(grpc_server_host_create(&h->host, &config, &e), 0);
    grpc_server_host_register(h->host, &method);
    ck_assert_msg(grpc_server_host_start(h->host, &h->port, &e) == 0, "%s", e.text);
}

static void house_stop(struct house *h) {
    grpc_server_host_destroy(h->host);
    env_real_destroy(h->env);
}

static void await_closed(struct house *h, struct method *m) {
    int64_t until = env_now_ns(h->env) + 10 * NS_PER_S;
    struct waker *w;
    ck_assert_int_eq(waker_create(h->env, &w), 0);
    while (m->n_closed == 0 && env_now_ns(h->env) < until)
        waker_wait(w, env_now_ns(h->env) + NS_PER_MS);
    waker_destroy(w);
    ck_assert_int_eq(m->n_closed, 1);
}

static int status_of(struct rpc_client *c, char text[256]) {
    struct buf message;
    buf_init(&message, 0);
    while (rpc_client_read(c, &message)) {
    }
    buf_finish(&message);
    return rpc_client_status(c, text, 256);
}

START_TEST(each_message_taken_is_told_and_the_end_comes_last) {
    struct method m = {.n_answers = 50};
    struct house h = {0};
    char text[256];
    house_start(&h, &m, 0, 0);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, "hello", 5);
    rpc_client_half_close(c);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_OUT_OF_RANGE);
    ck_assert_str_eq(text, "that is all");
    rpc_client_close(c);
    house_stop(&h);
    ck_assert(m.n_opened == 1 && m.n_messages == 1 && m.n_half_closed == 1);
    ck_assert(m.n_sent == 50 && m.n_closed == 1 && !m.lost);
}
END_TEST

START_TEST(metadata_goes_out_with_the_first_message) {
    struct method m = {.n_answers = 2};
    struct house h = {0};
    char text[256];
    house_start(&h, &m, 0, 0);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, "hello", 5);
    ck_assert(rpc_client_header(c, "x-request-id", text));
    ck_assert_str_eq(text, "r-1");
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_OUT_OF_RANGE);
    ck_assert(!rpc_client_trailer(c, "x-request-id", text));
    ck_assert(!rpc_client_trailer(c, "grpc-retry-pushback-ms", text));
    rpc_client_close(c);
    house_stop(&h);
    ck_assert_msg(strstr(heard, "grpc-c/") != NULL, "%s", heard);
}
END_TEST

// Only then does a client's retry policy look at the pushback.
START_TEST(a_call_without_a_message_ends_with_trailers_alone) {
    struct method m = {.push_back = true};
    struct house h = {0};
    char text[256];
    house_start(&h, &m, 0, 0);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, "hello", 5);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_UNAVAILABLE);
    ck_assert(rpc_client_trailer(c, "grpc-retry-pushback-ms", text));
    ck_assert_str_eq(text, "1500");
    ck_assert(rpc_client_trailer(c, "x-request-id", text));
    ck_assert(!rpc_client_header(c, "x-request-id", text));
    rpc_client_close(c);
    house_stop(&h);
}
END_TEST

START_TEST(a_pushback_follows_the_messages) {
    struct method m = {.n_answers = 3, .push_back = true};
    struct house h = {0};
    char text[256];
    house_start(&h, &m, 0, 0);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, "hello", 5);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_UNAVAILABLE);
    ck_assert(rpc_client_trailer(c, "grpc-retry-pushback-ms", text));
    rpc_client_close(c);
    house_stop(&h);
}
END_TEST

START_TEST(a_call_that_asks_nothing_is_ended_after_its_time) {
    struct method m = {.n_answers = 1};
    struct house h = {0};
    char text[256];
    house_start(&h, &m, 300 * NS_PER_MS, 0);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_DEADLINE_EXCEEDED);
    ck_assert_str_eq(text, "no message came");
    rpc_client_close(c);
    house_stop(&h);
    ck_assert(m.n_messages == 0 && m.n_closed == 1);
}
END_TEST

START_TEST(a_call_that_does_not_read_its_end_is_cancelled_after_its_time) {
    struct method m = {.n_answers = 2, .end_at_once = true};
    struct house h = {0};
    char text[256];
    house_start(&h, &m, 0, 300 * NS_PER_MS);
    struct rpc_client *c = rpc_client_open(h.port, PATH, true);
    rpc_client_send(c, "hello", 5);
    await_closed(&h, &m); // a client learns of it behind the messages that it has
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_CANCELLED);
    ck_assert_str_eq(text, "it does not read its messages");
    rpc_client_close(c);
    house_stop(&h);
    ck_assert_int_eq(m.n_messages, 1);
}
END_TEST

START_TEST(a_message_over_the_limit_ends_the_call) {
    struct method m = {.n_answers = 1};
    struct house h = {0};
    char text[256];
    house_start(&h, &m, 0, 0);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, payload, 101);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_RESOURCE_EXHAUSTED);
    rpc_client_close(c);
    house_stop(&h);
    ck_assert(m.n_messages == 0 && m.n_closed == 1);
}
END_TEST

// Whoever may call a method without a key must not make the server work for more than it needs.
START_TEST(a_method_may_take_less_than_its_host) {
    struct method m = {.n_answers = 1};
    struct house h = {.message_bytes_max = 1000, .method_bytes_max = 5};
    char text[256];
    house_start(&h, &m, 0, 0);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, "hello!", 6);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_RESOURCE_EXHAUSTED);
    rpc_client_close(c);
    ck_assert_int_eq(m.n_messages, 0);
    c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, "hello", 5);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_OUT_OF_RANGE);
    rpc_client_close(c);
    house_stop(&h);
    ck_assert_int_eq(m.n_messages, 1);
}
END_TEST

// gRPC itself would take in 256 MiB before it compares that with any limit.
START_TEST(a_message_beyond_the_servers_memory_ends_the_call_while_it_comes) {
    struct method m = {.n_answers = 1};
    struct house h = {.limits = {.memory_bytes = 16 << 20}, .message_bytes_max = -1};
    char text[256];
    size_t bytes = 256u << 20;
    char *large = mem_zalloc(bytes);
    ck_assert_ptr_nonnull(large);
    house_start(&h, &m, 0, 0);
    struct rpc_client *c = rpc_client_open(h.port, PATH, false);
    rpc_client_send(c, large, bytes);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_RESOURCE_EXHAUSTED);
    rpc_client_close(c);
    mem_free(large);
    c = rpc_client_open(h.port, PATH, false); // others are served
    rpc_client_send(c, "hello", 5);
    ck_assert_int_eq(status_of(c, text), GRPC_STATUS_OUT_OF_RANGE);
    rpc_client_close(c);
    house_stop(&h);
    ck_assert_int_eq(m.n_messages, 1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("net_grpc_server");
    TCase *t = tcase_create("server");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, each_message_taken_is_told_and_the_end_comes_last);
    tcase_add_test(t, metadata_goes_out_with_the_first_message);
    tcase_add_test(t, a_call_without_a_message_ends_with_trailers_alone);
    tcase_add_test(t, a_pushback_follows_the_messages);
    tcase_add_test(t, a_call_that_asks_nothing_is_ended_after_its_time);
    tcase_add_test(t, a_call_that_does_not_read_its_end_is_cancelled_after_its_time);
    tcase_add_test(t, a_message_over_the_limit_ends_the_call);
    tcase_add_test(t, a_method_may_take_less_than_its_host);
    tcase_add_test(t, a_message_beyond_the_servers_memory_ends_the_call_while_it_comes);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK); // gRPC does not survive a fork
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? 0 : 1;
}
