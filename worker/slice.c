// slice.c: see slice.h.
#include "worker/slice.h"

#include "common/base/check.h"
#include "kernels/ops.h"

uint32_t slice_token_first(const struct model_spec *spec, uint32_t tp, uint32_t index) {
    uint64_t panels = (spec->vocab + PANEL_COLS - 1) / PANEL_COLS;
    uint64_t first = index * panels / tp * PANEL_COLS;
    return first < spec->vocab ? (uint32_t)first : spec->vocab;
}

static void slice_heads(struct slice *s, const struct model_spec *spec, uint32_t tp,
                        uint32_t index) {
    uint32_t segments = spec_attn_segments(spec), kv_heads = spec_kv_heads(spec);
    check(segments % tp == 0 && (kv_heads % tp == 0 || tp % kv_heads == 0));
    s->attn_segments = segments / tp;
    s->n_heads = spec->n_heads / tp;
    s->first_head = index * s->n_heads;
    s->kv_copies = tp > kv_heads ? tp / kv_heads : 1;
    s->n_kv_heads = tp > kv_heads ? 1 : kv_heads / tp;
    s->first_kv_head = index / s->kv_copies * s->n_kv_heads;
}

static void slice_delta(struct slice *s, const struct model_spec *spec, uint32_t tp,
                        uint32_t index) {
    const struct delta_spec *d = &spec->delta;
    if (spec_recurrent_layers(spec) == 0) return;
    check(d->n_k_heads % tp == 0);
    s->n_k_heads = d->n_k_heads / tp;
    s->first_k_head = index * s->n_k_heads;
    s->n_v_heads = d->n_v_heads / tp;
    s->first_v_head = index * s->n_v_heads;
    s->delta_segments = spec_segments(d->n_v_heads) / tp; // tp is a power of two up to 8
}

static void slice_dense(struct slice *s, const struct model_spec *spec, uint32_t tp,
                        uint32_t index) {
    uint32_t segments = spec_inner_segments(spec->inner_dense);
    bool split = segments % tp == 0;
    s->dense_tp = split ? tp : 1;
    s->n_inner = spec->inner_dense / s->dense_tp;
    s->first_inner = split ? index * s->n_inner : 0;
    s->inner_segments = segments / s->dense_tp;
}

struct slice slice_of(const struct model_spec *spec, const struct layout *layout, uint32_t rank) {
    struct slice s = {0};
    uint32_t tp = layout->tp, index = layout_place(layout, rank).tp;
    slice_heads(&s, spec, tp, index);
    slice_delta(&s, spec, tp, index);
    slice_dense(&s, spec, tp, index);
    s.first_token = slice_token_first(spec, tp, index);
    s.n_tokens = slice_token_first(spec, tp, index + 1) - s.first_token;
    return s;
}
