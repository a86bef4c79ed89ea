// decoder.h: what the families of Hugging Face decoders have in common: keys of config.json and
// names of tensors.
//
// A key that Hugging Face's own class for the architecture does not read cannot change its answer
// and is ignored; one that it reads is either understood here or in the family, or refused by name
// unless it has its neutral value.
#ifndef MOESAIC_COMMON_MODEL_DECODER_H
#define MOESAIC_COMMON_MODEL_DECODER_H

#include "common/model/config.h"
#include "common/model/spec.h"

// What Hugging Face's class assumes when a key is absent.
struct decoder_defaults {
    uint32_t max_position;
    float rope_theta, norm_eps;
};

// Sizes, norms, rotary settings, activation, tied embeddings; refuses quantised checkpoints. Leaves
// the FFN to the family.
void decoder_read(struct config_reader *r, struct model_spec *spec,
                  const struct decoder_defaults *d);

// The number of experts, which Hugging Face writes as num_experts or num_local_experts.
uint32_t decoder_read_experts(struct config_reader *r);

// The name of a tensor outside the FFN, or false when its kind is not among these.
bool decoder_tensor_name(const struct tensor_ref *ref, char *buf, uint32_t buf_bytes);

#endif
