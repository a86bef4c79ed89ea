// grpc_stream.c: the queue of one call: one message in flight each way, everything else waits here.
#include "common/net/grpc_stream.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

struct grpc_outgoing {
    struct grpc_outgoing *next;
    grpc_byte_buffer *buffer; // owned
};

struct grpc_stream *grpc_stream_create(grpc_call *call, bool is_server, void *owner) {
    struct grpc_stream *s = mem_zalloc(sizeof *s);
    if (s == NULL) {
        grpc_call_cancel(call, NULL);
        grpc_call_unref(call);
        return NULL;
    }
    s->call = call;
    s->is_server = is_server;
    s->in_flight_text = s->in_flight_pushback = grpc_empty_slice();
    s->pushback_ms = GRPC_STREAM_NO_PUSHBACK;
    atomic_init(&s->refs, 1);
    pthread_mutex_init(&s->lock, NULL);
    for (int op = 0; op < OP_COUNT; op++)
        s->tags[op] = (struct grpc_tag){(enum stream_op)op, owner};
    return s;
}

void grpc_stream_ref(struct grpc_stream *s) {
    atomic_fetch_add(&s->refs, 1);
}

static void drop_queue(struct grpc_stream *s) {
    while (s->first != NULL) {
        struct grpc_outgoing *old = s->first;
        s->first = old->next;
        grpc_byte_buffer_destroy(old->buffer);
        mem_free(old);
    }
    s->last = NULL;
    s->n_waiting = 0;
}

void grpc_stream_unref(struct grpc_stream *s) {
    if (s == NULL || atomic_fetch_sub(&s->refs, 1) != 1) return;
    check(s->call == NULL); // its events would still point here
    for (size_t i = 0; i < s->n_metadata; i++) {
        grpc_slice_unref(s->metadata[i].key);
        grpc_slice_unref(s->metadata[i].value);
    }
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

// --- batches, all under the lock

static void cancel_locked(struct grpc_stream *s, grpc_status_code code, const char *text) {
    if (s->call != NULL && !s->closed) grpc_call_cancel_with_status(s->call, code, text, NULL);
}

static void start_locked(struct grpc_stream *s, enum stream_op op, const grpc_op *ops,
                         size_t n_ops) {
    if (s->call == NULL) return;
    s->n_pending++;
    if (grpc_call_start_batch(s->call, ops, n_ops, &s->tags[op], NULL) == GRPC_CALL_OK) return;
    s->n_pending--; // no event will come; a refused batch leaves the call unusable
    cancel_locked(s, GRPC_STATUS_INTERNAL, "gRPC refused an operation");
}

// A late header travels with whatever comes first; the number of ops it took.
static size_t add_header(struct grpc_stream *s, grpc_op *op, bool with_metadata) {
    if (!s->late_header) return 0;
    s->late_header = false;
    *op = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
    op->data.send_initial_metadata.count = with_metadata ? s->n_metadata : 0;
    op->data.send_initial_metadata.metadata = s->metadata;
    return 1;
}

static void send_next(struct grpc_stream *s) {
    struct grpc_outgoing *out = s->first;
    s->first = out->next;
    if (s->first == NULL) s->last = NULL;
    s->n_waiting--;
    s->in_flight = out->buffer;
    s->sending = true;
    mem_free(out);
    grpc_op ops[2];
    size_t n = add_header(s, ops, true);
    ops[n] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE};
    ops[n].data.send_message.send_message = s->in_flight;
    start_locked(s, OP_SEND, ops, n + 1);
}

// Fills out with what belongs behind the messages; the number of entries.
static size_t make_trailers(struct grpc_stream *s, bool without_message,
                            grpc_metadata out[GRPC_STREAM_METADATA_MAX + 1]) {
    size_t n = without_message ? s->n_metadata : 0;
    memcpy(out, s->metadata, n * sizeof *out);
    if (s->pushback_ms == GRPC_STREAM_NO_PUSHBACK) return n;
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)s->pushback_ms);
    out[n] = (grpc_metadata){.key = grpc_slice_from_static_string("grpc-retry-pushback-ms"),
                             .value = grpc_slice_from_copied_string(text)};
    s->in_flight_pushback = out[n].value;
    return n + 1;
}

