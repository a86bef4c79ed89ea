// layout.h: which rank owns what: the arithmetic of PP x DP x TP x EP x ETP (docs/design.md,
// Words).
//
// In this version pp = tp = etp = 1 and dp = ep = n_ranks: every rank holds all weights but the
// experts, its own KV cache and its own requests; each layer's experts are spread over all ranks in
// contiguous ranges, as evenly as they go.
#ifndef MOESAIC_COMMON_BASE_LAYOUT_H
#define MOESAIC_COMMON_BASE_LAYOUT_H

#include <stdint.h>

#include "common/base/err.h"

struct layout {
    uint32_t n_ranks;
    uint32_t pp, dp, tp, ep, etp;
};

// Fills and checks a layout; ERR_FATAL_CONFIG with the rule that is broken otherwise. n_experts 0 =
// dense model.
int layout_make(struct layout *out, uint32_t n_ranks, uint32_t n_experts, struct err_text *e);

// Experts [first, first + count) of every layer live on rank. A rank may own none when there are
// more ranks than experts.
uint32_t layout_expert_first(const struct layout *l, uint32_t n_experts, uint32_t rank);
uint32_t layout_expert_count(const struct layout *l, uint32_t n_experts, uint32_t rank);
uint32_t layout_expert_owner(const struct layout *l, uint32_t n_experts, uint32_t expert);

#endif
