// fabric_peers.h: several fabrics of one kind in one test process, each with its own env, waker
// and, when asked, thread.
#ifndef MOESAIC_TESTS_HARNESS_FABRIC_PEERS_H
#define MOESAIC_TESTS_HARNESS_FABRIC_PEERS_H

#include <pthread.h>

#include "common/net/fabric.h"
#include "common/net/fabric_mem.h"

#define PEERS_MAX 8

struct fabric_peers;

struct fabric_peer {
    struct fabric_peers *all;
    uint32_t index;
    struct env *env;
    struct waker *waker;
    struct fabric *fabric;
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes;
    pthread_t thread;
    void (*body)(struct fabric_peer *p);
    void *arg;
};

struct fabric_peers {
    enum fabric_kind kind;
    uint32_t n;
    uint64_t epoch, nonce;
    size_t message_bytes_max;
    struct fabric_mem_hub *hub;
    struct fabric_peer peers[PEERS_MAX];
};

// Opens n fabrics. transports is for UCX.
void peers_open(struct fabric_peers *all, enum fabric_kind kind, uint32_t n,
                const char *transports);
// Opens n in memory, whose hub behaves so.
void peers_open_mem(struct fabric_peers *all, uint32_t n, const struct fabric_mem_options *options);
void peers_close(struct fabric_peers *all);
void peers_begin(struct fabric_peers *all);
int peer_connect(struct fabric_peer *p); // with all->epoch and all->nonce
void peers_connect(struct fabric_peers *all);
void peers_end(struct fabric_peers *all);
// Runs body for every peer on a thread of its own and waits for all.
void peers_run(struct fabric_peers *all, void (*body)(struct fabric_peer *p));
// A deadline seconds from now.
int64_t peer_in(const struct fabric_peer *p, double seconds);

#endif
