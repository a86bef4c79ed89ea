// ops.h: the operations of a CPU back end. docs/arithmetic.md defines every sum; ref.c is its
// literal form and the oracle.
//
// A back end is a table of functions; every table of the arithmetic class "base" gives the same
// bits as kernel_ops_ref(). Functions are pure, never allocate and may run on any thread. Rows are
// float32. No aliasing between inputs and outputs unless said so.
#ifndef MOESAIC_KERNELS_OPS_H
#define MOESAIC_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/dtype.h"
#include "common/base/limits.h"

// Output columns in a packed panel: they sit in lanes, K runs sequentially.
#define PANEL_COLS 16

// A weight matrix [n_out, n_in] packed as panels [ceil(n_out / 16)][n_in][16] of dtype; columns
// past n_out are zero. y = x W^T. K is cut into n_segments equal parts, each summed sequentially
// with fused multiply-add from +0, and the parts are added in a balanced binary tree. n_segments is
// 1 for column-parallel products.
struct matrix {
    enum dtype dtype;
    uint32_t n_out, n_in;
    uint32_t n_segments; // 1, 2, 4 or 8; divides n_in
    const void *data;    // 64-byte aligned
};

static inline uint32_t matrix_panels(const struct matrix *w) {
    return (w->n_out + PANEL_COLS - 1) / PANEL_COLS;
}
static inline size_t matrix_bytes(const struct matrix *w) {
    return (size_t)matrix_panels(w) * w->n_in * PANEL_COLS * dtype_bytes(w->dtype);
}

// Attention of n_q query vectors that share one KV head over one sequence's pages, or over those of
// several that begin alike.
// Query i sees keys [first_key[i], n_keys[i]); softmax(scale * q.k) v, in fixed blocks of 16 keys
// and partitions of 512 from position 0. A page of one layer and KV head: K as [head_dim][16], V as
// [16][value_dim], of kv_dtype; block b of the sequence is at k_base + block_table[b] *
// block_stride bytes (V likewise). Behind an int8 page's codes stand the 16 float32 scales of its
// tokens, of K and of V each. Slots outside a query's range are never read for it.
struct attend_job {
    const float *q; // [n_q, head_dim], query i at q + i * q_stride
    float *out;     // [n_q, value_dim], at out + i * out_stride
    size_t q_stride, out_stride;
    uint32_t n_q, head_dim, value_dim;
    const uint32_t *first_key, *n_keys; // [n_q]; first_key[i] < n_keys[i]
    const uint32_t *block_table;        // of all queries
    // Or each query's own [n_q], the first n_shared blocks of which are the same in all, as those
    // of sequences that begin alike are; block_table is not looked at then.
    const uint32_t *const *tables;
    uint32_t n_shared;
    const void *k_base, *v_base;
    size_t block_stride; // bytes
    enum dtype kv_dtype; // one that dtype_is_kv
    float scale;
    float softcap;        // of the scores behind scale; 0 = none
    const float *factors; // [n_q] of the scores behind that; NULL = none
    const float *sinks;   // [n_q] a logit that takes weight and gives nothing; NULL = none
    float *scratch;       // attend_scratch_floats(n_q, head_dim, value_dim)
};

// Bytes in a page of one token's key, or value, of one head.
static inline size_t kv_row_bytes(enum dtype kv_dtype, uint32_t dim) {
    return dim * dtype_bytes(kv_dtype) + (kv_dtype == DTYPE_I8 ? sizeof(float) : 0);
}

size_t attend_scratch_floats(uint32_t n_q, uint32_t head_dim, uint32_t value_dim);

