// grpc_unpack.h: compressed messages, unpacked within bounds.
//
// gRPC's own code compares the packed size with its limit and then unpacks all of it: 64 MiB may
// become 64 GiB. So its unpacking is switched off (grpc_runtime.c), and this is done instead. Used
// by grpc_stream.c and, for the words, grpc_server.c.
#ifndef MOESAIC_COMMON_NET_GRPC_UNPACK_H
#define MOESAIC_COMMON_NET_GRPC_UNPACK_H

#include <grpc/compression.h>
#include <stddef.h>
#include <stdint.h>

// What a packed byte may become: many times what texts do, and so little that who unpacks does not
// work much longer than who sends.
#define GRPC_UNPACK_RATIO_MAX 64u
#define GRPC_UNPACK_BYTES_MORE 65536u // for short ones

struct grpc_packed {
    grpc_compression_algorithm algorithm;
    const uint8_t *data;
    size_t bytes;
};
// *out is mem_alloc'd. ERR_REQ_TOO_LARGE when it would have more than bytes_max bytes or unpacks
// further than above, ERR_PEER_PROTOCOL when it is not what it should be, or ERR_FATAL_NOMEM.
int grpc_unpack(const struct grpc_packed *packed, size_t bytes_max, uint8_t **out,
                size_t *out_bytes);
// What its caller hears of such an error.
const char *grpc_unpack_error(int rc);

#endif
