// delta.h: the gated delta net block of a recurrent layer: norm, projections, causal convolution,
// the recurrence, gated norm, output projection, residual (docs/arithmetic.md, Gated delta net;
// arXiv 2412.06464). It stands where attn.c's block does in other layers.
//
// What a sequence was lives in its slot (state.h): for each recurrent layer the last inputs of the
// convolution and one state for each value head, both zero before position 0. batch.c sees to it
// that a run begins at position 0, or where the slot's state or a snapshot of one ends.
//
// Ranks of a TP group share the heads (slice.h): each computes all rows of the step for its own,
// whose states alone it keeps, and each row's owner adds what the ranks' output projections give.
#ifndef MOESAIC_WORKER_DELTA_H
#define MOESAIC_WORKER_DELTA_H

#include "common/model/spec.h"
#include "worker/scratch.h"

struct forward;

// Where the parts of a projected row stand: those of key head h are h strides on.
struct delta_places {
    uint32_t q, k, v, z; // in a row of struct delta.in
    uint32_t key_stride, value_stride;
    uint32_t b, a, gate_stride; // in a row of struct delta.gates
};

// Sizes are of this rank's heads.
struct delta {
    uint32_t n_k_heads, n_v_heads;
    uint32_t group;    // value heads of a key head
    uint32_t in_dim;   // q, k, v and z of all heads
    uint32_t channels; // of the convolution: q, k and v
    uint32_t keys;     // of all key heads
    uint32_t values;   // of all value heads
    struct delta_places at;
    float *q_weight, *k_weight; // [k_dim] of their norms
    float *zeros;               // [channels] what stood before position 0
    float *in;                  // [rows_max, in_dim] projected
    float *gates;               // [rows_max, 2 n_v_heads] projected
    float *qkv;                 // [rows_max, channels] convolved; queries and keys normed
    float *beta, *decay;        // [rows_max, n_v_heads]
    float *out;                 // [rows_max, values]
    // [recurrent layer][slot], each one run of spec_layer_state_bytes: inputs of the convolution
    // [kernel
    // - 1][channels], oldest first, and behind them [value head][k_dim][v_dim].
    float *states;
    size_t state_floats;
    uint32_t index[LAYERS_MAX]; // of the layer among the recurrent ones of this rank
};

void delta_lay(struct forward *f, struct scratch *s);
// x += delta_net(norm(x)); slots' states move on by their rows. Fails as attn_forward does.
int delta_forward(struct forward *f, uint32_t layer, struct err_text *e);

#endif