// Rows that are key and value at once, of which each stands for `rate` tokens: of one token, or
// what a window of tokens was compressed to (then the rate divides KV_BLOCK_TOKENS, or is a
// multiple of it). A page of one layer is [latent_page_rows(rate)][key_dim] of kv_dtype, and behind
// int8 codes as many [2] float32 scales, of a row's first value_dim elements and of the rest. Row i
// stands in the page of the last token that it is about. Query j sees the rows [first[j], n[j]), or
// of these only the chosen ones, which are the same for all queries of the job.
struct latent_keys {
    const void *pages;
    size_t block_stride; // bytes
    uint32_t rate;
    const uint32_t *first, *n; // [n_q]; first NULL = from 0
    const uint32_t *chosen;    // [n_chosen] ascending, within every query's range; NULL = all
    uint32_t n_chosen;         // at least 1
};

// Rows of a page, of windows of so many tokens.
static inline uint32_t latent_page_rows(uint32_t rate) {
    return rate < KV_BLOCK_TOKENS ? KV_BLOCK_TOKENS / rate : 1;
}
// The block of the sequence in whose page row i stands.
static inline uint32_t latent_block(uint32_t i, uint32_t rate) {
    return ((i + 1) * rate - 1) / KV_BLOCK_TOKENS;
}

// Attention of n_q query vectors over one sequence's pages of latents, where a token has one row
// [key_dim] whose first value_dim elements are also its value: one softmax over all kinds of rows,
// in their order. Every query sees a row of some kind. No other row is read for it.
struct latent_job {
    const float *q; // [n_q, key_dim], query i at q + i * q_stride
    float *out;     // [n_q, value_dim], at out + i * out_stride
    size_t q_stride, out_stride;
    uint32_t n_q, key_dim, value_dim; // value_dim <= key_dim
    const struct latent_keys *kinds;
    uint32_t n_kinds;
    const uint32_t *block_table;
    enum dtype kv_dtype; // one that dtype_is_kv
    float scale;
    const float *sinks; // [n_q] a logit that takes weight and gives nothing; NULL = none
    float *scratch;     // attend_latent_scratch_floats(key_dim, value_dim)
};

// Bytes in a page of one token's latent.
static inline size_t latent_row_bytes(enum dtype kv_dtype, uint32_t key_dim) {
    return key_dim * dtype_bytes(kv_dtype) + (kv_dtype == DTYPE_I8 ? 2 * sizeof(float) : 0);
}

size_t attend_latent_scratch_floats(uint32_t key_dim, uint32_t value_dim);

// Scores of one row's sparse attention against the index keys [0, n_keys) of one sequence: the sum
// over heads h of weights[h] * max(0, scale * q[h] . k). A page of one layer has the keys as
// [dim][16] of kv_dtype, and behind int8 codes the 16 scales.
struct index_job {
    const float *q;       // [n_heads, dim]
    const float *weights; // [n_heads]
    uint32_t n_heads, dim;
    uint32_t first_block, n_blocks; // of the sequence
    const uint32_t *block_table;
    const void *pages;
    size_t block_stride; // bytes
    enum dtype kv_dtype; // one that dtype_is_kv
    float scale;
    float *out; // [n_blocks * 16]; slots of a page that hold no key yet get any score
};

// The same against rows of struct latent_keys with value_dim = key_dim = dim: rows [first, first +
// n) of one sequence.
struct entry_job {
    const float *q;       // [n_heads, dim]
    const float *weights; // [n_heads]
    uint32_t n_heads, dim;
    uint32_t first, n;
    uint32_t rate;
    const uint32_t *block_table;
    const void *pages;
    size_t block_stride; // bytes
    enum dtype kv_dtype; // one that dtype_is_kv
    float scale;
    float *out; // [n]
};

// A window of tokens that becomes one row, oldest first: what each gives, its gate, and what is
// added to that for its place in the window.
struct window {
    const float *const *x, *const *gate, *const *place; // [n_rows] rows
    uint32_t n_rows;                                    // at least 1
};

struct norm_weights {
    const float *w, *b;
};
struct clamped_glu {
    float alpha, limit;
};

