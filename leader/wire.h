// wire.h: a rank's step plan to bytes, and result bytes to checked results (proto/step.proto).
//
// Owned by drive.c, which is before and after it in the walk. Its buffers are sized at start and
// reused: a step allocates nothing once the largest plan was seen.
#ifndef MOESAIC_LEADER_WIRE_H
#define MOESAIC_LEADER_WIRE_H

#include "common/base/mem.h"
#include "leader/sched.h"

struct wire;

// Bytes of one encoded plan, kept until the fabric has sent them.
struct wire_buffer {
    uint8_t *data; // mem_alloc'd, owned
    size_t bytes, capacity;
};

int wire_create(struct wire **out, const struct sched_config *shape);
void wire_destroy(struct wire *w);

// Encodes into buffer, which grows when it must. ERR_FATAL_NOMEM.
int wire_encode(struct wire *w, uint64_t epoch, uint64_t step, const struct rank_plan *plan,
                struct wire_buffer *buffer);

// What a rank sent, and what it was asked for.
struct wire_answer {
    const uint8_t *data;
    size_t bytes;
    uint64_t epoch, step;
    uint32_t rank;
    const struct rank_plan *plan;
};

struct wire_result {
    const struct sampled *results; // [plan->n_answered], valid until the next wire_decode
    uint64_t phase_ns[16];
};

// Checks every field against what was asked for. ERR_PEER_PROTOCOL names the one that is wrong;
// ERR_PEER_LOST: the rank says that it could not run the step.
int wire_decode(struct wire *w, const struct wire_answer *x, struct wire_result *out,
                struct err_text *e);

#endif
