// net_channel.c: the channels keep one contract: every case runs over memory and over gRPC; deaths
// of real processes over gRPC only.
//
// For those the program starts itself again as a worker ("worker ADDRESS") or as a server ("server
// PORT").
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/net/channel_impl.h"
#include "common/net/channel_mem.h"
#include "tests/harness/suite.h"

enum { MEMORY, GRPC, KINDS };

// Both ends of a test: each has its own waker, as two processes would.
static struct env *env;
static struct channel_mem_hub *hub;
static struct waker *server_waker, *client_waker;
static struct channel *server, *client;
static char address[64];

static void open_env(void) {
    env = env_real_create();
    hub = channel_mem_hub_create(NULL);
    check(env != NULL && hub != NULL);
    check(waker_create(env, &server_waker) == 0 && waker_create(env, &client_waker) == 0);
    snprintf(address, sizeof address, "127.0.0.1:0");
}

static struct channel_config config_of(struct waker *waker, const char *token) {
    return (struct channel_config){
        .env = env, .waker = waker, .address = address, .token = token, .hub = hub};
}

static int listen_with(int kind, const char *token, struct err_text *e) {
    struct channel_config config = config_of(server_waker, token);
    uint16_t port = 0;
    int rc = kind == MEMORY ? channel_listen_mem(&server, &config, e)
                            : channel_listen_grpc(&server, &config, &port, e);
    if (rc == 0 && kind == GRPC) snprintf(address, sizeof address, "127.0.0.1:%u", port);
    return rc;
}

static void dial_with(int kind, const char *token) {
    struct channel_config config = config_of(client_waker, token);
    check((kind == MEMORY ? channel_dial_mem(&client, &config, NULL)
                          : channel_dial_grpc(&client, &config, NULL)) == 0);
}

static void open_pair(int kind) {
    struct err_text e = {""};
    open_env();
    int rc = listen_with(kind, NULL, &e);
    ck_assert_msg(rc == 0, "%s", e.text);
    dial_with(kind, NULL);
}

static void close_env(void) {
    channel_close(client);
    channel_close(server);
    client = server = NULL;
    waker_destroy(server_waker);
    waker_destroy(client_waker);
    channel_mem_hub_destroy(hub);
    env_real_destroy(env);
}

// The next event within some seconds; false: none came.
static bool next(struct channel *c, struct channel_event *ev, double seconds) {
    struct waker *w = c == server ? server_waker : client_waker;
    int64_t limit = env_now_ns(env) + (int64_t)(seconds * 1e9);
    while (channel_next(c, ev) == ERR_AGAIN) {
        if (!waker_wait(w, limit) && env_now_ns(env) >= limit) return false;
    }
    return true;
}

static struct channel_event expect(struct channel *c, enum channel_event_kind kind) {
    struct channel_event ev;
    ck_assert_msg(next(c, &ev, 20), "no event came");
    ck_assert_msg(ev.kind == kind, "event %d instead of %d: %s", ev.kind, kind, ev.text);
    return ev;
}

static void expect_text(struct channel *c, const char *text) {
    struct channel_event ev = expect(c, CHANNEL_MESSAGE);
    ck_assert_uint_eq(ev.bytes, strlen(text));
    ck_assert_mem_eq(ev.data, text, ev.bytes);
    channel_event_finish(&ev);
}

static int send_text(struct channel *c, uint64_t peer, const char *text) {
    return channel_send(c, peer, text, strlen(text));
}

START_TEST(messages_pass_in_order_both_ways) {
    open_pair(_i);
    uint64_t peer = expect(server, CHANNEL_OPENED).peer;
    ck_assert_uint_eq(expect(client, CHANNEL_OPENED).peer, 1);
    char text[32];
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "message %d", i);
        ck_assert_int_eq(send_text(client, 1, text), 0);
        ck_assert_int_eq(send_text(server, peer, text), 0);
    }
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "message %d", i);
        expect_text(server, text);
        expect_text(client, text);
    }
    close_env();
}
END_TEST

