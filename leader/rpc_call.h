// rpc_call.h: inside of rpc: one call of Generate, shared by rpc.c (gRPC's thread), rpc_answer.c
// (the threads of render and stream) and rpc_abort.c (who ends it by its name).
#ifndef MOESAIC_LEADER_RPC_CALL_H
#define MOESAIC_LEADER_RPC_CALL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/metrics.h"
#include "common/net/grpc_server.h"
#include "leader/rpc.h"
#include "leader/rpc_abort.h"
#include "leader/rpc_tokens.h"
#include "leader/rpc_unary.h"

#define RPC_CODES 17                      // of gRPC statuses, 0 to 16
#define RPC_REQUEST_ID_KEY "x-request-id" // metadata, both ways
// When to come again after a refusal that will pass and does not say it better.
#define RPC_PUSHBACK_MS 1000

struct rpc {
    struct rpc_config config;
    struct grpc_server_host *host;
    struct rpc_unary unary[RPC_UNARY_COUNT];
    struct rpc_tokens tokens[RPC_TOKENS_COUNT];
    struct rpc_names names; // of the calls that may be aborted
    struct grpc_health *health;
    struct grpc_reflection *reflection;
    _Atomic uint32_t n_calls, n_asked; // open now
    _Atomic uint64_t body_bytes;       // held now
    struct counter by_code[RPC_CODES]; // calls by how we ended them
    struct counter disconnects;        // calls that their clients ended first
};

// What the client is to hear next of one choice. It grows while the last message is on its way.
struct rpc_delta {
    struct buf text, ids; // ids: uint32_t
    struct buf logprobs;  // packed: for each id a GenerateResponse that holds nothing else
    struct buf stop_reason;
    uint32_t n_prompt, n_completion, n_cached;
    uint64_t digest;
    const char *finish; // static text; "" while it goes on
    bool fresh;         // there is something to say
};

struct rpc_call {
    struct rpc_call *next_name; // in rpc_names
    _Atomic uint32_t refs;      // gRPC's, the API side's
    struct rpc *rpc;
    struct grpc_server_call *grpc;             // a reference
    int32_t key;                               // of the API key it came with, or KEY_NONE
    char request_id[REQUEST_ID_BYTES_MAX + 1]; // the metadata's or "", final once parsed
    int64_t arrived_ns;

    // gRPC's thread until render has the call, then whoever works on it.
    uint8_t *message; // owned
    size_t message_bytes;
    bool asked; // gRPC's thread

    pthread_mutex_t lock;
    bool named;   // in rpc_names
    bool gone;    // the client left, was cut, or the server stops
    bool aborted; // by its name
    bool sending; // gRPC has a message of ours
    bool ended;   // how stands, nothing more is said
    bool end_sent;
    struct rpc_end {
        int code;                      // a grpc_status_code
        uint32_t pushback_ms;          // when to come again; 0: not said
        char text[ERR_TEXT_MAX + 100]; // a field's name before it
    } how;
    struct rpc_delta *deltas; // [n_deltas], owned; one a choice, made when the request is known
    uint32_t n_deltas, next_delta;
    size_t waiting_bytes; // in all of them
    uint64_t seed;
    void (*on_gone)(void *context);
    void *gone_context;
};

// What an error of the API is as a status; begun: something of the answer was sent.
void rpc_end_of(struct rpc_end *out, bool begun, const struct api_error *e);

struct rpc_call *rpc_call_create(struct rpc *r, struct grpc_server_call *grpc);
void rpc_call_hold(struct rpc_call *c);
void rpc_call_release(struct rpc_call *c);
struct client rpc_call_client(struct rpc_call *c); // rpc_answer.c

// Any thread: the status, after what waits.
void rpc_call_end(struct rpc_call *c, int code, const char *text);
void rpc_call_drop_message(struct rpc_call *c);
// False when the call is over, or was aborted before. Its stream ends with finish_reason "abort".
bool rpc_call_abort(struct rpc_call *c);

// gRPC's thread.
void rpc_call_sent(struct rpc_call *c);
void rpc_call_mark_gone(struct rpc_call *c);

// Under the lock.
int rpc_call_pump(struct rpc_call *c);
void rpc_call_finish(struct rpc_call *c, const struct rpc_end *how); // the first one counts
// Ends it at once; what waits is lost.
void rpc_call_cut(struct rpc_call *c, int code, const char *text);

#endif
