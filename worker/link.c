// link.c: see link.h.
#include "worker/link.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/model/spec.h"
#include "common/net/layout_wire.h"

#define UP(kind_name) MOESAIC__CONTROL__V1__JOIN_UP__KIND_##kind_name
#define DOWN(kind_name) MOESAIC__CONTROL__V1__JOIN_DOWN__KIND_##kind_name
// A CloseEpoch with a long reason fits; anything that needs more memory to decode is none.
#define PEEK_BYTES 4096

static void send_up(struct channel *c, const Moesaic__Control__V1__JoinUp *up) {
    size_t bytes = moesaic__control__v1__join_up__get_packed_size(up);
    uint8_t *data = bytes <= CONTROL_MESSAGE_BYTES_MAX ? mem_alloc(bytes) : NULL;
    if (data == NULL) {
        log_error("link", "message not sent kind %d bytes %zu reason %s", (int)up->kind_case, bytes,
                  bytes <= CONTROL_MESSAGE_BYTES_MAX ? "no memory" : "too large");
        return;
    }
    moesaic__control__v1__join_up__pack(up, data);
    (void)channel_send(c, LINK_LEADER, data, bytes); // a lost stream comes as an event of its own
    mem_free(data);
}

void link_send_hello(struct channel *c, Moesaic__Control__V1__Hello *hello) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    up.kind_case = UP(HELLO);
    up.hello = hello;
    send_up(c, &up);
}

void link_send_progress(struct channel *c, uint64_t bytes_done, uint64_t bytes_total) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Progress progress = MOESAIC__CONTROL__V1__PROGRESS__INIT;
    progress.bytes_done = bytes_done;
    progress.bytes_total = bytes_total;
    up.kind_case = UP(PROGRESS);
    up.progress = &progress;
    send_up(c, &up);
}

void link_send_loaded(struct channel *c, Moesaic__Control__V1__Loaded *loaded) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    up.kind_case = UP(LOADED);
    up.loaded = loaded;
    send_up(c, &up);
}

void link_send_formed(struct channel *c, uint64_t epoch, const uint8_t *address,
                      size_t address_bytes) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Formed formed = MOESAIC__CONTROL__V1__FORMED__INIT;
    formed.epoch = epoch;
    formed.address = (ProtobufCBinaryData){address_bytes, (uint8_t *)address}; // packing reads only
    up.kind_case = UP(FORMED);
    up.formed = &formed;
    send_up(c, &up);
}

void link_send_ready(struct channel *c, uint64_t epoch, const char *lanes) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Ready ready = MOESAIC__CONTROL__V1__READY__INIT;
    ready.epoch = epoch;
    ready.lanes = (char *)lanes;
    up.kind_case = UP(READY);
    up.ready = &ready;
    send_up(c, &up);
}

void link_send_heartbeat(struct channel *c, Moesaic__Control__V1__Heartbeat *heartbeat) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    up.kind_case = UP(HEARTBEAT);
    up.heartbeat = heartbeat;
    // Huge counters of a huge model are for looking at; being alive is what a heartbeat is for.
    if (moesaic__control__v1__join_up__get_packed_size(&up) > CONTROL_MESSAGE_BYTES_MAX)
        heartbeat->n_expert_tokens = 0;
    send_up(c, &up);
}

void link_send_epoch_closed(struct channel *c, uint64_t epoch, const char *reason) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__EpochClosed closed = MOESAIC__CONTROL__V1__EPOCH_CLOSED__INIT;
    closed.epoch = epoch;
    closed.reason = (char *)reason;
    up.kind_case = UP(EPOCH_CLOSED);
    up.epoch_closed = &closed;
    send_up(c, &up);
}

void link_send_failed(struct channel *c, const char *reason) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Failed failed = MOESAIC__CONTROL__V1__FAILED__INIT;
    failed.reason = (char *)reason;
    up.kind_case = UP(FAILED);
    up.failed = &failed;
    send_up(c, &up);
}

