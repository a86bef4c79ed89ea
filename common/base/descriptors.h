// descriptors.h: how many files and connections this process may have open.
#ifndef MOESAIC_COMMON_BASE_DESCRIPTORS_H
#define MOESAIC_COMMON_BASE_DESCRIPTORS_H

#include <stdint.h>

#include "common/base/err.h"

// Takes all that the system allows and tells how many that are. Fewer than `least` are refused:
// without this a process starts and then closes every connection, and nobody learns why.
int descriptors_claim(uint32_t least, uint64_t *out, struct err_text *e);

#endif
