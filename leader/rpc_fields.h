// rpc_fields.h: inside of rpc_request: a GenerateRequest's scalars and short lists as the JSON
// object that they would be over HTTP, so that one table (openai_fields.c) checks both.
#ifndef MOESAIC_LEADER_RPC_FIELDS_H
#define MOESAIC_LEADER_RPC_FIELDS_H

#include <jansson.h>

#include "generate.pb-c.h"
#include "leader/answer.h"

// Adds what is set to fields. 0 or an error with e filled: what JSON cannot carry.
int rpc_fields_fill(json_t *fields, const Moesaic__V1__GenerateRequest *m, struct api_error *e);

#endif
