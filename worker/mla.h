// mla.h: latent attention (docs/arithmetic.md, Attention; arXiv 2405.04434). Part of attn.c's
// block.
//
// Absorbed: a token's key is its compressed vector with the rotated part behind it, its value is
// the compressed vector, and the per-head matrices are applied to queries and outputs instead.
// Expanded: each head's keys and values are made once and kept, as without compression.
#ifndef MOESAIC_WORKER_MLA_H
#define MOESAIC_WORKER_MLA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/model/spec.h"
#include "worker/scratch.h"

struct forward;

struct mla {
    float *q_a;    // [rows_max, q_rank] where queries are compressed
    float *q;      // [rows_max, n_heads * (nope_dim + rope.dim)] of the slice's heads
    float *latent; // [rows_max, kv_rank + rope.dim]
    float *kv;     // expanded: [rows_max, n_heads * (nope_dim + value_dim)]
    float *out;    // absorbed: [rows_max, n_heads * value_dim]
    float *sent;   // in a TP group: [own_max] rows of all that is gathered
};

void mla_lay(struct forward *f, struct scratch *s);
// Whether the ranks of a TP group compress their own rows only, and gather queries and latents
// instead of normed rows: with compressed queries nothing else reads those. The index of sparse
// attention does, but what it makes of them is gathered as well, in layers that choose.
bool mla_gathers(const struct forward *f);
// From all_normed (of the own rows alone, where mla_gathers): queries to where attention reads
// them, keys and values into the pages.
int mla_spread(struct forward *f, uint32_t layer, struct err_text *e);
// Bytes of the largest message of such a gather.
size_t mla_bytes_max(const struct model_spec *spec, uint32_t own_max);
// From attn.out: what the output projection reads, [n_rows, n_heads * value_dim].
// Of the absorbed form only: the expanded one's are ready in attn.out.
const float *mla_outputs(struct forward *f, uint32_t layer);

#endif
