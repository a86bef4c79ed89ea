// families.h: one line for each file of this folder. spec.c alone uses it.
#ifndef MOESAIC_COMMON_MODEL_FAMILIES_FAMILIES_H
#define MOESAIC_COMMON_MODEL_FAMILIES_FAMILIES_H

#include "common/model/spec.h"

extern const struct family family_qwen3_moe;
extern const struct family family_mixtral;

#endif
