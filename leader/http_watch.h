// http_watch.h: notices clients that leave while MHD does not look (a suspended connection is not
// polled by MHD), and ends those that take too long.
//
// MHD's own timeout begins again with each byte. Here a request has a time to arrive and an answer
// a time to be taken, a second more for each CREDIT_BYTES. When nearly all connections are in use,
// the one that has idled or sent for longest makes room for the next.
//
// One thread with an epoll set of its own over all connections. It also finishes what MHD's
// edge-triggered polling misses: an end that arrives together with the beginning of a request would
// else stay until the timeout.
#ifndef MOESAIC_LEADER_HTTP_WATCH_H
#define MOESAIC_LEADER_HTTP_WATCH_H

#include <stdint.h>

#include "common/base/env.h"
#include "common/base/err.h"

#define CREDIT_BYTES 65536

struct http_call;
struct http_watch;

struct http_watch_config {
    struct env *env; // not owned
    int64_t patience_ns;
    uint32_t connections_max; // one of those that wait is ended when more are open
};
int http_watch_create(struct http_watch **out, const struct http_watch_config *config,
                      struct err_text *e);
void http_watch_destroy(struct http_watch *w); // nothing may be watched any more

// MHD thread: a connection begins, and ends before its socket is closed, whose number another may
// get at once.
void http_watch_open(struct http_watch *w, int fd);
void http_watch_close(struct http_watch *w, int fd);
// MHD thread: the call that the connection now serves; a reference is held until http_watch_clear.
// When the client has left already, the call is marked gone at once.
void http_watch_set(struct http_watch *w, int fd, struct http_call *c);
void http_watch_clear(struct http_watch *w, int fd);
// MHD thread: so much of the call's body came; and its request is complete.
void http_watch_received(struct http_watch *w, int fd, size_t bytes);
void http_watch_complete(struct http_watch *w, int fd);
// Any thread: the call's answer is complete but for so many bytes that the client has to take.
void http_watch_answered(struct http_watch *w, int fd, const struct http_call *c, size_t bytes);
// Connections ended for taking too long, and to make room. Any thread.
void http_watch_count(struct http_watch *w, uint64_t *n_late, uint64_t *n_evicted);
// Any thread: cuts the connection if it still serves this call.
void http_watch_cut(struct http_watch *w, int fd, const struct http_call *c);

#endif
