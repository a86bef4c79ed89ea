// layout.c: see layout.h.
#include "common/base/layout.h"

#include <stdio.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/plural.h"

// The first of n things that the part `part` of `parts` has, when they are spread as evenly as they
// go.
static uint32_t spread(uint32_t n, uint32_t parts, uint32_t part) {
    return (uint32_t)((uint64_t)part * n / parts);
}

// The part that has thing i: the largest whose first one is not above it.
static uint32_t owner(uint32_t n, uint32_t parts, uint32_t i) {
    return (uint32_t)((((uint64_t)i + 1) * parts - 1) / n);
}

int layout_make(struct layout *out, uint32_t n_ranks, struct err_text *e) {
    struct layout l = {
        .n_ranks = n_ranks, .pp = 1, .dp = n_ranks, .tp = 1, .ep = n_ranks, .etp = 1};
    int err = layout_check(&l, e);
    if (err == 0) *out = l;
    return err;
}

int layout_check(const struct layout *l, struct err_text *e) {
    if (l->n_ranks == 0 || l->n_ranks > RANKS_MAX)
        return err_set(e, ERR_FATAL_CONFIG, "number of workers %u is not within 1 to %d",
                       l->n_ranks, RANKS_MAX);
    const uint32_t sizes[] = {l->pp, l->dp, l->tp, l->ep, l->etp};
    for (int i = 0; i < 5; i++) {
        if (sizes[i] == 0 || sizes[i] > RANKS_MAX)
            return err_set(e, ERR_FATAL_CONFIG, "a parallel size of %u is not within 1 to %d",
                           sizes[i], RANKS_MAX);
    }
    uint64_t stage = (uint64_t)l->dp * l->tp, places = (uint64_t)l->ep * l->etp;
    if (stage * l->pp != l->n_ranks)
        return err_set(e, ERR_FATAL_CONFIG,
                       "pipeline %u x data %u x tensor %u parallel needs %llu worker%s, not %u",
                       l->pp, l->dp, l->tp, (unsigned long long)(stage * l->pp),
                       plural(stage * l->pp), l->n_ranks);
    if (stage != places)
        return err_set(e, ERR_FATAL_CONFIG,
                       "data %u x tensor %u parallel is not expert %u x expert tensor %u parallel",
                       l->dp, l->tp, l->ep, l->etp);
    return 0;
}

void layout_text(char out[LAYOUT_TEXT_MAX], const struct layout *l) {
    snprintf(out, LAYOUT_TEXT_MAX, "pp %u dp %u tp %u ep %u etp %u", l->pp, l->dp, l->tp, l->ep,
             l->etp);
}

bool layout_equal(const struct layout *a, const struct layout *b) {
    return a->n_ranks == b->n_ranks && a->pp == b->pp && a->dp == b->dp && a->tp == b->tp &&
           a->ep == b->ep && a->etp == b->etp;
}

struct layout_place layout_place(const struct layout *l, uint32_t rank) {
    check(rank < l->n_ranks);
    uint32_t in_stage = rank % layout_stage_ranks(l);
    return (struct layout_place){.stage = rank / layout_stage_ranks(l),
                                 .dp = in_stage / l->tp,
                                 .tp = in_stage % l->tp,
                                 .ep = in_stage / l->etp,
                                 .etp = in_stage % l->etp};
}

uint32_t layout_rank(const struct layout *l, uint32_t stage, uint32_t dp, uint32_t tp) {
    check(stage < l->pp && dp < l->dp && tp < l->tp);
    return (stage * l->dp + dp) * l->tp + tp;
}

uint32_t layout_expert_rank(const struct layout *l, uint32_t stage, uint32_t ep, uint32_t etp) {
    check(stage < l->pp && ep < l->ep && etp < l->etp);
    return (stage * l->ep + ep) * l->etp + etp;
}

bool layout_answers(const struct layout *l, uint32_t rank) {
    const struct layout_place p = layout_place(l, rank);
    return p.stage == l->pp - 1 && p.tp == 0;
}

uint32_t layout_layer_first(const struct layout *l, uint32_t n_layers, uint32_t stage) {
    check(stage <= l->pp);
    return spread(n_layers, l->pp, stage);
}

uint32_t layout_layer_count(const struct layout *l, uint32_t n_layers, uint32_t stage) {
    return layout_layer_first(l, n_layers, stage + 1) - layout_layer_first(l, n_layers, stage);
}

uint32_t layout_layer_stage(const struct layout *l, uint32_t n_layers, uint32_t layer) {
    check(layer < n_layers);
    return owner(n_layers, l->pp, layer);
}

uint32_t layout_expert_first(const struct layout *l, uint32_t n_experts, uint32_t rank) {
    return spread(n_experts, l->ep, layout_place(l, rank).ep);
}

uint32_t layout_expert_count(const struct layout *l, uint32_t n_experts, uint32_t rank) {
    uint32_t ep = layout_place(l, rank).ep;
    return spread(n_experts, l->ep, ep + 1) - spread(n_experts, l->ep, ep);
}

uint32_t layout_expert_owner(const struct layout *l, uint32_t n_experts, uint32_t expert) {
    check(expert < n_experts);
    return owner(n_experts, l->ep, expert);
}

uint32_t layout_row_first(const struct layout *l, uint32_t n_rows, uint32_t tp) {
    check(tp <= l->tp);
    return spread(n_rows, l->tp, tp);
}
