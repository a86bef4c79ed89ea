// rpc_pack.h: bytes to protobuf messages and back, bounded in memory. Used by every message of
// proto/generate.proto.
#ifndef MOESAIC_LEADER_RPC_PACK_H
#define MOESAIC_LEADER_RPC_PACK_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "leader/answer.h"

struct rpc_message {
    const uint8_t *data;
    size_t bytes;
    int32_t key; // of the API key that the call came with, or KEY_NONE
};

struct rpc_unpacked {
    struct arena arena;
    ProtobufCMessage *message; // in the arena
};
// 0 or an error with e filled. A field that the message does not have is one. Finish it in any
// case.
int rpc_unpack(struct rpc_unpacked *out, const ProtobufCMessageDescriptor *kind,
               const struct rpc_message *message, struct api_error *e);
void rpc_unpacked_finish(struct rpc_unpacked *u);

// A token's bytes, which are the tokenizer's.
ProtobufCBinaryData rpc_token_bytes(const struct tokenizer *t, uint32_t id);

// Adds the packed message to out; it is failed when memory is out.
void rpc_pack(struct buf *out, const ProtobufCMessage *message);
// Adds a field of the message packed before, a string; "" is not there. Unlike the library's
// strings it may have zero bytes, which texts of a model do.
void rpc_pack_text(struct buf *out, uint32_t field, const char *text, size_t bytes);

#endif