void link_send_leaving(struct channel *c, const char *reason, bool when_idle) {
    Moesaic__Control__V1__JoinUp up = MOESAIC__CONTROL__V1__JOIN_UP__INIT;
    Moesaic__Control__V1__Leaving leaving = MOESAIC__CONTROL__V1__LEAVING__INIT;
    leaving.reason = (char *)reason;
    leaving.when_idle = when_idle;
    up.kind_case = UP(LEAVING);
    up.leaving = &leaving;
    send_up(c, &up);
}

bool link_dtype_parse(const char *name, struct link_dtype *out) {
    if (strcmp(name, "auto") == 0) {
        *out = (struct link_dtype){.automatic = true};
        return true;
    }
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, dtype_name((enum dtype)i)) != 0) continue;
        *out = (struct link_dtype){.dtype = (enum dtype)i};
        return true;
    }
    return false;
}

static int check_range(const char *field, uint64_t value, uint64_t least, uint64_t most,
                       struct err_text *e) {
    if (value >= least && value <= most) return 0;
    return err_set(e, ERR_PEER_PROTOCOL, "%s %" PRIu64 " is not within %" PRIu64 " to %" PRIu64,
                   field, value, least, most);
}

static int check_layout(const Moesaic__Control__V1__Welcome *m, struct layout *out,
                        struct err_text *e) {
    struct err_text why;
    if (m->layout == NULL) return err_set(e, ERR_PEER_PROTOCOL, "welcome.layout is missing");
    if (layout_unpack(out, m->layout, &why) != 0)
        return err_set(e, ERR_PEER_PROTOCOL, "welcome.layout: %s", why.text);
    return 0;
}

static int check_welcome(const Moesaic__Control__V1__Welcome *m, struct err_text *e) {
    struct link_dtype dtype;
    enum dtype kv_dtype;
    struct layout layout;
    enum mla_form mla_form;
    int rc = check_layout(m, &layout, e);
    if (rc == 0) rc = check_range("welcome.rank", m->rank, 0, layout.n_ranks - 1, e);
    if (rc == 0) rc = check_range("welcome.max_num_seqs", m->max_num_seqs, 1, SEQS_MAX, e);
    if (rc == 0)
        rc = check_range("welcome.max_num_batched_tokens", m->max_num_batched_tokens, 1,
                         BATCHED_TOKENS_MAX, e);
    if (rc == 0) rc = check_range("welcome.max_model_len", m->max_model_len, 1, POSITIONS_MAX, e);
    if (rc == 0 && m->kv_cache_bytes == 0)
        rc = check_range("welcome.kv_cache_percent", m->kv_cache_percent, 1, 100, e);
    if (rc == 0) rc = check_range("welcome.snapshot_percent", m->snapshot_percent, 0, 100, e);
    if (rc == 0)
        rc = check_range("length of welcome.model", strlen(m->model), 1, PATH_BYTES_MAX - 1, e);
    if (rc != 0) return rc;
    if (!link_dtype_parse(m->dtype, &dtype))
        return err_set(e, ERR_PEER_PROTOCOL,
                       "welcome.dtype %.32s is not auto, float32, float16 or bfloat16", m->dtype);
    if (!dtype_kv_parse(m->kv_cache_dtype, &kv_dtype))
        return err_set(e, ERR_PEER_PROTOCOL,
                       "welcome.kv_cache_dtype %.32s is not float32, bfloat16, fp8_e4m3 or int8",
                       m->kv_cache_dtype);
    if (!mla_form_parse(m->mla_form, &mla_form))
        return err_set(e, ERR_PEER_PROTOCOL, "welcome.mla_form %.32s is not absorbed or expanded",
                       m->mla_form);
    if (strcmp(m->arithmetic_class, "base") != 0)
        return err_set(e, ERR_PEER_REFUSED,
                       "arithmetic class %.32s is not one of this worker's: base",
                       m->arithmetic_class);
    return 0;
}

