// grpc_health.h: grpc.health.v1 on the inference port: Check, Watch and List.
//
// Every service of the port has one state, that of readiness.h. Needs no API key: probes such as
// Kubernetes' cannot send one, and the answer is what /ready tells anyone.
#ifndef MOESAIC_LEADER_GRPC_HEALTH_H
#define MOESAIC_LEADER_GRPC_HEALTH_H

#include "common/net/grpc_server.h"
#include "leader/serving.h"

struct grpc_health;

// Registers its methods, before the host's start. Both outlive it until the host is destroyed.
int grpc_health_create(struct grpc_health **out, struct grpc_server_host *h,
                       const struct serving *serving, struct err_text *e);
void grpc_health_destroy(struct grpc_health *g); // after the host's. NULL is fine
// Tells everyone who watches what is true now, without waiting for the next look. Any thread.
void grpc_health_refresh(struct grpc_health *g);
uint32_t grpc_health_watches(struct grpc_health *g); // open now; any thread

#endif
