// room.h: how many KV pages and snapshots of states a rank has room for, beside its weights and
// what a step needs.
#ifndef MOESAIC_WORKER_ROOM_H
#define MOESAIC_WORKER_ROOM_H

#include "worker/model.h"

struct room {
    const struct model_config *model; // kv_blocks, n_snapshots and pool are not looked at
    uint32_t n_threads;               // at most
    uint64_t memory_bytes;            // of this rank, weights included
    bool measured;     // memory_bytes is what was free, and may be more at the next start
    uint64_t kv_bytes; // for pages; 0: kv_percent of memory_bytes
    uint32_t kv_percent;
    uint64_t snapshot_bytes; // for snapshots; 0: snapshot_percent of memory_bytes
    uint32_t snapshot_percent;
    size_t message_bytes_max; // of the fabric
};

// Pages, at least one. ERR_FATAL_CONFIG (of measured memory ERR_FATAL_NOMEM) with all the numbers
// when not even that fits, and ERR_FATAL_CONFIG when a step of so many rows could not be exchanged.
int room_kv_blocks(const struct room *room, uint32_t *kv_blocks, struct err_text *e);
// Snapshots beside so many pages; 0 of a model without states, or where there is no room.
uint32_t room_snapshots(const struct room *room, uint32_t kv_blocks);

#endif