START_TEST(empty_and_largest_messages_arrive_and_larger_ones_are_refused) {
    open_pair(_i);
    uint64_t peer = expect(server, CHANNEL_OPENED).peer;
    expect(client, CHANNEL_OPENED);
    static uint8_t big[CONTROL_MESSAGE_BYTES_MAX + 1];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (uint8_t)(i * 31 + i / 255);
    ck_assert_int_eq(channel_send(client, 1, big, 0), 0);
    ck_assert_int_eq(channel_send(client, 1, big, CONTROL_MESSAGE_BYTES_MAX), 0);
    ck_assert_int_eq(channel_send(client, 1, big, sizeof big), ERR_REQ_TOO_LARGE);
    ck_assert_int_eq(channel_send(server, peer, big, CONTROL_MESSAGE_BYTES_MAX), 0);
    expect_text(server, "");
    for (int i = 0; i < 2; i++) {
        struct channel_event ev = expect(i == 0 ? server : client, CHANNEL_MESSAGE);
        ck_assert_uint_eq(ev.bytes, CONTROL_MESSAGE_BYTES_MAX);
        ck_assert_int_eq(memcmp(ev.data, big, ev.bytes), 0);
        channel_event_finish(&ev);
    }
    close_env();
}
END_TEST

START_TEST(a_dropped_worker_gets_what_was_sent_before_and_the_reason_and_comes_back) {
    open_pair(_i);
    uint64_t peer = expect(server, CHANNEL_OPENED).peer;
    expect(client, CHANNEL_OPENED);
    ck_assert_int_eq(send_text(client, 1, "never taken"), 0);
    ck_assert_int_eq(send_text(server, peer, "last words"), 0);
    channel_drop(server, peer, false, "build ids differ");
    ck_assert_int_eq(send_text(server, peer, "too late"), ERR_PEER_LOST);
    struct channel_event ev = expect(server, CHANNEL_CLOSED);
    ck_assert_uint_eq(ev.peer, peer);
    ck_assert_str_eq(ev.text, "build ids differ");
    expect_text(client, "last words");
    ck_assert_str_eq(expect(client, CHANNEL_CLOSED).text, "build ids differ");
    ck_assert_int_eq(send_text(client, 1, "x"), ERR_PEER_LOST);
    uint64_t again = expect(server, CHANNEL_OPENED).peer;
    ck_assert_uint_ne(again, peer);
    ck_assert_int_eq(send_text(client, 1, "x"),
                     ERR_PEER_LOST); // the owner has not taken the opening yet
    expect(client, CHANNEL_OPENED);
    ck_assert_int_eq(send_text(client, 1, "anew"), 0);
    expect_text(server, "anew");
    close_env();
}
END_TEST

START_TEST(a_worker_that_closes_is_seen_to_and_its_last_message_arrives) {
    open_pair(_i);
    uint64_t peer = expect(server, CHANNEL_OPENED).peer;
    expect(client, CHANNEL_OPENED);
    ck_assert_int_eq(send_text(client, 1, "leaving"), 0);
    channel_close(client);
    client = NULL;
    expect_text(server, "leaving");
    struct channel_event ev = expect(server, CHANNEL_CLOSED);
    ck_assert_uint_eq(ev.peer, peer);
    ck_assert_str_eq(ev.text, "the worker closed the stream");
    ck_assert_int_eq(send_text(server, peer, "x"), ERR_PEER_LOST);
    close_env();
}
END_TEST

START_TEST(a_worker_that_drops_its_stream_dials_again) {
    open_pair(_i);
    uint64_t peer = expect(server, CHANNEL_OPENED).peer;
    expect(client, CHANNEL_OPENED);
    channel_drop(client, 1, false, "I start over");
    ck_assert_str_eq(expect(client, CHANNEL_CLOSED).text, "I start over");
    ck_assert_uint_eq(expect(server, CHANNEL_CLOSED).peer, peer);
    expect(client, CHANNEL_OPENED);
    expect(server, CHANNEL_OPENED);
    close_env();
}
END_TEST

