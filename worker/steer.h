// steer.h: what a request may do to its logits before a token is chosen: penalties, biases, bans
// (docs/arithmetic.md, Sampling).
//
// The plan brings a sequence's steering once, the slot keeps it. Which tokens came before is read
// from the slot's pages, so there is no history to lose or to send again. Checks and steer_set:
// engine thread; steer_row: any compute thread.
#ifndef MOESAIC_WORKER_STEER_H
#define MOESAIC_WORKER_STEER_H

#include "common/base/err.h"
#include "step.pb-c.h"
#include "worker/kv.h"
#include "worker/scratch.h"

enum steer_list {
    STEER_STOP_IDS,
    STEER_BIAS_IDS,
    STEER_BIAS, // bits of float32
    STEER_ALLOWED_IDS,
    STEER_WORD_IDS,
    STEER_WORD_LENGTHS,
    STEER_LISTS
};

// One slot's.
struct steer_slot {
    bool known; // a plan has set it
    uint32_t n_prompt, min_tokens;
    float presence_penalty, frequency_penalty, repetition_penalty;
    uint32_t n[STEER_LISTS];
    uint32_t *items; // [STEERING_ITEMS_MAX] the lists, one after another
};

// One thread's.
struct steer_scratch {
    float *logits;    // [vocab] the steered row
    uint32_t *counts; // [vocab] all zero between rows
};

struct steer_row {
    const float *logits; // [vocab]
    uint32_t vocab;
    uint32_t slot, position; // of the row; tokens up to and with it are known
};

void steer_lay(struct steer_slot *s, struct scratch *memory);
void steer_scratch_lay(struct steer_scratch *s, uint32_t vocab, struct scratch *memory);

// ERR_PEER_PROTOCOL names the field.
int steer_check(const Moesaic__Step__V1__Steering *pb, uint32_t vocab, struct err_text *e);
void steer_set(struct steer_slot *s, const Moesaic__Step__V1__Steering *pb);

// The row as this sequence wants it, in scratch->logits. Banned ids are minus infinity; at least
// one is not.
const float *steer_row(const struct steer_slot *s, const struct kv *kv, const struct steer_row *row,
                       const struct steer_scratch *scratch);

#endif
