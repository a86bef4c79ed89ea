// tensors.h: every matrix and vector that a spec asks of its checkpoint, in the order of the
// forward pass, and where each stands in it. What checks a folder without loading it walks this
// list; the worker's plan of reads (worker/weights_plan.c) must ask for the same, which a unit test
// sees to.
#ifndef MOESAIC_COMMON_MODEL_TENSORS_H
#define MOESAIC_COMMON_MODEL_TENSORS_H

#include "common/model/spec.h"

struct tensor_want {
    struct tensor_ref ref;
    uint32_t rows, cols; // cols 0 = a vector
};

// Called for each; false ends the walk.
typedef bool tensor_visit(void *context, const struct tensor_want *want);
// Whether the walk came to its end.
bool tensors_each(const struct model_spec *spec, tensor_visit *visit, void *context);

// Name and place, in the words of the spec's family.
struct tensor_place tensor_want_place(const struct model_spec *spec,
                                      const struct tensor_want *want);
void tensor_want_name(const struct model_spec *spec, const struct tensor_want *want,
                      char name[TENSOR_NAME_MAX]);

// What weights are held in that were found in one type and are asked for in another. Vectors are
// float32. A checkpoint of two-byte weights whose routers, weights of an index or mixes of
// hyper-connections are float32 means it so: rounded they would choose others where scores are
// close, or mix otherwise.
enum dtype tensor_held_dtype(const struct model_spec *spec, const struct tensor_want *want,
                             enum dtype found, enum dtype asked);

// Bits of the least magnitude, as a float32, that becomes infinity in a type of weights.
static inline uint32_t dtype_overflow_bits(enum dtype t) {
    if (t == DTYPE_F16) return 0x477ff000u;  // 65,520
    if (t == DTYPE_BF16) return 0x7f7f8000u; // half a step above the largest
    return 0x7f800000u;
}

// Of one expert of many: only the rank that owns it holds it.
static inline bool tensor_of_expert(enum tensor_kind kind) {
    return kind >= TENSOR_EXPERT_GATE && kind <= TENSOR_EXPERT_DOWN_BIAS;
}

// Of whole numbers: ids.
static inline bool tensor_of_ids(enum tensor_kind kind) {
    return kind == TENSOR_HASH;
}

// Whether a tensor that nothing asked for may stand in the checkpoint: tables of rotary
// frequencies, the head of a tied embedding, parts that are not served.
bool tensor_is_left_out(const struct model_spec *spec, const char *name);

#endif
