// stage.h: hands the residual stream from one stage of the pipeline to the next: each rank to the
// one of equal DP and TP index.
//
// One message a step, and none where a rank has no rows: both sides know that from the plan.
//
//   u32 n_rows, hidden, zeros up to 64 bytes   struct rows_head
//   f32 rows[n_rows][hidden]                   the sender's own rows of x: hidden is the width of
//                                              all their streams
#ifndef MOESAIC_WORKER_STAGE_H
#define MOESAIC_WORKER_STAGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/model/spec.h"
#include "worker/rows.h"

struct forward;

struct stage {
    struct rows_head head; // of the message that may still be on its way
};

// Bytes of the largest message.
size_t stage_bytes_max(const struct model_spec *spec, uint32_t rows_max);
// x = what the stage before made of the own rows. ERR_PEER_PROTOCOL when the message does not add
// up.
int stage_receive(struct forward *f, struct err_text *e);
// Sends x on. It stays as it is until fabric_flush: step_serve waits for that before the next step.
int stage_send(struct forward *f, struct err_text *e);

#endif
