// overview.h: the picture of moectl status: /status as text for a person.
#ifndef MOESAIC_CTL_OVERVIEW_H
#define MOESAIC_CTL_OVERVIEW_H

#include <jansson.h>

#include "common/base/buf.h"

#define OVERVIEW_COLUMNS 80

struct overview_style {
    unsigned rows_max; // of the table of workers; 0 = all
    bool colour;
    bool places; // in place of speed: what each worker holds
};

// Lines of at most OVERVIEW_COLUMNS columns. What the object lacks is shown as "-" or left out.
void overview_write(struct buf *out, const json_t *status, const struct overview_style *style);

#endif
