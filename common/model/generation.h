// generation.h: generation_config.json: how a model's makers want it to be sampled.
#ifndef MOESAIC_COMMON_MODEL_GENERATION_H
#define MOESAIC_COMMON_MODEL_GENERATION_H

#include <jansson.h>

#include "common/base/err.h"

// What the file says, within its ranges; what it does not say is neutral.
struct generation_defaults {
    double temperature, top_p, min_p;
    double top_k;              // -1 and 0 = off
    double repetition_penalty; // 1 = off
    double max_new_tokens;     // 0 = not said
};

// root may be NULL: a model without the file.
int generation_read(struct generation_defaults *out, const json_t *root, struct err_text *e);
// The same from folder/generation_config.json, where there is one.
int generation_load(struct generation_defaults *out, const char *folder, struct err_text *e);

#endif
