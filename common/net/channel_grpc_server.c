// channel_grpc_server.c: the leader's end of Cluster.Join: every stream a worker opens becomes a
// peer of the channel.
//
// Sits between grpc_server.c, whose thread calls back here, and the channel's inbox, which the
// owner drains.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/channel_impl.h"
#include "common/net/grpc_server.h"
#include "common/net/grpc_stream.h"

// Streams at once: every rank, those that are being refused, and room for a crowd that is no worker
// at all. A worker needs one on its connection.
#define STREAMS_MAX (RANKS_MAX + 1024)
#define STREAMS_A_CONNECTION 8
// A worker beats once a second.
#define SILENCE_MS 1500
#define JOIN_PATH "/moesaic.control.v1.Cluster/Join"

struct channel_grpc_server;

// A worker's stream. Made and freed on the server's thread; the owner finds it by its number.
struct join_peer {
    struct join_peer *next;
    struct channel_grpc_server *channel;
    struct grpc_server_call *call; // a reference
    uint64_t number;
    int64_t heard_ns; // its last message
    uint32_t waiting; // its messages in the inbox
    size_t waiting_bytes;
    bool dropped;
    char reason[ERR_TEXT_MAX]; // why the owner dropped it
};

struct channel_grpc_server {
    struct channel base;
    struct grpc_server_host *host; // owned, as the keys
    struct keys *keys;             // the token; NULL: none
    pthread_mutex_t peers_lock;    // guards the list and what is in it
    struct join_peer *peers;
    uint64_t last_number;
    size_t waiting_bytes; // of all, dropped ones included
};

static struct join_peer *find(struct channel_grpc_server *c, uint64_t number) {
    struct join_peer *p = c->peers;
    while (p != NULL && p->number != number)
        p = p->next;
    return p;
}

// --- on the server's thread

static void join_opened(void *context, struct grpc_server_call *call, void **state) {
    struct channel_grpc_server *c = context;
    struct join_peer *p = mem_zalloc(sizeof *p);
    char peer[GRPC_PEER_BYTES];
    grpc_server_call_peer(call, peer);
    struct channel_item *item = channel_item_make(CHANNEL_OPENED, c->last_number + 1, peer);
    *state = p;
    if (p == NULL || item == NULL) {
        mem_free(p);
        channel_item_free(item);
        *state = NULL;
        grpc_server_call_end(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "the leader has no memory left");
        return;
    }
    grpc_server_call_ref(call);
    p->channel = c;
    p->call = call;
    p->number = ++c->last_number;
    p->heard_ns = env_now_ns(c->base.config.env);
    pthread_mutex_lock(&c->peers_lock);
    p->next = c->peers;
    c->peers = p;
    pthread_mutex_unlock(&c->peers_lock);
    channel_push(&c->base, item);
}

// Whether one more message of this peer may wait.
static bool admit(struct channel_grpc_server *c, struct join_peer *p, size_t bytes) {
    pthread_mutex_lock(&c->peers_lock);
    bool ok = !p->dropped && p->waiting < CHANNEL_WAITING_MAX &&
              p->waiting_bytes + bytes <= CHANNEL_PEER_BYTES_MAX &&
              c->waiting_bytes + bytes <= CHANNEL_INBOX_BYTES_MAX;
    if (ok) {
        p->waiting++;
        p->waiting_bytes += bytes;
        c->waiting_bytes += bytes;
    }
    bool flooded = !ok && !p->dropped;
    if (flooded) snprintf(p->reason, sizeof p->reason, "it sent too many messages at once");
    pthread_mutex_unlock(&c->peers_lock);
    if (flooded) grpc_server_call_cancel(p->call, GRPC_STATUS_CANCELLED, p->reason);
    return ok;
}

static void admit_no_more(struct channel_grpc_server *c, struct join_peer *p, size_t bytes) {
    pthread_mutex_lock(&c->peers_lock);
    p->waiting--;
    p->waiting_bytes -= bytes;
    c->waiting_bytes -= bytes;
    pthread_mutex_unlock(&c->peers_lock);
    grpc_server_call_cancel(p->call, GRPC_STATUS_CANCELLED, "the leader has no memory left");
}

static void join_message(void *context, void *state, const uint8_t *data, size_t bytes) {
    struct channel_grpc_server *c = context;
    struct join_peer *p = state;
    if (p == NULL) return;
    p->heard_ns = env_now_ns(c->base.config.env);
    if (!admit(c, p, bytes)) return;
    struct channel_item *item = channel_item_make(CHANNEL_MESSAGE, p->number, NULL);
    if (item == NULL || channel_item_set(item, data, bytes) != 0) {
        channel_item_free(item);
        admit_no_more(c, p, bytes);
        return;
    }
    const struct channel_config *config = &c->base.config;
    if (config->peek != NULL) config->peek(config->peek_context, data, bytes);
    channel_push(&c->base, item);
}

static void join_half_closed(void *context, void *state) {
    (void)context;
    struct join_peer *p = state;
    if (p == NULL) return;
    grpc_server_call_end(p->call, GRPC_STATUS_OK, "goodbye");
}

static void unlink_peer(struct channel_grpc_server *c, struct join_peer *p) {
    pthread_mutex_lock(&c->peers_lock);
    struct join_peer **at = &c->peers;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    pthread_mutex_unlock(&c->peers_lock);
}

