// leader_http.c: the HTTP server with handlers of its own: framing, limits, streams, clients that
// leave.
#include "leader/http.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "leader/http_head.h"
#include "tests/harness/http_client.h"

#define CONNECTIONS_MAX 64

struct site {
    struct env *env;
    struct http *http;
    uint16_t port;
    struct http_call *_Atomic held;
    _Atomic int gone;
    _Atomic bool stalls, may_go_on;
};

static void answer(struct http_call *c, const char *text) {
    struct http_reply r = {.status = 200, .content_type = "text/plain"};
    buf_init(&r.body, 0);
    buf_text(&r.body, text);
    http_call_reply(c, &r);
}

static void echo(void *context, struct http_call *c) {
    size_t bytes;
    const char *body = http_call_body(c, &bytes);
    (void)context;
    answer(c, body);
}

static void note_gone(void *context) {
    struct site *s = context;
    s->gone++;
}

// Waits for the test's thread.
static void hold(void *context, struct http_call *c) {
    struct site *s = context;
    http_call_hold(c);
    ck_assert(http_call_on_gone(c, note_gone, s));
    s->held = c;
}

static void stream(void *context, struct http_call *c) {
    http_call_stream(c);
    hold(context, c);
}

static void pause_ms(struct site *s, int ms);

// Keeps HTTP's own thread busy.
static void stall(void *context, struct http_call *c) {
    struct site *s = context;
    s->stalls = true;
    while (!s->may_go_on)
        pause_ms(s, 20);
    answer(c, "");
}

static const struct http_route routes[] = {
    {"/echo", HTTP_POST, echo, false, {0}},  {"/get", HTTP_GET, echo, false, {0}},
    {"/tree/", HTTP_GET, echo, false, {0}},  {"/hold", HTTP_POST, hold, false, {0}},
    {"/stall", HTTP_GET, stall, false, {0}}, {"/stream", HTTP_POST, stream, false, {0}}};

static void site_open(struct site *s, uint32_t patience_s) {
    struct err_text e;
    memset(s, 0, sizeof *s);
    s->env = env_real_create();
    struct http_config config = {.env = s->env,
                                 .host = "127.0.0.1",
                                 .routes = routes,
                                 .n_routes = sizeof routes / sizeof *routes,
                                 .context = s,
                                 .connections_max = CONNECTIONS_MAX,
                                 .call_bytes_max = 1000,
                                 .bodies_bytes_max = 1500,
                                 .idle_timeout_s = patience_s};
    ck_assert_msg(http_start(&s->http, &config, &s->port, &e) == 0, "%s", e.text);
}

static void site_start(struct site *s) {
    site_open(s, 5);
}

static void site_stop(struct site *s) {
    http_stop(s->http);
    if (s->held != NULL) http_call_release(s->held);
    http_destroy(s->http);
    env_real_destroy(s->env);
}

static void pause_ms(struct site *s, int ms) {
    struct waker *w;
    ck_assert_int_eq(waker_create(s->env, &w), 0);
    waker_wait(w, env_now_ns(s->env) + ms * NS_PER_MS);
    waker_destroy(w);
}

static struct http_call *await_held(struct site *s) {
    for (int i = 0; i < 1000 && s->held == NULL; i++)
        pause_ms(s, 10);
    ck_assert(s->held != NULL);
    return s->held;
}

static bool await_gone(struct site *s) {
    for (int i = 0; i < 1000 && s->gone == 0; i++)
        pause_ms(s, 5);
    return s->gone == 1;
}

static int status_of(struct site *s, const char *request) {
    struct buf out;
    int fd = http_client_connect(s->port);
    buf_init(&out, 0);
    http_client_send(fd, request, strlen(request));
    http_client_read(fd, &out, "\r\n\r\n");
    int status = http_client_status(&out);
    buf_finish(&out);
    close(fd);
    return status;
}

