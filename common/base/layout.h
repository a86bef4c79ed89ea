// layout.h: which rank owns what: the arithmetic of PP x DP x TP x EP x ETP (docs/design.md,
// Words).
//
// A rank stands at (stage, DP index, TP index), the last running fastest. The ranks of a stage own
// one contiguous range of layers; those of a DP group (equal stage and DP index) share requests and
// split attention, dense layers and the vocabulary. The experts of a stage's layers are spread over
// its ranks in contiguous ranges, as evenly as they go: ETP ranks that follow each other are one
// place of EP and split each of its experts. What a model allows is not known here:
// common/model/legal.h.
#ifndef MOESAIC_COMMON_BASE_LAYOUT_H
#define MOESAIC_COMMON_BASE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct layout {
    uint32_t n_ranks; // pp * dp * tp
    uint32_t pp, dp, tp;
    uint32_t ep, etp; // ep * etp = dp * tp
};

// Where a rank stands.
struct layout_place {
    uint32_t stage, dp, tp; // rank = (stage * layout.dp + dp) * layout.tp + tp
    uint32_t ep, etp;       // dp * layout.tp + tp = ep * layout.etp + etp
};

// The layout that every model can have: each rank holds all weights but the experts (dp = ep =
// n_ranks). ERR_FATAL_CONFIG for a number of workers that nothing can have.
int layout_make(struct layout *out, uint32_t n_ranks, struct err_text *e);
// The same, for a number that is known to be lawful.
static inline struct layout layout_even(uint32_t n_ranks) {
    return (struct layout){
        .n_ranks = n_ranks, .pp = 1, .dp = n_ranks, .tp = 1, .ep = n_ranks, .etp = 1};
}
// The rules that hold for every model; ERR_FATAL_CONFIG with the one that is broken.
int layout_check(const struct layout *l, struct err_text *e);
// As people read it: "pp 1 dp 8 tp 2 ep 8 etp 2".
#define LAYOUT_TEXT_MAX 80
void layout_text(char out[LAYOUT_TEXT_MAX], const struct layout *l);
bool layout_equal(const struct layout *a, const struct layout *b);

struct layout_place layout_place(const struct layout *l, uint32_t rank);
uint32_t layout_rank(const struct layout *l, uint32_t stage, uint32_t dp, uint32_t tp);
uint32_t layout_expert_rank(const struct layout *l, uint32_t stage, uint32_t ep, uint32_t etp);
// The rank of each DP group that samples and has what the leader asked for.
bool layout_answers(const struct layout *l, uint32_t rank);
static inline uint32_t layout_stage_ranks(const struct layout *l) {
    return l->dp * l->tp;
}

// Layers [first, first + count) belong to a stage; every stage has one as long as there are as many
// layers.
uint32_t layout_layer_first(const struct layout *l, uint32_t n_layers, uint32_t stage);
uint32_t layout_layer_count(const struct layout *l, uint32_t n_layers, uint32_t stage);
uint32_t layout_layer_stage(const struct layout *l, uint32_t n_layers, uint32_t layer);

// Experts [first, first + count) of every layer of its stage live on rank, or a part of each does.
// A rank may own none when there are more places than experts; n_experts 0 = dense model.
uint32_t layout_expert_first(const struct layout *l, uint32_t n_experts, uint32_t rank);
uint32_t layout_expert_count(const struct layout *l, uint32_t n_experts, uint32_t rank);
// The place (ep) that owns an expert.
uint32_t layout_expert_owner(const struct layout *l, uint32_t n_experts, uint32_t expert);

// The rows [first(tp), first(tp + 1)) of a DP group's step whose residual stream the TP index
// keeps.
uint32_t layout_row_first(const struct layout *l, uint32_t n_rows, uint32_t tp);

#endif
