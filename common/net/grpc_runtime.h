// grpc_runtime.h: what every user of gRPC core in this process shares: start and stop, threads
// without signals, the log, settings.
#ifndef MOESAIC_COMMON_NET_GRPC_RUNTIME_H
#define MOESAIC_COMMON_NET_GRPC_RUNTIME_H

#include <grpc/grpc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "common/base/err.h"

#define GRPC_PEER_BYTES 80 // an address as gRPC writes it

// Pairs may nest. gRPC's threads are made with every signal blocked, so signals stay with the
// process's own threads.
void grpc_runtime_start(void);
void grpc_runtime_stop(void);
// From now on a failed TLS handshake is a warning. For servers, which do not hear of it otherwise.
void grpc_runtime_log_handshakes(void);

// Around calls that may make gRPC threads, which inherit the caller's mask.
void grpc_runtime_block_signals(sigset_t *old);
void grpc_runtime_restore_signals(const sigset_t *old);

// A thread with every signal blocked. 0 or ERR_FATAL_IO.
int grpc_runtime_thread(pthread_t *out, void *(*main_fn)(void *arg), void *arg);

#define GRPC_RUNTIME_ARGS_MAX 24

struct grpc_runtime_args {
    grpc_arg args[GRPC_RUNTIME_ARGS_MAX];
    grpc_channel_args list;
    grpc_resource_quota *quota; // owned; NULL: none
};

// Keepalive of 1 s + 1 s on both sides and message limits; a silent host is noticed within 3 s.
// message_bytes_max: of one received.
void grpc_runtime_server_args(struct grpc_runtime_args *out, int message_bytes_max);
void grpc_runtime_client_args(struct grpc_runtime_args *out, int message_bytes_max);
// Another keepalive time and timeout than a second each.
void grpc_runtime_keepalive(struct grpc_runtime_args *args, int ms);
// A server's: what strangers may do to it.
struct grpc_runtime_limits {
    uint64_t memory_bytes; // of all connections and messages together; 0: no limit
    int ping_interval_ms;  // a client that pings more often is sent away; 0: 200, and nobody is
    int metadata_bytes;    // of one call; 0: gRPC's own
    int connection_age_ms; // a connection takes no more calls after it, those it has go on; 0: ever
};
void grpc_runtime_limit(struct grpc_runtime_args *args, const struct grpc_runtime_limits *limits);
// Gives back what limits hold, once the server is made.
void grpc_runtime_args_finish(struct grpc_runtime_args *args);
// A server's: calls at once on one connection.
void grpc_runtime_streams_max(struct grpc_runtime_args *args, int n);
// Checks the server's certificate against this name instead of the address's. Not copied.
void grpc_runtime_server_name(struct grpc_runtime_args *args, const char *name);

#endif
