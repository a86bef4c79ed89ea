// plan_json.h: a plan for programs: the same as the table of moectl plan, and bytes as they are
// (docs/operations.md, Layouts).
#ifndef MOESAIC_CTL_PLAN_JSON_H
#define MOESAIC_CTL_PLAN_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "common/model/choice.h"

struct plan_order {
    const char *folder;
    const struct layout *layout; // the chosen one
    const struct layout_need *need;
    bool all; // also lists every layout of as many workers
};

// NULL: no memory.
json_t *plan_json(const struct plan_order *order);

#endif
