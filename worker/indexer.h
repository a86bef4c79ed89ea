// indexer.h: which keys a query of sparse attention attends to: its own small attention scores all
// keys of the query's range from keys of their own, which the pages hold, and the best are chosen
// (docs/arithmetic.md, Sparse attention; DeepSeek-V3.2's lightning indexer). Part of attn.c's
// block, between what mla.c spreads and attention. Where compressed entries are chosen, and not
// tokens, they are what keys are below.
#ifndef MOESAIC_WORKER_INDEXER_H
#define MOESAIC_WORKER_INDEXER_H

#include <stdint.h>

#include "worker/scratch.h"

struct forward;

struct indexer {
    float *q;         // [rows_max, n_heads * dim]
    float *k;         // [rows_max, dim]
    float *weights;   // [rows_max, n_heads]
    float *scores;    // [n_lines][positions, whole blocks]
    uint32_t *chosen; // [rows_max][top_k] of rows with more keys than that, ascending
    uint32_t *rows;   // [rows_max] the step's rows that choose
    uint32_t n_rows;  // of them
    uint32_t n_lines; // rows that are scored at a time
    size_t line_floats;
};

void indexer_lay(struct forward *f, struct scratch *s);
// Once a step, after batch_fill.
void indexer_begin(struct forward *f);
// What the index takes from normed rows [first, first + n) of all_normed: k, and weights where a
// row of the step chooses. A rank of a TP group does it for its own rows; mla.c gathers the
// others'.
void indexer_compress(struct forward *f, uint32_t layer, uint32_t first, uint32_t n);
// Behind mla_spread: writes the rows' index keys and chooses. Layers that share the choice of the
// layer before do nothing, here and there.
void indexer_choose(struct forward *f, uint32_t layer);

// Behind compress_forward, in a layer whose rows choose entries: chooses by the rows' compressed
// queries [n_rows, q_rank]. In others nothing.
void indexer_choose_entries(struct forward *f, uint32_t layer, const float *q_a);

// The rows of [row, row + n) that a tile of attention may take together: such that see all keys, or
// one that chooses.
uint32_t indexer_tile_rows(const struct forward *f, uint32_t row, uint32_t n);
// The top_k keys that a row chose; NULL when it sees all.
const uint32_t *indexer_chosen(const struct forward *f, uint32_t row);

// The k best of n > k scores, ties to the lowest position, NaN last; positions come out ascending.
void index_best(const float *scores, uint32_t n, uint32_t k, uint32_t *chosen);

#endif
