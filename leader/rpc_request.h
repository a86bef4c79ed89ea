// rpc_request.h: bytes to a checked request: proto/generate.proto's GenerateRequest.
//
// The gRPC twin of openai.h, whose table of fields it uses, so that both refuse the same values. No
// I/O and no state: fuzzed as a whole.
#ifndef MOESAIC_LEADER_RPC_REQUEST_H
#define MOESAIC_LEADER_RPC_REQUEST_H

#include "leader/client.h"
#include "leader/openai.h"
#include "leader/rpc_pack.h"

// 0 or an error with e filled; out is then untouched. request_id is "" when the client gave none.
int rpc_request_parse(struct openai_request *out, char request_id[REQUEST_ID_BYTES_MAX + 1],
                      const struct rpc_message *message, const struct openai_defaults *defaults,
                      struct api_error *e);

#endif