static void join_closed(void *context, void *state, bool connection_lost) {
    struct channel_grpc_server *c = context;
    struct join_peer *p = state;
    if (p == NULL) return;
    unlink_peer(c, p);
    // An end of messages looks the same when a process dies; only gRPC's verdict on the whole call
    // tells.
    const char *text = connection_lost ? "the connection was lost" : "the worker closed the stream";
    char silence[80];
    int64_t silent_ms = (env_now_ns(c->base.config.env) - p->heard_ns) / NS_PER_MS;
    if (connection_lost && silent_ms >= SILENCE_MS) {
        // A process that stands still answers no ping either, which ends its connection before its
        // heartbeats are missed.
        snprintf(silence, sizeof silence, "no heartbeat and no answer from it for %" PRId64 " ms",
                 silent_ms);
        text = silence;
    }
    if (p->reason[0] != '\0') text = p->reason;
    channel_push(&c->base, channel_item_make(CHANNEL_CLOSED, p->number, text));
    grpc_server_call_unref(p->call);
    mem_free(p);
}

// --- the channel's calls

static void server_taken(struct channel *base, const struct channel_item *item) {
    struct channel_grpc_server *c = (struct channel_grpc_server *)base;
    if (item->event.kind != CHANNEL_MESSAGE) return;
    pthread_mutex_lock(&c->peers_lock);
    struct join_peer *p = find(c, item->event.peer);
    c->waiting_bytes -= item->event.bytes;
    if (p != NULL && p->waiting > 0) {
        p->waiting--;
        p->waiting_bytes -= item->event.bytes;
    }
    pthread_mutex_unlock(&c->peers_lock);
}

static int server_send(struct channel *base, uint64_t peer, const void *data, size_t bytes) {
    struct channel_grpc_server *c = (struct channel_grpc_server *)base;
    pthread_mutex_lock(&c->peers_lock);
    struct join_peer *p = find(c, peer);
    int rc = p == NULL || p->dropped ? ERR_PEER_LOST : grpc_server_call_send(p->call, data, bytes);
    pthread_mutex_unlock(&c->peers_lock);
    return rc;
}

static void server_drop(struct channel *base, uint64_t peer, bool refused, const char *reason) {
    struct channel_grpc_server *c = (struct channel_grpc_server *)base;
    pthread_mutex_lock(&c->peers_lock);
    struct join_peer *p = find(c, peer);
    if (p != NULL && !p->dropped) {
        p->dropped = true;
        snprintf(p->reason, sizeof p->reason, "%s", reason);
        grpc_server_call_end(
            p->call, refused ? GRPC_STATUS_FAILED_PRECONDITION : GRPC_STATUS_UNAVAILABLE, reason);
    }
    pthread_mutex_unlock(&c->peers_lock);
    size_t forgotten = channel_forget(base, peer);
    pthread_mutex_lock(&c->peers_lock);
    c->waiting_bytes -= forgotten;
    pthread_mutex_unlock(&c->peers_lock);
}

static void server_close(struct channel *base) {
    struct channel_grpc_server *c = (struct channel_grpc_server *)base;
    grpc_server_host_destroy(c->host);
    keys_destroy(c->keys);
    check(c->peers == NULL);
    pthread_mutex_destroy(&c->peers_lock);
    channel_finish(base);
    mem_free(c);
}

static const struct channel_ops server_ops = {
    .taken = server_taken, .send = server_send, .drop = server_drop, .close = server_close};

static int start_host(struct channel_grpc_server *c, uint16_t *port, struct err_text *e) {
    int rc = channel_check_token(&c->base.config, e);
    if (rc == 0 && c->base.config.token != NULL)
        rc = keys_create_one(&c->keys, c->base.config.token, e);
    if (rc != 0) return rc;
    struct grpc_server_config config = {.env = c->base.config.env,
                                        .address = c->base.config.address,
                                        .keys = c->keys,
                                        .tls = c->base.config.tls,
                                        .message_bytes_max = CONTROL_MESSAGE_BYTES_MAX,
                                        .calls_a_connection = STREAMS_A_CONNECTION};
    struct grpc_method join = {.path = JOIN_PATH,
                               .calls_max = STREAMS_MAX,
                               .early_header = true,
                               .context = c,
                               .opened = join_opened,
                               .message = join_message,
                               .half_closed = join_half_closed,
                               .closed = join_closed};
    rc = grpc_server_host_create(&c->host, &config, e);
    if (rc != 0) return rc;
    grpc_server_host_register(c->host, &join);
    return grpc_server_host_start(c->host, port, e);
}

int channel_listen_grpc(struct channel **out, const struct channel_config *config, uint16_t *port,
                        struct err_text *e) {
    struct channel_grpc_server *c = mem_zalloc(sizeof *c);
    if (c == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for a channel");
    int rc = channel_init(&c->base, &server_ops, config, e);
    if (rc != 0) {
        mem_free(c);
        return rc;
    }
    pthread_mutex_init(&c->peers_lock, NULL);
    rc = start_host(c, port, e);
    if (rc != 0) {
        server_close(&c->base);
        return rc;
    }
    *out = &c->base;
    return 0;
}
