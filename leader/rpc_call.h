// rpc_call.h: inside of rpc: one call, shared by rpc.c (gRPC's thread) and rpc_call.c (the threads
// of render and stream).
#ifndef MOESAIC_LEADER_RPC_CALL_H
#define MOESAIC_LEADER_RPC_CALL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/metrics.h"
#include "common/net/grpc_server.h"
#include "leader/rpc.h"

#define RPC_CODES 17 // of gRPC statuses, 0 to 16

struct rpc {
    struct rpc_config config;
    struct grpc_server_host *host;
    _Atomic uint32_t n_calls, n_asked; // open now
    _Atomic uint64_t body_bytes;       // held now
    struct counter by_code[RPC_CODES]; // calls by how we ended them
    struct counter disconnects;        // calls that their clients ended first
};

// What the client is to hear next. It grows while the last message is on its way.
struct rpc_delta {
    struct buf text, ids; // ids: uint32_t
    uint32_t n_prompt, n_completion;
    uint64_t seed, digest;
    const char *finish; // static text; "" while it goes on
    bool fresh;         // there is something to say
};

struct rpc_call {
    _Atomic uint32_t refs; // gRPC's, the API side's
    struct rpc *rpc;
    struct grpc_server_call *grpc; // a reference
    char request_id[REQUEST_ID_BYTES_MAX + 1];
    int64_t arrived_ns;

    // gRPC's thread until render has the call, then whoever works on it.
    uint8_t *message; // owned
    size_t message_bytes;
    bool asked; // gRPC's thread

    pthread_mutex_t lock;
    bool gone;    // the client left, was cut, or the server stops
    bool sending; // gRPC has a message of ours
    bool ended;   // code and text stand, nothing more is said
    bool end_sent;
    int code; // a grpc_status_code
    char text[ERR_TEXT_MAX];
    struct rpc_delta delta;
    void (*on_gone)(void *context);
    void *gone_context;
};

struct rpc_call *rpc_call_create(struct rpc *r, struct grpc_server_call *grpc);
void rpc_call_release(struct rpc_call *c);
struct client rpc_call_client(struct rpc_call *c);

// Any thread: the status, after what waits.
void rpc_call_end(struct rpc_call *c, int code, const char *text);
void rpc_call_drop_message(struct rpc_call *c);

// gRPC's thread.
void rpc_call_sent(struct rpc_call *c);
void rpc_call_mark_gone(struct rpc_call *c);

#endif
