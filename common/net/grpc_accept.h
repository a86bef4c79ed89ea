// grpc_accept.h: keeps gRPC's listening sockets alive when the process runs out of descriptors.
//
// gRPC core stops listening for good, and without a word, when accept4 fails once for want of a
// descriptor: a few hundred idle connections would end the service of a process with a small limit.
// So the process has an accept4 of its own, which gRPC's library calls instead of libc's. On a
// guarded port it closes a connection at once that would take one of the last descriptors: a
// quarter of them, and no fewer than GRPC_ACCEPT_SPARE, is for HTTP and everything else. Other
// sockets are accepted from as ever.
#ifndef MOESAIC_COMMON_NET_GRPC_ACCEPT_H
#define MOESAIC_COMMON_NET_GRPC_ACCEPT_H

#include <stdint.h>

#define GRPC_ACCEPT_SPARE 64

// Between bind and listen of a server. At most GRPC_ACCEPT_PORTS_MAX ports at a time have a guard.
#define GRPC_ACCEPT_PORTS_MAX 16
void grpc_accept_guard(uint16_t port);
void grpc_accept_unguard(uint16_t port);
// How many connections of the port were closed for want of descriptors since it was asked last. Any
// thread.
uint32_t grpc_accept_take_closed(uint16_t port);

#endif
