// rpc.h: inference over gRPC: the service that proto/generate.proto describes.
//
// The gRPC twin of http.c at both ends of a request's walk: rpc_request.c turns its messages into
// requests for render.c, rpc_call.c hears the answer. Owns the server; every call's memory is
// bounded: one message, and STREAM_BUFFER_BYTES_MAX of answer that its client has not taken.
#ifndef MOESAIC_LEADER_RPC_H
#define MOESAIC_LEADER_RPC_H

#include "leader/render.h"
#include "leader/serving.h"

struct rpc;

struct rpc_config {
    struct serving *serving; // outlives the rpc, as render does up to rpc_stop
    struct render *render;
    const char *host;          // name or address; NULL or "" = every interface
    uint16_t port;             // 0 picks one
    int connection_age_ms;     // 0: connections stay; else they take no more calls after it
    struct tls_files *tls;     // NULL: plain text
    uint32_t calls_max;        // above what admission allows: a full server must still say so
    uint64_t bodies_bytes_max; // all requests that wait for the render pool
    int64_t idle_ns; // what a request may take to come, and an answer's rest to be read; 0: 75 s
};

int rpc_start(struct rpc **out, const struct rpc_config *config, uint16_t *port,
              struct err_text *e);
uint32_t rpc_n_calls(const struct rpc *r); // that have asked and are not over; any thread
void rpc_metrics(const struct rpc *r, struct buf *page); // any thread
// Once serving.draining is set: health says so at once, new calls get UNAVAILABLE and a pushback,
// what runs goes on. Any thread.
void rpc_drain(struct rpc *r);
// Ends every call with UNAVAILABLE (their requests are aborted) and waits for them; about a second
// at most.
void rpc_stop(struct rpc *r);
// After the release of every call, which the end of render and stream brings. NULL is fine.
void rpc_destroy(struct rpc *r);

#endif
