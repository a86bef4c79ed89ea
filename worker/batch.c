// batch.c: see batch.h.
#include "worker/batch.h"

#include <math.h>

void batch_lay(struct batch *b, const struct batch_sizes *sizes, struct scratch *s) {
    b->n_slots = sizes->n_slots;
    b->rows_max = sizes->rows_max;
    b->max_model_len = sizes->max_model_len;
    b->vocab = sizes->vocab;
    b->pipelined = sizes->pipelined;
    b->stateful = sizes->stateful;
    b->n_snapshots = sizes->n_snapshots;
    b->slots = scratch_take(s, sizes->n_slots, sizeof *b->slots);
    for (uint32_t slot = 0; slot < sizes->n_slots; slot++) {
        struct steer_slot unplaced;
        steer_lay(b->slots != NULL ? &b->slots[slot].steering : &unplaced, s);
    }
    b->writers = scratch_take(s, sizes->kv_blocks, sizeof *b->writers);
    b->snapshots = scratch_take(s, sizes->n_snapshots, sizeof *b->snapshots);
    b->seqs = scratch_take(s, sizes->n_slots, sizeof *b->seqs);
    b->answered_seq = scratch_take(s, sizes->n_slots, sizeof *b->answered_seq);
    b->token = scratch_take(s, sizes->rows_max, sizeof *b->token);
    b->position = scratch_take(s, sizes->rows_max, sizeof *b->position);
    b->slot = scratch_take(s, sizes->rows_max, sizeof *b->slot);
}

// The sequence under check: index i of the plan.
struct seq_check {
    struct batch *b;
    const struct kv *kv;
    const Moesaic__Step__V1__PlanSeq *seq;
    uint32_t i, n_rows; // n_rows is 1 for token_from_slot
    struct err_text *e;
};

#define REFUSE(c, ...) err_set((c)->e, ERR_PEER_PROTOCOL, __VA_ARGS__)

static int check_slot(const struct seq_check *c) {
    uint32_t slot = c->seq->slot;
    if (slot >= c->b->n_slots)
        return REFUSE(c, "seqs[%u].slot %u is not below %u", c->i, slot, c->b->n_slots);
    if (c->b->slots[slot].seen_check == c->b->n_checks)
        return REFUSE(c, "seqs[%u].slot %u is in this plan twice", c->i, slot);
    c->b->slots[slot].seen_check = c->b->n_checks;
    return 0;
}

static int check_tokens(struct seq_check *c) {
    const Moesaic__Step__V1__PlanSeq *seq = c->seq;
    if (seq->token_from_slot) {
        if (c->b->pipelined)
            return REFUSE(c, "seqs[%u].token_from_slot: the group is a pipeline of stages", c->i);
        if (seq->n_tokens != 0) return REFUSE(c, "seqs[%u].tokens come with token_from_slot", c->i);
        if (!c->b->slots[seq->slot].has_token)
            return REFUSE(c, "seqs[%u].token_from_slot: slot %u never sampled", c->i, seq->slot);
        c->n_rows = 1;
        return 0;
    }
    if (seq->n_tokens == 0) return REFUSE(c, "seqs[%u].tokens is empty", c->i);
    if (seq->n_tokens > c->b->rows_max)
        return REFUSE(c, "seqs[%u].tokens: %zu are more than %u rows", c->i, seq->n_tokens,
                      c->b->rows_max);
    for (size_t t = 0; t < seq->n_tokens; t++) {
        if (seq->tokens[t] >= c->b->vocab)
            return REFUSE(c, "seqs[%u].tokens[%zu] %u is not below %u", c->i, t, seq->tokens[t],
                          c->b->vocab);
    }
    c->n_rows = (uint32_t)seq->n_tokens;
    return 0;
}

