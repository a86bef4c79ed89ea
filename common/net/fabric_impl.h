// fabric_impl.h: what the fabrics share behind fabric.h: the wire header, the queue of arrived
// messages, the function table.
//
// Only common/net/fabric*.c (and the fuzzer of arriving messages) include this. All of it belongs
// to the owner thread, but for the interrupt flag and the counters.
#ifndef MOESAIC_COMMON_NET_FABRIC_IMPL_H
#define MOESAIC_COMMON_NET_FABRIC_IMPL_H

#include <assert.h>
#include <stdatomic.h>

#include "common/net/fabric.h"

#define FABRIC_MAGIC 0x4d6f6531u
#define FABRIC_DATA_ALIGN 64
// Pieces that may wait to be taken or released. A correct group has at most a few messages a peer;
// beyond this a peer misbehaves.
#define FABRIC_KEPT_MAX 65536
#define FABRIC_KEPT_CHUNK 1024
// Pieces, too. Before the group is known nothing can be judged, so less is kept.
#define FABRIC_EARLY_MAX 4096
#define FABRIC_EARLY_BYTES_MAX (UINT64_C(256) << 20)

// A message in more pieces would hold more of a transport's buffers than it has at hand.
#define FABRIC_PIECES_MAX 64

// Travels in front of every piece of a message, in the byte order of the machines (all are
// little-endian). The pieces of one message follow each other.
struct fabric_header {
    uint64_t epoch, nonce, tag;
    uint16_t source;
    uint8_t piece, n_pieces; // from 0; at least 1
    uint32_t magic;
};
static_assert(sizeof(struct fabric_header) == 32, "the header is a wire format");
static_assert(RANKS_MAX < UINT16_MAX && FABRIC_PIECES_MAX <= UINT8_MAX, "a source, a piece");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers and rows travel in native order");

// An arrived piece. The first of a message stands for all of it: waiting in f->kept, or given to
// the caller and in f->given.
struct fabric_kept {
    struct fabric_kept *next, *previous;
    struct fabric_header header;
    struct fabric_piece piece;
    void *handle; // the implementation's, to give data back; NULL for a message to oneself
    bool given;
    // Of the first: the others in their order, what has come of the message.
    struct fabric_kept *rest, *last;
    uint32_t n_arrived;
    size_t bytes;
};

struct fabric_list {
    struct fabric_kept *first, *last;
};

struct fabric_chunk; // a block of fabric_kept

struct fabric_ops {
    int (*begin)(struct fabric *f, uint8_t *address, size_t *address_bytes, struct err_text *e);
    int (*check_address)(const struct fabric *f, const uint8_t *address, size_t bytes,
                         struct err_text *e); // may be NULL
    int (*connect)(struct fabric *f, const struct fabric_group *group, struct err_text *e);
    void (*end)(struct fabric *f); // also after a failed begin or connect; every kept message was
                                   // released before
    void (*close)(struct fabric *f);
    void (*interrupt)(struct fabric *f); // any thread: ends a wait
    int (*send)(struct fabric *f, uint32_t peer, const struct fabric_header *header,
                const struct fabric_part *part);
    // Messages of up to so many bytes reach this peer without being put together; NULL: all do.
    size_t (*whole_bytes)(const struct fabric *f, uint32_t peer);
    bool (*sent)(struct fabric *f); // no posted message still needs its memory
    void (*progress)(struct fabric *f);
    // Sleeps until something may have arrived, the deadline or (with wakes) a wake of the owner's
    // waker; true: that was consumed.
    bool (*wait)(struct fabric *f, int64_t deadline_ns, bool wakes);
    void (*release)(struct fabric *f, void *handle);
    void (*describe)(const struct fabric *f, char *buf, size_t cap);
};

enum fabric_state { FABRIC_IDLE, FABRIC_BEGUN, FABRIC_CONNECTED };

// The first member of every implementation's fabric.
struct fabric {
    const struct fabric_ops *ops;
    struct fabric_config config;
    char *interface, *transports; // owned copies for config
    enum fabric_state state;
    uint64_t epoch, nonce;
    uint32_t self, n_peers;
    int broken;   // 0, or why the epoch is over
    bool arrived; // something has, since the implementation last cleared this
    atomic_bool interrupted;
    struct fabric_list kept, given;
    struct fabric_kept *spare;
    struct fabric_chunk *chunks; // owned
    size_t n_kept;               // made so far: spare, kept and given
    size_t early_pieces;
    uint64_t early_bytes;
    atomic_uint_fast64_t messages_sent, bytes_sent, messages_received, bytes_received,
        messages_dropped;
    struct fabric_traffic sent[FABRIC_KINDS]; // in this epoch; the owner's alone
};

int fabric_open_self(struct fabric **out, const struct fabric_config *config, struct err_text *e);
int fabric_open_mem(struct fabric **out, const struct fabric_config *config, struct err_text *e);
int fabric_open_ucx(struct fabric **out, const struct fabric_config *config, struct err_text *e);

// Called by implementations. The header has any alignment. True: the message is kept and handle is
// released later. False: it was dropped, the data still belongs to the caller.
struct fabric_arrival {
    const void *header;
    size_t header_bytes;
    const uint8_t *data;
    size_t bytes;
    void *handle;
};
bool fabric_arrived(struct fabric *f, const struct fabric_arrival *arrival);
// The epoch is over because of peer; the first reason stays. Logged once.
void fabric_lose(struct fabric *f, uint32_t peer, int code, const char *reason);

#endif
