// rpc_unary.h: the methods that answer at once: one message in, one out, all on gRPC's thread.
#ifndef MOESAIC_LEADER_RPC_UNARY_H
#define MOESAIC_LEADER_RPC_UNARY_H

#include "leader/answer.h"
#include "leader/rpc_pack.h"

struct rpc;

#define RPC_UNARY_COUNT 4

struct rpc_unary {
    struct rpc *rpc;
    const char *path;
    // 0 with the packed answer added to out, or an error with e filled.
    int (*answer)(struct rpc *r, const struct rpc_message *message, struct buf *out,
                  struct api_error *e);
};

void rpc_unary_register(struct rpc *r); // before its server starts

#endif