START_TEST(a_refused_worker_does_not_come_back_soon) {
    for (int by_client = 0; by_client < 2; by_client++) {
        open_pair(GRPC);
        struct channel_event ev;
        uint64_t peer = expect(server, CHANNEL_OPENED).peer;
        expect(client, CHANNEL_OPENED);
        if (by_client)
            channel_drop(client, 1, true, "other model");
        else
            channel_drop(server, peer, true, "other model");
        ck_assert_str_eq(expect(client, CHANNEL_CLOSED).text, "other model");
        expect(server, CHANNEL_CLOSED);
        ck_assert(!next(client, &ev, 2));
        close_env();
    }
}
END_TEST

START_TEST(a_server_that_comes_later_or_starts_again_is_found) {
    open_env();
    struct err_text e = {""};
    ck_assert_int_eq(listen_with(_i, NULL, &e), 0); // only to learn a free port
    channel_close(server);
    server = NULL;
    dial_with(_i, NULL);
    struct channel_event ev;
    ck_assert(!next(client, &ev, 0.3));
    for (int round = 0; round < 2; round++) {
        ck_assert_msg(listen_with(_i, NULL, &e) == 0, "%s", e.text);
        expect(client, CHANNEL_OPENED);
        expect(server, CHANNEL_OPENED);
        ck_assert_int_eq(send_text(client, 1, "hello"), 0);
        expect_text(server, "hello");
        channel_close(server);
        server = NULL;
        ck_assert_str_eq(expect(client, CHANNEL_CLOSED).text, "the leader closed the stream");
    }
    close_env();
}
END_TEST

START_TEST(a_wrong_token_opens_nothing_and_the_right_one_does) {
    open_env();
    struct err_text e = {""};
    struct channel_event ev;
    static const char *const wrong[] = {NULL, "secreT", "secret0", "", "Bearer-secret"};
    ck_assert_int_eq(listen_with(_i, "secret", &e), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dial_with(_i, wrong[i]);
        ck_assert(!next(server, &ev, 0.2));
        ck_assert_int_eq(channel_next(client, &ev), ERR_AGAIN);
        channel_close(client);
    }
    dial_with(_i, "secret");
    expect(client, CHANNEL_OPENED);
    expect(server, CHANNEL_OPENED);
    close_env();
}
END_TEST

START_TEST(a_worker_that_does_not_read_is_dropped) {
    open_pair(_i);
    uint64_t peer = expect(server, CHANNEL_OPENED).peer;
    static uint8_t big[100000];
    int rc = 0, n = 0;
    // The client's owner never takes anything; what its transport takes in is bounded as well.
    while (rc == 0 && n++ < 5000)
        rc = channel_send(server, peer, big, n < 100 ? sizeof big : 10);
    ck_assert_int_eq(rc, ERR_PEER_LOST);
    expect(server, CHANNEL_CLOSED);
    close_env();
}
END_TEST

static atomic_int n_peeked;
static void count_peek(void *context, const uint8_t *data, size_t bytes) {
    check(context == &n_peeked && bytes == 4 && memcmp(data, "peek", 4) == 0);
    atomic_fetch_add(&n_peeked, 1);
}

START_TEST(peek_sees_a_message_before_its_owner_does) {
    open_env();
    ck_assert_int_eq(listen_with(_i, NULL, NULL), 0);
    struct channel_config config = config_of(client_waker, NULL);
    config.peek = count_peek;
    config.peek_context = &n_peeked;
    atomic_store(&n_peeked, 0);
    ck_assert_int_eq(_i == MEMORY ? channel_dial_mem(&client, &config, NULL)
                                  : channel_dial_grpc(&client, &config, NULL),
                     0);
    uint64_t peer = expect(server, CHANNEL_OPENED).peer;
    expect(client, CHANNEL_OPENED);
    for (int i = 1; i <= 5; i++) {
        ck_assert_int_eq(send_text(server, peer, "peek"), 0);
        expect_text(client, "peek");
        ck_assert_int_eq(atomic_load(&n_peeked), i);
    }
    close_env();
}
END_TEST

