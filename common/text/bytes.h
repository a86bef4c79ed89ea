// bytes.h: a growing byte string with a ceiling, for patterns, normalised text and rendered
// prompts.
#ifndef MOESAIC_COMMON_TEXT_BYTES_H
#define MOESAIC_COMMON_TEXT_BYTES_H

#include <stdbool.h>
#include <stddef.h>

struct bytes {
    char *data; // mem_alloc'd, owned; NULL while empty; not terminated
    size_t n, capacity;
    size_t n_max; // growth beyond it fails; 0 = no ceiling
};

// Both return false, and change nothing, when memory is out or the ceiling is met.
bool bytes_reserve(struct bytes *b, size_t more);
bool bytes_append(struct bytes *b, const char *data, size_t n);
// True when the last failure was the ceiling's, not the memory's.
bool bytes_would_exceed(const struct bytes *b, size_t more);
void bytes_finish(struct bytes *b);

#endif
