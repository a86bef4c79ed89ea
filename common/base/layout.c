// layout.c: see layout.h.
#include "common/base/layout.h"

#include "common/base/check.h"
#include "common/base/limits.h"

int layout_make(struct layout *out, uint32_t n_ranks, uint32_t n_experts, struct err_text *e) {
    if (n_ranks == 0 || n_ranks > RANKS_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "number of workers %u is not within 1 to %d", n_ranks,
                       RANKS_MAX);
    if (n_experts > EXPERTS_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "number of experts %u is above %d", n_experts,
                       EXPERTS_MAX);
    *out = (struct layout){
        .n_ranks = n_ranks, .pp = 1, .dp = n_ranks, .tp = 1, .ep = n_ranks, .etp = 1};
    return 0;
}

uint32_t layout_expert_first(const struct layout *l, uint32_t n_experts, uint32_t rank) {
    check(rank <= l->n_ranks);
    return (uint32_t)((uint64_t)rank * n_experts / l->n_ranks);
}

uint32_t layout_expert_count(const struct layout *l, uint32_t n_experts, uint32_t rank) {
    return layout_expert_first(l, n_experts, rank + 1) - layout_expert_first(l, n_experts, rank);
}

uint32_t layout_expert_owner(const struct layout *l, uint32_t n_experts, uint32_t expert) {
    check(expert < n_experts);
    // The largest rank whose first expert is not above this one.
    return (uint32_t)((((uint64_t)expert + 1) * l->n_ranks - 1) / n_experts);
}
