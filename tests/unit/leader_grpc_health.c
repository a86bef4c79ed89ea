// leader_grpc_health.c: the health service tells the truth of the moment: to those who ask, and to
// those who watch as soon as it changes, whatever the change is.
#include "leader/grpc_health.h"

#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/keys.h"
#include "health.pb-c.h"
#include "tests/harness/rpc_client.h"
#include "tests/harness/suite.h"
#include "tests/harness/toy_house.h"

#define CHECK "/grpc.health.v1.Health/Check"
#define LIST "/grpc.health.v1.Health/List"
#define WATCH "/grpc.health.v1.Health/Watch"
#define UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN
#define SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING

struct house {
    struct toy_house toy;
    struct grpc_server_host *host;
    struct grpc_health *health;
    struct keys *keys;
    uint16_t port;
};

static void house_start(struct house *h) {
    struct err_text e = {""};
    struct toy_house_config toy = {SOURCE_ROOT "/models/seedling", {0}, 4, 1000};
    toy_house_start(&h->toy, &toy);
    ck_assert_int_eq(keys_create_one(&h->keys, "secret", &e), 0);
    struct grpc_server_config config = {
        .env = h->toy.env, .address = "127.0.0.1:0", .keys = h->keys, .message_bytes_max = 1 << 20};
    ck_assert_int_eq(grpc_server_host_create(&h->host, &config, &e), 0);
    ck_assert_int_eq(grpc_health_create(&h->health, h->host, h->toy.serving, &e), 0);
    ck_assert_msg(grpc_server_host_start(h->host, &h->port, &e) == 0, "%s", e.text);
}

static void house_stop(struct house *h) {
    grpc_server_host_destroy(h->host);
    ck_assert_uint_eq(grpc_health_watches(h->health), 0);
    grpc_health_destroy(h->health);
    toy_engine_stop(h->toy.toy);
    toy_house_stop(&h->toy);
    keys_destroy(h->keys);
}

static struct rpc_client *ask(struct house *h, const char *path, const char *service) {
    struct rpc_client *c = rpc_client_open(h->port, path, false);
    uint8_t packed[256];
    Grpc__Health__V1__HealthCheckRequest m = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    m.service = (char *)(uintptr_t)service;
    rpc_client_send(c, packed, grpc__health__v1__health_check_request__pack(&m, packed));
    rpc_client_half_close(c);
    return c;
}

// The state in the next message; -1 when none comes.
static int hear(struct rpc_client *c) {
    struct buf message;
    int status = -1;
    buf_init(&message, 0);
    if (rpc_client_read(c, &message)) {
        Grpc__Health__V1__HealthCheckResponse *m = grpc__health__v1__health_check_response__unpack(
            NULL, message.bytes, (const uint8_t *)message.data);
        ck_assert_ptr_nonnull(m);
        status = (int)m->status;
        grpc__health__v1__health_check_response__free_unpacked(m, NULL);
    }
    buf_finish(&message);
    return status;
}

static int end_of(struct rpc_client *c) {
    char text[256];
    int code = rpc_client_status(c, text, sizeof text);
    rpc_client_close(c);
    return code;
}

static int check_of(struct house *h, const char *service) {
    struct rpc_client *c = ask(h, CHECK, service);
    int status = hear(c);
    ck_assert_int_eq(end_of(c), status < 0 ? GRPC_STATUS_NOT_FOUND : GRPC_STATUS_OK);
    return status;
}

START_TEST(check_follows_the_group_the_step_and_the_drain) {
    struct house h;
    house_start(&h);
    ck_assert_int_eq(check_of(&h, ""), SERVING);
    ck_assert_int_eq(check_of(&h, "grpc.health.v1.Health"), SERVING);
    toy_engine_show(h.toy.toy, false, false);
    ck_assert_int_eq(check_of(&h, ""), NOT_SERVING);
    toy_engine_show(h.toy.toy, true, true); // a group, and a step that hangs
    ck_assert_int_eq(check_of(&h, ""), NOT_SERVING);
    toy_engine_show(h.toy.toy, true, false);
    ck_assert_int_eq(check_of(&h, ""), SERVING);
    h.toy.serving->draining = true;
    ck_assert_int_eq(check_of(&h, "grpc.health.v1.Health"), NOT_SERVING);
    house_stop(&h);
}
END_TEST

