// channel.h: the control plane's transport: streams of small messages between the leader and each
// worker.
//
// Two implementations: gRPC (one bidirectional Cluster.Join stream a worker, proto/control.proto)
// and memory (tests, simulator). Whatever arrives becomes an event in an inbox that the owner
// thread drains; each new event wakes its waker.
#ifndef MOESAIC_COMMON_NET_CHANNEL_H
#define MOESAIC_COMMON_NET_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/base/err.h"
#include "common/net/tls_files.h"

// Version of proto/control.proto and proto/step.proto; both sides refuse another.
#define CONTROL_PROTOCOL 2

struct channel;
struct channel_mem_hub; // channel_mem.h

// Why a leader that ends in good order closes its workers' streams: nothing was lost.
#define CHANNEL_LEADER_STOPS "the leader stops"

enum channel_event_kind {
    CHANNEL_OPENED,  // server: a worker opened its stream, text is its address where it has one;
                     // client: the stream is up
    CHANNEL_MESSAGE, // data, bytes: one encoded JoinUp (at the leader) or JoinDown (at the worker)
    CHANNEL_CLOSED,  // the stream ended; text says why. No further event of this peer
};

struct channel_event {
    enum channel_event_kind kind;
    uint64_t peer; // unique for the life of the channel; a client's server is always 1, a new
                   // stream keeps it
    uint8_t *data; // owned by the event
    size_t bytes;
    char text[ERR_TEXT_MAX];
};

struct channel_config {
    struct env *env;
    struct waker *waker;         // the owner thread's
    const char *address;         // "host:port" to listen on or dial
    const char *token;           // bearer token, or NULL. Needed to listen beyond loopback, unless
                                 // tls asks workers for certificates
    bool token_in_clear;         // a token may leave this machine without tls
    struct tls_files *tls;       // gRPC only; NULL: plain text. Outlives the channel
    const char *tls_name;        // client: the name that the server's certificate must have; NULL:
                                 // the address's
    struct channel_mem_hub *hub; // memory only
    // Called on the channel's own thread for each arrived message before it enters the inbox (the
    // worker uses it to interrupt the fabric when an epoch closes). May be NULL; must not block.
    void (*peek)(void *context, const uint8_t *data, size_t bytes);
    // Likewise when the client's open stream has ended, before its CHANNEL_CLOSED enters the inbox:
    // an owner that sits in the fabric would not look there for long. May be NULL; must not block.
    void (*lost)(void *context);
    void *peek_context; // of both
};

// Server side: port 0 picks one; *port is the bound port. A port in use is an error that names it.
int channel_listen_grpc(struct channel **out, const struct channel_config *config, uint16_t *port,
                        struct err_text *e);
// Whether this can be an address to dial: a host (a name, IPv4, or IPv6 in brackets) and a port, or
// "unix:" and a path. Names are not resolved here.
int channel_address_check(const char *address, struct err_text *e);
// "host:port" of these two; an IPv6 address is put into brackets.
void channel_address_make(char *out, size_t bytes, const char *host, uint16_t port);
// Client side: dials for ever with backoff (0.2 s to 5 s; 0.1 s to 0.4 s in the first half minute
// after a stream was lost), resolves the name anew each time, and after a CHANNEL_CLOSED dials
// again.
int channel_dial_grpc(struct channel **out, const struct channel_config *config,
                      struct err_text *e);
int channel_listen_mem(struct channel **out, const struct channel_config *config,
                       struct err_text *e);
int channel_dial_mem(struct channel **out, const struct channel_config *config, struct err_text *e);

void channel_close(struct channel *c);

// Takes the next event: 0 or ERR_AGAIN. Owner thread only.
int channel_next(struct channel *c, struct channel_event *out);
void channel_event_finish(struct channel_event *ev);

// Any thread. Copies the message. ERR_PEER_LOST when the peer is gone; a peer that does not read
// (1,000 messages waiting) is dropped.
int channel_send(struct channel *c, uint64_t peer, const void *data, size_t bytes);
// Ends one peer's stream after what was sent before. A client sees the reason as its CHANNEL_CLOSED
// text; a server only sees that the worker closed. refused: it should not retry soon (a client
// backs off by 5 s). The caller takes no more messages of that peer, but still its CHANNEL_CLOSED.
void channel_drop(struct channel *c, uint64_t peer, bool refused, const char *reason);

#endif
