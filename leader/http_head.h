// http_head.h: inside of http: one strict look at a request's head before anything is made of it.
//
// libmicrohttpd 0.9.75 takes much that other servers refuse or read differently: bare line feeds,
// folded lines, blanks before a colon, a line without a name (it ends the head there), NUL bytes,
// two lengths, several Host headers. Behind a proxy that reads such a head in another way, one
// request can hide another (request smuggling), so whatever has two readings is refused and the
// connection closed.
//
// Its buffer hides three from us, which pass: NUL and LF for CR and LF, a colon and LF for the
// empty line at the end, NUL for the mark before a query.
#ifndef MOESAIC_LEADER_HTTP_HEAD_H
#define MOESAIC_LEADER_HTTP_HEAD_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

// As libmicrohttpd's access handler gets them: places in its own buffer, so only inside of it.
struct http_head_text {
    struct MHD_Connection *connection;
    const char *method, *target, *version; // the target up to '?', not decoded
};

struct http_head {
    bool chunked;          // the body has no length, it ends by its own marks
    bool expects;          // the client waits for a 100 before it sends the body
    uint64_t length_bytes; // of the body when it is not chunked; UINT64_MAX = more than that
};

// 0 and the head, or the status to answer (400, 411, 417, 431) and why.
int http_head_read(struct http_head *out, const struct http_head_text *text, const char **why);

// Decodes %XX in place. False: a broken escape, or one that hides a control character.
bool http_head_decode(char *path);

#endif
