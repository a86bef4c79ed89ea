// weights_runs.h: reads equal runs of a tensor's bytes that lie apart in the file: a rank's columns
// of stored rows. Private to the weights_* files.
#ifndef MOESAIC_WORKER_WEIGHTS_RUNS_H
#define MOESAIC_WORKER_WEIGHTS_RUNS_H

#include "common/model/safetensors.h"

// What runs_read may use for runs that it reads together.
#define RUNS_BOUNCE_BYTES ((size_t)2 << 20)

struct runs {
    uint64_t at, stride; // in the tensor; from one run's beginning to the next one's
    size_t bytes, n;     // of a run, and how many; some may lie in each other
};

struct runs_buffers {
    uint8_t *out;    // [n][bytes]
    uint8_t *bounce; // [RUNS_BOUNCE_BYTES], of this thread alone
};

// The runs behind each other into the first buffer. Any thread.
int runs_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
              const struct runs *runs, const struct runs_buffers *to, struct err_text *e);

#endif
