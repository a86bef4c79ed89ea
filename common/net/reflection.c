// reflection.c: see reflection.h.
#include "common/net/reflection.h"

#include <grpc/status.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/pb_arena.h"
#include "reflection.pb-c.h"

// A request unpacked, and an answer that points into it.
#define ARENA_BYTES_MAX (256u << 10)

typedef Grpc__Reflection__V1__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1__ServerReflectionResponse Response;
typedef Grpc__Reflection__V1__ServiceResponse Service;

struct answer {
    const struct reflection *reflection;
    struct arena *arena;
    const Request *request;
    Response response;
};

static int say_error(struct answer *a, grpc_status_code code, const char *text) {
    Grpc__Reflection__V1__ErrorResponse *error = arena_alloc(a->arena, sizeof *error);
    if (error == NULL) return ERR_FATAL_NOMEM;
    grpc__reflection__v1__error_response__init(error);
    error->error_code = (int32_t)code;
    error->error_message = (char *)(uintptr_t)text;
    a->response.error_response = error;
    a->response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    return 0;
}

// The whole closure each time: a client drops what it has, and need not come back for imports.
static int say_file(struct answer *a, uint32_t file, const char *missing) {
    const struct descriptors *d = a->reflection->descriptors;
    uint32_t files[DESCRIPTOR_FILES_MAX];
    if (file == DESCRIPTOR_NO_FILE) return say_error(a, GRPC_STATUS_NOT_FOUND, missing);
    uint32_t n = descriptors_closure(d, file, files);
    Grpc__Reflection__V1__FileDescriptorResponse *r = arena_alloc(a->arena, sizeof *r);
    ProtobufCBinaryData *data = arena_alloc(a->arena, n * sizeof *data);
    if (r == NULL || data == NULL) return ERR_FATAL_NOMEM;
    grpc__reflection__v1__file_descriptor_response__init(r);
    for (uint32_t i = 0; i < n; i++)
        data[i].data = (uint8_t *)(uintptr_t)descriptors_bytes(d, files[i], &data[i].len);
    r->n_file_descriptor_proto = n;
    r->file_descriptor_proto = data;
    a->response.file_descriptor_response = r;
    a->response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    return 0;
}

// Our files are proto3, which has no extensions.
static int say_extensions(struct answer *a, const char *type) {
    if (!descriptors_is_message(a->reflection->descriptors, type))
        return say_error(a, GRPC_STATUS_NOT_FOUND, "no such message type here");
    Grpc__Reflection__V1__ExtensionNumberResponse *r = arena_alloc(a->arena, sizeof *r);
    if (r == NULL) return ERR_FATAL_NOMEM;
    grpc__reflection__v1__extension_number_response__init(r);
    r->base_type_name = (char *)(uintptr_t)type;
    a->response.all_extension_numbers_response = r;
    a->response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
    return 0;
}

static int say_services(struct answer *a) {
    const struct reflection *from = a->reflection;
    Grpc__Reflection__V1__ListServiceResponse *r = arena_alloc(a->arena, sizeof *r);
    Service *services = arena_alloc(a->arena, from->n_services * sizeof *services);
    Service **list = arena_alloc(a->arena, from->n_services * sizeof *list);
    if (r == NULL || services == NULL || list == NULL) return ERR_FATAL_NOMEM;
    grpc__reflection__v1__list_service_response__init(r);
    for (size_t i = 0; i < from->n_services; i++) {
        grpc__reflection__v1__service_response__init(&services[i]);
        services[i].name = (char *)(uintptr_t)from->services[i];
        list[i] = &services[i];
    }
    r->n_service = from->n_services;
    r->service = list;
    a->response.list_services_response = r;
    a->response.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    return 0;
}

static int say(struct answer *a) {
    const struct descriptors *d = a->reflection->descriptors;
    const Request *q = a->request;
    switch (q->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        return say_file(a, descriptors_by_name(d, q->file_by_filename), "no such file here");
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        return say_file(a, descriptors_by_symbol(d, q->file_containing_symbol),
                        "no such symbol here");
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        return say_error(a, GRPC_STATUS_NOT_FOUND, "no such extension here");
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        return say_extensions(a, q->all_extension_numbers_of_type);
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        return say_services(a);
    default: return say_error(a, GRPC_STATUS_INVALID_ARGUMENT, "the request asks for nothing");
    }
}

static bool is_text(const char *text) {
    size_t left = strlen(text);
    while (left > 0) {
        size_t n = utf8_char_bytes(text, left);
        if (n == 0) return false;
        text += n;
        left -= n;
    }
    return true;
}

// The answer repeats the request, and other clients' libraries refuse text that is not UTF-8.
static bool texts_are_valid(const Request *q) {
    switch (q->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST__NOT_SET: break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        if (!is_text(q->file_containing_extension->containing_type)) return false;
        break;
    default: // the others are a text each, in one place
        if (!is_text(q->file_by_filename)) return false;
    }
    return is_text(q->host);
}

// Fields that the protocol does not have are not repeated: protobuf-c would write back also those
// whose number no reader takes.
static void forget_unknown(Request *q) {
    q->base.n_unknown_fields = 0;
    if (q->message_request_case ==
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION)
        q->file_containing_extension->base.n_unknown_fields = 0;
}

static void pack(const Response *response, struct buf *out) {
    size_t bytes = grpc__reflection__v1__server_reflection_response__get_packed_size(response);
    uint8_t *packed = mem_alloc(bytes);
    buf_reset(out);
    if (packed != NULL) {
        grpc__reflection__v1__server_reflection_response__pack(response, packed);
        buf_add(out, packed, bytes);
    }
    out->failed |= packed == NULL;
    mem_free(packed);
}

static int answer(struct answer *a, struct buf *out) {
    grpc__reflection__v1__server_reflection_response__init(&a->response);
    a->response.valid_host = a->request->host;
    a->response.original_request = (Request *)(uintptr_t)a->request;
    int rc = say(a);
    if (rc != 0) return rc;
    pack(&a->response, out);
    return out->failed ? ERR_FATAL_NOMEM : 0;
}

int reflection_answer(const struct reflection *r, const uint8_t *data, size_t bytes,
                      struct buf *out) {
    struct arena arena;
    if (bytes > REFLECTION_REQUEST_BYTES_MAX) return ERR_REQ_TOO_LARGE;
    arena_init(&arena, ARENA_BYTES_MAX);
    ProtobufCAllocator allocator = pb_arena_allocator(&arena);
    struct answer a = {.reflection = r, .arena = &arena};
    Request *q = grpc__reflection__v1__server_reflection_request__unpack(&allocator, bytes, data);
    a.request = q;
    if (q != NULL) forget_unknown(q);
    int rc = q == NULL || !texts_are_valid(q) ? ERR_REQ_INVALID : answer(&a, out);
    arena_finish(&arena);
    return rc;
}