START_TEST(check_of_an_unknown_service_is_not_found) {
    struct house h;
    house_start(&h);
    ck_assert_int_eq(check_of(&h, "moesaic.v1.Nothing"), -1);
    ck_assert_int_eq(check_of(&h, "grpc.health.v1"), -1);
    house_stop(&h);
}
END_TEST

START_TEST(a_watch_hears_each_change) {
    struct house h;
    house_start(&h);
    struct rpc_client *c = ask(&h, WATCH, "");
    ck_assert_int_eq(hear(c), SERVING);
    for (int i = 0; i < 3; i++) {
        toy_engine_show(h.toy.toy, i != 0, i == 0 || i == 1);
        if (i != 1) ck_assert_int_eq(hear(c), i == 0 ? NOT_SERVING : SERVING);
    }
    h.toy.serving->draining = true;
    grpc_health_refresh(h.health);
    ck_assert_int_eq(hear(c), NOT_SERVING);
    ck_assert_uint_eq(grpc_health_watches(h.health), 1);
    rpc_client_close(c);
    house_stop(&h);
}
END_TEST

START_TEST(a_watch_of_an_unknown_service_stays_open) {
    struct house h;
    house_start(&h);
    struct rpc_client *c = ask(&h, WATCH, "moesaic.v1.Later");
    ck_assert_int_eq(hear(c), UNKNOWN);
    toy_engine_show(h.toy.toy, false, false); // no news for this one
    struct rpc_client *other = ask(&h, WATCH, "");
    ck_assert_int_eq(hear(other), NOT_SERVING);
    ck_assert_uint_eq(grpc_health_watches(h.health), 2);
    rpc_client_close(other);
    grpc_server_host_destroy(h.host);
    h.host = NULL;
    ck_assert_int_eq(hear(c), -1); // the end, not a message
    ck_assert_int_eq(end_of(c), GRPC_STATUS_UNAVAILABLE);
    house_stop(&h);
}
END_TEST

START_TEST(list_names_every_service) {
    struct house h;
    struct buf message;
    house_start(&h);
    struct rpc_client *c = ask(&h, LIST, "");
    buf_init(&message, 0);
    ck_assert(rpc_client_read(c, &message));
    Grpc__Health__V1__HealthListResponse *m = grpc__health__v1__health_list_response__unpack(
        NULL, message.bytes, (const uint8_t *)message.data);
    ck_assert_ptr_nonnull(m);
    ck_assert_uint_eq(m->n_statuses, 2);
    ck_assert_str_eq(m->statuses[0]->key, "");
    ck_assert_str_eq(m->statuses[1]->key, "grpc.health.v1.Health");
    ck_assert_int_eq(m->statuses[1]->value->status, SERVING);
    grpc__health__v1__health_list_response__free_unpacked(m, NULL);
    buf_finish(&message);
    ck_assert_int_eq(end_of(c), GRPC_STATUS_OK);
    house_stop(&h);
}
END_TEST

static int code_for(struct house *h, const char *path, const void *data, size_t bytes) {
    struct rpc_client *c = rpc_client_open(h->port, path, false);
    rpc_client_send(c, data, bytes);
    ck_assert_int_eq(hear(c), -1);
    return end_of(c);
}

START_TEST(nonsense_is_an_invalid_argument) {
    static char large[5000];
    struct house h;
    house_start(&h);
    ck_assert_int_eq(code_for(&h, CHECK, "\x0a\xff", 2), GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(code_for(&h, WATCH, "\x0a\xff", 2), GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_int_eq(code_for(&h, CHECK, large, sizeof large), GRPC_STATUS_INVALID_ARGUMENT);
    struct rpc_client *c = rpc_client_open(h.port, CHECK, false);
    rpc_client_half_close(c);
    ck_assert_int_eq(hear(c), -1);
    ck_assert_int_eq(end_of(c), GRPC_STATUS_INVALID_ARGUMENT);
    house_stop(&h);
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_grpc_health");
    TCase *t = tcase_create("health");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, check_follows_the_group_the_step_and_the_drain);
    tcase_add_test(t, check_of_an_unknown_service_is_not_found);
    tcase_add_test(t, a_watch_hears_each_change);
    tcase_add_test(t, a_watch_of_an_unknown_service_stays_open);
    tcase_add_test(t, list_names_every_service);
    tcase_add_test(t, nonsense_is_an_invalid_argument);
    suite_add_tcase(s, t);
    setenv("CK_FORK", "no", 1); // gRPC does not survive a fork
    return suite_run(s);
}