// A snapshot's number, 1 + its index, is one of this rank's.
static int check_snapshot(const struct seq_check *c, const char *field, uint32_t number) {
    if (!c->b->stateful)
        return REFUSE(c, "seqs[%u].%s: the model keeps no states in its slots", c->i, field);
    if (number > c->b->n_snapshots)
        return REFUSE(c, "seqs[%u].%s %u is above the %u snapshots that there are", c->i, field,
                      number, c->b->n_snapshots);
    return 0;
}

static int check_restored(const struct seq_check *c) {
    const Moesaic__Step__V1__PlanSeq *seq = c->seq;
    int rc = check_snapshot(c, "from_snapshot", seq->from_snapshot);
    if (rc != 0) return rc;
    uint32_t end = c->b->snapshots[seq->from_snapshot - 1].end;
    if (end != 0 && seq->position == end) return 0;
    return REFUSE(c, "seqs[%u].position %u: snapshot %u has come to %u", c->i, seq->position,
                  seq->from_snapshot, end);
}

// Pages of any tokens may be shared; a state is what this slot ran, what a snapshot holds, or
// nothing at position 0.
static int check_state(const struct seq_check *c) {
    const Moesaic__Step__V1__PlanSeq *seq = c->seq;
    uint32_t end = c->b->slots[seq->slot].state_end;
    if (seq->from_snapshot != 0) return check_restored(c);
    if (!c->b->stateful || seq->position == 0 || seq->position == end) return 0;
    return REFUSE(c, "seqs[%u].position %u: the state of slot %u has come to %u", c->i,
                  seq->position, seq->slot, end);
}

static int check_saved(const struct seq_check *c) {
    const Moesaic__Step__V1__PlanSeq *seq = c->seq;
    if (seq->to_snapshot == 0) return 0;
    int rc = check_snapshot(c, "to_snapshot", seq->to_snapshot);
    if (rc != 0) return rc;
    struct batch_snapshot *snapshot = &c->b->snapshots[seq->to_snapshot - 1];
    if (snapshot->seen_check == c->b->n_checks)
        return REFUSE(c, "seqs[%u].to_snapshot %u is written by this plan twice", c->i,
                      seq->to_snapshot);
    snapshot->seen_check = c->b->n_checks;
    uint64_t end = (uint64_t)seq->position + c->n_rows;
    if (end % KV_BLOCK_TOKENS == 0) return 0;
    return REFUSE(c, "seqs[%u].to_snapshot %u: the run ends at %u, where no block does", c->i,
                  seq->to_snapshot, (uint32_t)end);
}

// After the update the table must have no hole and reach the last position.
static int check_table(const struct seq_check *c) {
    const Moesaic__Step__V1__PlanSeq *seq = c->seq;
    uint64_t end = (uint64_t)seq->position + c->n_rows;
    if (end > c->b->max_model_len)
        return REFUSE(c, "seqs[%u].position %u and %u tokens pass %u", c->i, seq->position,
                      c->n_rows, c->b->max_model_len);
    uint32_t had = c->kv->tables[seq->slot].n_blocks;
    if (seq->block_offset > had)
        return REFUSE(c, "seqs[%u].block_offset %u is above the %u blocks of slot %u", c->i,
                      seq->block_offset, had, seq->slot);
    if (seq->n_blocks > c->kv->blocks_max - seq->block_offset)
        return REFUSE(c, "seqs[%u].blocks: %zu are too many", c->i, seq->n_blocks);
    uint32_t has = seq->n_blocks == 0 ? had : seq->block_offset + (uint32_t)seq->n_blocks;
    uint32_t needed = kv_blocks_of((uint32_t)end);
    if (has < needed)
        return REFUSE(c, "seqs[%u].blocks: %u are fewer than the %u needed", c->i, has, needed);
    for (size_t k = 0; k < seq->n_blocks; k++) {
        if (seq->blocks[k] >= c->kv->n_blocks)
            return REFUSE(c, "seqs[%u].blocks[%zu] %u is not below %u", c->i, k, seq->blocks[k],
                          c->kv->n_blocks);
    }
    return 0;
}

