// sample.h: one row of logits to one token (docs/arithmetic.md, Sampling). Pure functions; any
// compute thread.
#ifndef MOESAIC_WORKER_SAMPLE_H
#define MOESAIC_WORKER_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/ops.h"
#include "step.pb-c.h"
#include "worker/model.h"
#include "worker/scratch.h"

struct sample_scratch {
    float *maxima;        // of the logits of each block's lanes
    uint64_t *sums;       // of the weights of each block
    float *weights;       // [vocab, whole blocks] of all ids, or of the candidates
    uint64_t *candidates; // [vocab, whole blocks] items of cut.h
};
void sample_lay(struct sample_scratch *sample, uint32_t vocab, struct scratch *s);

struct sample_row {
    const float *logits;    // [vocab] as the model gave them: log-probabilities are of these
    const float *chosen_by; // [vocab] what the token is chosen by: steered (steer.h), or logits
    uint32_t vocab;
    uint32_t position; // of the row
    const Moesaic__Step__V1__Sampling *params;
};
// Fills token, log-probabilities and nonfinite of out; slot and digest stay.
void sample_row(const struct kernel_ops *ops, const struct sample_row *row,
                struct sample_scratch *scratch, struct seq_result *out);

// The n largest logits of a row: (logit descending, id ascending).
struct sample_top {
    uint32_t n; // wanted; then found: no more than the row has
    uint32_t *ids;
    float *logprobs; // logit - lse
};
void sample_top(const float *x, uint32_t vocab, float lse, struct sample_top *top);

// Philox4x32-10.
void sample_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

#endif
