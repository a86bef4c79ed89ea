// rpc_client.c: see rpc_client.h.
#include "tests/harness/rpc_client.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/grpc_runtime.h"

#define WAIT_S 20

struct rpc_client {
    grpc_channel *channel;
    grpc_completion_queue *queue; // pluck
    grpc_call *call;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details;
    bool begun, over; // the initial metadata and the status are there
};

static gpr_timespec deadline(void) {
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(WAIT_S, GPR_TIMESPAN));
}

static void start(struct rpc_client *c, const grpc_op *ops, size_t n, void *tag) {
    check(grpc_call_start_batch(c->call, ops, n, tag, NULL) == GRPC_CALL_OK);
}

static bool finish(struct rpc_client *c, void *tag) {
    grpc_event e = grpc_completion_queue_pluck(c->queue, tag, deadline(), NULL);
    return e.type == GRPC_OP_COMPLETE && e.success != 0;
}

static grpc_channel *make_channel(uint16_t port, bool small_window) {
    char address[32];
    grpc_arg args[] = {
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
         .value.integer = 1},
        {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_HTTP2_BDP_PROBE, .value.integer = 0},
        {.type = GRPC_ARG_INTEGER,
         .key = (char *)GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
         .value.integer = 65536},
    };
    grpc_channel_args list = {.num_args = small_window ? 3 : 1, .args = args};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    grpc_channel *channel = grpc_channel_create(address, plain, &list);
    grpc_channel_credentials_release(plain);
    return channel;
}

struct rpc_client *rpc_client_open(uint16_t port, const char *path, bool small_window) {
    struct rpc_client *c = mem_zalloc(sizeof *c);
    check(c != NULL);
    grpc_runtime_start();
    c->channel = make_channel(port, small_window);
    c->queue = grpc_completion_queue_create_for_pluck(NULL);
    c->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue,
                                       grpc_slice_from_static_string(path), NULL,
                                       gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_metadata_array_init(&c->initial);
    grpc_metadata_array_init(&c->trailing);
    c->details = grpc_empty_slice();
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &c->trailing;
    status.data.recv_status_on_client.status = &c->code;
    status.data.recv_status_on_client.status_details = &c->details;
    start(c, &status, 1, &c->code);
    grpc_op begin = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    start(c, &begin, 1, c);
    finish(c, c);
    grpc_op header = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    header.data.recv_initial_metadata.recv_initial_metadata = &c->initial;
    start(c, &header, 1, &c->initial);
    return c;
}

void rpc_client_send(struct rpc_client *c, const void *data, size_t bytes) {
    grpc_slice slice = grpc_slice_from_copied_buffer(data, bytes);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = buffer;
    start(c, &op, 1, buffer);
    finish(c, buffer);
    grpc_byte_buffer_destroy(buffer);
}

void rpc_client_half_close(struct rpc_client *c) {
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    start(c, &op, 1, &c->call);
    finish(c, &c->call);
}

bool rpc_client_read(struct rpc_client *c, struct buf *out) {
    grpc_byte_buffer *message = NULL;
    grpc_byte_buffer_reader reader;
    grpc_slice slice;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &message;
    start(c, &op, 1, &message);
    if (!finish(c, &message) || message == NULL) return false;
    buf_reset(out);
    check(grpc_byte_buffer_reader_init(&reader, message));
    while (grpc_byte_buffer_reader_next(&reader, &slice)) {
        buf_add(out, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
        grpc_slice_unref(slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(message);
    return true;
}

int rpc_client_status(struct rpc_client *c, char *text, size_t bytes) {
    if (!c->over) c->over = finish(c, &c->code);
    if (!c->over) return -1;
    snprintf(text, bytes, "%.*s", (int)GRPC_SLICE_LENGTH(c->details),
             (const char *)GRPC_SLICE_START_PTR(c->details));
    return (int)c->code;
}

static bool find(const grpc_metadata_array *from, const char *key, char out[256]) {
    for (size_t i = 0; i < from->count; i++) {
        const grpc_metadata *m = &from->metadata[i];
        if (grpc_slice_str_cmp(m->key, key) != 0) continue;
        snprintf(out, 256, "%.*s", (int)GRPC_SLICE_LENGTH(m->value),
                 (const char *)GRPC_SLICE_START_PTR(m->value));
        return true;
    }
    return false;
}

bool rpc_client_header(struct rpc_client *c, const char *key, char out[256]) {
    if (!c->begun) c->begun = finish(c, &c->initial);
    return c->begun && find(&c->initial, key, out);
}

bool rpc_client_trailer(struct rpc_client *c, const char *key, char out[256]) {
    return c->over && find(&c->trailing, key, out);
}

void rpc_client_cancel(struct rpc_client *c) {
    grpc_call_cancel(c->call, NULL);
}

void rpc_client_close(struct rpc_client *c) {
    if (!c->over) {
        rpc_client_cancel(c);
        finish(c, &c->code);
    }
    if (!c->begun) finish(c, &c->initial);
    grpc_slice_unref(c->details);
    grpc_metadata_array_destroy(&c->initial);
    grpc_metadata_array_destroy(&c->trailing);
    grpc_call_unref(c->call);
    grpc_channel_destroy(c->channel);
    grpc_completion_queue_shutdown(c->queue);
    while (grpc_completion_queue_pluck(c->queue, NULL, deadline(), NULL).type !=
           GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(c->queue);
    grpc_runtime_stop();
    mem_free(c);
}
