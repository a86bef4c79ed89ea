// checkpoint.h: whether a checkpoint is the one that config.json describes, without reading its
// weights but tables of experts by token; everything that is not is said, not only the first.
// Optionally, whether all its numbers are finite.
#ifndef MOESAIC_COMMON_MODEL_CHECKPOINT_H
#define MOESAIC_COMMON_MODEL_CHECKPOINT_H

#include "common/model/safetensors.h"
#include "common/model/spec.h"

// What the spec asks for, in numbers of parameters; a tied head counts once.
struct checkpoint_sizes {
    uint64_t parameters, active; // active: of one token
    uint64_t of_one_expert;      // over all layers
    uint64_t outside_experts;    // on every rank; a tied head is held twice and counts so here
};
void checkpoint_sizes(struct checkpoint_sizes *out, const struct model_spec *spec);

// Bytes of weights that the fullest of n_ranks holds, about (matrices in panels need a little
// more).
uint64_t checkpoint_rank_bytes(const struct checkpoint_sizes *sizes, const struct model_spec *spec,
                               uint32_t n_ranks);

// Names, shapes and types of all tensors, and the ids in tables of experts.
int checkpoint_check(const struct model_spec *spec, const struct safetensors *st,
                     const struct problems *problems, struct err_text *e);

// Reads every tensor that the model reads and says which have numbers that are not finite, or will
// not be in the type that they are held in when no other is asked for.
int checkpoint_check_values(const struct model_spec *spec, const struct safetensors *st,
                            const struct problems *problems, struct err_text *e);

#endif
