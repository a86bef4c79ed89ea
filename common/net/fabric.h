// fabric.h: the data plane: messages between the ranks of one epoch, and the all-to-all built on
// them.
//
// Peers of an epoch are numbered 0..n_ranks-1 for workers and n_ranks for the leader (it plans, it
// is no rank). One owner thread uses a fabric; only fabric_interrupt may be called from others. No
// operation blocks for ever: it ends with success, ERR_AGAIN (a wake or nothing there),
// ERR_PEER_TIMEOUT, ERR_PEER_LOST, ERR_PEER_EPOCH or ERR_FATAL_STOPPED. The first lost peer ends
// the epoch as a whole: every later call returns ERR_PEER_LOST until fabric_end. Every message
// carries the epoch and its nonce; others are dropped before anything in them is believed.
#ifndef MOESAIC_COMMON_NET_FABRIC_H
#define MOESAIC_COMMON_NET_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/env.h"
#include "common/base/err.h"
#include "common/base/limits.h"

struct fabric;

enum fabric_kind { FABRIC_SELF, FABRIC_MEM, FABRIC_UCX };

// What a message is for; (kind, step, layer) together are its tag.
enum fabric_message {
    FABRIC_PLAN = 1,
    FABRIC_RESULT,
    FABRIC_DISPATCH,
    FABRIC_COMBINE,
    FABRIC_GATHER, // within a TP group (worker/tp.h), as the next ones: bare rows, in the head of a
                   // message too
    FABRIC_REDUCE,
    FABRIC_HEADS,
    FABRIC_LOGITS,
    FABRIC_TOKENS, // the last of these
    FABRIC_STAGE,  // between stages (worker/stage.h)
    FABRIC_TEST,
    FABRIC_KINDS // how many numbers are below
};

#define FABRIC_ANY_PEER UINT32_MAX
#define FABRIC_ANY_STEP UINT64_MAX

// 8 bits kind, 40 bits step (wraps), 16 bits layer.
static inline uint64_t fabric_tag(enum fabric_message kind, uint64_t step, uint32_t layer) {
    return (uint64_t)kind << 56 | (step & ((UINT64_C(1) << 40) - 1)) << 16 | (layer & 0xffffu);
}
static inline enum fabric_message fabric_tag_kind(uint64_t tag) {
    return (enum fabric_message)(tag >> 56);
}

struct fabric_mem_hub; // fabric_mem.h: what fabrics of one test or simulation share

struct fabric_config {
    struct env *env;
    struct waker *waker;   // the owner thread's
    const char *interface; // network device to bind ("lo", "eth0"); NULL = UCX's choice
    const char
        *transports; // "auto" (shared memory on one host, TCP between), "tcp", "shm"; UCX only
    size_t message_bytes_max;   // of one message
    struct fabric_mem_hub *hub; // FABRIC_MEM only
    int64_t spin_ns;            // busy-wait before sleeping; 0 when threads exceed cores
};

// Creates the context, which lives as long as the process.
int fabric_open(struct fabric **out, enum fabric_kind kind, const struct fabric_config *config,
                struct err_text *e);
void fabric_close(struct fabric *f);

// Starts an epoch: new buffers, a new address (at most FABRIC_ADDRESS_MAX bytes) for peers to reach
// this process.
int fabric_begin(struct fabric *f, uint8_t *address, size_t *address_bytes, struct err_text *e);

// Whether a peer's bytes can be its address at all: ERR_PEER_PROTOCOL or ERR_PEER_REFUSED if not.
// Before they are handed to anybody. Between begin and end.
int fabric_address_check(const struct fabric *f, const uint8_t *address, size_t bytes,
                         struct err_text *e);

struct fabric_group {
    uint64_t epoch, nonce;
    uint32_t self, n_peers;          // n_peers = n_ranks + 1
    const uint8_t *const *addresses; // [n_peers], own one included
    const size_t *address_bytes;     // [n_peers]
};

// Connects to every peer. Peers may connect at different times: messages that arrive before are
// kept.
int fabric_connect(struct fabric *f, const struct fabric_group *group, struct err_text *e);
// Ends the epoch: frees its endpoints, buffers and every unreleased message. Bounded time; fine in
// any state.
void fabric_end(struct fabric *f);
// Any thread: a blocked or later call returns ERR_PEER_EPOCH until fabric_end or the next
// fabric_begin.
void fabric_interrupt(struct fabric *f);

