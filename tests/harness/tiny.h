// tiny.h: small random decoders in memory, and a miniature of the leader that serves requests on
// them in any way a test asks for. What a request answers must not depend on that way: tests
// compare the answers of two.
#ifndef MOESAIC_TESTS_HARNESS_TINY_H
#define MOESAIC_TESTS_HARNESS_TINY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/model/spec.h"
#include "worker/model.h"

struct tiny;

// Two MoE layers and a dense one, grouped queries, per-head norms, tied head; 97 tokens, 6 experts
// of which 3 are chosen.
void tiny_spec(struct model_spec *spec);
// The other branches: sliding window, biases, sigmoid router without renormalisation and with a
// bias that selects, a gated shared expert, multipliers, clipped values, sinks, own head,
// partial rotary of neighbours, odd widths.
void tiny_spec_odd(struct model_spec *spec);
// What layouts split: four layers of which one is dense, experts of four segments with biases and a
// shared one, tied head.
void tiny_spec_split(struct model_spec *spec);
// Recurrent layers whose heads up to eight ranks share: the first and the third of four.
void tiny_spec_hybrid(struct model_spec *spec);

// Weights of every rank of a group. The same seed gives the same model in any layout.
struct tiny *tiny_create_in(const struct model_spec *spec, const struct layout *layout,
                            enum dtype dtype, uint64_t seed);
// Over so many ranks, each with all but the experts.
struct tiny *tiny_create(const struct model_spec *spec, uint32_t n_ranks, enum dtype dtype,
                         uint64_t seed);
void tiny_destroy(struct tiny *t);
const struct weights *tiny_weights(const struct tiny *t, uint32_t rank);
const struct layout *tiny_layout(const struct tiny *t);

#endif
