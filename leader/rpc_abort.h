// rpc_abort.h: the live calls of Generate by their request ids, and Abort, which ends them. Each
// API key has ids of its own: nobody meets, or ends, the calls of another one.
//
// A call is here from the moment its request is known until its status is on its way, so an id can
// be used again as soon as its client has heard the end.
#ifndef MOESAIC_LEADER_RPC_ABORT_H
#define MOESAIC_LEADER_RPC_ABORT_H

#include <pthread.h>

#include "common/base/buf.h"
#include "leader/rpc_pack.h"

struct rpc;
struct rpc_call;

#define RPC_NAME_BUCKETS 4096
#define RPC_ABORT_IDS_MAX 1024

struct rpc_names {
    pthread_mutex_t lock; // taken under a call's, never around one
    struct rpc_call *buckets[RPC_NAME_BUCKETS];
};

void rpc_names_init(struct rpc_names *n);
void rpc_names_finish(struct rpc_names *n); // empty by then
// Under the call's lock. False: another live call of this key has this id.
bool rpc_names_add(struct rpc_names *n, struct rpc_call *c);
void rpc_names_remove(struct rpc_names *n, struct rpc_call *c);
struct rpc_call *rpc_names_find(struct rpc_names *n, int32_t key, const char *id); // held, or NULL

// AbortRequest to AbortResponse; 0 or an error with e filled.
int rpc_abort(struct rpc *r, const struct rpc_message *message, struct buf *out,
              struct api_error *e);

#endif
