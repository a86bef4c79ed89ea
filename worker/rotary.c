// rotary.c: see rotary.h.
#include "worker/rotary.h"

#include <string.h>

#include "common/model/rope.h"

void rotary_lay(struct rotary *r, const struct rotary_config *config, struct scratch *s) {
    size_t half = config->rope->dim / 2;
    r->ops = config->ops;
    r->dim = config->rope->dim;
    r->interleaved = config->rope->interleaved;
    r->inv_freq = scratch_take(s, half, sizeof(float));
    r->cos = scratch_take(s, config->n_rows * half, sizeof(float));
    r->sin = scratch_take(s, config->n_rows * half, sizeof(float));
    if (r->inv_freq != NULL)
        r->factor = rope_frequencies(r->inv_freq, config->rope, config->max_model_len);
}

void rotary_fill(const struct rotary *r, uint32_t row, uint32_t position) {
    uint32_t half = r->dim / 2;
    float *cos = r->cos + (size_t)row * half, *sin = r->sin + (size_t)row * half;
    elementary_rope_table(cos, sin, position, r->inv_freq, half);
    if (r->factor == 0) return;
    r->ops->scale(cos, cos, r->factor, half);
    r->ops->scale(sin, sin, r->factor, half);
}

void rotary_turn(const struct rotary *r, float *x, uint32_t row) {
    rotary_turn_as(r, x, row, r->interleaved);
}

void rotary_turn_as(const struct rotary *r, float *x, uint32_t row, bool interleaved) {
    uint32_t half = r->dim / 2;
    if (interleaved) {
        float halves[HEAD_DIM_MAX];
        for (uint32_t i = 0; i < half; i++) {
            halves[i] = x[2 * i];
            halves[half + i] = x[2 * i + 1];
        }
        memcpy(x, halves, r->dim * sizeof *x);
    }
    size_t at = (size_t)row * half;
    r->ops->rope(x, r->cos + at, r->sin + at, r->dim);
}

void rotary_turn_back(const struct rotary *r, float *x, uint32_t row) {
    uint32_t half = r->dim / 2;
    float sin[HEAD_DIM_MAX / 2] = {0}, halves[HEAD_DIM_MAX];
    size_t at = (size_t)row * half;
    if (half == 0) return; // without it the compiler sees a sine that nobody wrote
    for (uint32_t i = 0; i < half; i++)
        sin[i] = -r->sin[at + i];
    r->ops->rope(x, r->cos + at, sin, r->dim);
    if (!r->interleaved) return;
    memcpy(halves, x, r->dim * sizeof *x);
    for (uint32_t i = 0; i < half; i++) {
        x[2 * i] = halves[i];
        x[2 * i + 1] = halves[half + i];
    }
}