START_TEST(an_address_in_use_is_refused_by_name) {
    open_env();
    struct err_text e = {""};
    ck_assert_int_eq(listen_with(_i, NULL, &e), 0);
    struct channel *first = server;
    ck_assert_int_eq(listen_with(_i, NULL, &e), ERR_FATAL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, address));
    ck_assert_ptr_nonnull(strcasestr(e.text, "in use"));
    server = first;
    close_env();
}
END_TEST

START_TEST(listening_beyond_loopback_needs_a_token) {
    open_env();
    struct err_text e = {""};
    uint16_t port;
    snprintf(address, sizeof address, "0.0.0.0:0");
    struct channel_config config = config_of(server_waker, NULL);
    ck_assert_int_eq(channel_listen_grpc(&server, &config, &port, &e), ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(e.text, "token"));
    config.token = "secret";
    ck_assert_int_eq(channel_listen_grpc(&server, &config, &port, &e), ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(e.text, "--control-insecure"));
    config.token_in_clear = true;
    ck_assert_int_eq(channel_listen_grpc(&server, &config, &port, &e), 0);
    ck_assert_uint_ne(port, 0);
    close_env();
}
END_TEST

// --- real processes

static int worker_main(const char *to) {
    open_env();
    snprintf(address, sizeof address, "%s", to);
    dial_with(GRPC, NULL);
    for (;;) {
        struct channel_event ev;
        if (!next(client, &ev, 60)) return 1;
        if (ev.kind == CHANNEL_OPENED) send_text(client, 1, "hello");
        channel_event_finish(&ev);
    }
}

static int server_main(const char *at) {
    open_env();
    snprintf(address, sizeof address, "%s", at);
    struct err_text e = {""};
    if (listen_with(GRPC, NULL, &e) != 0) fprintf(stderr, "server: %s\n", e.text);
    for (;;) {
        struct channel_event ev;
        if (!next(server, &ev, 60)) return 1;
        if (ev.kind == CHANNEL_OPENED) send_text(server, ev.peer, "welcome");
        channel_event_finish(&ev);
    }
}

