// net_nomem.c: the n-th allocation of a fabric's or channel's life fails, for every n: an error or
// a loss, never a crash or a leak.
//
// Runs each scenario until it ends well with the countdown still going. AddressSanitizer finds what
// is lost or used again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/channel.h"
#include "common/net/channel_mem.h"
#include "common/net/fabric.h"
#include "common/net/fabric_mem.h"

#define FAILURES_MAX 400

struct world {
    struct env *env;
    struct waker *wakers[2];
    struct fabric_mem_hub *fabric_hub;
    struct channel_mem_hub *channel_hub;
};

static void world_open(struct world *w) {
    w->env = env_real_create();
    w->fabric_hub = fabric_mem_hub_create(NULL);
    w->channel_hub = channel_mem_hub_create(NULL);
    check(w->env != NULL && w->fabric_hub != NULL && w->channel_hub != NULL);
    check(waker_create(w->env, &w->wakers[0]) == 0 && waker_create(w->env, &w->wakers[1]) == 0);
}

static void world_close(struct world *w) {
    fabric_mem_hub_destroy(w->fabric_hub);
    channel_mem_hub_destroy(w->channel_hub);
    waker_destroy(w->wakers[0]);
    waker_destroy(w->wakers[1]);
    env_real_destroy(w->env);
}

// --- two fabrics and one message

struct side {
    struct fabric *fabric;
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes;
};

static int connect_sides(struct side *sides, struct err_text *e) {
    const uint8_t *addresses[2] = {sides[0].address, sides[1].address};
    size_t bytes[2] = {sides[0].address_bytes, sides[1].address_bytes};
    for (uint32_t i = 0; i < 2; i++) {
        struct fabric_group group = {.epoch = 1,
                                     .nonce = 2,
                                     .self = i,
                                     .n_peers = 2,
                                     .addresses = addresses,
                                     .address_bytes = bytes};
        int rc = fabric_connect(sides[i].fabric, &group, e);
        if (rc != 0) return rc;
    }
    return 0;
}

static int pass_one(struct world *w, struct side *sides) {
    struct fabric_want want = {.peer = 0, .kind = FABRIC_TEST};
    struct fabric_msg m;
    int rc = fabric_send(
        sides[0].fabric, 1, fabric_tag(FABRIC_TEST, 0, 0),
        &(struct fabric_part){.head = "he", .head_bytes = 2, .data = "llo", .data_bytes = 3});
    int64_t limit = env_now_ns(w->env) + 2 * NS_PER_S;
    while (rc == 0) {
        fabric_flush(sides[0].fabric, 0);
        rc = fabric_recv(sides[1].fabric, &want, env_now_ns(w->env) + NS_PER_MS, &m);
        if (rc == 0) {
            check(m.bytes == 5 && memcmp(m.data, "hello", 5) == 0);
            fabric_release(sides[1].fabric, &m);
            return 0;
        }
        if (rc == ERR_PEER_TIMEOUT && env_now_ns(w->env) < limit) rc = 0;
    }
    return rc;
}

static int fabric_life(struct world *w, enum fabric_kind kind) {
    struct side sides[2] = {{0}};
    struct err_text e = {""};
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2; i++) {
        struct fabric_config config = {.env = w->env,
                                       .waker = w->wakers[i],
                                       .interface = kind == FABRIC_UCX ? "lo" : NULL,
                                       .transports = "tcp",
                                       .message_bytes_max = 1000,
                                       .hub = w->fabric_hub};
        rc = fabric_open(&sides[i].fabric, kind, &config, &e);
        if (rc == 0)
            rc = fabric_begin(sides[i].fabric, sides[i].address, &sides[i].address_bytes, &e);
    }
    if (rc == 0) rc = connect_sides(sides, &e);
    if (rc == 0) rc = pass_one(w, sides);
    if (rc == 0)
        rc = fabric_send(sides[0].fabric, 0, fabric_tag(FABRIC_TEST, 0, 0),
                         &(struct fabric_part){.head = "me", .head_bytes = 2});
    fabric_close(sides[0].fabric);
    fabric_close(sides[1].fabric);
    return rc;
}

