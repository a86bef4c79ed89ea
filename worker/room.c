// room.c: see room.h. Before the first Loaded in the walk of a join: a rank must not promise pages
// whose memory the next allocation then lacks. Not counted is what the process needs beside model
// and step: messages on their way, the buffers of shared memory that they lie in until they are
// released (UCX keeps as many as were ever held at once), and up to 256 MiB of freed messages that
// the allocator keeps (common/net/fabric_ucx.c). It comes out of what kv_percent leaves; where
// weights and pages take all of memory_bytes, that must be less than the host has.
#include "worker/room.h"

#include <inttypes.h>

#include "common/base/log.h"

static int check_messages(const struct room *r, struct err_text *e) {
    const struct model_config *c = r->model;
    size_t bytes = model_message_bytes_max(c->weights->spec, c->layout, c->rows_max);
    if (c->layout->n_ranks == 1 || bytes <= r->message_bytes_max) return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "max-num-batched-tokens %u of this model needs messages of %zu bytes between "
                   "workers, more than %zu: lower it",
                   c->rows_max, bytes, r->message_bytes_max);
}

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

int room_kv_blocks(const struct room *r, uint32_t *kv_blocks, struct err_text *e) {
    const struct model_config *c = r->model;
    int rc = check_messages(r, e);
    if (rc != 0) return rc;
    uint64_t weights = c->weights->bytes, step = model_step_bytes(c, r->n_threads);
    uint64_t left = less(less(r->memory_bytes, weights), step);
    uint64_t bytes = r->kv_bytes != 0 ? r->kv_bytes : r->memory_bytes / 100 * r->kv_percent;
    uint64_t page = model_kv_block_bytes(c);
    if (r->kv_bytes != 0 && r->kv_bytes < page)
        return err_set(e, ERR_FATAL_CONFIG,
                       "kv-cache-memory %" PRIu64 " bytes is less than one KV page of %" PRIu64
                       ": raise it",
                       r->kv_bytes, page);
    if (bytes > left && r->kv_bytes != 0)
        log_warn("worker", "kv cache of %" PRIu64 " bytes cut to the %" PRIu64 " that are left",
                 bytes, left);
    if (bytes > left) bytes = left;
    uint32_t n = model_kv_blocks_fit(c, bytes);
    if (n == 0)
        return err_set(e, r->measured ? ERR_FATAL_NOMEM : ERR_FATAL_CONFIG,
                       "not one KV page fits: it is %" PRIu64 " bytes; of memory %" PRIu64
                       " bytes, weights take %" PRIu64 ", a step %" PRIu64
                       " (lower max-num-batched-tokens %u or max-num-seqs %u), and KV pages get "
                       "%" PRIu64,
                       page, r->memory_bytes, weights, step, c->rows_max, c->n_slots, bytes);
    *kv_blocks = n;
    return 0;
}

// Pages are needed, snapshots only save time: these take what those leave.
uint32_t room_snapshots(const struct room *r, uint32_t kv_blocks) {
    const struct model_config *c = r->model;
    uint64_t bytes =
        r->snapshot_bytes != 0 ? r->snapshot_bytes : r->memory_bytes / 100 * r->snapshot_percent;
    uint64_t left =
        less(less(r->memory_bytes, c->weights->bytes), model_step_bytes(c, r->n_threads));
    left = less(left, kv_blocks * model_kv_block_bytes(c));
    if (model_snapshots_fit(c, bytes) == 0) return 0;
    if (bytes > left && r->snapshot_bytes != 0)
        log_warn("worker",
                 "snapshots of %" PRIu64 " bytes cut to the %" PRIu64 " that weights, step and KV "
                 "pages leave",
                 bytes, left);
    return model_snapshots_fit(c, bytes < left ? bytes : left);
}