// How streams of a residual are mixed with each other and take in a row.
struct stream_mix {
    uint32_t n;        // streams
    const float *post; // [n] what each takes of the row
    const float *comb; // [n][n] what stream j gives to stream k: comb[j * n + k]
};

// A causal convolution of each channel with its own weights: what it read last, oldest first.
struct conv_taps {
    const float *const *x; // [n_taps] rows
    const float *w;        // [n_taps][w_stride]
    size_t w_stride;
    uint32_t n_taps;
};

// One head's gated delta rule over tokens in order. Token t's query, key and value are t *
// qkv_stride floats behind the first one's, and so on.
struct delta_job {
    float *state;       // [k_dim, v_dim]
    const float *q, *k; // [k_dim]
    const float *v;     // [v_dim]
    float *out;         // [v_dim]
    const float *decay, *beta;
    size_t qkv_stride, out_stride, gate_stride;
    uint32_t n_tokens, k_dim, v_dim;
};

struct kernel_ops {
    const char *name; // "ref", "avx2", "avx512"

    // y[r][c] for rows r < n_rows and the columns of panels [panel_begin, panel_end); y row stride
    // ldy, x row stride ldx, in floats. Columns past n_out are not written.
    void (*matmul)(float *y, size_t ldy, const float *x, size_t ldx, uint32_t n_rows,
                   const struct matrix *w, uint32_t panel_begin, uint32_t panel_end);
    void (*attend)(const struct attend_job *job);
    void (*attend_latent)(const struct latent_job *job);
    void (*index_scores)(const struct index_job *job);
    void (*entry_scores)(const struct entry_job *job);
    // Each of n channels for itself: y = the sum of x * softmax(gate + place) over the window.
    void (*window_sum)(float *y, const struct window *w, uint32_t n);

    // y = x / sqrt(mean(x^2) + eps) * w, over n. y may be x.
    void (*rms_norm)(float *y, const float *x, const float *w, uint32_t n, float eps);
    // 1 / sqrt(mean(x^2) + eps), over n.
    float (*inverse_rms)(const float *x, uint32_t n, float eps);
    // y = sum of weights[i] * stream i, of n streams [dim] behind each other at x.
    void (*collapse)(float *y, const float *x, const float *weights, uint32_t n, uint32_t dim);
    // Of mix->n streams at x, in place: stream k = sum over j of comb[j][k] * stream j, + post[k] *
    // y.
    void (*expand)(float *x, const float *y, const struct stream_mix *mix, uint32_t dim);
    // y = (x - mean) / sqrt(variance + eps) * w, then + b where it is not NULL. y may be x.
    void (*layer_norm)(float *y, const float *x, const struct norm_weights *w, uint32_t n,
                       float eps);
    // Rotates x[0, rotary_dim) in halves: pairs (i, i + rotary_dim / 2). cos, sin: [rotary_dim /
    // 2]. In place.
    void (*rope)(float *x, const float *cos, const float *sin, uint32_t rotary_dim);
    // y = silu(gate) * up. y may be gate or up.
    void (*silu_mul)(float *y, const float *gate, const float *up, uint32_t n);
    // y becomes (u + 1) * g / (1 + exp(-alpha g)), g = min(y, limit), u = up within [-limit,
    // limit].
    void (*clamped_glu)(float *y, const float *up, const struct clamped_glu *act, uint32_t n);
    // y = silu(min(y, limit)) * u, u = up within [-limit, limit].
    void (*limited_glu)(float *y, const float *up, float limit, uint32_t n);
    // y = gelu(gate) * up. y may be gate or up.
    void (*gelu_mul)(float *y, const float *gate, const float *up, uint32_t n);
    // x = cap * tanh(x / cap); NaN where x is not finite.
    void (*softcap)(float *x, float cap, uint32_t n);
    // y *= sigmoid(gate).
    void (*sigmoid_mul)(float *y, const float *gate, uint32_t n);
    // y = silu(sum of w * x over the taps).
    void (*conv_silu)(float *y, const struct conv_taps *taps, uint32_t n);
    void (*delta_rule)(const struct delta_job *job);
    void (*add)(float *y, const float *x, uint32_t n);            // y += x
    void (*scale)(float *y, const float *x, float a, uint32_t n); // y = a * x; y may be x
    void (*axpy)(float *y, const float *x, float a, uint32_t n);  // y = fma(a, x, y)
    void (*clamp)(float *x, float limit, uint32_t n); // in place, to [-limit, limit]; NaN stays
    // In place: x = exp(x - max) / sum, sum in the contract's lane order. n >= 1.
    void (*softmax)(float *x, uint32_t n);
    void (*sigmoid)(float *x, uint32_t n);
    void (*exp)(float *x, uint32_t n); // in place, elementary_exp of each
    // max and log(sum(exp(x - max))) + max over fixed blocks; false when any x is NaN or infinite.
    // n >= 1.
    bool (*log_sum_exp)(const float *x, uint32_t n, float *max, float *lse);
    // One row of a [*, n] table of dtype to float32 (embedding look-up). The dtype side may lie at
    // any byte address. E4M3 too, and of I8 the codes without their scale.
    void (*unpack)(float *y, const void *x, enum dtype dtype, uint32_t n);
    // float32 to dtype, rounding to nearest even; as above, but I8.
    void (*pack)(void *y, const float *x, enum dtype dtype, uint32_t n);
    // float32 to codes of one scale, which is returned: the largest magnitude becomes 127. NaN, and
    // codes of 0, when any x is not finite. n >= 1; codes at any byte address.
    float (*pack_int8)(int8_t *codes, const float *x, uint32_t n);
};

