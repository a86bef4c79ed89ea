// verify.h: a model's folder, looked at completely before anybody waits for a load: all that would
// be refused, and what it is.
#ifndef MOESAIC_CTL_VERIFY_H
#define MOESAIC_CTL_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"

struct verify_order {
    const char *folder;
    bool values;     // read all weights, too
    bool json;       // the report is one JSON object, for programs
    int64_t wall_ns; // what a template takes for now
};

// Writes the report; returns how many problems there are.
uint32_t verify_folder(struct buf *out, const struct verify_order *order);

#endif
