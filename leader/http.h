// http.h: bytes to calls: the HTTP server (libmicrohttpd), its limits, and the watch for clients
// that leave.
//
// The first file of a request's walk; next is api.c, whose routes get each complete call. One MHD
// thread runs every handler, so a handler never blocks: it answers at once (probes, metrics) or
// holds the call and hands it to another thread. A call that waits or streams is watched: when its
// client leaves, its on_gone runs at once, also while the request is still queued. A client that
// closes only its sending half counts as gone.
#ifndef MOESAIC_LEADER_HTTP_H
#define MOESAIC_LEADER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/env.h"
#include "common/base/err.h"
#include "common/net/tls_files.h"

struct http;
struct http_call;

enum http_method { HTTP_GET, HTTP_POST };

// What a reader of the API's document learns of a route (openapi.c); bodies are names of schemas.
struct http_route_text {
    const char *id, *about;
    const char *takes, *gives; // bodies of request and answer; NULL: none, plain text
    const char *streams;       // of each event when it is streamed; NULL: never is
    const char *type;          // of the answer, where it is no JSON
    bool is_probe;             // 503 looks like 200
};

struct http_route {
    const char *path; // exact, or the beginning when it ends with '/'
    enum http_method method;
    void (*handle)(void *context, struct http_call *call); // MHD thread
    bool guarded;                                          // asks http_config.refusal first
    struct http_route_text text;
};

struct http_config {
    struct env *env;
    const char *host; // name or address; NULL or "" = every interface
    uint16_t port;    // 0 picks one
    const struct http_route *routes;
    uint32_t n_routes;
    void *context; // of the routes and of refusal
    // NULL when the caller may use a guarded route, else why not (static text): it then gets 401
    // and its body is thrown away.
    const char *(*refusal)(void *context, struct http_call *call);
    struct tls_files *tls;     // NULL: plain text
    uint32_t connections_max;  // above what admission allows: a full server must still answer 429
    uint64_t call_bytes_max;   // a body
    uint64_t bodies_bytes_max; // all bodies that are held
    // A connection may idle, a request may take to arrive, and a complete answer may wait for its
    // reader; large ones get a second more for each 64 KiB.
    uint32_t idle_timeout_s;
};

struct http_counters {
    uint64_t requests,
        disconnects;       // disconnects: clients that left before their answer was complete
    uint64_t by_status[6]; // answers by hundreds
    uint64_t late,         // connections ended for taking too long
        evicted;           // and to make room for others
    uint32_t n_calls;      // in flight now
};

// True when every address of the name is of this machine alone.
// Why a host cannot be listened on, as far as its name says; NULL: it resolves, or is every
// address.
const char *http_host_error(const char *host);
bool http_host_is_loopback(const char *host);

int http_start(struct http **out, const struct http_config *config, uint16_t *port,
               struct err_text *e);
// The last calls: what comes from now on is still answered (by routes that refuse), and each
// connection closes after its answer.
void http_drain(struct http *h);
// True when every call that came before http_drain is over.
bool http_drained(struct http *h);
// Ends every call (their on_gone run) and waits for them; afterwards no handler runs and calls are
// only shells.
void http_stop(struct http *h);
void http_destroy(struct http *h); // after http_stop and the release of every call; NULL is fine
void http_count(struct http *h, struct http_counters *out); // any thread

// --- calls; any thread unless said otherwise
void http_call_hold(struct http_call *c);
void http_call_release(struct http_call *c);

// Fixed when the handler runs.
const char *http_call_path(const struct http_call *c); // percent-decoded behind the route
const char *
http_call_request_id(const struct http_call *c); // X-Request-Id of the client, or one drawn here
// The body's name of the request, which counts when no header gave one. Only by the thread that
// works on the call.
void http_call_name(struct http_call *c, const char *request_id);
int64_t http_call_arrived_ns(const struct http_call *c);
// The number of the caller's key, or KEY_NONE. Set by refusal.
int32_t http_call_key(const struct http_call *c);
void http_call_set_key(struct http_call *c, int32_t key);
// A header of the request, or NULL. Only inside the handler.
const char *http_call_header(const struct http_call *c, const char *name);
// Who asks, as "address:port". Only inside the handler and refusal.
#define HTTP_PEER_BYTES 80
void http_call_peer(const struct http_call *c, char out[HTTP_PEER_BYTES]);
// The body, zero-terminated, owned by the call until http_call_drop_body.
const char *http_call_body(const struct http_call *c, size_t *bytes);
void http_call_drop_body(struct http_call *c); // only by the thread that works on the call

// The answer will hold that many bytes, which count like those of bodies until the call is over.
// False: too many are held. Only by the thread that works on the call.
bool http_call_charge(struct http_call *c, uint64_t bytes);

struct http_reply {
    int status;
    const char *content_type; // static text
    struct buf body;          // taken over
    uint32_t retry_after_s;   // 0 = no such header
    const char *allow;        // static text or NULL
    bool close;
};
// The complete answer. Once a call, instead of http_call_stream.
void http_call_reply(struct http_call *c, struct http_reply *reply);

// Starts a 200 answer of server-sent events, whose bytes follow.
void http_call_stream(struct http_call *c);
// ERR_REQ_ABORTED when the client left; ERR_REQ_TOO_LARGE when it reads so slowly that
// STREAM_BUFFER_BYTES_MAX wait for it: the connection is then cut. One event may be larger when
// nothing waits before it.
int http_call_write(struct http_call *c, const void *data, size_t bytes);
void http_call_end(struct http_call *c);
// Ends a stream of which something was lost: its client hears no end.
void http_call_cut(struct http_call *c);

bool http_call_gone(struct http_call *c);
// gone runs once, on any thread, with the call locked: it must not block or use the call. NULL
// takes it back: when this returns it does not run and will not. False (and nothing is set) when
// the client has left already.
bool http_call_on_gone(struct http_call *c, void (*gone)(void *context), void *context);

#endif
