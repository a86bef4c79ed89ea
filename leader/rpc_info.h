// rpc_info.h: what a client may know of the model, the server and its load. Each reads copies and
// counters; nothing waits for the scheduler.
#ifndef MOESAIC_LEADER_RPC_INFO_H
#define MOESAIC_LEADER_RPC_INFO_H

#include "leader/rpc_pack.h"

struct rpc;

// As struct rpc_unary's answer.
int rpc_model_info(struct rpc *r, const struct rpc_message *message, struct buf *out,
                   struct api_error *e);
int rpc_server_info(struct rpc *r, const struct rpc_message *message, struct buf *out,
                    struct api_error *e);
int rpc_load(struct rpc *r, const struct rpc_message *message, struct buf *out,
             struct api_error *e);

#endif
