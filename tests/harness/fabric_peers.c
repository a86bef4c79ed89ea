// fabric_peers.c: see fabric_peers.h.
#include "tests/harness/fabric_peers.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

#define MESSAGE_BYTES_MAX ((size_t)1 << 20)

static void open_peer(struct fabric_peer *p, const char *transports) {
    struct err_text e = {""};
    p->env = env_real_create();
    check(p->env != NULL && waker_create(p->env, &p->waker) == 0);
    struct fabric_config config = {.env = p->env,
                                   .waker = p->waker,
                                   .interface = p->all->kind == FABRIC_UCX ? "lo" : NULL,
                                   .transports = transports,
                                   .message_bytes_max = p->all->message_bytes_max,
                                   .hub = p->all->hub};
    int rc = fabric_open(&p->fabric, p->all->kind, &config, &e);
    if (rc != 0) fprintf(stderr, "fabric_open: %s\n", e.text);
    check(rc == 0);
}

static void open_peers(struct fabric_peers *all, const char *transports) {
    all->epoch = 1;
    all->nonce = 77;
    all->message_bytes_max = MESSAGE_BYTES_MAX;
    check(all->hub != NULL && all->n <= PEERS_MAX);
    for (uint32_t i = 0; i < all->n; i++) {
        all->peers[i].all = all;
        all->peers[i].index = i;
        open_peer(&all->peers[i], transports);
    }
}

void peers_open(struct fabric_peers *all, enum fabric_kind kind, uint32_t n,
                const char *transports) {
    *all = (struct fabric_peers){.kind = kind, .n = n, .hub = fabric_mem_hub_create(NULL)};
    open_peers(all, transports);
}

void peers_open_mem(struct fabric_peers *all, uint32_t n,
                    const struct fabric_mem_options *options) {
    *all = (struct fabric_peers){.kind = FABRIC_MEM, .n = n, .hub = fabric_mem_hub_create(options)};
    open_peers(all, NULL);
}

void peers_close(struct fabric_peers *all) {
    for (uint32_t i = 0; i < all->n; i++) {
        struct fabric_peer *p = &all->peers[i];
        fabric_close(p->fabric);
        waker_destroy(p->waker);
        env_real_destroy(p->env);
    }
    fabric_mem_hub_destroy(all->hub);
}

void peers_begin(struct fabric_peers *all) {
    struct err_text e = {""};
    for (uint32_t i = 0; i < all->n; i++) {
        struct fabric_peer *p = &all->peers[i];
        int rc = fabric_begin(p->fabric, p->address, &p->address_bytes, &e);
        if (rc != 0) fprintf(stderr, "fabric_begin: %s\n", e.text);
        check(rc == 0 && p->address_bytes <= FABRIC_ADDRESS_MAX);
    }
}

int peer_connect(struct fabric_peer *p) {
    const struct fabric_peers *all = p->all;
    const uint8_t *addresses[PEERS_MAX];
    size_t bytes[PEERS_MAX];
    struct err_text e = {""};
    for (uint32_t i = 0; i < all->n; i++) {
        addresses[i] = all->peers[i].address;
        bytes[i] = all->peers[i].address_bytes;
    }
    struct fabric_group group = {.epoch = all->epoch,
                                 .nonce = all->nonce,
                                 .self = p->index,
                                 .n_peers = all->n,
                                 .addresses = addresses,
                                 .address_bytes = bytes};
    int rc = fabric_connect(p->fabric, &group, &e);
    if (rc != 0) fprintf(stderr, "fabric_connect: %s\n", e.text);
    return rc;
}

void peers_connect(struct fabric_peers *all) {
    for (uint32_t i = 0; i < all->n; i++)
        check(peer_connect(&all->peers[i]) == 0);
}

void peers_end(struct fabric_peers *all) {
    for (uint32_t i = 0; i < all->n; i++)
        fabric_end(all->peers[i].fabric);
}

static void *run_body(void *arg) {
    struct fabric_peer *p = arg;
    p->body(p);
    return NULL;
}

void peers_run(struct fabric_peers *all, void (*body)(struct fabric_peer *p)) {
    for (uint32_t i = 0; i < all->n; i++) {
        all->peers[i].body = body;
        check(pthread_create(&all->peers[i].thread, NULL, run_body, &all->peers[i]) == 0);
    }
    for (uint32_t i = 0; i < all->n; i++)
        pthread_join(all->peers[i].thread, NULL);
}

int64_t peer_in(const struct fabric_peer *p, double seconds) {
    return env_now_ns(p->env) + (int64_t)(seconds * 1e9);
}