static int life_mem(struct world *w) {
    return fabric_life(w, FABRIC_MEM);
}
static int life_ucx(struct world *w) {
    return fabric_life(w, FABRIC_UCX);
}

// --- two channels and one message each way

struct end {
    struct channel *channel;
    uint64_t peer;
    bool got_message;
};

// Says "hi" at an opening and takes whatever else comes.
static void serve(struct end *end) {
    struct channel_event ev;
    while (channel_next(end->channel, &ev) == 0) {
        if (ev.kind == CHANNEL_OPENED) channel_send(end->channel, ev.peer, "hi", 2);
        if (ev.kind == CHANNEL_MESSAGE) end->got_message = true;
        end->peer = ev.peer;
        channel_event_finish(&ev);
    }
}

// 0 once both have got a message.
static int talk(struct world *w, struct end *a, struct end *b) {
    int64_t limit = env_now_ns(w->env) + NS_PER_S;
    while (env_now_ns(w->env) < limit) {
        serve(a);
        serve(b);
        if (a->got_message && b->got_message) return 0;
        waker_wait(w->wakers[0], env_now_ns(w->env) + NS_PER_MS);
    }
    return ERR_PEER_TIMEOUT;
}

static int channel_life(struct world *w, bool grpc) {
    struct end server = {0}, client = {0};
    struct err_text e = {""};
    char address[32] = "127.0.0.1:0";
    uint16_t port = 0;
    struct channel_config config = {.env = w->env,
                                    .waker = w->wakers[0],
                                    .address = address,
                                    .token = "t",
                                    .hub = w->channel_hub};
    int rc = grpc ? channel_listen_grpc(&server.channel, &config, &port, &e)
                  : channel_listen_mem(&server.channel, &config, &e);
    if (rc == 0 && grpc) snprintf(address, sizeof address, "127.0.0.1:%u", port);
    config.waker = w->wakers[1];
    if (rc == 0)
        rc = grpc ? channel_dial_grpc(&client.channel, &config, &e)
                  : channel_dial_mem(&client.channel, &config, &e);
    if (rc == 0) rc = talk(w, &server, &client);
    if (rc == 0) channel_drop(server.channel, server.peer, false, "enough");
    channel_close(client.channel);
    channel_close(server.channel);
    return rc;
}

static int life_channel_mem(struct world *w) {
    return channel_life(w, false);
}
static int life_channel_grpc(struct world *w) {
    return channel_life(w, true);
}

// --- every n

static int run(const char *name, int (*life)(struct world *w)) {
    int n = 1, n_failed = 0, rc = 0;
    for (; n < FAILURES_MAX; n++) {
        struct world w;
        world_open(&w);
        mem_fail_after(n);
        rc = life(&w);
        void *probe[FAILURES_MAX];
        int left = 0;
        // Whether the countdown ran out shows when no later allocation fails.
        for (left = 0; left < FAILURES_MAX && (probe[left] = mem_alloc(1)) != NULL; left++) {
        }
        for (int i = 0; i < left; i++)
            mem_free(probe[i]);
        mem_fail_after(0);
        world_close(&w);
        n_failed += rc != 0;
        if (rc == 0 && left < FAILURES_MAX) break; // it never came to the n-th
    }
    fprintf(stderr, "%s: %d allocations, %d of their failures ended the life, last result %s\n",
            name, n - 1, n_failed, err_name(rc));
    return n < FAILURES_MAX && n_failed > 0 ? 0 : 1;
}

int main(void) {
    log_set_level(LOG_ERROR);
    int bad = run("memory fabric", life_mem);
    bad += run("UCX fabric", life_ucx);
    bad += run("memory channel", life_channel_mem);
    bad += run("gRPC channel", life_channel_grpc);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
