// folder.h: a model's folder as a whole: are two of them the same model?
//
// The leader and each worker compute it over their own copy; a worker with another digest is
// refused.
#ifndef MOESAIC_COMMON_MODEL_FOLDER_H
#define MOESAIC_COMMON_MODEL_FOLDER_H

#include <stdint.h>

#include "common/base/err.h"

// Digest over config.json, tokenizer.json and the checkpoint's headers (names, shapes, types,
// offsets) and index: the same on every host that has the same model. Cheap: reads no tensor data.
int model_folder_digest(uint64_t *out, const char *folder, struct err_text *e);

#endif
