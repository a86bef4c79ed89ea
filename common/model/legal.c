// legal.c: see legal.h.
#include "common/model/legal.h"

#include <stdio.h>

#include "common/base/check.h"
#include "common/base/plural.h"

// --- the rules

// Layers that attend: what a stage has pages of.
static uint32_t attending(const struct model_spec *s, const struct layout *l, uint32_t stage) {
    uint32_t first = layout_layer_first(l, s->n_layers, stage), n = 0;
    for (uint32_t i = 0; i < layout_layer_count(l, s->n_layers, stage); i++)
        n += spec_layer_recurrent(s, first + i) ? 0 : 1;
    return n;
}

static int check_stages(const struct model_spec *s, const struct layout *l, struct err_text *e) {
    if (l->pp > s->n_layers)
        return err_set(e, ERR_FATAL_CONFIG,
                       "pipeline parallel %u: every stage needs a layer, and the model has %u",
                       l->pp, s->n_layers);
    for (uint32_t stage = 0; stage < l->pp; stage++) {
        uint32_t first = layout_layer_first(l, s->n_layers, stage);
        if (attending(s, l, stage) == 0)
            return err_set(e, ERR_FATAL_CONFIG,
                           "pipeline parallel %u: stage %u would have recurrent layers only, and "
                           "every stage needs one that attends",
                           l->pp, stage);
        if (stage > 0 && (s->layer_flags[first] & LAYER_SAME_KEYS))
            return err_set(e, ERR_FATAL_CONFIG,
                           "pipeline parallel %u: a stage would begin with layer %u, which attends "
                           "to the keys that the layer before it chose",
                           l->pp, first);
    }
    return 0;
}

// Latents are whole on every rank. Other keys and values are split by heads, or a head is held by
// several ranks.
static bool kv_heads_fit(const struct model_spec *s, uint32_t tp) {
    uint32_t n = s->n_kv_heads;
    return s->mla.kv_rank != 0 || n % tp == 0 || tp % n == 0;
}

// Heads of recurrent layers are split as runs of key heads with the value heads that they serve.
static bool recurrent_heads_fit(const struct model_spec *s, uint32_t tp) {
    return spec_recurrent_layers(s) == 0 || s->delta.n_k_heads % tp == 0;
}

static int check_tensor(const struct model_spec *s, const struct layout *l, struct err_text *e) {
    uint32_t segments = spec_attn_segments(s), groups = s->joint.o_groups;
    if (groups != 0 && segments % l->tp != 0)
        return err_set(e, ERR_FATAL_CONFIG,
                       "tensor parallel %u does not divide the %u segment%s in which the output of "
                       "the model's %u group%s of heads is summed",
                       l->tp, segments, plural(segments), groups, plural(groups));
    if (segments % l->tp != 0)
        return err_set(e, ERR_FATAL_CONFIG,
                       "tensor parallel %u does not divide the %u segment%s in which the output of "
                       "the model's %u head%s is summed",
                       l->tp, segments, plural(segments), s->n_heads, plural(s->n_heads));
    if (!kv_heads_fit(s, l->tp))
        return err_set(e, ERR_FATAL_CONFIG,
                       "tensor parallel %u neither divides the model's %u KV head%s nor is a "
                       "multiple of them",
                       l->tp, s->n_kv_heads, plural(s->n_kv_heads));
    if (!recurrent_heads_fit(s, l->tp))
        return err_set(e, ERR_FATAL_CONFIG,
                       "tensor parallel %u does not divide the %u key head%s of the model's "
                       "recurrent layers",
                       l->tp, s->delta.n_k_heads, plural(s->delta.n_k_heads));
    return 0;
}

static int check_experts(const struct model_spec *s, const struct layout *l, struct err_text *e) {
    if (l->etp == 1) return 0;
    if (s->router.n_experts == 0)
        return err_set(e, ERR_FATAL_CONFIG, "expert tensor parallel %u: the model has no experts",
                       l->etp);
    uint32_t segments = spec_inner_segments(s->inner_expert);
    if (segments % l->etp == 0) return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "expert tensor parallel %u does not divide the %u segment%s in which the "
                   "inner width %u of an expert is summed",
                   l->etp, segments, plural(segments), s->inner_expert);
}

static int check_rules(const struct model_spec *s, const struct layout *l, struct err_text *e) {
    int err = layout_check(l, e);
    if (err == 0) err = check_stages(s, l, e);
    if (err == 0) err = check_tensor(s, l, e);
    if (err == 0) err = check_experts(s, l, e);
    return err;
}

