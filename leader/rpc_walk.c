// rpc_walk.c: see rpc_walk.h. The bytes are walked once more, with the descriptor beside them.
#include "leader/rpc_walk.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/text/utf8.h"

#define LEVELS_MAX 4 // of proto/generate.proto: request, message, call

struct bytes {
    const uint8_t *at, *end;
};

struct level {
    struct bytes rest;
    const ProtobufCMessageDescriptor *kind;
    const ProtobufCFieldDescriptor *field; // that was met last
    size_t index;                          // how often it was met in a row
};

struct walk {
    struct level levels[LEVELS_MAX];
    uint32_t depth;
    struct api_error *error;
};

static uint64_t take_varint(struct bytes *b) {
    uint64_t value = 0;
    for (unsigned shift = 0; b->at < b->end; shift += 7) {
        uint8_t byte = *b->at++;
        if (shift < 64) value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    return value;
}

// The next field's number; *inside is the content of a field with a length, else empty. 0 at the
// end.
static uint32_t take_field(struct bytes *b, struct bytes *inside) {
    if (b->at >= b->end) return 0;
    uint64_t key = take_varint(b), bytes = 0, left;
    *inside = (struct bytes){0};
    switch (key & 7) {
    case 0: take_varint(b); break;
    case 1: bytes = 8; break;
    case 2: bytes = take_varint(b); break;
    case 5: bytes = 4; break;
    default: return 0;
    }
    left = (uint64_t)(b->end - b->at);
    if (bytes > left) bytes = left;
    if ((key & 7) == 2) *inside = (struct bytes){b->at, b->at + bytes};
    b->at += bytes;
    return (uint32_t)(key >> 3);
}

// "messages[2].tool_calls[0].name", for n levels.
static void name_path(const struct walk *w, uint32_t n, char *out, size_t bytes) {
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && used < bytes; i++) {
        const struct level *l = &w->levels[i];
        bool listed = l->field->type == PROTOBUF_C_TYPE_MESSAGE;
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%s", i == 0 ? "" : ".", l->field->name);
        if (listed && used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, "[%zu]", l->index);
    }
}

static int unknown_field(struct walk *w, uint32_t number) {
    char path[96];
    if (w->depth == 0)
        return api_error_set(w->error, 400, NULL, "field %u is not supported.", number);
    name_path(w, w->depth, path, sizeof path);
    return api_error_set(w->error, 400, w->levels[0].field->name,
                         "'%s' has a field %u, which is not supported.", path, number);
}

static int check_string(struct walk *w, struct bytes text) {
    char path[96];
    size_t n = (size_t)(text.end - text.at);
    if (n == 0) return 0;
    name_path(w, w->depth + 1, path, sizeof path);
    if (memchr(text.at, 0, n) != NULL)
        return api_error_set(w->error, 400, path, "'%s' must not contain a zero byte.", path);
    if (!utf8_valid((const char *)text.at, n))
        return api_error_set(w->error, 400, path, "'%s' must be UTF-8.", path);
    return 0;
}

static void go_in(struct walk *w, struct bytes inside) {
    const ProtobufCMessageDescriptor *kind = w->levels[w->depth].field->descriptor;
    check(w->depth + 1 < LEVELS_MAX);
    w->levels[++w->depth] = (struct level){.rest = inside, .kind = kind};
}

static int look_at(struct walk *w, uint32_t number, struct bytes inside) {
    struct level *l = &w->levels[w->depth];
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(l->kind, number);
    if (field == NULL) return unknown_field(w, number);
    l->index = field == l->field ? l->index + 1 : 0;
    l->field = field;
    if (field->type == PROTOBUF_C_TYPE_STRING) return check_string(w, inside);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) go_in(w, inside);
    return 0;
}

int rpc_walk(const ProtobufCMessageDescriptor *kind, const struct rpc_message *message,
             struct api_error *e) {
    struct walk w = {.error = e};
    w.levels[0] = (struct level){.kind = kind};
    if (message->bytes != 0)
        w.levels[0].rest = (struct bytes){message->data, message->data + message->bytes};
    for (;;) {
        struct bytes inside;
        uint32_t number = take_field(&w.levels[w.depth].rest, &inside);
        int rc = number == 0 ? 0 : look_at(&w, number, inside);
        if (rc != 0) return rc;
        if (number != 0) continue;
        if (w.depth == 0) return 0;
        w.depth--;
    }
}
