// pb_arena.h: lets protobuf-c unpack into an arena, so that decoding a message of a peer needs no
// heap traffic and cannot use more memory than the arena's limit, whatever the bytes say. Reset the
// arena instead of freeing the message.
#ifndef MOESAIC_COMMON_NET_PB_ARENA_H
#define MOESAIC_COMMON_NET_PB_ARENA_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/mem.h"

static inline void *pb_arena_alloc(void *arena, size_t bytes) {
    return arena_alloc(arena, bytes);
}
static inline void pb_arena_free(void *arena, void *p) {
    (void)arena;
    (void)p;
}

static inline ProtobufCAllocator pb_arena_allocator(struct arena *a) {
    return (ProtobufCAllocator){
        .alloc = pb_arena_alloc, .free = pb_arena_free, .allocator_data = a};
}

#endif
