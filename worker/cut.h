// cut.h: where the beginning of an order ends, without making the order: what top-k and top-p keep
// (docs/arithmetic.md, Sampling). Pure functions; any compute thread.
//
// The order is value descending, id ascending. Items are dealt into digits of their values, and
// only the digit that the end falls into is looked at again: linear, whatever the values.
#ifndef MOESAIC_WORKER_CUT_H
#define MOESAIC_WORKER_CUT_H

#include <stdint.h>

#include "common/base/dtype.h"

// Value and id as one integer: of two items the lesser one comes first. -0 counts as +0, as
// comparisons have it.
static inline uint64_t cut_item(float value, uint32_t id) {
    uint32_t bits = f32_to_bits(value + 0.0f);
    uint32_t key = bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
    return (uint64_t)key << 32 | id;
}

static inline float cut_value(uint64_t item) {
    uint32_t key = (uint32_t)(item >> 32);
    return bits_to_f32(key & 0x80000000u ? key : ~key & 0x7fffffffu);
}

// The integer that a weight in [0, 1] is in sums.
static inline uint64_t cut_weight(float weight) {
    return (uint64_t)(int64_t)(weight * 0x1p32f);
}

struct cut_list {
    const uint64_t *items; // [n] ids ascending
    const float *weights;  // [n] or NULL: each item counts 1
    uint32_t n;
};
// The last item of the shortest beginning whose weights sum to wanted or more. wanted is at least 1
// and at most the sum of all.
uint64_t cut_find(const struct cut_list *list, uint64_t wanted);

#endif
