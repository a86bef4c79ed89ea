// model_path.h: what --model must be before anything is opened: a folder here, not a name
// elsewhere.
#ifndef MOESAIC_LEADER_MODEL_PATH_H
#define MOESAIC_LEADER_MODEL_PATH_H

#include "common/base/err.h"

// Refuses the name of a repository that is no folder here, with the command that downloads it, and
// a GGUF file. Any other path is for those who open it to judge.
int model_path_check(const char *path, struct err_text *e);

#endif
