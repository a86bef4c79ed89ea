// rpc_client.h: a small gRPC client for tests: one call a client, blocking, every step by hand so
// that a test can be slow, silent or gone.
#ifndef MOESAIC_TESTS_HARNESS_RPC_CLIENT_H
#define MOESAIC_TESTS_HARNESS_RPC_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"

struct rpc_client;

// Opens a call of the method; path is static text. small_window: the server may send 64 KiB ahead
// of the reader, no more.
struct rpc_client *rpc_client_open(uint16_t port, const char *path, bool small_window);
void rpc_client_send(struct rpc_client *c, const void *data, size_t bytes);
void rpc_client_half_close(struct rpc_client *c);
// The next message replaces out. False at the end of the stream, or after 20 s.
bool rpc_client_read(struct rpc_client *c, struct buf *out);
// Waits for the status, at most 20 s; -1 then. Messages that were not read are lost.
int rpc_client_status(struct rpc_client *c, char *text, size_t bytes);
// An entry of the header, which is waited for as the others are; of the trailers, once the status
// is there. False: there is none.
bool rpc_client_header(struct rpc_client *c, const char *key, char out[256]);
bool rpc_client_trailer(struct rpc_client *c, const char *key, char out[256]);
void rpc_client_cancel(struct rpc_client *c);
void rpc_client_close(struct rpc_client *c); // cancels what still runs

#endif
