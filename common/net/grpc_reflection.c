// grpc_reflection.c: see grpc_reflection.h. Streams of requests, each answered at once by
// reflection.c on the server's thread: a search in a few hundred names.
#include "common/net/grpc_reflection.h"

#include <grpc/status.h>

#include "common/base/mem.h"
#include "common/net/reflection.h"

// A client that sends more requests than this without taking answers has lost its way.
#define UNREAD_ANSWERS_MAX 64
#define FIRST_NS (30 * NS_PER_S)

struct grpc_reflection {
    struct descriptors *descriptors;
    const char *services[GRPC_METHODS_MAX]; // the host's
    struct reflection reflection;
    struct buf answer; // of the server's thread
};

struct stream {
    struct grpc_server_call *call;
    uint32_t n_unread; // given to the call, and not yet to gRPC
};

static void opened(void *context, struct grpc_server_call *call, void **state) {
    struct stream *s = mem_zalloc(sizeof *s);
    (void)context;
    *state = s;
    if (s == NULL)
        grpc_server_call_end(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "memory is out");
    else
        s->call = call;
}

static void message(void *context, void *state, const uint8_t *data, size_t bytes) {
    struct grpc_reflection *r = context;
    struct stream *s = state;
    if (s == NULL) return;
    int rc = s->n_unread < UNREAD_ANSWERS_MAX
                 ? reflection_answer(&r->reflection, data, bytes, &r->answer)
                 : ERR_REQ_QUEUE_FULL;
    if (rc == 0) rc = grpc_server_call_send(s->call, r->answer.data, r->answer.bytes);
    if (rc == 0) s->n_unread++;
    if (rc == ERR_REQ_INVALID)
        grpc_server_call_end(s->call, GRPC_STATUS_INVALID_ARGUMENT,
                             "the message is no ServerReflectionRequest");
    else if (rc == ERR_REQ_QUEUE_FULL)
        grpc_server_call_cancel(s->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                "too many answers wait to be read");
    else if (rc != 0)
        grpc_server_call_end(s->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                             rc == ERR_REQ_TOO_LARGE ? "the request is too long" : "memory is out");
}

static void half_closed(void *context, void *state) {
    struct stream *s = state;
    (void)context;
    if (s != NULL) grpc_server_call_end(s->call, GRPC_STATUS_OK, "");
}

static void sent(void *context, void *state) {
    struct stream *s = state;
    (void)context;
    if (s != NULL) s->n_unread--;
}

static void closed(void *context, void *state, bool connection_lost) {
    (void)context;
    (void)connection_lost;
    mem_free(state);
}

int grpc_reflection_create(struct grpc_reflection **out, struct grpc_server_host *h,
                           struct err_text *e) {
    static const char *const paths[] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    struct grpc_reflection *r = mem_zalloc(sizeof *r);
    if (r == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for reflection");
    int rc =
        descriptors_create(&r->descriptors, inference_descriptors, inference_descriptors_bytes, e);
    if (rc != 0) {
        grpc_reflection_destroy(r);
        return rc;
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct grpc_method method = {.path = paths[i],
                                     .message_bytes_max = 2 * REFLECTION_REQUEST_BYTES_MAX,
                                     .first_ns = FIRST_NS,
                                     .calls_max = GRPC_REFLECTION_STREAMS_MAX,
                                     .context = r,
                                     .opened = opened,
                                     .message = message,
                                     .half_closed = half_closed,
                                     .sent = sent,
                                     .closed = closed};
        grpc_server_host_register(h, &method);
    }
    buf_init(&r->answer, 0);
    r->reflection =
        (struct reflection){r->descriptors, r->services, grpc_server_host_services(h, r->services)};
    *out = r;
    return 0;
}

void grpc_reflection_destroy(struct grpc_reflection *r) {
    if (r == NULL) return;
    descriptors_destroy(r->descriptors);
    buf_finish(&r->answer);
    mem_free(r);
}
