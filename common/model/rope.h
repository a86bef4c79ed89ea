// rope.h: the frequencies of a rotary embedding, plain or stretched to a longer context
// (docs/arithmetic.md, RoPE).
#ifndef MOESAIC_COMMON_MODEL_ROPE_H
#define MOESAIC_COMMON_MODEL_ROPE_H

#include "common/model/spec.h"

// inv_freq[rope->dim / 2] for contexts of up to max_model_len. Returns what cosines and sines are
// multiplied by; 0 = nothing. One set serves a whole run, whatever a request's length: an answer
// does not depend on how long it may become.
float rope_frequencies(float *inv_freq, const struct rope_spec *rope, uint32_t max_model_len);

#endif
