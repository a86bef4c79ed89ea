// rpc_tokens.h: Tokenize and Detokenize: the twins of HTTP's /tokenize and /detokenize (tokens.h).
//
// Registered by rpc.c. A message waits for the render pool, so that a long prompt does not hold
// gRPC's thread; it takes a place in the queue while it waits and runs.
#ifndef MOESAIC_LEADER_RPC_TOKENS_H
#define MOESAIC_LEADER_RPC_TOKENS_H

struct rpc;

enum rpc_tokens_kind { RPC_TOKENIZE, RPC_DETOKENIZE, RPC_TOKENS_COUNT };

struct rpc_tokens {
    struct rpc *rpc;
    enum rpc_tokens_kind kind;
};

void rpc_tokens_register(struct rpc *r); // before its server starts

#endif
