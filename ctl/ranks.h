// ranks.h: the table of workers in the picture of moectl status, one row a rank.
#ifndef MOESAIC_CTL_RANKS_H
#define MOESAIC_CTL_RANKS_H

#include "ctl/overview.h"

// When there are more than style->rows_max, those that a person should look at are shown, in the
// order of ranks, and one line sums the others up. placed: say where each stands, as they are not
// all alike.
void ranks_write(struct buf *out, const json_t *workers, const struct overview_style *style,
                 bool placed);

#endif
