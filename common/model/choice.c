// choice.c: see choice.h.
#include "common/model/choice.h"

#include <stdio.h>

#include "common/base/check.h"
#include "common/model/legal.h"

void wish_text(char out[WISH_TEXT_MAX], const struct layout_wish *w) {
    const struct {
        const char *flag;
        uint32_t n;
    } flags[] = {{"--workers", w->derived ? 0 : w->n_ranks},
                 {"--pipeline-parallel-size", w->pp},
                 {"--data-parallel-size", w->dp},
                 {"--tensor-parallel-size", w->tp},
                 {"--expert-parallel-size", w->ep},
                 {"--expert-tensor-parallel-size", w->etp}};
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < 6 && n < WISH_TEXT_MAX; i++) {
        if (flags[i].n == 0) continue;
        n += (size_t)snprintf(out + n, WISH_TEXT_MAX - n, "%s%s %u", n > 0 ? " " : "",
                              flags[i].flag, flags[i].n);
    }
}

// Of sizes where 0 is 1.
static uint64_t product(uint32_t a, uint32_t b) {
    return (uint64_t)(a == 0 ? 1 : a) * (b == 0 ? 1 : b);
}

uint32_t wish_workers(const struct layout_wish *w) {
    uint64_t stage = product(w->dp, w->tp), places = product(w->ep, w->etp);
    // Where one of DP and TP is open, it can be what the places of the experts need.
    if ((w->dp == 0 || w->tp == 0) && places > stage) stage = places;
    if (stage > RANKS_MAX) return RANKS_MAX + 1;
    uint64_t n = product((uint32_t)stage, w->pp);
    return n > RANKS_MAX ? RANKS_MAX + 1 : (uint32_t)n;
}

static bool is(uint32_t wanted, uint32_t size) {
    return wanted == 0 || wanted == size;
}

static bool wanted(const struct layout_wish *w, const struct layout *l) {
    return is(w->pp, l->pp) && is(w->dp, l->dp) && is(w->tp, l->tp) && is(w->ep, l->ep) &&
           is(w->etp, l->etp);
}

uint64_t layout_need_bytes(const struct layout *l, const struct layout_need *need) {
    return footprint_most(need->model, l, need->n_tokens, need->n_slots);
}

bool layout_fits(const struct layout *l, const struct layout_need *need) {
    return need->memory_bytes == 0 || layout_need_bytes(l, need) <= need->memory_bytes;
}

// Places without an expert: their workers have nothing to do while the others compute.
static uint32_t idle_places(const struct model_spec *s, const struct layout *l) {
    return l->ep > s->router.n_experts && s->router.n_experts > 0 ? l->ep - s->router.n_experts : 0;
}

static bool better(const struct layout *a, const struct layout *b, const struct layout_need *need) {
    const struct model_spec *s = need->model->spec;
    bool a_fits = layout_fits(a, need), b_fits = layout_fits(b, need);
    if (a_fits != b_fits) return a_fits;
    if (!a_fits) return layout_need_bytes(a, need) < layout_need_bytes(b, need);
    if (a->pp != b->pp) return a->pp < b->pp;
    if (a->tp != b->tp) return a->tp < b->tp;
    uint32_t a_idle = idle_places(s, a), b_idle = idle_places(s, b);
    return a_idle != b_idle ? a_idle < b_idle : a->etp < b->etp;
}

static uint32_t or_rest(uint32_t size, uint32_t whole, uint32_t part) {
    if (size != 0) return size;
    return whole / part > 0 ? whole / part : 1;
}

// The layout that the sizes given describe best, to be refused with its rule.
static struct layout completed(const struct layout_wish *w) {
    struct layout l = {.n_ranks = w->n_ranks, .pp = w->pp == 0 ? 1 : w->pp};
    if (w->dp == 0) {
        l.tp = w->tp == 0 ? 1 : w->tp;
        l.dp = or_rest(0, w->n_ranks / l.pp, l.tp);
    } else {
        l.dp = w->dp;
        l.tp = or_rest(w->tp, w->n_ranks / l.pp, l.dp);
    }
    uint64_t stage = (uint64_t)l.dp * l.tp;
    uint32_t in_stage = stage > RANKS_MAX ? RANKS_MAX + 1 : (uint32_t)stage;
    l.etp = w->etp != 0 ? w->etp : w->ep == 0 ? 1 : or_rest(0, in_stage, w->ep);
    l.ep = or_rest(w->ep, in_stage, l.etp);
    return l;
}

int wish_too_many(const char *flags, struct err_text *e) {
    return err_set(e, ERR_FATAL_CONFIG, "%s: more than %d workers are not possible", flags,
                   RANKS_MAX);
}

static int refuse(const struct layout_wish *w, const struct model_spec *s, struct err_text *e) {
    struct err_text why;
    char flags[WISH_TEXT_MAX];
    wish_text(flags, w);
    if (w->n_ranks > RANKS_MAX) return wish_too_many(flags, e);
    const struct layout refused = completed(w);
    int err = legal_check(s, &refused, &why);
    check(err != 0);
    return err_set(e, err, "%s%s%s", flags, flags[0] != '\0' ? ": " : "", why.text);
}

int layout_choose(struct layout *out, const struct layout_wish *w, const struct layout_need *need,
                  struct err_text *e) {
    const struct model_spec *s = need->model->spec;
    struct layout all[LEGAL_LAYOUTS_MAX];
    const struct layout *best = NULL;
    uint32_t n = w->n_ranks == 0 || w->n_ranks > RANKS_MAX ? 0 : legal_list(s, w->n_ranks, all);
    for (uint32_t i = 0; i < n; i++) {
        if (!wanted(w, &all[i])) continue;
        if (best == NULL || better(&all[i], best, need)) best = &all[i];
    }
    if (best == NULL) return refuse(w, s, e);
    *out = *best;
    return 0;
}
