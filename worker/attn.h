// attn.h: the attention block of one layer: norm, q/k/v, RoPE, pages, attention, output projection,
// residual. Latent attention (mla.h) has its own ways to queries and from outputs; in between it is
// attention with one KV head.
#ifndef MOESAIC_WORKER_ATTN_H
#define MOESAIC_WORKER_ATTN_H

#include "common/base/layout.h"
#include "common/model/spec.h"
#include "worker/kv.h"
#include "worker/rotary.h"
#include "worker/scratch.h"
#include "worker/tiles.h"

struct forward;

// Queries of one work item when a prompt gives that many: each page that is read serves all of
// them.
#define ATTN_ITEM_QUERIES 64

// What one compute thread needs while it attends.
struct attn_thread {
    float *out;                   // [queries_max, value_dim]
    float *scratch;               // attend_scratch_floats(queries_max, key_dim, value_dim)
    float *sinks;                 // [queries_max]
    float *factors;               // [queries_max] of scores
    uint32_t *first_key, *n_keys; // [queries_max]
    uint32_t *n_entries;          // [queries_max] compressed ones
    const uint32_t **tables;      // [queries_max] of blocks
};

struct attn {
    uint32_t group;       // query heads that share a KV head
    uint32_t queries_max; // of one work item
    uint32_t qkv_dim;     // n_heads * spec_query_dim + 2 n_kv_heads * head_dim, of the slice's
    struct rotary rope;   // of the step's rows
    struct rotary compress_rope; // the same of layers that compress
    float *ones;                 // [head_dim] weights of norms that have none
    float *qkv;                  // [rows_max, qkv_dim]
    float *q;                    // [kv head][place of row][group][key_dim], normed and rotated
    float *out;                  // [rows_max, n_heads * value_dim]
    float *wide;                 // [n_threads, n_heads * head_dim] where heads are normed together
    float *wide_sent;            // [rows_max, what goes to the TP group of a row's heads]
    struct attn_thread *threads; // [n_threads]
    struct tiles tiles;          // how this step is split
};

void attn_lay(struct forward *f, struct scratch *s);
// Once a step, after batch_fill: rotary tables and the split into work items.
void attn_begin(struct forward *f);
// x += attention(norm(x)), of the own rows: this rank's heads for all rows, and the TP group's
// sums.
int attn_forward(struct forward *f, uint32_t layer, struct err_text *e);
// Bytes of the largest message about heads that are normed together.
size_t attn_heads_bytes_max(const struct model_spec *spec, const struct layout *l,
                            uint32_t rows_max);

// Where a row's queries of one KV head stand: [group][key_dim].
float *attn_query(const struct forward *f, uint32_t kv_head, uint32_t row);
// The rotary embedding of a layer.
const struct rotary *attn_rotary(const struct forward *f, uint32_t layer);

#endif