static pid_t start(const char *role, const char *argument) {
    pid_t pid = fork();
    check(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "net_channel", role, argument, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static double seconds_until_closed(struct channel *c, const char **text) {
    static char kept[ERR_TEXT_MAX];
    int64_t from = env_now_ns(env);
    snprintf(kept, sizeof kept, "%s", expect(c, CHANNEL_CLOSED).text);
    *text = kept;
    return (double)(env_now_ns(env) - from) / 1e9;
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

START_TEST(a_killed_worker_is_noticed_at_once_and_a_stopped_one_within_3_s) {
    open_env();
    ck_assert_int_eq(listen_with(GRPC, NULL, NULL), 0);
    static const int signals[] = {SIGKILL, SIGSTOP};
    for (int i = 0; i < 2; i++) {
        pid_t pid = start("worker", address);
        const char *text;
        expect(server, CHANNEL_OPENED);
        expect_text(server, "hello");
        kill(pid, signals[i]);
        double seconds = seconds_until_closed(server, &text);
        fprintf(stderr, "signal %d noticed after %.3f s: %s\n", signals[i], seconds, text);
        ck_assert_double_lt(seconds, i == 0 ? 1.0 : 3.5);
        const char *why = i == 0 ? "the connection was lost" : "no heartbeat and no answer from it";
        ck_assert_msg(strncmp(text, why, strlen(why)) == 0, "%s", text);
        end(pid);
    }
    close_env();
}
END_TEST

START_TEST(a_killed_or_stopped_leader_is_noticed_and_found_again) {
    open_env();
    ck_assert_int_eq(listen_with(GRPC, NULL, NULL), 0); // only to learn a free port
    channel_close(server);
    server = NULL;
    dial_with(GRPC, NULL);
    static const int signals[] = {SIGKILL, SIGSTOP};
    for (int i = 0; i < 2; i++) {
        pid_t pid = start("server", address);
        const char *text;
        expect(client, CHANNEL_OPENED);
        expect_text(client, "welcome");
        kill(pid, signals[i]);
        double seconds = seconds_until_closed(client, &text);
        fprintf(stderr, "signal %d noticed after %.3f s: %s\n", signals[i], seconds, text);
        ck_assert_double_lt(seconds, i == 0 ? 1.0 : 3.5);
        end(pid);
    }
    close_env();
}
END_TEST

START_TEST(an_idle_stream_stays_open) {
    open_pair(GRPC);
    struct channel_event ev;
    expect(server, CHANNEL_OPENED);
    expect(client, CHANNEL_OPENED);
    ck_assert(!next(server, &ev, 5)); // pings too often for the other side would end it after 4 s
    ck_assert_int_eq(channel_next(client, &ev), ERR_AGAIN);
    close_env();
}
END_TEST

static void *send_many(void *arg) {
    uint64_t peer = *(uint64_t *)arg;
    for (int i = 0; i < 200; i++)
        check(send_text(server, peer, "thread") == 0);
    return NULL;
}

START_TEST(any_thread_may_send) {
    open_pair(_i);
    uint64_t peer = expect(server, CHANNEL_OPENED).peer;
    expect(client, CHANNEL_OPENED);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, send_many, &peer), 0);
    for (int i = 0; i < 800; i++)
        expect_text(client, "thread");
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    close_env();
}
END_TEST

// --- dialling, without a network

START_TEST(a_name_that_begins_like_loopback_is_not_loopback) {
    ck_assert(channel_is_local("127.0.0.1:1") && channel_is_local("127.1:1"));
    ck_assert(channel_is_local("localhost:1") && channel_is_local("[::1]:1"));
    ck_assert(channel_is_local("unix:/tmp/x"));
    ck_assert(!channel_is_local("127.example.com:1") && !channel_is_local("127.0.0.1.nip.io:1"));
    ck_assert(!channel_is_local("localhost.example.com:1") && !channel_is_local("10.0.0.1:1"));
}
END_TEST

START_TEST(only_a_host_and_a_port_can_be_dialled) {
    static const char *const good[] = {"leader:8500",
                                       "127.0.0.1:1",
                                       "[::1]:8500",
                                       "[fe80::1%eth0]:8500",
                                       "a-b.c_d.svc.cluster.local:65535",
                                       "unix:/tmp/x"};
    static const char *const bad[] = {"",
                                      "leader",
                                      ":8500",
                                      "foo:bar:baz",
                                      "::1:8500",
                                      "[::1]",
                                      "host:",
                                      "host:0",
                                      "host:65536",
                                      "host:1e3",
                                      "host:-1",
                                      "a b:8500",
                                      "http://h:80",
                                      "host:8500/",
                                      "unix:",
                                      "[]:8500",
                                      "h:00000000000000000008500"};
    struct err_text e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(channel_address_check(good[i], &e) == 0, "%s: %s", good[i], e.text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(channel_address_check(bad[i], &e) == ERR_FATAL_CONFIG, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(e.text, bad[i]));
    }
}
END_TEST

START_TEST(an_address_is_made_of_a_host_and_a_port) {
    static const char *const made[][2] = {{"127.0.0.1", "127.0.0.1:8500"},
                                          {"leader.example", "leader.example:8500"},
                                          {"::", "[::]:8500"},
                                          {"::1", "[::1]:8500"},
                                          {"[::1]", "[::1]:8500"}};
    char text[64];
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        channel_address_make(text, sizeof text, made[i][0], 8500);
        ck_assert_str_eq(text, made[i][1]);
    }
}
END_TEST

// The waits of n failed attempts, in milliseconds.
static void expect_waits(struct channel_backoff *b, int64_t *now_ns, const int64_t *waits_ms,
                         size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct channel_attempt a = {.now_ns = *now_ns};
        int64_t wait = channel_backoff_next(b, &a);
        ck_assert_int_eq(wait, waits_ms[i] * NS_PER_MS);
        *now_ns += wait;
    }
}

