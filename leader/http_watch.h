// http_watch.h: notices clients that leave while MHD does not look: a suspended connection is not
// polled by MHD.
//
// One thread with an epoll set of its own over all connections. It also finishes what MHD's
// edge-triggered polling misses: an end that arrives together with the beginning of a request would
// else stay until the timeout.
#ifndef MOESAIC_LEADER_HTTP_WATCH_H
#define MOESAIC_LEADER_HTTP_WATCH_H

#include "common/base/err.h"

struct http_call;
struct http_watch;

int http_watch_create(struct http_watch **out, struct err_text *e);
void http_watch_destroy(struct http_watch *w); // nothing may be watched any more

// MHD thread: a connection begins, and ends before its socket is closed, whose number another may
// get at once.
void http_watch_open(struct http_watch *w, int fd);
void http_watch_close(struct http_watch *w, int fd);
// MHD thread: the call that the connection now serves; a reference is held until http_watch_clear.
// When the client has left already, the call is marked gone at once.
void http_watch_set(struct http_watch *w, int fd, struct http_call *c);
void http_watch_clear(struct http_watch *w, int fd);
// Any thread: cuts the connection if it still serves this call.
void http_watch_cut(struct http_watch *w, int fd, const struct http_call *c);

#endif