static uint32_t block_after_update(const struct seq_check *c, uint32_t index) {
    const Moesaic__Step__V1__PlanSeq *seq = c->seq;
    bool updated = index >= seq->block_offset && index - seq->block_offset < seq->n_blocks;
    return updated ? seq->blocks[index - seq->block_offset]
                   : c->kv->tables[seq->slot].blocks[index];
}

// Pages may be shared for reading, but one page written from two places of a plan would hold
// either's numbers.
static int check_writes(const struct seq_check *c) {
    uint32_t first = c->seq->position / KV_BLOCK_TOKENS;
    uint32_t last = (c->seq->position + c->n_rows - 1) / KV_BLOCK_TOKENS;
    for (uint32_t index = first; index <= last; index++) {
        struct batch_writer *writer = &c->b->writers[block_after_update(c, index)];
        if (writer->check == c->b->n_checks)
            return REFUSE(c, "seqs[%u].blocks: page %u is written by slot %u and by slot %u", c->i,
                          block_after_update(c, index), writer->slot, c->seq->slot);
        *writer = (struct batch_writer){c->b->n_checks, c->seq->slot};
    }
    return 0;
}

static int check_sampling(const struct seq_check *c) {
    const Moesaic__Step__V1__Sampling *s = c->seq->sampling;
    if (s == NULL) return 0;
    // Written so that NaN is refused too.
    if (!(s->temperature >= 0.0f && isfinite(s->temperature)))
        return REFUSE(c, "seqs[%u].sampling.temperature %g is not finite and at least 0", c->i,
                      (double)s->temperature);
    if (!(s->top_p >= 0.0f && s->top_p <= 1.0f))
        return REFUSE(c, "seqs[%u].sampling.top_p %g is not within 0 to 1", c->i, (double)s->top_p);
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f))
        return REFUSE(c, "seqs[%u].sampling.min_p %g is not within 0 to 1", c->i, (double)s->min_p);
    if (s->n_logprobs > TOP_LOGPROBS_MAX)
        return REFUSE(c, "seqs[%u].sampling.n_logprobs %u is above %d", c->i, s->n_logprobs,
                      TOP_LOGPROBS_MAX);
    return 0;
}

static int check_steering(struct seq_check *c) {
    const Moesaic__Step__V1__PlanSeq *seq = c->seq;
    struct err_text cause;
    if (seq->steering != NULL && steer_check(seq->steering, c->b->vocab, &cause) != 0)
        return REFUSE(c, "seqs[%u].%s", c->i, cause.text);
    bool known = seq->steering != NULL || c->b->slots[seq->slot].steering.known;
    if (seq->sampling != NULL && seq->sampling->steered && !known)
        return REFUSE(c, "seqs[%u].sampling.steered: slot %u has no steering", c->i, seq->slot);
    return 0;
}

static int check_scoring(const struct seq_check *c) {
    const Moesaic__Step__V1__Scoring *s = c->seq->scoring;
    if (s == NULL) return 0;
    if (c->seq->token_from_slot)
        return REFUSE(c, "seqs[%u].scoring comes with token_from_slot", c->i);
    uint32_t n_rows_max = c->seq->sampling != NULL ? c->n_rows - 1 : c->n_rows;
    if (s->n_rows == 0 || s->n_rows > n_rows_max)
        return REFUSE(c, "seqs[%u].scoring.n_rows %u is not within 1 to %u", c->i, s->n_rows,
                      n_rows_max);
    if (s->n_top > TOP_LOGPROBS_MAX)
        return REFUSE(c, "seqs[%u].scoring.n_top %u is above %d", c->i, s->n_top, TOP_LOGPROBS_MAX);
    if (s->n_rows == c->n_rows && s->next_token >= c->b->vocab)
        return REFUSE(c, "seqs[%u].scoring.next_token %u is not below %u", c->i, s->next_token,
                      c->b->vocab);
    return 0;
}

