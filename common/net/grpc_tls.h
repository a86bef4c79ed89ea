// grpc_tls.h: tls_files as gRPC's credentials. TLS 1.2 is the least that gRPC speaks.
#ifndef MOESAIC_COMMON_NET_GRPC_TLS_H
#define MOESAIC_COMMON_NET_GRPC_TLS_H

#include <grpc/grpc_security.h>

#include "common/net/tls_files.h"

// Embedded in what owns a server, and outlives the server.
struct grpc_tls {
    struct tls_files *files;  // NULL: plain text. Not owned
    _Atomic uint64_t version; // that gRPC was given last
};

// The caller releases both.
grpc_server_credentials *grpc_tls_server(struct grpc_tls *t);
// What a dialling person should look at after a handshake that ended with this text; NULL: nothing
// to say. files as they were dialled with.
const char *grpc_tls_hint(struct tls_files *files, const char *text);
// The files as they are now; NULL: plain text.
grpc_channel_credentials *grpc_tls_client(struct tls_files *files);

#endif
