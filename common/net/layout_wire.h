// layout_wire.h: layouts as they travel in control messages (proto/control.proto).
#ifndef MOESAIC_COMMON_NET_LAYOUT_WIRE_H
#define MOESAIC_COMMON_NET_LAYOUT_WIRE_H

#include "common/base/layout.h"
#include "control.pb-c.h"

void layout_pack(Moesaic__Control__V1__Layout *out, const struct layout *l);
// Its number of ranks is the product of its sizes. ERR_FATAL_CONFIG with the rule of layout_check
// that it breaks.
int layout_unpack(struct layout *out, const Moesaic__Control__V1__Layout *l, struct err_text *e);

#endif