static int check_form(const Moesaic__Control__V1__Form *m, struct err_text *e) {
    int rc = check_range("form.epoch", m->epoch, 1, UINT64_MAX, e);
    if (rc == 0) rc = check_range("form.kv_blocks", m->kv_blocks, 1, UINT32_MAX, e);
    if (rc == 0) rc = check_range("form.snapshots", m->snapshots, 0, SNAPSHOTS_MAX, e);
    if (rc == 0) rc = check_range("form.n_on_host", m->n_on_host, 1, RANKS_MAX, e);
    if (rc == 0) rc = check_range("form.host_index", m->host_index, 0, m->n_on_host - 1, e);
    return rc;
}

static int check_connect(const Moesaic__Control__V1__Connect *m, struct err_text *e) {
    int rc = check_range("connect.epoch", m->epoch, 1, UINT64_MAX, e);
    if (rc == 0)
        rc = check_range("number of connect.addresses", m->n_addresses, 2, RANKS_MAX + 1, e);
    for (size_t i = 0; rc == 0 && i < m->n_addresses; i++)
        rc = check_range("length of a connect.addresses", m->addresses[i].len, 1,
                         FABRIC_ADDRESS_MAX, e);
    return rc;
}

static int check_message(const Moesaic__Control__V1__JoinDown *m, struct err_text *e) {
    switch (m->kind_case) {
    case DOWN(WELCOME): return check_welcome(m->welcome, e);
    case DOWN(FORM): return check_form(m->form, e);
    case DOWN(CONNECT): return check_connect(m->connect, e);
    case DOWN(CLOSE_EPOCH):
        return check_range("close_epoch.epoch", m->close_epoch->epoch, 1, UINT64_MAX, e);
    case DOWN(LEAVE): return 0;
    default:
        return err_set(e, ERR_PEER_PROTOCOL,
                       "a control message of a kind that this version does not know");
    }
}

static void *heap_alloc(void *context, size_t bytes) {
    (void)context;
    return mem_alloc(bytes);
}

static void heap_free(void *context, void *p) {
    (void)context;
    mem_free(p);
}

static ProtobufCAllocator heap_allocator(void) {
    return (ProtobufCAllocator){heap_alloc, heap_free, NULL};
}

int link_decode(Moesaic__Control__V1__JoinDown **out, const uint8_t *data, size_t bytes,
                struct err_text *e) {
    if (bytes > CONTROL_MESSAGE_BYTES_MAX)
        return err_set(e, ERR_PEER_PROTOCOL, "a control message of %zu bytes is above %u", bytes,
                       CONTROL_MESSAGE_BYTES_MAX);
    ProtobufCAllocator heap = heap_allocator();
    Moesaic__Control__V1__JoinDown *m = moesaic__control__v1__join_down__unpack(&heap, bytes, data);
    if (m == NULL)
        return err_set(e, ERR_PEER_PROTOCOL, "a control message of %zu bytes is malformed", bytes);
    int rc = check_message(m, e);
    if (rc != 0) {
        link_message_finish(m);
        return rc;
    }
    *out = m;
    return 0;
}

void link_message_finish(Moesaic__Control__V1__JoinDown *m) {
    ProtobufCAllocator heap = heap_allocator();
    if (m != NULL) moesaic__control__v1__join_down__free_unpacked(m, &heap);
}

struct peek_block {
    _Alignas(16) uint8_t bytes[PEEK_BYTES];
    size_t used;
};

static void *peek_alloc(void *context, size_t bytes) {
    struct peek_block *block = context;
    if (bytes > PEEK_BYTES - block->used) return NULL;
    void *p = block->bytes + block->used;
    block->used += (bytes + 15) & ~(size_t)15;
    return p;
}

static void peek_free(void *context, void *p) {
    (void)context;
    (void)p;
}

bool link_peek_close(const uint8_t *data, size_t bytes, uint64_t *epoch) {
    struct peek_block block;
    block.used = 0;
    ProtobufCAllocator allocator = {peek_alloc, peek_free, &block};
    if (bytes > PEEK_BYTES) return false;
    const Moesaic__Control__V1__JoinDown *m =
        moesaic__control__v1__join_down__unpack(&allocator, bytes, data);
    if (m == NULL || m->kind_case != DOWN(CLOSE_EPOCH)) return false;
    *epoch = m->close_epoch->epoch;
    return true;
}
