// rpc_walk.h: what protobuf-c does not tell of a message: strings with zero bytes, which it would
// cut, strings that are no UTF-8, and fields of inner messages that this server does not know.
#ifndef MOESAIC_LEADER_RPC_WALK_H
#define MOESAIC_LEADER_RPC_WALK_H

#include "leader/rpc_pack.h"

// The message was unpacked as this kind before, so it is well-formed. e names the field.
int rpc_walk(const ProtobufCMessageDescriptor *kind, const struct rpc_message *message,
             struct api_error *e);

#endif
