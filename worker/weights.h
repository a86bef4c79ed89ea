// weights.h: a rank's own slices of a checkpoint, packed as the kernels want them.
//
// What a TP group splits (slice.h) is this rank's part; n_heads, n_kv_heads, inner and vocab below
// are of the slice there. Owned by the worker process, kept across epochs. Loading reads only this
// rank's slices with pread, in parallel, and reports progress.
#ifndef MOESAIC_WORKER_WEIGHTS_H
#define MOESAIC_WORKER_WEIGHTS_H

#include <stdatomic.h>

#include "common/base/layout.h"
#include "common/model/spec.h"
#include "kernels/ops.h"

// One expert, or what a rank of ETP has of it: gate, up and down as one contiguous 4 KiB-aligned
// block (the expert record).
struct expert_weights {
    struct matrix gate, up;                 // [inner, hidden]
    struct matrix down;                     // [hidden, inner], n_segments of them
    float *gate_bias, *up_bias, *down_bias; // NULL = none
};

// Of latent attention, in place of qkv.
struct mla_weights {
    struct matrix q_a;      // [q_rank, hidden] where queries are compressed
    struct matrix q;        // [n_heads * (nope_dim + rope.dim), q_rank or hidden]
    struct matrix kv_a;     // [kv_rank + rope.dim, hidden]
    struct matrix *uk, *uv; // absorbed: [n_heads] each: [kv_rank, nope_dim], [value_dim, kv_rank]
    struct matrix kv_b;     // expanded: [n_heads * (nope_dim + value_dim), kv_rank]
    float *q_a_norm, *kv_a_norm;
};

// Of joint attention, in place of qkv.
struct joint_weights {
    struct matrix q_a;  // [q_rank, hidden]
    struct matrix q;    // [n_heads * head_dim, q_rank]
    struct matrix kv;   // [head_dim, hidden]
    struct matrix *o_a; // of each group: [o_rank, its heads * head_dim]
    float *q_a_norm, *kv_norm;
};

// What makes compressed entries; in LAYER_CSA there are two rows for each element, first those for
// the entry of the window behind the token's.
struct entry_weights {
    struct matrix kv, gate; // [rows, hidden]
    float *bias;            // [rate][rows] of gates
    float *norm;            // of an entry
};

// Of layers with compressed entries; the other three of LAYER_CSA only.
struct compress_weights {
    struct entry_weights entry, index;
    struct matrix index_q;       // [compress.n_heads * compress.dim, q_rank]
    struct matrix index_weights; // [compress.n_heads, hidden]
};

// Around a block: mix [2 n + n * n, n * hidden], base of as many, scale [3]; before the final norm
// mix [n, n * hidden], base of as many, scale [1].
struct hyper_weights {
    struct matrix mix;
    float *base, *scale;
};

// Of a recurrent layer, in place of qkv; a part of a row is where delta.c says. Heads and channels
// are the slice's.
struct delta_weights {
    struct matrix in;       // [2 keys + 2 values of its heads, hidden]: q, k, v and z
    struct matrix gates;    // [2 n_v_heads, hidden]: b and a
    float *conv;            // [kernel, channels]
    float *a_log, *dt_bias; // [n_v_heads]
    float *norm;            // [v_dim]
};

// Of sparse attention.
struct index_weights {
    struct matrix q;             // [n_heads * dim, q_rank]
    struct matrix k;             // [dim, hidden]
    struct matrix weights;       // [n_heads, hidden]
    float *k_norm, *k_norm_bias; // [dim]
};

struct layer_weights {
    float *attn_norm, *ffn_norm;                // [hidden]
    float *attn_norm_bias, *ffn_norm_bias;      // NULL = none
    float *attn_post_norm, *ffn_post_norm;      // NULL = none
    struct mla_weights mla;                     // of latent attention
    struct joint_weights joint;                 // of joint attention
    struct compress_weights compress;           // of a layer with compressed entries
    struct hyper_weights attn_hyper, ffn_hyper; // around the blocks
    struct delta_weights delta;                 // of a recurrent layer
    struct index_weights index;                 // in layers that choose their keys
    float *sinks;                               // [n_heads], NULL = none
    struct matrix qkv; // [(n_heads + 2 n_kv_heads) * head_dim, hidden]: q rows (with an output gate
                       // each head's gate behind its q), then k, then v
    struct matrix o;   // [hidden, n_heads * head_dim], in the slice's segments; of a recurrent
                       // layer [hidden, n_v_heads * v_dim]
    float *qkv_bias, *o_bias; // NULL = none
    float *q_norm, *k_norm; // NULL = none; [head_dim], or of all heads of the model (QK_NORM_WIDE)
    struct matrix router;   // [n_experts, hidden]
    float *router_bias, *selection_bias; // [n_experts], NULL = none
    uint16_t *experts_of; // [vocab, top_k] where a token's experts are looked up; NULL = chosen
    struct expert_weights shared;   // of the shared expert, where the model has one
    struct matrix shared_weight;    // [1, hidden], where it is gated
    struct expert_weights dense;    // of a dense layer (TENSOR_GATE, UP, DOWN)
    struct expert_weights *experts; // [n_local_experts], of an MoE layer
    float *down_biases; // [n_experts, hidden] where experts with biases are split over ETP
};

struct weights {
    const struct model_spec *spec; // not owned
    uint32_t rank, first_expert, n_local_experts;
    enum dtype dtype;   // of the packed matrices, but routers may be float32
    void *embed;        // [vocab of the model, hidden] row-major, of dtype; of the first stage
    struct matrix head; // [vocab, hidden]; this and the next three of the last stage
    float *head_bias;   // [vocab], NULL = none
    float *final_norm;  // [hidden]
    float *final_norm_bias;
    struct hyper_weights head_hyper; // before that norm
    struct layer_weights *layers;    // [n_layers]; empty but for those of its stage
    uint64_t shared_digest;  // over the bytes read of all tensors but the experts': equal on ranks
                             // of equal stage and TP index
    uint64_t experts_digest; // over this rank's expert bytes: equal after a restart with the same
                             // rank and layout
    uint64_t bytes;          // resident
    struct weights_block *blocks; // owned memory
};

struct weights_progress {
    _Atomic uint64_t bytes_done, bytes_total; // of this rank's slices, in the file's format
};

struct weights_config {
    const char *folder;
    const struct model_spec *spec;
    const struct layout *layout;
    uint32_t rank;
    enum dtype dtype;   // what to hold; files of other formats are converted
    uint32_t n_threads; // readers
    // Weights that need more are refused before anything is read:
    uint64_t memory_bytes;             // what was given; 0: nothing was, and what is
    uint64_t (*left)(void);            // left now counts; NULL: that does not, either
    struct weights_progress *progress; // may be NULL
    const _Atomic bool *cancel;        // may be NULL; set: loading ends with ERR_FATAL_STOPPED
};

int weights_load(struct weights **out, const struct weights_config *config, struct err_text *e);
void weights_destroy(struct weights *w);

#endif
