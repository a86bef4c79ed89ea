// expert_table.h: tables that have the experts of each token (TENSOR_HASH): read whole and checked,
// because a row's experts are looked up in them without another look.
#ifndef MOESAIC_COMMON_MODEL_EXPERT_TABLE_H
#define MOESAIC_COMMON_MODEL_EXPERT_TABLE_H

#include "common/model/safetensors.h"
#include "common/model/spec.h"

struct expert_table_source {
    const struct safetensors *st;
    const struct safetensors_tensor *tensor;
};
// ids [vocab, top_k] from a tensor of that shape and of ids. Refuses ids of no expert; one that a
// token has twice stays so. digest may be NULL: a hash of the tensor's name and bytes.
int expert_table_read(uint16_t *ids, uint64_t *digest, const struct model_spec *spec,
                      const struct expert_table_source *source, struct err_text *e);

#endif
