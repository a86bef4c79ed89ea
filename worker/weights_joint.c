// weights_joint.c: the part of weights_plan.c for joint attention, compressed entries beside it,
// and hyper-connections. Queries and the first step of the output projection are of this rank's
// groups of heads, all else is whole on every rank.
#include "common/base/check.h"
#include "worker/weights_builder.h"

static int plan_entries(struct builder *b, struct entry_weights *w, struct tensor_ref kv,
                        uint32_t dim) {
    const struct model_spec *s = b->spec;
    uint32_t rows = s->layer_flags[kv.layer] & LAYER_CSA ? 2 * dim : dim;
    const struct matrix shape = builder_shape(b, rows, s->hidden, 1);
    struct tensor_ref gate = kv;
    gate.kind += 1;
    int rc = builder_matrix(b, &w->kv, shape, kv);
    if (rc == 0) rc = builder_matrix(b, &w->gate, shape, gate);
    if (rc == 0)
        rc = builder_vector(b, &w->bias, kv.kind + 2, kv.layer,
                            spec_compress_rate(s, kv.layer) * rows);
    return rc == 0 ? builder_vector(b, &w->norm, kv.kind + 3, kv.layer, dim) : rc;
}

static int plan_compress(struct builder *b, struct compress_weights *w, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct compress_spec *c = &s->compress;
    if (!spec_layer_compressed(s, layer)) return 0;
    int rc =
        plan_entries(b, &w->entry, (struct tensor_ref){TENSOR_ENTRY_KV, layer, 0}, s->head_dim);
    if (rc != 0 || !(s->layer_flags[layer] & LAYER_CSA)) return rc;
    rc = plan_entries(b, &w->index, (struct tensor_ref){TENSOR_INDEX_ENTRY_KV, layer, 0}, c->dim);
    if (rc == 0)
        rc = builder_matrix(b, &w->index_q,
                            builder_shape(b, c->n_heads * c->dim, s->joint.q_rank, 1),
                            (struct tensor_ref){TENSOR_INDEX_Q, layer, 0});
    w->index_weights = builder_shape(b, c->n_heads, s->hidden, 1);
    return rc == 0 ? builder_precise(b, &w->index_weights,
                                     (struct tensor_ref){TENSOR_INDEX_WEIGHTS, layer, 0})
                   : rc;
}

static struct part_of own_groups(const struct builder *b) {
    uint32_t per_group = b->spec->n_heads / b->spec->joint.o_groups;
    return (struct part_of){b->slice.first_head / per_group, b->slice.n_heads / per_group};
}

struct part_of weights_joint_columns(const struct builder *b) {
    struct part_of groups = own_groups(b);
    uint32_t rank = b->spec->joint.o_rank;
    return (struct part_of){groups.first * rank, groups.n * rank};
}

static int plan_groups(struct builder *b, struct joint_weights *w, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct part_of groups = own_groups(b);
    struct matrix looked_at;
    uint32_t n_in = s->n_heads / s->joint.o_groups * s->head_dim;
    if (!b->dry) {
        w->o_a = weights_alloc(b->w, groups.n * sizeof *w->o_a, MATRIX_ALIGN);
        if (w->o_a == NULL) return builder_no_memory(b);
    }
    int rc = 0;
    for (uint32_t g = 0; rc == 0 && g < groups.n; g++)
        rc = builder_matrix(b, b->dry ? &looked_at : &w->o_a[g],
                            builder_shape(b, s->joint.o_rank, n_in, 1),
                            (struct tensor_ref){TENSOR_O_A, layer, groups.first + g});
    return rc;
}

int weights_plan_joint(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    struct joint_weights *w = &l->joint;
    uint32_t q_rank = s->joint.q_rank, hd = s->head_dim;
    const struct part_of rows = {b->slice.first_head * hd, b->slice.n_heads * hd};
    int rc = builder_matrix(b, &w->q_a, builder_shape(b, q_rank, s->hidden, 1),
                            (struct tensor_ref){TENSOR_Q_A, layer, 0});
    if (rc == 0) rc = builder_vector(b, &w->q_a_norm, TENSOR_Q_A_NORM, layer, q_rank);
    if (rc == 0)
        rc = builder_slice(b, &w->q, (struct tensor_ref){TENSOR_Q, layer, 0},
                           (struct want){s->n_heads * hd, q_rank, rows, {0}});
    if (rc == 0)
        rc = builder_matrix(b, &w->kv, builder_shape(b, hd, s->hidden, 1),
                            (struct tensor_ref){TENSOR_KV_A, layer, 0});
    if (rc == 0) rc = builder_vector(b, &w->kv_norm, TENSOR_KV_A_NORM, layer, hd);
    if (rc == 0) rc = plan_compress(b, &l->compress, layer);
    return rc == 0 ? plan_groups(b, w, layer) : rc;
}

// Mix, base and scale are kinds behind each other.
static int plan_connection(struct builder *b, struct hyper_weights *w, struct tensor_ref mix,
                           uint32_t n) {
    bool head = mix.kind == TENSOR_HYPER_HEAD_MIX;
    w->mix = builder_shape(b, n, spec_stream_dim(b->spec), 1);
    int rc = builder_precise(b, &w->mix, mix);
    if (rc == 0) rc = builder_vector(b, &w->base, mix.kind + 1, mix.layer, n);
    return rc == 0 ? builder_vector(b, &w->scale, mix.kind + 2, mix.layer, head ? 1 : 3) : rc;
}

int weights_plan_hyper(struct builder *b, struct layer_weights *l, uint32_t layer) {
    uint32_t n = (2 + b->spec->hyper.n) * b->spec->hyper.n;
    int rc =
        plan_connection(b, &l->attn_hyper, (struct tensor_ref){TENSOR_HYPER_ATTN_MIX, layer, 0}, n);
    return rc == 0 ? plan_connection(b, &l->ffn_hyper,
                                     (struct tensor_ref){TENSOR_HYPER_FFN_MIX, layer, 0}, n)
                   : rc;
}

int weights_plan_head_hyper(struct builder *b) {
    bool dry = b->dry;
    b->dry = b->place.stage + 1 != b->config->layout->pp; // only looked at
    size_t n_items = b->plan->n_items;
    uint64_t bytes = b->plan->source_bytes;
    int rc = plan_connection(b, &b->w->head_hyper,
                             (struct tensor_ref){.kind = TENSOR_HYPER_HEAD_MIX}, b->spec->hyper.n);
    if (b->dry) {
        b->plan->n_items = n_items;
        b->plan->source_bytes = bytes;
    }
    b->dry = dry;
    return rc;
}
