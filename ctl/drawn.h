// drawn.h: prompts of moectl bench whose ids are drawn from the vocabulary: as long as asked for,
// each its own, the same for one seed.
#ifndef MOESAIC_CTL_DRAWN_H
#define MOESAIC_CTL_DRAWN_H

#include <jansson.h>
#include <stdint.h>

struct drawn {
    uint32_t prefix_tokens, input_tokens; // in common, then each prompt's own
    uint32_t vocab;                       // ids are below it
    uint64_t seed;
};

// The next number of a sequence that only its state decides.
uint64_t drawn_next(uint64_t *state);

// The ids of the prompt of this number, the caller's to decref; NULL: no memory.
json_t *drawn_ids(const struct drawn *d, uint64_t number);

#endif