static int check_seq(struct seq_check *c) {
    int rc = check_slot(c);
    if (rc == 0) rc = check_tokens(c);
    if (rc == 0) rc = check_state(c);
    if (rc == 0) rc = check_table(c);
    if (rc == 0) rc = check_saved(c);
    if (rc == 0) rc = check_writes(c);
    if (rc == 0) rc = check_sampling(c);
    if (rc == 0) rc = check_steering(c);
    if (rc == 0) rc = check_scoring(c);
    return rc;
}

int batch_check(struct batch *b, const struct kv *kv, const Moesaic__Step__V1__StepPlan *plan,
                struct err_text *e) {
    if (plan->n_seqs > b->n_slots)
        return err_set(e, ERR_PEER_PROTOCOL, "seqs: %zu are more than %u slots", plan->n_seqs,
                       b->n_slots);
    b->n_checks++;
    uint64_t n_rows = 0, n_items = 0;
    for (uint32_t i = 0; i < plan->n_seqs; i++) {
        struct seq_check c = {.b = b, .kv = kv, .seq = plan->seqs[i], .i = i, .e = e};
        int rc = check_seq(&c);
        if (rc != 0) return rc;
        n_rows += c.n_rows;
        if (c.seq->scoring != NULL)
            n_items += (uint64_t)c.seq->scoring->n_rows * (c.seq->scoring->n_top + 1);
    }
    if (n_items > SCORES_STEP_ITEMS_MAX)
        return err_set(e, ERR_PEER_PROTOCOL, "seqs: their scoring has %llu items, more than %d",
                       (unsigned long long)n_items, SCORES_STEP_ITEMS_MAX);
    if (n_rows > b->rows_max)
        return err_set(e, ERR_PEER_PROTOCOL, "seqs: their tokens are %llu, more than %u rows",
                       (unsigned long long)n_rows, b->rows_max);
    return 0;
}

static void fill_seq(struct batch *b, const struct kv *kv, const Moesaic__Step__V1__PlanSeq *seq) {
    uint32_t n_rows = seq->token_from_slot ? 1 : (uint32_t)seq->n_tokens;
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t row = b->n_rows + i;
        b->token[row] = seq->token_from_slot ? b->slots[seq->slot].token : seq->tokens[i];
        b->position[row] = seq->position + i;
        b->slot[row] = seq->slot;
        kv_set_token(kv, seq->slot, b->position[row], b->token[row]);
    }
    b->slots[seq->slot].state_end = seq->position + n_rows;
    if (seq->to_snapshot != 0) b->snapshots[seq->to_snapshot - 1].end = seq->position + n_rows;
    if (seq->steering != NULL) steer_set(&b->slots[seq->slot].steering, seq->steering);
    if (seq->sampling != NULL || seq->scoring != NULL) b->answered_seq[b->n_answered++] = b->n_seqs;
    b->seqs[b->n_seqs++] = (struct batch_seq){.slot = seq->slot,
                                              .row_begin = b->n_rows,
                                              .n_rows = n_rows,
                                              .sampling = seq->sampling,
                                              .scoring = seq->scoring,
                                              .restored = snapshot_index(seq->from_snapshot),
                                              .saved = snapshot_index(seq->to_snapshot)};
    b->n_rows += n_rows;
}

void batch_fill(struct batch *b, struct kv *kv, const Moesaic__Step__V1__StepPlan *plan) {
    b->n_seqs = b->n_rows = b->n_answered = 0;
    for (size_t i = 0; i < plan->n_seqs; i++) {
        const Moesaic__Step__V1__PlanSeq *seq = plan->seqs[i];
        kv_set_blocks(kv, seq->slot, seq->block_offset, seq->blocks, (uint32_t)seq->n_blocks);
        fill_seq(b, kv, seq);
    }
}

void batch_remember(struct batch *b, uint32_t slot, uint32_t token) {
    b->slots[slot].token = token;
    b->slots[slot].has_token = true;
}