uint32_t legal_tp_max(const struct model_spec *s) {
    uint32_t tp = spec_attn_segments(s);
    while (!kv_heads_fit(s, tp) || !recurrent_heads_fit(s, tp))
        tp /= 2;
    return tp;
}

uint32_t legal_etp_max(const struct model_spec *s) {
    return s->router.n_experts == 0 ? 1 : spec_inner_segments(s->inner_expert);
}

// --- all of them

// Those of one pp and tp behind the n that are there.
static uint32_t list_etp(const struct model_spec *s, struct layout l, struct layout *out,
                         uint32_t n) {
    uint32_t stage = layout_stage_ranks(&l);
    for (l.etp = 1; l.etp <= SEGMENTS_MAX && l.etp <= stage; l.etp *= 2) {
        l.ep = stage / l.etp;
        if (check_rules(s, &l, NULL) != 0) continue;
        check(n < LEGAL_LAYOUTS_MAX);
        out[n++] = l;
    }
    return n;
}

uint32_t legal_list(const struct model_spec *s, uint32_t n_ranks,
                    struct layout out[LEGAL_LAYOUTS_MAX]) {
    check(n_ranks > 0 && n_ranks <= RANKS_MAX);
    uint32_t n = 0;
    for (uint32_t pp = 1; pp <= n_ranks && pp <= s->n_layers; pp++) {
        if (n_ranks % pp != 0) continue;
        for (uint32_t tp = 1; tp <= SEGMENTS_MAX; tp *= 2) {
            if (n_ranks / pp % tp != 0) continue;
            struct layout l = {.n_ranks = n_ranks, .pp = pp, .dp = n_ranks / pp / tp, .tp = tp};
            n = list_etp(s, l, out, n);
        }
    }
    check(n > 0);
    return n;
}

// --- the nearest ones

static double factor(uint32_t a, uint32_t b) {
    return a > b ? (double)a / b : (double)b / a;
}

double legal_distance(const struct layout *a, const struct layout *b) {
    return factor(a->pp, b->pp) * factor(a->dp, b->dp) * factor(a->tp, b->tp) *
           factor(a->ep, b->ep) * factor(a->etp, b->etp);
}

struct nearest {
    struct layout layout;
    double distance; // 0 = none yet
};

static void look(struct nearest *best, const struct model_spec *s, const struct layout *wanted,
                 uint32_t n_ranks) {
    struct layout all[LEGAL_LAYOUTS_MAX];
    uint32_t n = legal_list(s, n_ranks, all);
    for (uint32_t i = 0; i < n; i++) {
        double distance = legal_distance(&all[i], wanted);
        if (best->distance != 0 && distance >= best->distance) continue;
        *best = (struct nearest){all[i], distance};
    }
}

static struct nearest nearest_other(const struct model_spec *s, const struct layout *wanted) {
    struct nearest best = {.distance = 0};
    uint32_t last = wanted->n_ranks < RANKS_MAX / 2 ? 2 * wanted->n_ranks : RANKS_MAX;
    for (uint32_t n = (wanted->n_ranks + 1) / 2; n <= last; n++)
        if (n != wanted->n_ranks) look(&best, s, wanted, n);
    return best;
}

static bool sizes_in_range(const struct layout *l) {
    const uint32_t sizes[] = {l->n_ranks, l->pp, l->dp, l->tp, l->ep, l->etp};
    for (int i = 0; i < 6; i++)
        if (sizes[i] == 0 || sizes[i] > RANKS_MAX) return false;
    return true;
}

int legal_check(const struct model_spec *s, const struct layout *l, struct err_text *e) {
    struct err_text rule;
    int err = check_rules(s, l, &rule);
    if (err == 0) return 0;
    if (!sizes_in_range(l)) return err_set(e, err, "%s", rule.text);
    struct nearest same = {.distance = 0}, other = nearest_other(s, l);
    char texts[2][LAYOUT_TEXT_MAX];
    look(&same, s, l, l->n_ranks);
    layout_text(texts[0], &same.layout);
    layout_text(texts[1], &other.layout);
    return err_set(e, err, "%.250s; the nearest layouts are %s with %u worker%s, and %s with %u",
                   rule.text, texts[0], l->n_ranks, plural(l->n_ranks), texts[1],
                   other.layout.n_ranks);
}
