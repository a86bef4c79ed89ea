// choice.h: the layout for what a person asked for (docs/operations.md, Layouts).
#ifndef MOESAIC_COMMON_MODEL_CHOICE_H
#define MOESAIC_COMMON_MODEL_CHOICE_H

#include "common/model/footprint.h"

// 0 = not given.
struct layout_wish {
    uint32_t n_ranks; // at least 1
    bool derived;     // nobody wrote n_ranks: it follows from other options, and is not named
    uint32_t pp, dp, tp, ep, etp;
};

// What a rank must hold besides its weights, and in which memory.
struct layout_need {
    const struct footprint_model *model;
    uint64_t n_tokens;       // whose pages must fit: one request of the greatest length
    uint32_t n_slots;        // sequences that run at once: a worker sets their states aside
    uint64_t memory_bytes;   // of each worker; 0 = not known: everything fits
    uint64_t snapshot_bytes; // of these, for copies of states; 0 = not known
};

// The flags that were given, as a person wrote them: "--workers 8 --tensor-parallel-size 2".
#define WISH_TEXT_MAX 192
void wish_text(char out[WISH_TEXT_MAX], const struct layout_wish *wish);
// ERR_FATAL_CONFIG: these flags ask for more than RANKS_MAX workers.
int wish_too_many(const char *flags, struct err_text *e);

// How many workers the sizes ask for, those not given taken as 1; more than RANKS_MAX is always
// RANKS_MAX + 1. A stage whose DP or TP is not given has at least as many as its experts' places.
uint32_t wish_workers(const struct layout_wish *wish);

// Among the legal layouts with the sizes that were given, those that fit the memory (if none does,
// those that need least). Of these the one with the fewest stages, then the smallest TP, then the
// smallest ETP that leaves no worker without experts: whole requests on each worker and whole
// experts cost the fewest messages, and a pipeline makes a single request slower.
// ERR_FATAL_CONFIG: there is none; the text names flags, rule and the nearest ones.
int layout_choose(struct layout *out, const struct layout_wish *wish,
                  const struct layout_need *need, struct err_text *e);
// Whether its ranks fit.
uint64_t layout_need_bytes(const struct layout *l, const struct layout_need *need);
bool layout_fits(const struct layout *l, const struct layout_need *need);

#endif
