// model_path.h: what --model must be before anything is opened: a folder here, not a name
// elsewhere; and what it is called.
#ifndef MOESAIC_LEADER_MODEL_PATH_H
#define MOESAIC_LEADER_MODEL_PATH_H

#include <stddef.h>

#include "common/base/err.h"

// Refuses the name of a repository that is no folder here, with the command that downloads it, and
// a GGUF file. Any other path is for those who open it to judge.
int model_path_check(const char *path, struct err_text *e);
// Its last part, by which clients know the model unless they are told another.
void model_path_name(char *out, size_t cap, const char *path);

#endif
