// weights_delta.c: the part of weights_plan.c for recurrent layers: projections as the checkpoint
// stores them, taps of the convolution as rows, and the output projection; of each the part that
// belongs to this rank's heads (slice.h).
#include "worker/weights_builder.h"

// Tensors [parts' n, hidden], or rows of them, behind each other in one matrix.
static int plan_stacked(struct builder *b, struct matrix *m, uint32_t layer,
                        const struct part *parts, uint32_t n_parts) {
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        n_out += parts[i].row.n;
    *m = builder_shape(b, n_out, b->spec->hidden, 1);
    int rc = builder_alloc(b, m);
    if (rc != 0) return rc;
    struct weights_item *item = builder_item(b, b->spec->hidden);
    item->packed = m;
    for (uint32_t i = 0; rc == 0 && i < n_parts; i++)
        rc = builder_source(
            b, item, (struct tensor_ref){parts[i].kind, layer, 0},
            (struct want){.rows = parts[i].n, .cols = b->spec->hidden, .row = parts[i].row});
    return rc;
}

// So many rows for each of this rank's key heads, or for each of its value heads.
static struct part_of of_keys(const struct builder *b, uint32_t width) {
    return (struct part_of){b->slice.first_k_head * width, b->slice.n_k_heads * width};
}

static struct part_of of_values(const struct builder *b, uint32_t width) {
    return (struct part_of){b->slice.first_v_head * width, b->slice.n_v_heads * width};
}

// This rank's channels among all of them, which are one run where it has all heads.
static uint32_t find_channels(const struct builder *b, struct part_of runs[DELTA_RUNS_MAX]) {
    const struct delta_spec *d = &b->spec->delta;
    uint32_t keys = spec_delta_keys(b->spec);
    runs[0] = runs[1] = of_keys(b, d->k_dim);
    runs[1].first += keys;
    runs[2] = of_values(b, d->v_dim);
    runs[2].first += 2 * keys;
    if (b->slice.n_k_heads < d->n_k_heads) return 3;
    runs[0] = (struct part_of){0, spec_delta_channels(b->spec)};
    return 1;
}

// The taps of a convolution lie in rows of channels, as the kernels want them.
static int plan_conv(struct builder *b, float **out, uint32_t layer) {
    struct part_of runs[DELTA_RUNS_MAX];
    uint32_t n_taps = b->spec->delta.kernel, n_runs = find_channels(b, runs), channels = 0;
    int rc = 0;
    for (uint32_t i = 0; i < n_runs; i++)
        channels += runs[i].n;
    if (!b->dry) {
        *out = weights_alloc(b->w, (size_t)n_taps * channels * sizeof(float), MATRIX_ALIGN);
        if (*out == NULL) return builder_no_memory(b);
    }
    size_t at = 0;
    for (uint32_t i = 0; rc == 0 && i < n_taps * n_runs; i++) {
        struct weights_item *item = builder_item(b, 1);
        item->dst_dtype = DTYPE_F32;
        if (!b->dry) item->vector = *out + at;
        at += runs[i % n_runs].n;
        rc = builder_source(
            b, item, (struct tensor_ref){TENSOR_DELTA_CONV, layer, i / n_runs},
            (struct want){.rows = spec_delta_channels(b->spec), .row = runs[i % n_runs]});
    }
    return rc;
}

static int plan_of_values(struct builder *b, float **out, enum tensor_kind kind, uint32_t layer) {
    return builder_stack(b, out, layer,
                         &(struct part){kind, b->spec->delta.n_v_heads, of_values(b, 1)}, 1);
}

static int plan_out(struct builder *b, struct matrix *o, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct part_of cols = of_values(b, s->delta.v_dim);
    *o = builder_shape(b, s->hidden, cols.n, b->slice.delta_segments);
    int rc = builder_alloc(b, o);
    if (rc != 0) return rc;
    return builder_fill(b, o, (struct tensor_ref){TENSOR_DELTA_OUT, layer, 0},
                        (struct want){s->hidden, spec_delta_values(s), {0}, cols});
}

// What each key head needs stands together.
static int plan_projections_by_head(struct builder *b, struct delta_weights *w, uint32_t layer) {
    const struct delta_spec *d = &b->spec->delta;
    struct delta_rows rows = spec_delta_rows(b->spec);
    const struct part in = {TENSOR_DELTA_QKV, rows.qkv, of_keys(b, rows.qkv / d->n_k_heads)},
                      gates = {TENSOR_DELTA_B, rows.b, of_keys(b, rows.b / d->n_k_heads)};
    int rc = plan_stacked(b, &w->in, layer, &in, 1);
    return rc == 0 ? plan_stacked(b, &w->gates, layer, &gates, 1) : rc;
}

static int plan_projections(struct builder *b, struct delta_weights *w, uint32_t layer) {
    struct part_of runs[DELTA_RUNS_MAX];
    struct part in[DELTA_RUNS_MAX + 1];
    struct delta_rows rows = spec_delta_rows(b->spec);
    uint32_t n = find_channels(b, runs);
    for (uint32_t i = 0; i < n; i++)
        in[i] = (struct part){TENSOR_DELTA_QKV, rows.qkv, runs[i]};
    in[n] = (struct part){TENSOR_DELTA_Z, rows.z, of_values(b, b->spec->delta.v_dim)};
    const struct part gates[] = {{TENSOR_DELTA_B, rows.b, of_values(b, 1)},
                                 {TENSOR_DELTA_A, rows.a, of_values(b, 1)}};
    int rc = plan_stacked(b, &w->in, layer, in, n + 1);
    return rc == 0 ? plan_stacked(b, &w->gates, layer, gates, 2) : rc;
}

int weights_plan_delta(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct delta_spec *d = &b->spec->delta;
    struct delta_weights *w = &l->delta;
    int rc = d->by_head ? plan_projections_by_head(b, w, layer) : plan_projections(b, w, layer);
    if (rc == 0) rc = plan_conv(b, &w->conv, layer);
    if (rc == 0) rc = plan_of_values(b, &w->a_log, TENSOR_DELTA_A_LOG, layer);
    if (rc == 0) rc = plan_of_values(b, &w->dt_bias, TENSOR_DELTA_DT_BIAS, layer);
    if (rc == 0) rc = builder_vector(b, &w->norm, TENSOR_DELTA_NORM, layer, d->v_dim);
    return rc == 0 ? plan_out(b, &l->o, layer) : rc;
}
