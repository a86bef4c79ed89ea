// state.c: see state.h. In the walk through a step it stands around the layers: restored before the
// first of them, saved after the last.
#include "worker/state.h"

#include <string.h>

#include "common/base/check.h"
#include "worker/forward.h"

void state_begin(struct state *st, uint32_t n_slots, uint32_t n_snapshots, struct scratch *kept) {
    *st = (struct state){.n_slots = n_slots, .n_snapshots = n_snapshots, .kept = kept};
}

void *state_take(struct state *st, uint32_t n_layers, size_t bytes) {
    check(st->n_parts < STATE_PARTS_MAX && bytes % sizeof(float) == 0);
    void *data = scratch_take(st->kept, (size_t)n_layers * st->n_slots, bytes);
    st->parts[st->n_parts++] = (struct state_part){data, n_layers, bytes};
    st->n_pieces += n_layers;
    st->bytes += n_layers * bytes; // limits.h: far below 2^64
    return data;
}

void state_lay(struct state *st) {
    st->snapshots = scratch_take(st->kept, st->n_snapshots, st->bytes);
}

struct copy {
    const struct state *st;
    uint32_t slot, snapshot;
    bool save;
};

// Piece i: what one layer of one part keeps.
static void copy_piece(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct copy *c = context;
    const struct state *st = c->st;
    const struct state_part *part = st->parts;
    size_t offset = 0;
    for (; i >= part->n_layers; part++) {
        offset += part->n_layers * part->bytes;
        i -= part->n_layers;
    }
    uint8_t *kept = part->data + ((size_t)i * st->n_slots + c->slot) * part->bytes;
    uint8_t *copied = st->snapshots + c->snapshot * st->bytes + offset + i * part->bytes;
    memcpy(c->save ? copied : kept, c->save ? kept : copied, part->bytes);
}

static void copy(struct forward *f, uint32_t slot, uint32_t snapshot, bool save) {
    struct copy c = {&f->state, slot, snapshot, save};
    if (snapshot != SNAPSHOT_NONE) pool_run(f->pool, f->state.n_pieces, copy_piece, &c);
}

void state_restore(struct forward *f) {
    for (uint32_t i = 0; i < f->batch.n_seqs; i++)
        copy(f, f->batch.seqs[i].slot, f->batch.seqs[i].restored, false);
}

void state_save(struct forward *f) {
    for (uint32_t i = 0; i < f->batch.n_seqs; i++)
        copy(f, f->batch.seqs[i].slot, f->batch.seqs[i].saved, true);
}
