// epoch.h: what a worker owns for the life of one epoch: the fabric's connection, the forward pass,
// the step.
//
// Engine thread only. Order: epoch_form, epoch_connect, steps, epoch_end; epoch_end is fine in any
// state. Weights, pool, store and fabric outlive it.
#ifndef MOESAIC_WORKER_EPOCH_H
#define MOESAIC_WORKER_EPOCH_H

#include "common/base/env.h"
#include "common/base/limits.h"
#include "common/net/fabric.h"
#include "control.pb-c.h"
#include "worker/model.h"
#include "worker/step.h"

struct epoch {
    uint64_t number; // 0 = none is open
    uint64_t nonce;
    uint32_t kv_blocks, n_snapshots, host_index, n_on_host;
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes;
    struct model *model; // owned, from connect on
    struct step *step;   // owned, from connect on
};

// What stays the same over the epochs of one Welcome; nothing is owned.
struct epoch_parts {
    struct env *env;
    struct fabric *fabric;
    const struct weights *weights;
    const struct layout *layout;
    const struct kernel_ops *ops;
    struct pool *pool;
    struct store *store;
    uint32_t rank, n_slots, rows_max, max_model_len;
    enum dtype kv_dtype;
    bool digest;
};

int epoch_form(struct epoch *ep, struct fabric *fabric, const Moesaic__Control__V1__Form *form,
               struct err_text *e);
int epoch_connect(struct epoch *ep, const struct epoch_parts *parts,
                  const Moesaic__Control__V1__Connect *connect, struct err_text *e);
void epoch_end(struct epoch *ep, struct fabric *fabric);

#endif
