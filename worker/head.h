// head.h: the end of a step: final norm and head for the rows that are sampled or scored, then
// their tokens and scores.
#ifndef MOESAIC_WORKER_HEAD_H
#define MOESAIC_WORKER_HEAD_H

#include <stdint.h>

#include "worker/model.h"
#include "worker/sample.h"
#include "worker/score.h"
#include "worker/scratch.h"
#include "worker/steer.h"

struct forward;

// A row that gets logits.
struct head_row {
    uint32_t row;
    uint32_t result; // of the sequence that is sampled here, or HEAD_NONE
    uint32_t score;  // of this row, or HEAD_NONE
};
#define HEAD_NONE UINT32_MAX

struct head {
    uint32_t tile_rows;    // rows whose logits exist at once
    struct head_row *rows; // [rows_max]
    uint32_t n_rows;
    float *normed;                  // [tile_rows, hidden]
    float *logits;                  // [tile_rows, vocab]
    struct sample_scratch *threads; // [n_threads]
    struct steer_scratch *steer;    // [n_threads]
    struct seq_result *results;     // [n_slots]
    struct score score;
    float
        *kept; // [rows_max, vocab] logits of every row when model_keep_logits asked for them; owned
};

void head_lay(struct forward *f, struct scratch *s);
// Lists the rows of this step.
void head_begin(struct forward *f);
// One tile of rows from first on: logits, then tokens and scores into results. Returns how many
// rows it took.
uint32_t head_logits(struct forward *f, uint32_t first);
void head_sample(struct forward *f, uint32_t first, uint32_t n);
void head_end(struct forward *f); // after the last tile

#endif
