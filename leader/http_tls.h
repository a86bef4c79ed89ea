// http_tls.h: TLS of the HTTP server: which certificate a connection is given, and whose
// certificate it must show.
//
// libmicrohttpd runs the handshakes; it takes one certificate for good and does not check clients'.
// So each connection's session gets credentials of ours before its handshake. Only the HTTP thread
// calls this, but for create and destroy.
#ifndef MOESAIC_LEADER_HTTP_TLS_H
#define MOESAIC_LEADER_HTTP_TLS_H

#include <microhttpd.h>

#include "common/base/err.h"
#include "common/net/tls_files.h"

struct http_tls;

// TLS 1.3 and 1.2, no renegotiation.
#define HTTP_TLS_PRIORITIES                                                                        \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE:%SAFE_RENEGOTIATION"

int http_tls_create(struct http_tls **out, struct tls_files *files, struct err_text *e);
// After the daemon has stopped. NULL is fine.
void http_tls_destroy(struct http_tls *t);

// What libmicrohttpd must be given to start with; lives as long as t.
const struct tls_pem *http_tls_pem(const struct http_tls *t);

// At a connection's begin and end; *state is the connection's.
void http_tls_open(struct http_tls *t, struct MHD_Connection *connection, void **state);
void http_tls_close(struct http_tls *t, void **state);

#endif
