// rows.h: rows of float32 in messages of the data plane: what dispatch, combine, the stages and a
// TP group have in common. Behind a head or without one, in one place or in several (fabric.h).
//
// What arrives is data from outside: nothing of it is believed before its size is right.
#ifndef MOESAIC_WORKER_ROWS_H
#define MOESAIC_WORKER_ROWS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/net/fabric.h"

// Rows begin at multiples of this behind a head.
#define WIRE_ALIGN 64

// Where both sides know how many rows there are, so that this only proves it.
struct rows_head {
    uint32_t n_rows, hidden, zero[14];
};
static_assert(sizeof(struct rows_head) == WIRE_ALIGN, "rows begin aligned");

struct rows_shape {
    size_t head_bytes, row_bytes;
    uint32_t n_rows;
};

// ERR_PEER_PROTOCOL unless there are the head and so many rows, none of them cut.
int rows_check(const struct fabric_piece *first, const struct rows_shape *shape,
               struct err_text *e);
// Of a message that was checked: where each row lies, or all of them copied.
void rows_find(const float **rows, const struct fabric_piece *first,
               const struct rows_shape *shape);
void rows_copy(float *to, const struct fabric_piece *first, const struct rows_shape *shape);

// A message with a struct rows_head in front: checked, and how many rows of which width it has.
struct rows_rules {
    uint32_t n_rows, hidden;
};
int rows_parse(struct rows_shape *out, const struct fabric_piece *first,
               const struct rows_rules *rules, struct err_text *e);

#endif
