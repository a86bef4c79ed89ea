// weights_runs.c: see weights_runs.h. A disk answers a request for half of each of a thousand rows
// as fast as one for a single row, so runs are read together with what lies between them, as long
// as that is little.
#include "worker/weights_runs.h"

#include <string.h>

// About what a disk reads in the time of one request, where several threads ask.
#define GAP_BYTES_MAX ((size_t)32 << 10)

// How many runs are worth one read.
static size_t together(const struct runs *r) {
    if (r->stride == r->bytes) return r->n;
    if (r->stride < r->bytes || r->stride - r->bytes > GAP_BYTES_MAX) return 1;
    if (r->bytes > RUNS_BOUNCE_BYTES) return 1;
    return (RUNS_BOUNCE_BYTES - r->bytes) / r->stride + 1;
}

int runs_read(const struct safetensors *st, const struct safetensors_tensor *tensor,
              const struct runs *r, const struct runs_buffers *to, struct err_text *e) {
    size_t most = together(r);
    int rc = 0;
    for (size_t i = 0, n; rc == 0 && i < r->n; i += n) {
        n = r->n - i < most ? r->n - i : most;
        uint8_t *out = to->out + i * r->bytes;
        bool gaps = n > 1 && r->stride != r->bytes;
        const struct safetensors_range range = {r->at + i * r->stride,
                                                (n - 1) * r->stride + r->bytes};
        rc = safetensors_read(st, tensor, range, gaps ? to->bounce : out, e);
        for (size_t k = 0; rc == 0 && gaps && k < n; k++)
            memcpy(out + k * r->bytes, to->bounce + k * r->stride, r->bytes);
    }
    return rc;
}
