// rpc_fill.h: fields of a protobuf message as the JSON values that they would be over HTTP, for the
// table of openai_fields.c. What is not set is not added.
#ifndef MOESAIC_LEADER_RPC_FILL_H
#define MOESAIC_LEADER_RPC_FILL_H

#include <jansson.h>

#include "leader/answer.h"
#include "leader/openai.h"

struct rpc_fill {
    json_t *fields;
    struct api_error *error;
    struct openai_counts counts; // of those that come as JSON
    int rc;                      // of the first that failed; nothing is added after it
};

void rpc_fill_refuse(struct rpc_fill *f, const char *name, const char *must);
// Takes the value over; it is NULL when memory is out.
void rpc_fill_value(struct rpc_fill *f, const char *name, json_t *value);
void rpc_fill_number(struct rpc_fill *f, const char *name, float x);
void rpc_fill_integer(struct rpc_fill *f, const char *name, uint32_t x);      // 0: not set
void rpc_fill_string(struct rpc_fill *f, const char *name, const char *text); // "": not set
// The value that the text is as JSON; "": not set.
void rpc_fill_json(struct rpc_fill *f, const char *name, const char *text);

// Of a list, one more than allowed is enough to be refused.
struct rpc_strings {
    size_t n, n_max;
    char **at;
};
void rpc_fill_strings(struct rpc_fill *f, const char *name, struct rpc_strings s);
struct rpc_ids {
    size_t n, n_max;
    const uint32_t *at;
};
void rpc_fill_ids(struct rpc_fill *f, const char *name, struct rpc_ids s);

#endif
