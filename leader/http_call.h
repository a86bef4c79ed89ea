// http_call.h: inside of http: one call, shared by http.c (the MHD side), http_call.c (the other
// threads' side) and http_watch.c.
#ifndef MOESAIC_LEADER_HTTP_CALL_H
#define MOESAIC_LEADER_HTTP_CALL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "leader/client.h"
#include "leader/http.h"
#include "leader/http_tls.h"
#include "leader/http_watch.h"

enum call_state { CALL_PENDING, CALL_REPLIED, CALL_STREAMING };

struct http_call {
    _Atomic uint32_t refs; // MHD's, the stream response's, the API side's
    struct http *http;
    struct MHD_Connection *connection;
    const struct http_route *route;
    int fd;
    char *path;
    char request_id[REQUEST_ID_BYTES_MAX + 1];
    bool named; // by the client's header
    int64_t arrived_ns;
    int32_t key; // of the caller, or KEY_NONE

    // MHD thread until the handler runs, then whoever works on the call.
    struct buf body;
    uint64_t body_seen;     // uploaded bytes, also those not kept
    int body_error;         // status to answer when the upload ends, 0 = fine
    uint64_t charged_bytes; // of its answer, counted as a body's
    bool chunked;
    bool dispatched;
    bool late;   // came after http_drain
    bool unread; // refused already; the body is read and thrown away before the answer goes

    pthread_mutex_t lock;
    enum call_state state;
    bool suspended; // MHD waits for a resume
    bool gone;      // the client left, or the server stops
    bool ended;     // no more bytes will be written
    struct http_reply reply;
    struct buf out;
    size_t out_sent; // bytes of out that MHD has taken
    void (*on_gone)(void *context);
    void *gone_context;

    struct http_call *next, **at; // list of the server's calls, under its lock
};

struct http {
    struct http_config config;
    struct MHD_Daemon *daemon;
    struct http_watch *watch;
    struct http_tls *tls; // NULL: plain text
    int listen_fd;        // -1 once MHD owns it
    _Atomic bool draining, quiesced;
    _Atomic uint64_t body_bytes; // held now
    _Atomic uint64_t requests, disconnects;
    _Atomic uint64_t by_status[6];

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct http_call *calls;
    uint32_t n_calls, n_dispatched, n_late;
    bool stopping;
};

struct http_call *http_call_create(struct http *h, struct MHD_Connection *connection,
                                   const char *path);
void http_call_mark_gone(struct http_call *c);
// MHD thread: queues what the call's state asks for.
enum MHD_Result http_call_answer(struct http_call *c);

#endif
