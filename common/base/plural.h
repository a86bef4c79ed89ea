// plural.h: the ending of a noun behind a number, in sentences for people: "1 worker", "2 workers".
#ifndef MOESAIC_COMMON_BASE_PLURAL_H
#define MOESAIC_COMMON_BASE_PLURAL_H

#include <stdint.h>

static inline const char *plural(uint64_t n) {
    return n == 1 ? "" : "s";
}

#endif