const struct kernel_ops *kernel_ops_ref(void);

// The best table this CPU runs; name forces one ("ref", "avx2", "avx512"; NULL or "auto" = best).
// NULL when unknown or not runnable here.
const struct kernel_ops *kernel_ops_select(const char *name);
// Comma-separated names of the tables this CPU runs, best first.
const char *kernel_ops_available(void);

// Packs columns [n_out] of a row-major [n_out, n_in] source (dtype src, row stride in elements)
// into w->data, converting exactly or rounding to nearest even. dst must hold matrix_bytes(w); src
// may lie at any byte address.
void matrix_pack(const struct matrix *w, void *dst, const void *src, enum dtype src_dtype,
                 size_t src_stride);

// The same from a source [n_in, n_out] (inputs of all columns behind each other): packs the inputs
// [range[0], range[0] + range[1]) of every column. src points at the first of them; other ranges
// may be packed by other threads at the same time. Padding columns are left alone: they are zero.
void matrix_pack_inputs(const struct matrix *w, void *dst, const void *src, enum dtype src_dtype,
                        const uint32_t range[2]);

// Scalar functions of the contract (elementary.c): equal to their vector forms bit for bit.
float elementary_exp(float x);  // flushes below -87.33 to +0; +inf above 88.72
float elementary_log(float x);  // x > 0, finite
float elementary_silu(float x); // x / (1 + exp(-x))
float elementary_sigmoid(float x);
float elementary_tanh(float x);
float elementary_gelu(float x);          // the form with tanh
float elementary_softplus(float x);      // log(1 + exp(x)); above 20 it is x
float elementary_sqrt_softplus(float x); // its root, also of small ones; neither has a vector form
// cos and sin of position * inv_freq[i] for i < n, the product rounded to float32.
void elementary_rope_table(float *cos, float *sin, uint32_t position, const float *inv_freq,
                           uint32_t n);
// inv_freq[i] = 1 / theta^(2i / rotary_dim), rounded to float32 at each of the three steps.
void elementary_inv_freq(float *inv_freq, float theta, uint32_t rotary_dim);

// Sets round-to-nearest and denormals on for the calling thread. Every compute thread calls it
// first.
void kernel_thread_init(void);

#endif
