// loaded.h: one rank's weights of a checkpoint, for tests of what they hold.
#ifndef MOESAIC_TESTS_HARNESS_LOADED_H
#define MOESAIC_TESTS_HARNESS_LOADED_H

#include "worker/weights.h"

// layout.n_ranks is the caller's.
struct loaded {
    struct model_spec spec;
    struct layout layout;
    struct weights_progress progress;
    struct weights *w;
};

// Of config: rank, dtype, n_threads (0 = 1), memory_bytes, left and cancel; the rest is filled in.
int loaded_try(struct loaded *l, const char *folder, struct weights_config *config,
               struct err_text *e);

#endif
