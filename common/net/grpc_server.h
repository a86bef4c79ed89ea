// grpc_server.h: the process's gRPC server: one port, one completion-queue thread, and methods that
// modules register.
//
// A method is named by its path and served as a stream of raw messages, which covers every kind of
// call (a unary one is a stream of one message each way). Callbacks run on the server's thread and
// must not block; everything else may be called from any thread. Registered today: Cluster.Join
// (channel_grpc_server.c), Generate (leader/rpc.c).
#ifndef MOESAIC_COMMON_NET_GRPC_SERVER_H
#define MOESAIC_COMMON_NET_GRPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/base/err.h"
#include "common/net/grpc_runtime.h"
#include "common/net/keys.h"
#include "common/net/tls_files.h"

struct grpc_server_host;
struct grpc_server_call;

// The metadata key of an early header: with it a client knows that its call was accepted.
#define GRPC_ACCEPT_KEY "moesaic-accept"

struct grpc_method {
    const char *path;    // "/moesaic.control.v1.Cluster/Join"
    bool without_token;  // may be called without a key
    bool while_draining; // may still be called when grpc_server_host_drain has told others to go
    bool early_header; // the client is told at once that its call was accepted, before any message
    uint32_t message_bytes_max; // of one received, unpacked; 0: the host's
    int64_t first_ns;           // a call without a message for this long is ended; 0: it may wait
    uint32_t calls_max;         // at once, others are refused; 0: no limit
    int64_t end_ns;             // what an ending call gets to read what was sent; 0: a second
    void *context;
    // In this order: opened, message*, half_closed?, closed; sent may come between. *state is the
    // method's own, one a call.
    void (*opened)(void *context, struct grpc_server_call *call, void **state);
    void (*message)(void *context, void *state, const uint8_t *data, size_t bytes);
    void (*half_closed)(void *context, void *state); // the client has sent its last message
    void (*sent)(void *context,
                 void *state); // may be NULL: gRPC has taken one more message of those sent
    void (*closed)(void *context, void *state,
                   bool connection_lost); // the last callback; the call may be unreferenced now
};

struct grpc_server_config {
    struct env *env;
    const char *address;     // "host:port", port 0 picks one; "unix:path"
    const struct keys *keys; // who may call; NULL: everybody. Outlives the host, as does tls
    struct tls_files *tls;   // NULL: plain text. Beyond loopback keys or certificates are required
    int message_bytes_max;   // of one received; below 0: no limit but that of requests
    int calls_a_connection;  // at once, others wait at the client; 0: no limit
    int keepalive_ms;        // a client that is silent for twice this is lost; 0: a second
    struct grpc_runtime_limits limits;
};

int grpc_server_host_create(struct grpc_server_host **out, const struct grpc_server_config *config,
                            struct err_text *e);
#define GRPC_METHODS_MAX 32
// Before start. The method is copied, its path stays the caller's.
void grpc_server_host_register(struct grpc_server_host *h, const struct grpc_method *method);
// The full names of the services whose methods are registered, each once; the number of them. They
// live as long as the host.
size_t grpc_server_host_services(const struct grpc_server_host *h,
                                 const char *out[GRPC_METHODS_MAX]);
// Before start: looks is called on the server's thread between events, and says after how many
// milliseconds it wants to look again, at most.
void grpc_server_host_look(struct grpc_server_host *h, int (*looks)(void *context), void *context);
// *port: the bound one (0 for a unix socket). A port in use is an error that names it.
int grpc_server_host_start(struct grpc_server_host *h, uint16_t *port, struct err_text *e);
// From now on new calls end with UNAVAILABLE and the wish that clients come again after
// pushback_ms; what runs goes on, and so do methods that say so. Any thread.
void grpc_server_host_drain(struct grpc_server_host *h, int64_t pushback_ms);
// Ends every call with UNAVAILABLE, waits at most about a second, closes. Every call gets its
// closed callback. NULL is fine.
void grpc_server_host_destroy(struct grpc_server_host *h);

// Of the call's own metadata, as text with its end: the first value of a key (lower case), or false
// when there is none, it does not fit, or the call has left opened. Server's thread.
bool grpc_server_call_metadata(const struct grpc_server_call *call, const char *key, char *out,
                               size_t bytes);

// Who called, as gRPC writes addresses ("ipv4:127.0.0.1:50000").
void grpc_server_call_peer(const struct grpc_server_call *call, char out[GRPC_PEER_BYTES]);

// The number of the key that the call came with, or KEY_NONE. Any thread that has the call.
int32_t grpc_server_call_key(const struct grpc_server_call *call);

// Any thread that holds a reference; opened may take one, closed must have given it back or do it
// later.
void grpc_server_call_ref(struct grpc_server_call *call);
void grpc_server_call_unref(struct grpc_server_call *call);
// Copies; ERR_PEER_LOST when the call is over. 1,000 messages waiting cancel the call.
int grpc_server_call_send(struct grpc_server_call *call, const void *data, size_t bytes);
// Copies one entry of what goes out with the first message, or with the status of a call that ends
// without one. At most GRPC_STREAM_METADATA_MAX; false when gRPC cannot carry it (the key is lower
// case, the value printable ASCII), the first message is on its way, or the header was early.
bool grpc_server_call_add_metadata(struct grpc_server_call *call, const char *key,
                                   const char *value);
// Ends the call after what was sent; code is a grpc_status_code.
void grpc_server_call_end(struct grpc_server_call *call, int code, const char *text);
// The same, and tells the client's retry policy (gRFC A6) when to come again; below 0: not at all.
// Clients try again only what ended without a message.
void grpc_server_call_end_pushback(struct grpc_server_call *call, int code, const char *text,
                                   int64_t pushback_ms);
// Ends it at once; what waits is lost. code as above.
void grpc_server_call_cancel(struct grpc_server_call *call, int code, const char *text);

#endif
