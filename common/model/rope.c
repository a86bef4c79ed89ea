// rope.c: see rope.h. Float32 throughout, in the order of the programs that the models were trained
// with.
#include "common/model/rope.h"

#include <math.h>

#include "kernels/ops.h"

#define TWO_PI 6.283185307179586f

// Slow frequencies are divided, fast ones stay, those between are mixed.
static void stretch_llama3(float *inv_freq, const struct rope_spec *r, uint32_t n) {
    float context = (float)r->original_position;
    for (uint32_t i = 0; i < n; i++) {
        float f = inv_freq[i], length = TWO_PI / f;
        if (length > context / r->low) {
            inv_freq[i] = f / r->factor;
        } else if (length >= context / r->high && r->high > r->low) {
            float mix = (context / length - r->low) / (r->high - r->low);
            inv_freq[i] = (1.0f - mix) * f / r->factor + mix * f;
        }
    }
}

// The dimension that turns so often within the original context.
static float yarn_dimension(const struct rope_spec *r, float rotations) {
    float context = (float)r->original_position;
    return (float)r->dim * elementary_log(context / (rotations * TWO_PI)) /
           (2.0f * elementary_log(r->theta));
}

static void stretch_yarn(float *inv_freq, const struct rope_spec *r, uint32_t n) {
    float low = yarn_dimension(r, r->high), high = yarn_dimension(r, r->low);
    if (r->truncate) {
        low = floorf(low);
        high = ceilf(high);
    }
    if (!(low > 0)) low = 0;
    if (!(high < (float)(r->dim - 1))) high = (float)(r->dim - 1);
    if (low == high) high += 0.001f;
    for (uint32_t i = 0; i < n; i++) {
        float ramp = ((float)i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1.0f - ramp;
        inv_freq[i] = inv_freq[i] / r->factor * (1.0f - keep) + inv_freq[i] * keep;
    }
}

float rope_frequencies(float *inv_freq, const struct rope_spec *rope, uint32_t max_model_len) {
    uint32_t n = rope->dim / 2;
    bool is_long = max_model_len > rope->original_position;
    elementary_inv_freq(inv_freq, rope->theta, rope->dim);
    switch (rope->kind) {
    case ROPE_PLAIN: break;
    case ROPE_LINEAR:
        for (uint32_t i = 0; i < n; i++)
            inv_freq[i] /= rope->factor;
        break;
    case ROPE_LLAMA3: stretch_llama3(inv_freq, rope, n); break;
    case ROPE_YARN: stretch_yarn(inv_freq, rope, n); break;
    case ROPE_LONG:
        for (uint32_t i = 0; i < n; i++)
            inv_freq[i] /= is_long ? rope->long_factors[i] : rope->short_factors[i];
        break;
    }
    return rope->kind == ROPE_LONG && is_long ? rope->long_attention : rope->attention;
}
