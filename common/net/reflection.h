// reflection.h: one request of gRPC's reflection to its answer, bytes to bytes.
//
// No I/O and no state: grpc_reflection.c is the service around it. v1 and v1alpha have the same
// bytes.
#ifndef MOESAIC_COMMON_NET_REFLECTION_H
#define MOESAIC_COMMON_NET_REFLECTION_H

#include "common/base/buf.h"
#include "common/net/descriptors.h"

// A name that somebody looks up; far above any that is there.
#define REFLECTION_REQUEST_BYTES_MAX 8192

struct reflection {
    const struct descriptors *descriptors;
    const char *const *services; // full names of what is served here
    size_t n_services;
};

// Replaces out with a packed ServerReflectionResponse. What is not there is an answer, too.
// ERR_REQ_INVALID: data is no request, ERR_REQ_TOO_LARGE, ERR_FATAL_NOMEM.
int reflection_answer(const struct reflection *r, const uint8_t *data, size_t bytes,
                      struct buf *out);

#endif
