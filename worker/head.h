// head.h: the end of a step: final norm and head for the rows that are sampled or scored, then
// their tokens and scores.
//
// The ranks of a TP group norm their own rows and each compute their columns of the logits for all;
// index 0 collects them, samples and scores, and tells its peers the tokens, which a later plan may
// ask for by slot. Tile by tile: a peer that computes one waits for the tokens of the one before.
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
    uint32_t *first;                // [tp + 1] whose rows of the list are whose
    float *logits;                  // [tile_rows, vocab]; on peers of index 0, their columns
    uint32_t *tokens;               // [1 + tile_rows] what index 0 tells its peers of a tile
    struct sample_scratch *threads; // [n_threads]; as all below, where tokens are sampled
    struct steer_scratch *steer;    // [n_threads]
    struct seq_result *results;     // [n_slots]
    struct score score;
    bool keep;   // model_keep_logits asked for the logits of every row
    float *kept; // [rows_max, vocab] of them; owned
};

void head_lay(struct forward *f, struct scratch *s);
// Lists the rows of this step and norms them.
int head_begin(struct forward *f, struct err_text *e);
// One tile of rows from first on: logits, then tokens and scores into results.
int head_logits(struct forward *f, uint32_t first, struct err_text *e);
int head_sample(struct forward *f, uint32_t first, struct err_text *e);
int head_end(struct forward *f, struct err_text *e); // after the last tile

// Bytes of the largest message about logits.
size_t head_bytes_max(const struct model_spec *spec, const struct layout *l, uint32_t rows_max);

#endif