static void send_status(struct grpc_stream *s) {
    grpc_metadata trailers[GRPC_STREAM_METADATA_MAX + 1];
    grpc_op ops[2];
    size_t n = add_header(s, ops, false);
    ops[n] = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    s->in_flight_text = grpc_slice_from_copied_string(s->text);
    ops[n].data.send_status_from_server.trailing_metadata_count = make_trailers(s, n > 0, trailers);
    ops[n].data.send_status_from_server.trailing_metadata = trailers;
    ops[n].data.send_status_from_server.status = s->code;
    ops[n].data.send_status_from_server.status_details = &s->in_flight_text;
    start_locked(s, OP_END, ops, n + 1);
}

static void send_end(struct grpc_stream *s) {
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    s->end_sent = true;
    if (s->is_server)
        send_status(s);
    else
        start_locked(s, OP_END, &op, 1);
}

static void pump(struct grpc_stream *s) {
    if (!s->writable || s->sending || s->closed) return;
    if (s->first != NULL)
        send_next(s);
    else if (s->ending && !s->end_sent)
        send_end(s);
}

// --- any thread

int grpc_stream_send(struct grpc_stream *s, const void *data, size_t bytes) {
    struct grpc_outgoing *out = mem_zalloc(sizeof *out);
    if (out == NULL) return ERR_FATAL_NOMEM;
    grpc_slice slice = grpc_slice_from_copied_buffer(data, bytes);
    out->buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    if (s->closed || s->ending) rc = ERR_PEER_LOST;
    if (rc == 0 && s->n_waiting >= GRPC_STREAM_WAITING_MAX) {
        cancel_locked(s, GRPC_STATUS_CANCELLED, "it does not read its messages");
        rc = ERR_PEER_LOST;
    }
    if (rc == 0) {
        if (s->last != NULL)
            s->last->next = out;
        else
            s->first = out;
        s->last = out;
        s->n_waiting++;
        pump(s);
    }
    pthread_mutex_unlock(&s->lock);
    if (rc == 0) return 0;
    grpc_byte_buffer_destroy(out->buffer);
    mem_free(out);
    return rc;
}

void grpc_stream_end_with(struct grpc_stream *s, const struct grpc_stream_status *status,
                          int64_t now_ns) {
    pthread_mutex_lock(&s->lock);
    if (!s->ending) {
        s->ending = true;
        s->ending_ns = now_ns;
        s->code = status->code;
        s->pushback_ms = status->pushback_ms;
        snprintf(s->text, sizeof s->text, "%s", status->text);
        pump(s);
    }
    pthread_mutex_unlock(&s->lock);
}

void grpc_stream_end(struct grpc_stream *s, grpc_status_code code, const char *text,
                     int64_t now_ns) {
    struct grpc_stream_status status = {code, text, GRPC_STREAM_NO_PUSHBACK};
    grpc_stream_end_with(s, &status, now_ns);
}

bool grpc_stream_add_metadata(struct grpc_stream *s, const char *key, const char *value) {
    grpc_metadata m = {.key = grpc_slice_from_copied_string(key),
                       .value = grpc_slice_from_copied_string(value)};
    bool ok = grpc_header_key_is_legal(m.key) && grpc_header_nonbin_value_is_legal(m.value);
    pthread_mutex_lock(&s->lock);
    ok = ok && s->late_header && s->n_metadata < GRPC_STREAM_METADATA_MAX;
    if (ok) s->metadata[s->n_metadata++] = m;
    pthread_mutex_unlock(&s->lock);
    if (ok) return true;
    grpc_slice_unref(m.key);
    grpc_slice_unref(m.value);
    return false;
}

void grpc_stream_cancel(struct grpc_stream *s, grpc_status_code code, const char *text) {
    pthread_mutex_lock(&s->lock);
    cancel_locked(s, code, text);
    pthread_mutex_unlock(&s->lock);
}

bool grpc_stream_late(struct grpc_stream *s, int64_t now_ns, int64_t span_ns) {
    pthread_mutex_lock(&s->lock);
    bool late = s->ending && !s->closed && now_ns - s->ending_ns > span_ns;
    pthread_mutex_unlock(&s->lock);
    return late;
}

// --- the queue's thread

void grpc_stream_start(struct grpc_stream *s, enum stream_op op, const grpc_op *ops, size_t n_ops) {
    pthread_mutex_lock(&s->lock);
    start_locked(s, op, ops, n_ops);
    pthread_mutex_unlock(&s->lock);
}

void grpc_stream_set_writable(struct grpc_stream *s) {
    pthread_mutex_lock(&s->lock);
    s->writable = true;
    pump(s);
    pthread_mutex_unlock(&s->lock);
}

