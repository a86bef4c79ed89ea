// grpc_server_state.h: what the two halves of the gRPC server share: grpc_host.c makes, binds and
// closes it, grpc_server.c is its thread. Nobody else includes this.
#ifndef MOESAIC_COMMON_NET_GRPC_SERVER_STATE_H
#define MOESAIC_COMMON_NET_GRPC_SERVER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/log_gate.h"
#include "common/net/grpc_runtime.h"
#include "common/net/grpc_server.h"
#include "common/net/grpc_stream.h"
#include "common/net/grpc_tls.h"

#define SERVICE_BYTES_MAX 128
#define REQUESTS_WAITING 4 // calls that may arrive between two rounds of the loop

// A place for a call that has not come yet.
struct grpc_server_request {
    struct grpc_tag tag;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct grpc_server_host {
    struct env *env;
    char *address;
    const struct keys *keys;
    struct grpc_tls tls;
    int message_bytes_max, keepalive_ms, calls_a_connection;
    struct grpc_runtime_limits limits;
    grpc_server *server;
    grpc_completion_queue *queue;
    struct grpc_tag stopped_tag;
    struct grpc_method methods[GRPC_METHODS_MAX];
    char services[GRPC_METHODS_MAX][SERVICE_BYTES_MAX]; // each method's
    uint32_t n_calls[GRPC_METHODS_MAX];                 // open now, of each method
    size_t n_methods;
    uint16_t port;               // bound
    int (*looks)(void *context); // may be NULL
    void *looks_context;
    struct grpc_server_request requests[REQUESTS_WAITING];
    uint32_t n_requests; // outstanding
    pthread_t thread;
    bool started, stopped, cancelled_all;
    atomic_bool closing, draining;
    _Atomic int64_t pushback_ms; // what is said while draining
    int64_t closing_ns;
    struct log_gate refusals;
    uint64_t n_closed;     // connections, not told of yet
    int64_t log_closed_ns; // no sooner than this
    pthread_mutex_t lock;  // guards the list
    struct grpc_server_call *calls;
};

// The server's thread: takes calls until stopped_tag came and the last call has ended. It expects
// a started server.
void *grpc_server_loop(void *host);
// Before it: the places that wait for the first calls.
void grpc_server_await_calls(struct grpc_server_host *h);
// While it runs, from the thread that closes the server: every call is told that it ends.
void grpc_server_end_calls(struct grpc_server_host *h);

#endif
