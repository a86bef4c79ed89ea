// legal.h: which layouts a model can run in (common/base/layout.h).
//
// A split never changes an answer, so only what keeps every sum's order is legal
// (docs/arithmetic.md): ranks own whole subtrees of the segments in which attention and experts are
// summed, whole heads, whole layers. Numbers of workers have no rule of their own: experts spread
// as evenly as they go, and a place may have none.
#ifndef MOESAIC_COMMON_MODEL_LEGAL_H
#define MOESAIC_COMMON_MODEL_LEGAL_H

#include "common/base/layout.h"
#include "common/model/spec.h"

// As many as one number of workers can have: 840 has 32 divisors, and TP and ETP have 4 sizes each.
#define LEGAL_LAYOUTS_MAX 512

// 0, or ERR_FATAL_CONFIG with the rule that is broken, its numbers, and the nearest layouts that
// are legal, of as many workers and of another number.
int legal_check(const struct model_spec *spec, const struct layout *l, struct err_text *e);

// All legal layouts of n_ranks workers, n_ranks within 1 to RANKS_MAX: pp ascending, then tp, then
// etp. Returns how many; there is at least one.
uint32_t legal_list(const struct model_spec *spec, uint32_t n_ranks,
                    struct layout out[LEGAL_LAYOUTS_MAX]);

// How far apart two layouts are: the product of the factors between their sizes; 1 = equal.
double legal_distance(const struct layout *a, const struct layout *b);

// The largest TP and ETP that a model's sums allow.
uint32_t legal_tp_max(const struct model_spec *spec);
uint32_t legal_etp_max(const struct model_spec *spec);

#endif
