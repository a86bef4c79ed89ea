// http_client.h: a small HTTP client for tests: blocking, one connection a call, everything by hand
// so that a test can be rude.
#ifndef MOESAIC_TESTS_HARNESS_HTTP_CLIENT_H
#define MOESAIC_TESTS_HARNESS_HTTP_CLIENT_H

#include <stdint.h>

#include "common/base/buf.h"

int http_client_connect(uint16_t port);
void http_client_send(int fd, const char *data, size_t bytes);
// Reads until the server closes, or until `until` has arrived when it is not NULL. False after 10 s
// without either.
bool http_client_read(int fd, struct buf *out, const char *until);

// One request with Connection: close; the raw answer, zero-terminated.
void http_client_post(uint16_t port, const char *path, const char *body, struct buf *out);
void http_client_get(uint16_t port, const char *path, struct buf *out);
int http_client_status(const struct buf *answer);
// Joins the chunks of a chunked body, or returns the body as it is; zero-terminated. The caller
// frees it.
char *http_client_body(const struct buf *answer);

#endif
