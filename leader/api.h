// api.h: the paths of the HTTP API: which handler answers what. Owns the servers (HTTP and gRPC),
// the render pool and the stream thread.
//
// Between http.c and render.c in a request's walk.
#ifndef MOESAIC_LEADER_API_H
#define MOESAIC_LEADER_API_H

#include "leader/http.h"
#include "leader/serving.h"

struct api;

struct api_config {
    struct serving *serving; // outlives the api
    const char *host;
    uint16_t port;                       // 0 picks one
    uint32_t connections_max, timeout_s; // of HTTP
    bool grpc;                           // serves gRPC on the same host, too
    uint16_t grpc_port;
    int64_t grpc_connection_age_ns; // 0: for ever
    struct tls_files *tls;          // of both; NULL: plain text
};

// The document of the paths and their bodies, of a program that serves no model yet (openapi.h).
void api_openapi(struct buf *out, const char *version);

int api_start(struct api **out, const struct api_config *config, uint16_t *port,
              struct err_text *e);
// The bound one; 0 without gRPC.
uint16_t api_grpc_port(const struct api *a);
// What was taken goes on; from now on requests get 503 and /ready says no, on ports that stay open
// until api_stop, so that whoever still asks hears it.
void api_drain(struct api *a);
// True when nothing that came before api_drain is in flight.
bool api_idle(struct api *a);
// Closes the ports and ends every call; their requests are aborted, or had their last event when
// the scheduler ended.
void api_stop(struct api *a);
// After the scheduler ended: waits for the last events and frees everything. The engine's functions
// are still called until then. NULL is fine.
void api_destroy(struct api *a);

#endif
