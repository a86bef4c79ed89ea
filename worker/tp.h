// tp.h: the exchanges of a TP group: its ranks get the same plan, share the rows of a step and
// split attention, dense layers and the head (slice.h).
//
// A split block begins with tp_gather, after which every rank has all rows, and ends with
// tp_reduce, after which each owner has its rows' sums, in the order of docs/arithmetic.md.
// Messages are bare float32, row by row: both sides know from the plan how many there are, and
// where there are none nothing is sent. Latent attention with compressed queries gathers what its
// rows are compressed to instead, and what its index makes of them, which is less (mla.c). Engine
// thread only.
#ifndef MOESAIC_WORKER_TP_H
#define MOESAIC_WORKER_TP_H

#include "common/net/fabric.h"
#include "worker/scratch.h"

struct forward;

struct tp {
    uint32_t n, index, first_rank; // ranks first_rank + i form the group
    uint32_t *row_first;           // [n + 1] whose rows of this step are whose
    // One exchange: what goes to each, and how many bytes must come from each (0: no message).
    struct fabric_part *out; // [n]
    size_t *wanted;          // [n]
    size_t unit_bytes;       // of both, where they are lists of rows; else 0
    struct fabric_msg *in;   // [n]
    const float **parts;     // [n, own_max] the partial rows that are added
    float *sums;             // [n_threads, levels of the tree, hidden]
    uint64_t wait_ns;        // in exchanges, since somebody took it out
};

void tp_lay(struct forward *f, struct scratch *s);
// Once a step, after batch_fill.
void tp_begin(struct forward *f);

// A block's number in its exchanges' tags; the head's rows are gathered as behind the last layer,
// and its logits and tokens numbered by their tile.
enum tp_part { TP_ATTN, TP_DENSE };
static inline uint32_t tp_block(uint32_t layer, enum tp_part part) {
    return 2 * layer + part;
}
static inline uint32_t tp_block_layer(uint32_t block) {
    return block / 2;
}
static inline enum tp_part tp_block_part(uint32_t block) {
    return (enum tp_part)(block % 2);
}

// all_normed rows [first[i], first[i + 1]) come from the rank of index i; own ones are there. The
// same for any lists of rows that all ranks know.
int tp_gather(struct forward *f, uint32_t block, const uint32_t *first, struct err_text *e);
// x += the sums of all ranks' partial rows, each with its bias, as forward_return does it.
struct tp_after {
    const float *bias, *post_norm; // [hidden], or NULL
};
int tp_reduce(struct forward *f, uint32_t block, const struct tp_after *after, struct err_text *e);

// Sends out and receives what is wanted, each message checked for its bytes: ERR_PEER_PROTOCOL
// names the block and the rank. On success the messages stay until tp_release.
int tp_exchange(struct forward *f, enum fabric_message kind, uint32_t block, struct err_text *e);
void tp_release(struct forward *f);
// Nothing goes out and nothing is wanted yet.
void tp_exchange_begin(struct forward *f);

// Bytes of the largest message of gathers and reductions.
size_t tp_bytes_max(uint32_t hidden, uint32_t own_max);

#endif
