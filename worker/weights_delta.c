// weights_delta.c: the part of weights_plan.c for recurrent layers: projections as the checkpoint
// stores them, taps of the convolution as rows, and the output projection. Every rank holds all of
// it.
#include "worker/weights_builder.h"

// Tensors [parts' n, hidden] behind each other in one matrix.
static int plan_stacked(struct builder *b, struct matrix *m, uint32_t layer,
                        const struct part *parts, uint32_t n_parts) {
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        n_out += parts[i].n;
    *m = builder_shape(b, n_out, b->spec->hidden, 1);
    int rc = builder_alloc(b, m);
    if (rc != 0) return rc;
    struct weights_item *item = builder_item(b, b->spec->hidden);
    item->packed = m;
    for (uint32_t i = 0; rc == 0 && i < n_parts; i++)
        rc = builder_source(b, item, (struct tensor_ref){parts[i].kind, layer, 0},
                            (struct want){.rows = parts[i].n, .cols = b->spec->hidden});
    return rc;
}

// The taps of a convolution lie in rows of channels, as the kernels want them.
static int plan_conv(struct builder *b, float **out, uint32_t layer) {
    uint32_t channels = spec_delta_channels(b->spec), n_taps = b->spec->delta.kernel;
    int rc = 0;
    if (!b->dry) {
        *out = weights_alloc(b->w, (size_t)n_taps * channels * sizeof(float), MATRIX_ALIGN);
        if (*out == NULL) return builder_no_memory(b);
    }
    for (uint32_t tap = 0; rc == 0 && tap < n_taps; tap++) {
        struct weights_item *item = builder_item(b, 1);
        item->dst_dtype = DTYPE_F32;
        if (!b->dry) item->vector = *out + (size_t)tap * channels;
        rc = builder_source(b, item, (struct tensor_ref){TENSOR_DELTA_CONV, layer, tap},
                            (struct want){.rows = channels});
    }
    return rc;
}

static int plan_out(struct builder *b, struct matrix *o, uint32_t layer) {
    const struct model_spec *s = b->spec;
    *o = builder_shape(b, s->hidden, spec_delta_values(s), spec_segments(s->delta.n_v_heads));
    int rc = builder_alloc(b, o);
    if (rc != 0) return rc;
    return builder_fill_whole(b, o, (struct tensor_ref){TENSOR_DELTA_OUT, layer, 0});
}

int weights_plan_delta(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct delta_spec *d = &b->spec->delta;
    struct delta_weights *w = &l->delta;
    struct delta_rows rows = spec_delta_rows(b->spec);
    const struct part in[] = {{.kind = TENSOR_DELTA_QKV, .n = rows.qkv},
                              {.kind = TENSOR_DELTA_Z, .n = rows.z}};
    const struct part gates[] = {{.kind = TENSOR_DELTA_B, .n = rows.b},
                                 {.kind = TENSOR_DELTA_A, .n = rows.a}};
    uint32_t n_parts = d->by_head ? 1 : 2;
    int rc = plan_stacked(b, &w->in, layer, in, n_parts);
    if (rc == 0) rc = plan_stacked(b, &w->gates, layer, gates, n_parts);
    if (rc == 0) rc = plan_conv(b, &w->conv, layer);
    if (rc == 0) rc = builder_vector(b, &w->a_log, TENSOR_DELTA_A_LOG, layer, d->n_v_heads);
    if (rc == 0) rc = builder_vector(b, &w->dt_bias, TENSOR_DELTA_DT_BIAS, layer, d->n_v_heads);
    if (rc == 0) rc = builder_vector(b, &w->norm, TENSOR_DELTA_NORM, layer, d->v_dim);
    return rc == 0 ? plan_out(b, &l->o, layer) : rc;
}