void grpc_stream_set_late_header(struct grpc_stream *s) {
    pthread_mutex_lock(&s->lock);
    s->late_header = s->writable = true;
    pthread_mutex_unlock(&s->lock);
}

void grpc_stream_receive(struct grpc_stream *s) {
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &s->incoming;
    s->receiving = true;
    grpc_stream_start(s, OP_RECEIVE, &op, 1);
}

static void drop_trailers(struct grpc_stream *s) {
    grpc_slice_unref(s->in_flight_text);
    grpc_slice_unref(s->in_flight_pushback);
    s->in_flight_text = s->in_flight_pushback = grpc_empty_slice();
}

static void completed_locked(struct grpc_stream *s, enum stream_op op, bool ok) {
    s->n_pending--;
    if (op == OP_SEND) {
        grpc_byte_buffer_destroy(s->in_flight);
        s->in_flight = NULL;
        s->sending = false;
        if (!ok) drop_queue(s); // the call is over, its close follows
    }
    if (op == OP_END) drop_trailers(s);
    if (op == OP_CLOSE) {
        s->closed = true;
        drop_queue(s);
    }
    pump(s);
}

void grpc_stream_completed(struct grpc_stream *s, enum stream_op op, bool ok) {
    pthread_mutex_lock(&s->lock);
    completed_locked(s, op, ok);
    pthread_mutex_unlock(&s->lock);
    if (op == OP_RECEIVE) s->receiving = false;
}

void grpc_stream_peer(const struct grpc_stream *s, char out[GRPC_PEER_BYTES]) {
    char *peer = grpc_call_get_peer(s->call);
    snprintf(out, GRPC_PEER_BYTES, "%s", peer);
    gpr_free(peer);
}

// Of the head and tail of what hardly packs.
#define PACKED_BYTES_MORE 1024u

// The buffer's bytes in one piece.
static int join_slices(grpc_byte_buffer *buffer, uint8_t **data, size_t *bytes) {
    grpc_byte_buffer_reader reader;
    size_t total = grpc_byte_buffer_length(buffer), used = 0;
    uint8_t *copy = mem_alloc(total);
    if (copy == NULL || !grpc_byte_buffer_reader_init(&reader, buffer)) {
        mem_free(copy);
        return copy == NULL ? ERR_FATAL_NOMEM : ERR_PEER_PROTOCOL;
    }
    grpc_slice slice;
    while (grpc_byte_buffer_reader_next(&reader, &slice)) {
        size_t n = GRPC_SLICE_LENGTH(slice);
        check(n <= total - used);
        if (n > 0) memcpy(copy + used, GRPC_SLICE_START_PTR(slice), n);
        used += n;
        grpc_slice_unref(slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    *data = copy;
    *bytes = used;
    return 0;
}

int grpc_stream_take(struct grpc_stream *s, bool ok, size_t bytes_max, uint8_t **data,
                     size_t *bytes) {
    grpc_byte_buffer *buffer = s->incoming;
    s->incoming = NULL;
    if (!ok || buffer == NULL) {
        if (buffer != NULL) grpc_byte_buffer_destroy(buffer);
        return ERR_AGAIN;
    }
    // What is packed may be a little larger than what it holds: grpc_unpack has the last word.
    struct grpc_packed packed = {.algorithm = buffer->data.raw.compression};
    size_t more = packed.algorithm == GRPC_COMPRESS_NONE ? 0 : PACKED_BYTES_MORE;
    bool fits = grpc_byte_buffer_length(buffer) <= bytes_max + more;
    int rc = fits ? join_slices(buffer, data, bytes) : ERR_REQ_TOO_LARGE;
    grpc_byte_buffer_destroy(buffer);
    if (rc != 0 || packed.algorithm == GRPC_COMPRESS_NONE) return rc;
    uint8_t *whole = *data;
    packed.data = whole;
    packed.bytes = *bytes;
    rc = grpc_unpack(&packed, bytes_max, data, bytes);
    mem_free(whole);
    return rc;
}

bool grpc_stream_finished(struct grpc_stream *s) {
    pthread_mutex_lock(&s->lock);
    bool finished = s->closed && s->n_pending == 0;
    grpc_call *call = finished ? s->call : NULL;
    if (finished) s->call = NULL;
    pthread_mutex_unlock(&s->lock);
    if (call != NULL) grpc_call_unref(call);
    return finished;
}
