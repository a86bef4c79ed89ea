// grpc_reflection.h: grpc.reflection.v1 and v1alpha on a server: clients that have no .proto file
// (grpcurl, Postman, dynamic ones) learn from it what they can call.
//
// Lists the services that are registered with the host. Asks for the server's token as every other
// call does: what is not a probe is for those who may call it.
#ifndef MOESAIC_COMMON_NET_GRPC_REFLECTION_H
#define MOESAIC_COMMON_NET_GRPC_REFLECTION_H

#include "common/net/grpc_server.h"

// At once, of each version: a client that does not read costs some megabytes, which no quota
// counts.
#define GRPC_REFLECTION_STREAMS_MAX 64

struct grpc_reflection;

// Registers its methods, before the host's start and after those it is to list.
int grpc_reflection_create(struct grpc_reflection **out, struct grpc_server_host *h,
                           struct err_text *e);
void grpc_reflection_destroy(struct grpc_reflection *r); // after the host's. NULL is fine

#endif
