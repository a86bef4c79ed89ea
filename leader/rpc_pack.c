// rpc_pack.c: see rpc_pack.h.
#include "leader/rpc_pack.h"

#include "common/base/limits.h"

// What an unpacked message may take beyond its own bytes: ids grow from one byte to four, messages
// and strings have headers. More than a lawful request needs, less than a hostile one asks for.
#define UNPACKED_BYTES_MORE (POSITIONS_MAX * sizeof(uint32_t) + (8u << 20))

// Unpacks into an arena that knows why it failed: the message's fault or the machine's.
struct unpacker {
    struct arena *arena;
    bool too_much, no_memory;
};

static void *unpacker_alloc(void *context, size_t bytes) {
    struct unpacker *u = context;
    void *p = arena_alloc(u->arena, bytes);
    bool fits = bytes <= u->arena->bytes_max - u->arena->total_bytes;
    u->too_much |= p == NULL && !fits;
    u->no_memory |= p == NULL && fits;
    return p;
}

static void unpacker_free(void *context, void *p) {
    (void)context;
    (void)p;
}

int rpc_unpack(struct rpc_unpacked *out, const ProtobufCMessageDescriptor *kind,
               const struct rpc_message *message, struct api_error *e) {
    struct unpacker u = {.arena = &out->arena};
    ProtobufCAllocator allocator = {unpacker_alloc, unpacker_free, &u};
    arena_init(&out->arena, message->bytes + UNPACKED_BYTES_MORE);
    out->message = protobuf_c_message_unpack(kind, &allocator, message->bytes, message->data);
    if (out->message == NULL && u.no_memory) return api_error_set(e, 500, NULL, "memory is out.");
    if (out->message == NULL && u.too_much)
        return api_error_set(e, 400, NULL, "the message has too many parts.");
    if (out->message == NULL)
        return api_error_set(e, 400, NULL, "the message is no %s.", kind->short_name);
    if (out->message->n_unknown_fields == 0) return 0;
    return api_error_set(e, 400, NULL, "field %u is not supported.",
                         out->message->unknown_fields[0].tag);
}

void rpc_unpacked_finish(struct rpc_unpacked *u) {
    arena_finish(&u->arena);
}

ProtobufCBinaryData rpc_token_bytes(const struct tokenizer *t, uint32_t id) {
    size_t bytes = 0;
    const char *text = tokenizer_bytes(t, id, &bytes);
    return (ProtobufCBinaryData){text == NULL ? 0 : bytes, (uint8_t *)(uintptr_t)text};
}

void rpc_pack(struct buf *out, const ProtobufCMessage *message) {
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = mem_alloc(bytes);
    out->failed |= packed == NULL;
    if (packed == NULL) return;
    protobuf_c_message_pack(message, packed);
    buf_add(out, packed, bytes);
    mem_free(packed);
}

static void pack_number(struct buf *out, uint64_t x) {
    do {
        uint8_t byte = (uint8_t)((x & 127) | (x > 127 ? 128 : 0));
        buf_add(out, &byte, 1);
        x >>= 7;
    } while (x != 0);
}

void rpc_pack_text(struct buf *out, uint32_t field, const char *text, size_t bytes) {
    if (bytes == 0) return;
    pack_number(out, (uint64_t)field << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
    pack_number(out, bytes);
    buf_add(out, text, bytes);
}