// An epoch moves only inside calls of its owner, so an owner that has nothing to do while connected
// waits in fabric_recv with wait_wakes, not in waker_wait: an arriving message does not wake its
// waker.

// A message's two parts, which are joined at the receiver. Where it would have to put a long
// message together by a copy, one whose data is a list of units travels in pieces instead: the head
// with the first units, then units alone.
struct fabric_part {
    const void *head;
    size_t head_bytes;
    const void *data;
    size_t data_bytes;
    size_t unit_bytes; // not 0: data is a list of units of so many bytes
};
// Posts one message. Both parts must stay valid and unchanged until fabric_flush has returned 0, or
// fabric_end: also after a time-out. Messages to one peer keep their order only if the earlier ones
// were flushed: where a queue is full a later one may pass those that wait for room, which would
// tear a message in pieces apart. Posts with no other call between them are in order. Sending to
// oneself is allowed. ERR_REQ_TOO_LARGE above message_bytes_max.
int fabric_send(struct fabric *f, uint32_t peer, uint64_t tag, const struct fabric_part *part);
// Waits until every posted message has left (its memory is free again).
int fabric_flush(struct fabric *f, int64_t deadline_ns);
bool fabric_flushed(struct fabric *f); // whether they have; moves nothing

// What of a message lies in one place, 64-byte aligned; valid until fabric_release or fabric_end.
struct fabric_piece {
    const uint8_t *data;
    size_t bytes;
    const struct fabric_piece *next; // NULL: the last
};

// Who does not expect pieces looks at the first alone, whose size cannot be right if there are
// more. Who does checks each one's size: a peer may have cut anywhere.
struct fabric_msg {
    const uint8_t *data; // of the first piece
    size_t bytes;
    const struct fabric_piece *rest;
    uint64_t tag;
    uint32_t peer;
    void *impl;
};

// Takes the oldest message that matches: peer (or FABRIC_ANY_PEER), kind, and step and layer unless
// step is FABRIC_ANY_STEP. deadline 0 polls: ERR_AGAIN when nothing is there. When wait_wakes is
// set a pending wake of the waker ends the wait with ERR_AGAIN; otherwise wakes are left pending
// for the caller's main loop.
struct fabric_want {
    uint32_t peer;
    enum fabric_message kind;
    uint64_t step;
    uint32_t layer;
    bool wait_wakes;
};
int fabric_recv(struct fabric *f, const struct fabric_want *want, int64_t deadline_ns,
                struct fabric_msg *out);
void fabric_release(struct fabric *f, struct fabric_msg *msg);
static inline struct fabric_piece fabric_pieces(const struct fabric_msg *msg) {
    return (struct fabric_piece){msg->data, msg->bytes, msg->rest};
}

// All-to-all-v among the ranks [first, first + n), of which self is one: sends parts[i] to rank
// first + i with one message each, receives one message from each into in[i] (in[self - first] is
// left empty). The caller releases each in[i]. A message of this tag from any other peer ends the
// epoch.
struct fabric_exchange {
    uint64_t tag;
    uint32_t first, n;
    const struct fabric_part *parts; // [n]
    struct fabric_msg *in;           // [n]
};
int fabric_exchange(struct fabric *f, const struct fabric_exchange *x, int64_t deadline_ns);
// Its two halves: between them the caller may compute. The second waits, as fabric_exchange does,
// until every posted message has left, of other tags too; when it returns 0 the parts' memory is
// free, and else at fabric_end.
int fabric_exchange_send(struct fabric *f, const struct fabric_exchange *x);
int fabric_exchange_receive(struct fabric *f, const struct fabric_exchange *x, int64_t deadline_ns);

size_t fabric_message_bytes_max(const struct fabric *f);

// What the transport chose for each peer, one line ("rank 1 sysv/memory"), for the log. At most cap
// bytes.
void fabric_describe(const struct fabric *f, char *buf, size_t cap);

// Counters since fabric_open.
struct fabric_counters {
    uint64_t messages_sent, bytes_sent, messages_received, bytes_received, messages_dropped;
};
void fabric_count(const struct fabric *f, struct fabric_counters *out);

// Messages of one kind that were sent to other peers since fabric_connect: all, and those with data
// behind their head. The data is what an exchange is for, the rest is what it costs. Both parts of
// a message within a TP group count as data.
struct fabric_traffic {
    uint64_t messages, bytes, data_messages, data_bytes;
};
struct fabric_traffic fabric_sent(const struct fabric *f, enum fabric_message kind);

#endif
