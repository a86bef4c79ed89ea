// http_watch.h: notices clients that leave while MHD does not look: a suspended connection is not
// polled by MHD.
//
// One thread with an epoll set of its own over the sockets of waiting and streaming calls.
#ifndef MOESAIC_LEADER_HTTP_WATCH_H
#define MOESAIC_LEADER_HTTP_WATCH_H

#include "common/base/err.h"

struct http_call;
struct http_watch;

int http_watch_create(struct http_watch **out, struct err_text *e);
void http_watch_destroy(struct http_watch *w); // nothing may be watched any more

// Holds a reference to the call until http_watch_remove.
void http_watch_add(struct http_watch *w, int fd, struct http_call *c);
// Before the socket is closed, whose number another connection may get at once. Fine when it is not
// watched.
void http_watch_remove(struct http_watch *w, int fd, struct http_call *c);
// Cuts the call's connection if it is still watched.
void http_watch_cut(struct http_watch *w, int fd, struct http_call *c);

#endif
