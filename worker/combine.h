// combine.h: returns each pair's row to the rank that owns the token, and adds them there. Twin of
// dispatch.h.
//
// Where ranks of ETP share experts, each returns the part of a pair's row that its share of the
// inner width gives, and the owner adds the parts in the tree of down's segments.
//
// One message per peer and layer, also when it has no rows:
//
//   u32 n_rows, hidden, zeros up to 64 bytes   struct rows_head
//   f32 rows[n_rows][hidden]                   in the order of the pairs of the peer's dispatch
#ifndef MOESAIC_WORKER_COMBINE_H
#define MOESAIC_WORKER_COMBINE_H

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

struct combine {
    struct rows_head *heads;   // [stage_ranks]
    float *out;                // [pairs of all ranks, hidden] results, by rank that asked
    struct fabric_part *parts; // [stage_ranks]
    struct fabric_msg *in;     // [stage_ranks]
    bool holding;              // in has messages
    // Each rank's answers to this rank's pairs: rank r's begin at rows[row_begin[r]].
    const float **rows;
    uint32_t *row_begin; // [stage_ranks]
    float *sum;          // [n_threads, hidden]
    float *tree;         // [n_threads, etp, hidden] of one pair's parts
};

void combine_lay(struct forward *f, struct scratch *s);
// Bytes of the largest combine message between two ranks.
size_t combine_bytes_max(const struct model_spec *spec, uint32_t rows_max);
// Sends the results, receives the peers', adds them to x. ERR_PEER_PROTOCOL when a message does not
// add up.
int combine_rows(struct forward *f, uint32_t layer, struct err_text *e);
void combine_release(struct forward *f);

#endif
