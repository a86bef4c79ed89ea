// grpc_stream.h: one gRPC call as a stream of messages, the same at the client and at the server.
//
// Owns the call, the messages that wait to be sent, and the message being received. One
// completion-queue thread handles its events; any thread that holds a reference may send, end or
// cancel. Used by grpc_server.c and channel_grpc_client.c.
#ifndef MOESAIC_COMMON_NET_GRPC_STREAM_H
#define MOESAIC_COMMON_NET_GRPC_STREAM_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/net/grpc_runtime.h"
#include "common/net/grpc_unpack.h"

#define GRPC_STREAM_WAITING_MAX 1000
#define GRPC_STREAM_METADATA_MAX 4
#define GRPC_STREAM_NO_PUSHBACK INT64_MIN

// What an event of the completion queue is about; its tag is a struct grpc_tag.
enum stream_op { OP_REQUEST, OP_STOPPED, OP_OPEN, OP_RECEIVE, OP_SEND, OP_END, OP_CLOSE, OP_COUNT };

struct grpc_tag {
    enum stream_op op;
    void *owner;
};

struct grpc_outgoing;

// How the server ends a call.
struct grpc_stream_status {
    grpc_status_code code;
    const char *text;
    int64_t pushback_ms; // of `grpc-retry-pushback-ms` (gRFC A6); below 0: do not try again
};

struct grpc_stream {
    atomic_uint refs;
    bool is_server;
    struct grpc_tag tags[OP_COUNT];
    // Of the queue's thread.
    grpc_byte_buffer *incoming;
    bool receiving;
    // Guarded by lock, which also puts the batches of the call in order.
    pthread_mutex_t lock;
    grpc_call *call; // NULL once everything about it has completed
    struct grpc_outgoing *first, *last;
    grpc_byte_buffer *in_flight;
    grpc_slice in_flight_text, in_flight_pushback;
    grpc_metadata metadata[GRPC_STREAM_METADATA_MAX]; // owned slices
    size_t n_metadata;
    uint32_t n_waiting, n_pending; // messages; batches whose event has not come
    bool late_header;              // the server's metadata waits for its first message or its end
    bool writable, sending, ending, end_sent, closed;
    int64_t ending_ns; // when the end was asked for
    grpc_status_code code;
    int64_t pushback_ms;
    char text[ERR_TEXT_MAX];
};

// Takes over the call. One reference for the caller. NULL: no memory, the call was cancelled and
// released.
struct grpc_stream *grpc_stream_create(grpc_call *call, bool is_server, void *owner);
void grpc_stream_ref(struct grpc_stream *s);
void grpc_stream_unref(struct grpc_stream *s); // NULL is fine

// Any thread.
// Copies the message into the queue. ERR_PEER_LOST when the call is over; a peer that lets
// GRPC_STREAM_WAITING_MAX pile up is cancelled.
int grpc_stream_send(struct grpc_stream *s, const void *data, size_t bytes);
// After what waits: the server sends code and text, the client closes its side. now_ns is
// remembered for grpc_stream_late.
void grpc_stream_end(struct grpc_stream *s, grpc_status_code code, const char *text,
                     int64_t now_ns);
// The same with more to say; a server's.
void grpc_stream_end_with(struct grpc_stream *s, const struct grpc_stream_status *status,
                          int64_t now_ns);
void grpc_stream_cancel(struct grpc_stream *s, grpc_status_code code, const char *text);
// One more entry of a late header; copied. False: not legal in gRPC, too many, or too late.
bool grpc_stream_add_metadata(struct grpc_stream *s, const char *key, const char *value);
// Whether the end was asked for more than span_ns ago and has not come: the peer does not read.
bool grpc_stream_late(struct grpc_stream *s, int64_t now_ns, int64_t span_ns);

// The queue's thread only.
// Starts a batch of the call whose event is op.
void grpc_stream_start(struct grpc_stream *s, enum stream_op op, const grpc_op *ops, size_t n_ops);
void grpc_stream_set_writable(struct grpc_stream *s);
// A server's, in place of an OP_OPEN of its own: writable at once, and what metadata it has goes
// with the first message. A call that ends without one is a single frame of trailers, with the
// metadata among them: only such a call is tried again by a client's retry policy.
void grpc_stream_set_late_header(struct grpc_stream *s);
void grpc_stream_receive(struct grpc_stream *s);
// Accounts for an event. Must be called once for each.
void grpc_stream_completed(struct grpc_stream *s, enum stream_op op, bool ok);
// Who is at the other end, as gRPC writes addresses ("ipv4:127.0.0.1:50000"). Before the call is
// over.
void grpc_stream_peer(const struct grpc_stream *s, char out[GRPC_PEER_BYTES]);
// The received message in one piece (mem_free). ERR_AGAIN: the other side has sent its last, or the
// call is over. A compressed one is unpacked; errors as grpc_unpack's, also ERR_REQ_TOO_LARGE when
// it has more than bytes_max bytes.
int grpc_stream_take(struct grpc_stream *s, bool ok, size_t bytes_max, uint8_t **data,
                     size_t *bytes);
// True once the call is closed and every event has come; the call was released then.
bool grpc_stream_finished(struct grpc_stream *s);

#endif
