// footprint.h: what a rank of a layout holds: layers, experts, and bytes of weights and KV pages.
//
// Reckoned from the spec alone, before any tensor is read: from the list of tensors (tensors.h) and
// how each is split. Padding and routers that stay float32 are left out: a per mille of a real
// model.
#ifndef MOESAIC_COMMON_MODEL_FOOTPRINT_H
#define MOESAIC_COMMON_MODEL_FOOTPRINT_H

#include "common/base/layout.h"
#include "common/model/spec.h"

// The formats that weights and pages are held in.
struct footprint_types {
    enum dtype weights, kv;
};

// As the options --dtype and --kv-cache-dtype name them.
struct footprint_types footprint_types_of(const struct model_spec *spec, const char *dtype,
                                          const char *kv_cache_dtype);

// Bytes of a model by how they are split. Made once; the rest is quick.
struct footprint_model {
    const struct model_spec *spec;
    uint64_t embedding, head, final;
    struct footprint_layer {
        uint64_t whole;        // on every rank of the stage
        uint64_t by_heads, kv; // split by query heads or a recurrent layer's, by KV heads
        uint64_t dense;        // split as far as the sum of its inner width allows
        uint64_t experts;      // of all experts together
        uint64_t expert_rest;  // of these, what every rank of ETP holds whole
    } layers[LAYERS_MAX];
    enum dtype kv; // of the pages
};

void footprint_measure(struct footprint_model *out, const struct model_spec *spec,
                       const struct footprint_types *types);

struct footprint {
    uint32_t first_layer, n_layers;
    uint32_t first_expert, n_experts; // of each layer; where etp > 1, a part of each
    uint64_t weight_bytes;
    uint64_t kv_token_bytes; // pages of one token of its DP group
    uint64_t state_bytes;    // what its layers keep of one sequence beside pages
};

// The last of these alone, of a rank of this stage: no tensor has to be known for it.
uint64_t footprint_state_bytes(const struct model_spec *spec, const struct layout *layout,
                               uint32_t stage);

// layout is legal for the model.
void footprint_of(struct footprint *out, const struct footprint_model *m,
                  const struct layout *layout, uint32_t rank);
// The most that any rank needs, with pages for n_tokens of one sequence, and the states of n_slots.
uint64_t footprint_most(const struct footprint_model *m, const struct layout *layout,
                        uint64_t n_tokens, uint32_t n_slots);

#endif
