// batch.h: a step's plan as rows: what each row is, where its sequence's pages are, who is sampled
// and scored.
//
// First in the walk through a step. The plan came over the network: batch_check believes nothing in
// it and changes nothing that a later step could see; only a plan that passed it reaches
// batch_fill. Engine thread only.
#ifndef MOESAIC_WORKER_BATCH_H
#define MOESAIC_WORKER_BATCH_H

#include "common/base/err.h"
#include "common/base/snapshot.h"
#include "step.pb-c.h"
#include "worker/kv.h"
#include "worker/scratch.h"
#include "worker/steer.h"

// A run of rows of one sequence, as in the plan.
struct batch_seq {
    uint32_t slot, row_begin, n_rows;
    // In the plan's memory: of its last row; NULL = not sampled.
    const Moesaic__Step__V1__Sampling *sampling;
    const Moesaic__Step__V1__Scoring *scoring; // of its first rows; NULL = none
    uint32_t restored, saved;                  // snapshots: before its first row, after its last
};

// What a slot remembers between steps.
struct batch_slot {
    bool has_token;
    uint32_t token;      // sampled last
    uint32_t state_end;  // of a model with states: the position that its own has come to
    uint64_t seen_check; // the check that met this slot last: finds duplicates
    struct steer_slot steering;
};

// A snapshot as the plans left it.
struct batch_snapshot {
    uint32_t end;        // the position that its state has come to; 0 = nothing stands there
    uint64_t seen_check; // the check that met it last as one to write
};

// Who wrote a page in the plan under check: two writers would race.
struct batch_writer {
    uint64_t check;
    uint32_t slot;
};

struct batch {
    uint32_t n_slots, rows_max, max_model_len, vocab;
    bool pipelined; // this rank may not know what a slot sampled
    // Slots have a state, which a run continues, takes from a snapshot or begins anew.
    bool stateful;
    uint32_t n_snapshots;
    uint64_t n_checks;
    struct batch_slot *slots;         // [n_slots]
    struct batch_writer *writers;     // [kv blocks]
    struct batch_snapshot *snapshots; // [n_snapshots]

    uint32_t n_seqs, n_rows, n_answered;
    struct batch_seq *seqs;            // [n_slots]
    uint32_t *token, *position, *slot; // [rows_max] of each row
    uint32_t *answered_seq; // [n_slots] the sequences that are sampled or scored, in plan order
};

struct batch_sizes {
    uint32_t n_slots, rows_max, max_model_len, kv_blocks, vocab;
    uint32_t n_snapshots;
    bool pipelined, stateful;
};

void batch_lay(struct batch *b, const struct batch_sizes *sizes, struct scratch *s);
// The whole plan against the limits and the slots' tables; ERR_PEER_PROTOCOL names the field.
int batch_check(struct batch *b, const struct kv *kv, const Moesaic__Step__V1__StepPlan *plan,
                struct err_text *e);
// Takes over a plan that was checked: rows, and the slots' new blocks.
void batch_fill(struct batch *b, struct kv *kv, const Moesaic__Step__V1__StepPlan *plan);
// The token this slot sampled, for a later token_from_slot.
void batch_remember(struct batch *b, uint32_t slot, uint32_t token);

#endif
