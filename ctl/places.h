// places.h: the table of moectl status --places: which worker holds what.
#ifndef MOESAIC_CTL_PLACES_H
#define MOESAIC_CTL_PLACES_H

#include "ctl/overview.h"

// A row a rank, in order; of more than style->rows_max the first ones.
void places_write(struct buf *out, const json_t *workers, const struct overview_style *style);

#endif