START_TEST(body_and_headers_go_round) {
    struct site s;
    struct buf out;
    site_start(&s);
    http_client_post(s.port, "/echo", "hello", &out);
    ck_assert_int_eq(http_client_status(&out), 200);
    char *body = http_client_body(&out);
    ck_assert_str_eq(body, "hello");
    ck_assert(strstr(out.data, "X-Request-Id: ") != NULL);
    free(body);
    buf_finish(&out);
    const char *own = "POST /echo HTTP/1.1\r\nHost: x\r\nX-Request-Id: abc-1\r\nConnection: close"
                      "\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    int fd = http_client_connect(s.port);
    buf_init(&out, 0);
    http_client_send(fd, own, strlen(own));
    http_client_read(fd, &out, NULL);
    ck_assert(strstr(out.data, "X-Request-Id: abc-1\r\n") != NULL);
    ck_assert(strstr(out.data, "\r\n\r\nabcde") != NULL);
    buf_finish(&out);
    close(fd);
    site_stop(&s);
}
END_TEST

START_TEST(unknown_paths_and_methods_are_refused_in_openai_shape) {
    struct site s;
    struct buf out;
    site_start(&s);
    http_client_get(s.port, "/nothing", &out);
    ck_assert_int_eq(http_client_status(&out), 404);
    ck_assert(strstr(out.data, "{\"error\":{\"message\":") != NULL);
    buf_finish(&out);
    http_client_get(s.port, "/echo", &out);
    ck_assert_int_eq(http_client_status(&out), 405);
    ck_assert(strstr(out.data, "Allow: POST\r\n") != NULL);
    buf_finish(&out);
    http_client_get(s.port, "/tree/", &out);
    ck_assert_int_eq(http_client_status(&out), 404);
    buf_finish(&out);
    http_client_get(s.port, "/tree/a/b", &out);
    ck_assert_int_eq(http_client_status(&out), 200);
    buf_finish(&out);
    ck_assert_int_eq(status_of(&s, "HEAD /get HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    site_stop(&s);
}
END_TEST

START_TEST(ambiguous_framing_is_refused) {
    struct site s;
    site_start(&s);
    ck_assert_int_eq(status_of(&s, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
                                   "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                     400);
    ck_assert_int_eq(status_of(&s, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
                                   "Content-Length: 6\r\n\r\nhello"),
                     400);
    ck_assert_int_eq(status_of(&s, "POST /echo HTTP/1.1\r\nHost: x\r\n"
                                   "Transfer-Encoding: gzip\r\n\r\nhello"),
                     400);
    ck_assert_int_eq(status_of(&s, "POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), 400);
    site_stop(&s);
}
END_TEST

START_TEST(bodies_over_the_limit_get_413_announced_or_not) {
    struct site s;
    site_start(&s);
    ck_assert_int_eq(
        status_of(&s, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n"), 413);
    ck_assert_int_eq(status_of(&s, "POST /echo HTTP/1.1\r\nHost: x\r\n"
                                   "Content-Length: 99999999999999999999999\r\n\r\n"),
                     413);
    char request[2048] =
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4b0\r\n";
    size_t n = strlen(request);
    memset(request + n, 'x', 1200);
    memcpy(request + n + 1200, "\r\n0\r\n\r\n", 8);
    ck_assert_int_eq(status_of(&s, request), 413);
    site_stop(&s);
}
END_TEST

START_TEST(held_bodies_are_bounded_together) {
    struct site s;
    struct buf out;
    char body[901];
    memset(body, 'x', 900);
    body[900] = '\0';
    site_start(&s);
    char request[1100];
    snprintf(request, sizeof request,
             "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n%s", body);
    int fd = http_client_connect(s.port);
    http_client_send(fd, request, strlen(request));
    await_held(&s);
    http_client_post(s.port, "/echo", body, &out);
    ck_assert_int_eq(http_client_status(&out), 503);
    buf_finish(&out);
    http_call_drop_body(s.held);
    http_client_post(s.port, "/echo", body, &out);
    ck_assert_int_eq(http_client_status(&out), 200);
    buf_finish(&out);
    close(fd);
    site_stop(&s);
}
END_TEST

#define HOLD "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
#define STREAM "POST /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

START_TEST(a_client_that_leaves_while_it_waits_is_noticed) {
    struct site s;
    site_start(&s);
    int fd = http_client_connect(s.port);
    http_client_send(fd, HOLD, strlen(HOLD));
    struct http_call *c = await_held(&s);
    pause_ms(&s, 20);
    ck_assert_int_eq(s.gone, 0);
    close(fd);
    ck_assert(await_gone(&s));
    ck_assert(http_call_gone(c));
    answer(c, "too late");
    site_stop(&s);
}
END_TEST

START_TEST(a_client_that_leaves_a_silent_stream_is_noticed) {
    struct site s;
    struct buf out;
    site_start(&s);
    int fd = http_client_connect(s.port);
    buf_init(&out, 0);
    http_client_send(fd, STREAM, strlen(STREAM));
    struct http_call *c = await_held(&s);
    ck_assert_int_eq(http_call_write(c, "data: 1\n\n", 9), 0);
    ck_assert(http_client_read(fd, &out, "data: 1\n\n"));
    buf_finish(&out);
    close(fd);
    ck_assert(await_gone(&s));
    ck_assert_int_eq(http_call_write(c, "x", 1), ERR_REQ_ABORTED);
    site_stop(&s);
}
END_TEST

START_TEST(a_stream_arrives_in_order_and_the_connection_is_kept) {
    struct site s;
    struct buf out;
    site_start(&s);
    int fd = http_client_connect(s.port);
    buf_init(&out, 0);
    http_client_send(fd, STREAM, strlen(STREAM));
    struct http_call *c = await_held(&s);
    struct buf want;
    buf_init(&want, 0);
    for (int i = 0; i < 500; i++) {
        char event[32];
        snprintf(event, sizeof event, "data: %d\n\n", i);
        buf_text(&want, event);
        ck_assert_int_eq(http_call_write(c, event, strlen(event)), 0);
    }
    http_call_on_gone(c, NULL, NULL);
    http_call_end(c);
    ck_assert(http_client_read(fd, &out, "\r\n0\r\n\r\n"));
    char *body = http_client_body(&out);
    buf_add(&want, "", 1);
    ck_assert_str_eq(body, want.data);
    free(body);
    buf_finish(&want);
    buf_finish(&out);
    buf_init(&out, 0);
    const char *again = "GET /get HTTP/1.1\r\nHost: x\r\n\r\n";
    http_client_send(fd, again, strlen(again));
    ck_assert(http_client_read(fd, &out, "\r\n\r\n"));
    ck_assert_int_eq(http_client_status(&out), 200);
    buf_finish(&out);
    close(fd);
    ck_assert_int_eq(s.gone, 0);
    site_stop(&s);
}
END_TEST

START_TEST(a_reader_that_does_not_read_is_cut) {
    struct site s;
    site_start(&s);
    int fd = http_client_connect(s.port);
    int small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    http_client_send(fd, STREAM, strlen(STREAM));
    struct http_call *c = await_held(&s);
    static char block[65536];
    memset(block, 'x', sizeof block);
    int rc = 0;
    for (int i = 0; i < 4096 && rc == 0; i++)
        rc = http_call_write(c, block, sizeof block);
    ck_assert_int_eq(rc, ERR_REQ_TOO_LARGE);
    ck_assert(await_gone(&s));
    close(fd);
    site_stop(&s);
}
END_TEST

START_TEST(one_large_event_is_taken_where_nothing_waits) {
    enum { BYTES = 2 * STREAM_BUFFER_BYTES_MAX };
    static char event[BYTES];
    struct site s;
    struct buf out;
    site_start(&s);
    int fd = http_client_connect(s.port);
    buf_init(&out, 0);
    http_client_send(fd, STREAM, strlen(STREAM));
    struct http_call *c = await_held(&s);
    memset(event, 'x', sizeof event);
    ck_assert_int_eq(http_call_write(c, event, sizeof event), 0);
    http_call_on_gone(c, NULL, NULL);
    http_call_end(c);
    ck_assert(http_client_read(fd, &out, "\r\n0\r\n\r\n"));
    char *body = http_client_body(&out);
    ck_assert_uint_eq(strlen(body), BYTES);
    free(body);
    buf_finish(&out);
    close(fd);
    site_stop(&s);
}
END_TEST

START_TEST(a_large_event_behind_others_that_wait_cuts_the_stream) {
    static char first[16 * STREAM_BUFFER_BYTES_MAX]; // more than sockets take
    struct site s;
    site_start(&s);
    int fd = http_client_connect(s.port);
    http_client_send(fd, STREAM, strlen(STREAM));
    struct http_call *c = await_held(&s);
    ck_assert_int_eq(http_call_write(c, first, sizeof first), 0);
    ck_assert_int_eq(http_call_write(c, first, sizeof first), ERR_REQ_TOO_LARGE);
    ck_assert(await_gone(&s));
    close(fd);
    site_stop(&s);
}
END_TEST

static int descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

// MHD reads the beginning and, as its polling is edge-triggered, does not see that the end came
// with it.
START_TEST(parts_of_a_request_that_end_at_once_leave_nothing) {
    struct site s;
    struct http_counters count;
    site_start(&s);
    int before = descriptors();
    static const char *const parts[] = {
        "POST /echo HTTP/1.1\r\nHo",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"};
    for (int i = 0; i < 40; i++) {
        int fd = http_client_connect(s.port);
        http_client_send(fd, parts[i % 2], strlen(parts[i % 2]));
        close(fd);
    }
    for (int i = 0; i < 200 && (i == 0 || count.n_calls != 0 || descriptors() > before); i++) {
        pause_ms(&s, 10); // less than the server's idle timeout in all
        http_count(s.http, &count);
    }
    ck_assert_uint_eq(count.n_calls, 0);
    ck_assert_int_le(descriptors(), before);
    site_stop(&s);
}
END_TEST

static double cpu_ms(void) {
    struct rusage use;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &use), 0);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
}

// The socket stays open until HTTP's thread has time for it, with its end as an event.
START_TEST(a_client_that_left_costs_no_processor_time_until_it_is_closed) {
    struct site s;
    site_start(&s);
    int idle = http_client_connect(s.port), busy = http_client_connect(s.port);
    ck_assert_int_eq(status_of(&s, "GET /get HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    const char *request = "GET /stall HTTP/1.1\r\nHost: x\r\n\r\n";
    http_client_send(busy, request, strlen(request));
    for (int i = 0; i < 1000 && !s.stalls; i++)
        pause_ms(&s, 10);
    ck_assert(s.stalls);
    close(idle);
    double before = cpu_ms();
    pause_ms(&s, 600);
    double used = cpu_ms() - before;
    s.may_go_on = true;
    close(busy);
    site_stop(&s);
    ck_assert_msg(used < 60, "%.0f ms of 600", used);
}
END_TEST

START_TEST(stopping_ends_waiting_and_streaming_calls) {
    struct site s;
    struct buf out;
    site_start(&s);
    int fd = http_client_connect(s.port);
    http_client_send(fd, STREAM, strlen(STREAM));
    await_held(&s);
    int half = http_client_connect(s.port); // never sends its body
    const char *part = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab";
    http_client_send(half, part, strlen(part));
    pause_ms(&s, 20);
    http_stop(s.http);
    ck_assert_int_eq(s.gone, 1);
    buf_init(&out, 0);
    ck_assert(http_client_read(fd, &out, NULL)); // closed, without the last chunk
    ck_assert(strstr(out.data, "\r\n0\r\n\r\n") == NULL);
    buf_finish(&out);
    close(fd);
    close(half);
    http_call_release(s.held);
    http_destroy(s.http);
    env_real_destroy(s.env);
}
END_TEST

START_TEST(a_port_in_use_is_named) {
    struct site s;
    struct err_text e;
    struct http *other;
    uint16_t port;
    site_start(&s);
    struct http_config config = {.env = s.env, .host = "127.0.0.1", .port = s.port};
    ck_assert_int_eq(http_start(&other, &config, &port, &e), ERR_FATAL_IO);
    ck_assert(strstr(e.text, "127.0.0.1") != NULL);
    ck_assert(http_host_is_loopback("127.0.0.1") && http_host_is_loopback("localhost"));
    ck_assert(!http_host_is_loopback("0.0.0.0") && !http_host_is_loopback(NULL));
    site_stop(&s);
}
END_TEST

static bool ended(int fd) {
    char c;
    return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

// Each byte would begin MHD's own timeout anew.
START_TEST(a_request_that_trickles_in_is_ended) {
    static const char *const begins[] = {
        "GET /get HTTP/1.1\r\nX: ", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n",
        "POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n"};
    for (int k = 0; k < 3; k++) {
        struct site s;
        struct http_counters count = {0};
        site_open(&s, 1);
        int fd = http_client_connect(s.port);
        http_client_send(fd, begins[k], strlen(begins[k]));
        for (int i = 0; i < 900 && count.late == 0; i++) {
            send(fd, "x", 1, MSG_NOSIGNAL);
            pause_ms(&s, 50);
            http_count(s.http, &count);
        }
        ck_assert_uint_eq(count.late, 1);
        close(fd);
        site_stop(&s);
    }
}
END_TEST

START_TEST(a_call_that_waits_for_its_answer_is_not_late) {
    struct site s;
    site_open(&s, 1);
    int fd = http_client_connect(s.port);
    http_client_send(fd, HOLD, strlen(HOLD));
    struct http_call *c = await_held(&s);
    pause_ms(&s, 2500);
    ck_assert_int_eq(s.gone, 0);
    struct buf out;
    buf_init(&out, 0);
    http_call_on_gone(c, NULL, NULL);
    answer(c, "at last");
    ck_assert(http_client_read(fd, &out, "at last"));
    buf_finish(&out);
    close(fd);
    site_stop(&s);
}
END_TEST

START_TEST(the_oldest_idle_connection_makes_room) {
    struct site s;
    struct http_counters count = {0};
    int fds[2 * CONNECTIONS_MAX];
    site_open(&s, 60);
    int busy = http_client_connect(s.port);
    http_client_send(busy, HOLD, strlen(HOLD));
    struct http_call *c = await_held(&s);
    for (int i = 0; i < 2 * CONNECTIONS_MAX; i++)
        fds[i] = http_client_connect(s.port);
    ck_assert_int_eq(status_of(&s, "GET /get HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    http_count(s.http, &count);
    ck_assert_uint_ge(count.evicted, CONNECTIONS_MAX);
    ck_assert(ended(fds[0]) && !ended(fds[2 * CONNECTIONS_MAX - 1]));
    ck_assert_int_eq(s.gone, 0); // it works for that one
    http_call_on_gone(c, NULL, NULL);
    answer(c, "");
    for (int i = 0; i < 2 * CONNECTIONS_MAX; i++)
        close(fds[i]);
    close(busy);
    site_stop(&s);
}
END_TEST

START_TEST(escapes_are_decoded_and_none_hides_a_control_character) {
    static const char *const good[][2] = {
        {"/a", "/a"}, {"/a%2Fb%2f", "/a/b/"}, {"/%25%41", "/%A"}, {"/%c3%a4", "/\xc3\xa4"}};
    static const char *const bad[] = {"/%", "/%4", "/%4g", "/%g4", "/%00", "/%0a", "/%7F", "/%%41"};
    char path[32];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(path, sizeof path, "%s", good[i][0]);
        ck_assert(http_head_decode(path));
        ck_assert_str_eq(path, good[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(path, sizeof path, "%s", bad[i]);
        ck_assert_msg(!http_head_decode(path), "%s", bad[i]);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_http");
    TCase *t = tcase_create("http");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_request_that_trickles_in_is_ended);
    tcase_add_test(t, a_call_that_waits_for_its_answer_is_not_late);
    tcase_add_test(t, the_oldest_idle_connection_makes_room);
    tcase_add_test(t, escapes_are_decoded_and_none_hides_a_control_character);
    tcase_add_test(t, body_and_headers_go_round);
    tcase_add_test(t, unknown_paths_and_methods_are_refused_in_openai_shape);
    tcase_add_test(t, ambiguous_framing_is_refused);
    tcase_add_test(t, bodies_over_the_limit_get_413_announced_or_not);
    tcase_add_test(t, held_bodies_are_bounded_together);
    tcase_add_test(t, a_client_that_leaves_while_it_waits_is_noticed);
    tcase_add_test(t, a_client_that_leaves_a_silent_stream_is_noticed);
    tcase_add_test(t, a_stream_arrives_in_order_and_the_connection_is_kept);
    tcase_add_test(t, a_reader_that_does_not_read_is_cut);
    tcase_add_test(t, one_large_event_is_taken_where_nothing_waits);
    tcase_add_test(t, a_large_event_behind_others_that_wait_cuts_the_stream);
    tcase_add_test(t, parts_of_a_request_that_end_at_once_leave_nothing);
    tcase_add_test(t, a_client_that_left_costs_no_processor_time_until_it_is_closed);
    tcase_add_test(t, stopping_ends_waiting_and_streaming_calls);
    tcase_add_test(t, a_port_in_use_is_named);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK); // sanitizers see leaks at the end of this process
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
