// score.h: how likely the tokens of a prompt were: each row's log-probability of the token that
// follows it, that token's rank, and the most likely ones (docs/arithmetic.md, Sampling).
//
// A part of the head: head.c makes the logits and asks for one row at a time, only where a plan
// asks for it. score_lay, score_begin, score_add, score_end: engine thread; score_row: any compute
// thread.
#ifndef MOESAIC_WORKER_SCORE_H
#define MOESAIC_WORKER_SCORE_H

#include "worker/batch.h"
#include "worker/model.h"

struct score_row {
    uint32_t token; // that follows
    uint32_t n_top;
    uint32_t first_top; // of its alternatives
};

// Of one step; as many as the plan may ask for.
struct score {
    uint32_t n_rows, n_tops;
    struct score_row *rows;         // [rows_max]
    float *logprobs, *top_logprobs; // [rows_max], [score_items_max]
    uint32_t *ranks, *top_ids;      // the same; a rank is 0 until it is known, and where a row
                                    // is not finite
};

// What the rows of one plan may take (limits.h).
uint32_t score_items_max(uint32_t rows_max);

void score_lay(struct score *s, uint32_t rows_max, struct scratch *memory);
void score_begin(struct score *s);
// The sequence's rows, which get the indices from s->n_rows on; out shows where their scores will
// be.
void score_add(struct score *s, const struct batch *b, const struct batch_seq *seq,
               struct seq_scores *out);
void score_row(struct score *s, const struct kernel_ops *ops, const float *logits, uint32_t vocab,
               uint32_t index);
// True when every row was finite.
bool score_finite(const struct seq_scores *scores);

#endif
