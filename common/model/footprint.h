// footprint.h: what a rank of a layout holds: layers, experts, and bytes of weights and KV pages.
//
// Reckoned from the spec alone, before any tensor is read: norms, biases and padding are left out,
// which are a per mille of a real model.
#ifndef MOESAIC_COMMON_MODEL_FOOTPRINT_H
#define MOESAIC_COMMON_MODEL_FOOTPRINT_H

#include "common/base/layout.h"
#include "common/model/spec.h"

struct footprint {
    uint32_t first_layer, n_layers;
    uint32_t first_expert, n_experts; // of each layer; where etp > 1, a part of each
    uint64_t weight_bytes;
    uint64_t kv_token_bytes; // pages of one token of its DP group
};

// The formats that weights and pages are held in.
struct footprint_types {
    enum dtype weights, kv;
};

// As the options --dtype and --kv-cache-dtype name them.
struct footprint_types footprint_types_of(const struct model_spec *spec, const char *dtype,
                                          const char *kv_cache_dtype);

// layout is legal for the model.
void footprint_of(struct footprint *out, const struct model_spec *spec, const struct layout *layout,
                  uint32_t rank, const struct footprint_types *types);
// The most that any rank needs, with pages for n_tokens.
uint64_t footprint_most(const struct model_spec *spec, const struct layout *layout,
                        const struct footprint_types *types, uint64_t n_tokens);

#endif
