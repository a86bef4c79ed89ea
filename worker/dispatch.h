// dispatch.h: sends each row to the ranks of its stage that own its experts. Twin of combine.h:
// same steps, same order of functions.
//
// One message per peer and layer, also when it has no rows. The ranks of one place of EP, which
// hold parts of the same experts, get equal messages. A row travels once to a peer even if several
// of its experts live there:
//
//   u32 n_rows, n_pairs, hidden, top_k       struct dispatch_head
//   u32 n_experts_of_row[n_rows]             1 .. top_k
//   u32 experts[n_pairs]                     global ids, row by row, in the router's order; one
//                                            twice only where a table names them
//   zeros up to a multiple of 64 bytes
//   f32 rows[n_rows][hidden]
//
// The pairs (row, expert) in this order are what the peer answers with one row each. Little-endian.
#ifndef MOESAIC_WORKER_DISPATCH_H
#define MOESAIC_WORKER_DISPATCH_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/model/spec.h"
#include "common/net/fabric.h"
#include "worker/rows.h"
#include "worker/scratch.h"

struct forward;

struct dispatch_head {
    uint32_t n_rows, n_pairs, hidden, top_k;
};
static_assert(sizeof(struct dispatch_head) == 16, "wire size");

// What goes to each rank of one place of EP in one layer.
struct dispatch_place {
    uint32_t n_rows, n_pairs;
    uint32_t first_row, last_row;   // the batch rows counted first, and last plus one
    uint32_t *row_counts, *experts; // inside its head
    uint8_t *head;                  // NULL: this rank's own place, and nobody shares it
    size_t head_bytes;
    const float *rows;   // in normed where they follow each other there
    bool copied;         // else in dispatch.sent,
    uint32_t first_sent; // from this row on
};

// One expert's work on one row. Its result goes to the same index of combine.out.
struct pair {
    const float *x;  // [hidden], in normed or in a received message
    uint32_t expert; // local
};

struct dispatch {
    uint32_t *owner;               // [n_experts] place of EP
    struct dispatch_place *places; // [ep]
    uint8_t *heads;                // of all places
    size_t heads_bytes;
    float *sent;        // the copied rows of all places
    uint32_t *sent_row; // the batch row of each row in sent
    uint32_t n_sent;
    uint32_t *pair_index;      // [own_max, top_k] among the pairs of that place's message
    struct fabric_part *parts; // [stage_ranks], as everything by rank below
    struct fabric_msg *in;     // [stage_ranks]
    bool holding;              // in has messages
    const float **rows;        // [own_max] of the message that is looked at

    // What this rank has to compute, by rank that asked; each rank's in the order of its message.
    struct pair *pairs;
    uint32_t *pair_begin; // [stage_ranks + 1]
};

void dispatch_lay(struct forward *f, struct scratch *s);
// Sends the own rows. What else does not need the peers' rows may be computed next, but normed
// stays as it is until dispatch_receive.
int dispatch_send(struct forward *f, uint32_t layer, struct err_text *e);
// Receives the peers' rows, lists the pairs; the received messages stay until dispatch_release.
// ERR_PEER_PROTOCOL when one does not add up.
int dispatch_receive(struct forward *f, uint32_t layer, struct err_text *e);
void dispatch_release(struct forward *f);

// Bytes of one message before its rows; and of all heads that one rank may send to so many places
// in a layer.
size_t dispatch_head_bytes(uint64_t n_rows, uint64_t n_pairs);
size_t dispatch_heads_bytes(uint32_t n_places, uint32_t rows_max, uint32_t top_k);
// Most pairs that one rank's rows can ask of this rank's experts.
size_t dispatch_pairs_max(const struct forward *f);
// Bytes of the largest dispatch message between two ranks.
size_t dispatch_bytes_max(const struct model_spec *spec, uint32_t rows_max);

// What a received message must fit; its parts are found only after everything was checked.
struct dispatch_rules {
    uint32_t hidden, top_k, rows_max, first_expert, n_local_experts;
    bool may_repeat; // a table names the layer's experts, maybe one twice for a row
};
struct dispatch_view {
    uint32_t n_rows, n_pairs;
    const uint32_t *row_counts, *experts;
    struct rows_shape rows; // to find them
};
int dispatch_parse(struct dispatch_view *out, const struct dispatch_rules *rules,
                   const struct fabric_piece *first, struct err_text *e);

#endif