START_TEST(a_lost_leader_is_asked_often_and_an_unknown_one_ever_more_rarely) {
    struct channel_backoff b = {0};
    int64_t now = 1000 * NS_PER_S;
    expect_waits(&b, &now, (int64_t[]){200, 400, 800, 1600, 3200, 5000, 5000}, 7);
    struct channel_attempt lost = {
        .now_ns = now, .lived_ns = 60 * NS_PER_S, .opened = true, .refused = false};
    ck_assert_int_eq(channel_backoff_next(&b, &lost), 100 * NS_PER_MS);
    expect_waits(&b, &now, (int64_t[]){200, 400, 400, 400}, 4);
    now += CHANNEL_LOST_NS; // it does not come back
    expect_waits(&b, &now, (int64_t[]){800, 1600, 3200, 5000}, 4);
}
END_TEST

START_TEST(a_leader_that_accepts_only_to_close_is_no_leader_found) {
    struct channel_backoff b = {0};
    int64_t now = 1000 * NS_PER_S, wait = 0;
    for (int i = 0; i < 8; i++) {
        struct channel_attempt a = {.now_ns = now, .lived_ns = NS_PER_MS, .opened = true};
        wait = channel_backoff_next(&b, &a);
        now += wait;
    }
    ck_assert_int_eq(wait, CHANNEL_BACKOFF_MAX_NS);
    struct channel_attempt refused = {
        .now_ns = now, .lived_ns = 60 * NS_PER_S, .opened = true, .refused = true};
    ck_assert_int_eq(channel_backoff_next(&b, &refused), CHANNEL_BACKOFF_MAX_NS);
}
END_TEST

int main(int argc, char **argv) {
    if (argc == 3)
        return strcmp(argv[1], "worker") == 0 ? worker_main(argv[2]) : server_main(argv[2]);
    Suite *s = suite_create("channel");
    TCase *t = tcase_create("contract");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, messages_pass_in_order_both_ways, 0, KINDS);
    tcase_add_loop_test(t, empty_and_largest_messages_arrive_and_larger_ones_are_refused, 0, KINDS);
    tcase_add_loop_test(t, a_dropped_worker_gets_what_was_sent_before_and_the_reason_and_comes_back,
                        0, KINDS);
    tcase_add_loop_test(t, a_worker_that_closes_is_seen_to_and_its_last_message_arrives, 0, KINDS);
    tcase_add_loop_test(t, a_worker_that_drops_its_stream_dials_again, 0, KINDS);
    tcase_add_loop_test(t, a_server_that_comes_later_or_starts_again_is_found, 0, KINDS);
    tcase_add_loop_test(t, a_wrong_token_opens_nothing_and_the_right_one_does, 0, KINDS);
    tcase_add_loop_test(t, a_worker_that_does_not_read_is_dropped, 0, KINDS);
    tcase_add_loop_test(t, peek_sees_a_message_before_its_owner_does, 0, KINDS);
    tcase_add_loop_test(t, an_address_in_use_is_refused_by_name, 0, KINDS);
    tcase_add_loop_test(t, any_thread_may_send, 0, KINDS);
    tcase_add_test(t, a_refused_worker_does_not_come_back_soon);
    tcase_add_test(t, listening_beyond_loopback_needs_a_token);
    tcase_add_test(t, a_killed_worker_is_noticed_at_once_and_a_stopped_one_within_3_s);
    tcase_add_test(t, a_killed_or_stopped_leader_is_noticed_and_found_again);
    tcase_add_test(t, an_idle_stream_stays_open);
    tcase_add_test(t, a_name_that_begins_like_loopback_is_not_loopback);
    tcase_add_test(t, only_a_host_and_a_port_can_be_dialled);
    tcase_add_test(t, an_address_is_made_of_a_host_and_a_port);
    tcase_add_test(t, a_lost_leader_is_asked_often_and_an_unknown_one_ever_more_rarely);
    tcase_add_test(t, a_leader_that_accepts_only_to_close_is_no_leader_found);
    suite_add_tcase(s, t);
    return suite_run(s);
}
