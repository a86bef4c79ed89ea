// step.h: the worker's end of one step: plan bytes in, result bytes out.
//
// Before it in the walk: leader/drive over the fabric. After it: model. Lives as long as one epoch,
// because its result buffer belongs to the fabric while a send is posted: destroy it after
// fabric_end. Engine thread only. step_serve allocates nothing: the plan is decoded into a block
// sized at create, and a plan that does not fit is refused.
#ifndef MOESAIC_WORKER_STEP_H
#define MOESAIC_WORKER_STEP_H

#include "common/base/env.h"
#include "common/net/fabric.h"
#include "worker/model.h"

struct step;

struct step_config {
    struct env *env;
    struct fabric *fabric;
    struct model *model; // not owned, as all pointers here
    uint64_t epoch;
    uint32_t rank, n_ranks;
    uint32_t n_slots, rows_max, kv_blocks;
    int64_t send_timeout_ns;
};

int step_create(struct step **out, const struct step_config *config, struct err_text *e);
void step_destroy(struct step *s);

// Runs one plan and sends its result to the leader. Releases the message. ERR_PEER_PROTOCOL: the
// plan was wrong; the leader was told in the result, and the epoch is over. Other ERR_PEER_*: the
// epoch broke.
int step_serve(struct step *s, struct fabric_msg *message, struct err_text *e);

uint64_t step_count(const struct step *s); // served so far

#endif
