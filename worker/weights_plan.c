// weights_plan.c: see weights_plan.h. Walks the spec in the order of the forward pass.
#include "worker/weights_plan.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "worker/weights_builder.h"

static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

static bool is_last_stage(const struct builder *b) {
    return b->place.stage + 1 == b->config->layout->pp;
}

// The first stage looks tokens up.
static int plan_embedding(struct builder *b) {
    const struct model_spec *s = b->spec;
    struct weights *w = b->w;
    const struct tensor_ref ref = {.kind = TENSOR_EMBED};
    const struct want want = {.rows = s->vocab, .cols = s->hidden};
    if (b->place.stage != 0) return builder_check(b, ref, want);
    w->embed = weights_alloc(w, (size_t)s->vocab * s->hidden * dtype_bytes(w->dtype), MATRIX_ALIGN);
    if (w->embed == NULL) return builder_no_memory(b);
    struct weights_item *item = builder_item(b, s->hidden);
    item->rows = w->embed;
    // A tied head is packed from the same bytes, read once where it is whole.
    if (is_last_stage(b) && s->tied_embeddings && b->slice.n_tokens == s->vocab)
        item->packed = &w->head;
    return builder_source(b, item, ref, want);
}

// This rank's columns of the vocabulary; a small one may leave it none. The last stage has them.
static int plan_head(struct builder *b) {
    const struct model_spec *s = b->spec;
    struct weights *w = b->w;
    const struct part_of tokens = {b->slice.first_token, b->slice.n_tokens};
    bool packed = s->tied_embeddings && tokens.n == s->vocab && b->place.stage == 0;
    if (!is_last_stage(b)) return weights_check_head(b);
    w->head = builder_shape(b, tokens.n, s->hidden, 1);
    if (tokens.n == 0) return weights_check_head(b);
    int rc = builder_alloc(b, &w->head);
    if (rc == 0 && !packed)
        rc = builder_fill(
            b, &w->head,
            (struct tensor_ref){.kind = s->tied_embeddings ? TENSOR_EMBED : TENSOR_HEAD},
            (struct want){s->vocab, s->hidden, tokens, {0}});
    if (rc != 0 || !s->head_bias) return rc;
    return builder_stack(b, &w->head_bias, 0, &(struct part){TENSOR_HEAD_BIAS, s->vocab, tokens},
                         1);
}

static int plan_final_norm(struct builder *b) {
    const struct model_spec *s = b->spec;
    const struct want want = {.rows = s->hidden};
    int rc = 0;
    if (!is_last_stage(b)) {
        rc = builder_check(b, (struct tensor_ref){.kind = TENSOR_FINAL_NORM}, want);
        if (rc != 0 || !s->norm_bias) return rc;
        return builder_check(b, (struct tensor_ref){.kind = TENSOR_FINAL_NORM_BIAS}, want);
    }
    rc = builder_vector(b, &b->w->final_norm, TENSOR_FINAL_NORM, 0, s->hidden);
    if (rc != 0 || !s->norm_bias) return rc;
    return builder_vector(b, &b->w->final_norm_bias, TENSOR_FINAL_NORM_BIAS, 0, s->hidden);
}

static struct part_of heads(uint32_t first, uint32_t n, uint32_t width) {
    return (struct part_of){first * width, n * width};
}

static int plan_qkv(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    uint32_t q_dim = spec_query_dim(s), q = s->n_heads * q_dim, kv = s->n_kv_heads * s->head_dim;
    const struct part_of q_rows = heads(b->slice.first_head, b->slice.n_heads, q_dim),
                         kv_rows = heads(b->slice.first_kv_head, b->slice.n_kv_heads, s->head_dim);
    const struct part rows[] = {
        {TENSOR_Q, q, q_rows}, {TENSOR_K, kv, kv_rows}, {TENSOR_V, kv, kv_rows}};
    const struct part biases[] = {
        {TENSOR_Q_BIAS, q, q_rows}, {TENSOR_K_BIAS, kv, kv_rows}, {TENSOR_V_BIAS, kv, kv_rows}};
    l->qkv = builder_shape(b, q_rows.n + 2 * kv_rows.n, s->hidden, 1);
    int rc = builder_alloc(b, &l->qkv);
    if (rc != 0) return rc;
    struct weights_item *item = builder_item(b, s->hidden);
    item->packed = &l->qkv;
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = builder_source(b, item, (struct tensor_ref){rows[i].kind, layer, 0},
                            (struct want){rows[i].n, s->hidden, rows[i].row, {0}});
    if (rc == 0 && s->attn_bias) rc = builder_stack(b, &l->qkv_bias, layer, biases, 3);
    return rc;
}

static int plan_qk_norms(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    if (s->qk_norm == QK_NORM_NONE || s->qk_norm == QK_NORM_AFTER_ROPE) return 0;
    bool wide = s->qk_norm == QK_NORM_WIDE;
    uint32_t q = wide ? s->n_heads * s->head_dim : s->head_dim;
    uint32_t k = wide ? s->n_kv_heads * s->head_dim : s->head_dim;
    int rc = builder_vector(b, &l->q_norm, TENSOR_Q_NORM, layer, q);
    return rc == 0 ? builder_vector(b, &l->k_norm, TENSOR_K_NORM, layer, k) : rc;
}

// What one head turns latents into, of this rank's heads. All lie in one block.
static int plan_mla_heads(struct builder *b, struct mla_weights *w, uint32_t layer) {
    const struct model_spec *s = b->spec;
    if (b->dry) return weights_check_latent_heads(b, layer);
    const struct matrix uk = builder_shape(b, s->mla.kv_rank, s->mla.nope_dim, 1),
                        uv = builder_shape(b, s->mla.value_dim, s->mla.kv_rank, 1);
    size_t uk_bytes = round_up(matrix_bytes(&uk), MATRIX_ALIGN),
           uv_bytes = round_up(matrix_bytes(&uv), MATRIX_ALIGN), total;
    uint32_t n_heads = b->slice.n_heads, first = b->slice.first_head;
    if (!size_mul(uk_bytes + uv_bytes, n_heads, &total)) return builder_no_memory(b);
    uint8_t *at = weights_alloc(b->w, total, MATRIX_ALIGN);
    w->uk = weights_alloc(b->w, 2 * n_heads * sizeof *w->uk, MATRIX_ALIGN);
    if (at == NULL || w->uk == NULL) return builder_no_memory(b);
    w->uv = w->uk + n_heads;
    int rc = 0;
    for (uint32_t h = 0; rc == 0 && h < n_heads; h++, at += uk_bytes + uv_bytes) {
        w->uk[h] = uk;
        w->uv[h] = uv;
        w->uk[h].data = at;
        w->uv[h].data = at + uk_bytes;
        rc = builder_fill_whole(b, &w->uk[h], (struct tensor_ref){TENSOR_UK, layer, first + h});
        if (rc == 0)
            rc = builder_fill_whole(b, &w->uv[h], (struct tensor_ref){TENSOR_UV, layer, first + h});
    }
    return rc;
}

static int plan_mla(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct mla_spec *mla = &s->mla;
    struct mla_weights *w = &l->mla;
    uint32_t q_in = mla->q_rank != 0 ? mla->q_rank : s->hidden;
    uint32_t head_rows = mla->nope_dim + s->rope.dim;
    const struct part_of q_rows = heads(b->slice.first_head, b->slice.n_heads, head_rows);
    int rc = 0;
    if (mla->q_rank != 0) {
        rc = builder_matrix(b, &w->q_a, builder_shape(b, mla->q_rank, s->hidden, 1),
                            (struct tensor_ref){TENSOR_Q_A, layer, 0});
        if (rc == 0) rc = builder_vector(b, &w->q_a_norm, TENSOR_Q_A_NORM, layer, mla->q_rank);
    }
    if (rc == 0)
        rc = builder_slice(b, &w->q, (struct tensor_ref){TENSOR_Q, layer, 0},
                           (struct want){s->n_heads * head_rows, q_in, q_rows, {0}});
    if (rc == 0)
        rc = builder_matrix(b, &w->kv_a, builder_shape(b, mla->kv_rank + s->rope.dim, s->hidden, 1),
                            (struct tensor_ref){TENSOR_KV_A, layer, 0});
    if (rc == 0) rc = builder_vector(b, &w->kv_a_norm, TENSOR_KV_A_NORM, layer, mla->kv_rank);
    if (rc != 0 || !mla->expanded) return rc == 0 ? plan_mla_heads(b, w, layer) : rc;
    uint32_t kv_head_rows = mla->nope_dim + mla->value_dim;
    const struct part_of kv_rows = heads(b->slice.first_head, b->slice.n_heads, kv_head_rows);
    return builder_slice(b, &w->kv_b, (struct tensor_ref){TENSOR_KV_B, layer, 0},
                         (struct want){s->n_heads * kv_head_rows, mla->kv_rank, kv_rows, {0}});
}

// Whole on every rank, as latents are.
static int plan_indexer(struct builder *b, struct index_weights *w, uint32_t layer) {
    const struct model_spec *s = b->spec;
    const struct indexer_spec *x = &s->indexer;
    if (!spec_layer_chooses(s, layer)) return 0;
    int rc = builder_matrix(b, &w->q, builder_shape(b, x->n_heads * x->dim, s->mla.q_rank, 1),
                            (struct tensor_ref){TENSOR_INDEX_Q, layer, 0});
    if (rc == 0)
        rc = builder_matrix(b, &w->k, builder_shape(b, x->dim, s->hidden, 1),
                            (struct tensor_ref){TENSOR_INDEX_K, layer, 0});
    if (rc == 0) rc = builder_vector(b, &w->k_norm, TENSOR_INDEX_K_NORM, layer, x->dim);
    if (rc == 0) rc = builder_vector(b, &w->k_norm_bias, TENSOR_INDEX_K_NORM_BIAS, layer, x->dim);
    w->weights = builder_shape(b, x->n_heads, s->hidden, 1);
    return rc == 0 ? builder_precise(b, &w->weights,
                                     (struct tensor_ref){TENSOR_INDEX_WEIGHTS, layer, 0})
                   : rc;
}

static int plan_norms(struct builder *b, struct layer_weights *l, uint32_t layer) {
    uint32_t n = b->spec->hidden;
    int rc = builder_vector(b, &l->attn_norm, TENSOR_ATTN_NORM, layer, n);
    if (rc == 0) rc = builder_vector(b, &l->ffn_norm, TENSOR_FFN_NORM, layer, n);
    if (rc != 0 || !b->spec->norm_bias) return rc;
    rc = builder_vector(b, &l->attn_norm_bias, TENSOR_ATTN_NORM_BIAS, layer, n);
    return rc == 0 ? builder_vector(b, &l->ffn_norm_bias, TENSOR_FFN_NORM_BIAS, layer, n) : rc;
}

// The output projection: the part of K that this rank's heads return.
static int plan_out(struct builder *b, struct matrix *o, uint32_t layer) {
    const struct model_spec *s = b->spec;
    uint32_t width = spec_out_width(s) / s->n_heads;
    struct part_of cols = heads(b->slice.first_head, b->slice.n_heads, width);
    if (s->joint.q_rank != 0) cols = weights_joint_columns(b);
    *o = builder_shape(b, s->hidden, cols.n, b->slice.attn_segments);
    int rc = builder_alloc(b, o);
    if (rc != 0) return rc;
    return builder_fill(b, o, (struct tensor_ref){TENSOR_O, layer, 0},
                        (struct want){s->hidden, spec_out_width(s), {0}, cols});
}

static int plan_post_norms(struct builder *b, struct layer_weights *l, uint32_t layer) {
    if (!b->spec->post_norms) return 0;
    int rc = builder_vector(b, &l->attn_post_norm, TENSOR_ATTN_POST_NORM, layer, b->spec->hidden);
    return rc == 0
               ? builder_vector(b, &l->ffn_post_norm, TENSOR_FFN_POST_NORM, layer, b->spec->hidden)
               : rc;
}

static int plan_projections(struct builder *b, struct layer_weights *l, uint32_t layer) {
    if (b->spec->mla.kv_rank != 0) return plan_mla(b, l, layer);
    if (b->spec->joint.q_rank != 0) return weights_plan_joint(b, l, layer);
    return plan_qkv(b, l, layer);
}

static int plan_attention(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    int rc = plan_norms(b, l, layer);
    if (rc == 0) rc = plan_post_norms(b, l, layer);
    if (rc == 0 && spec_layer_recurrent(s, layer)) return weights_plan_delta(b, l, layer);
    if (rc == 0 && s->hyper.n != 0) rc = weights_plan_hyper(b, l, layer);
    if (rc == 0) rc = plan_projections(b, l, layer);
    if (rc == 0) rc = plan_indexer(b, &l->index, layer);
    if (rc == 0) rc = plan_qk_norms(b, l, layer);
    if (rc == 0 && s->sinks)
        rc = builder_stack(
            b, &l->sinks, layer,
            &(struct part){TENSOR_SINKS, s->n_heads, {b->slice.first_head, b->slice.n_heads}}, 1);
    if (rc == 0) rc = plan_out(b, &l->o, layer);
    if (rc == 0 && s->attn_out_bias)
        rc = builder_vector(b, &l->o_bias, TENSOR_O_BIAS, layer, s->hidden);
    return rc;
}

// A feed-forward network, or the inner columns of it that this rank has: so many segments of its
// sum.
struct ffn_part {
    uint32_t inner; // of the whole
    struct part_of own;
    uint32_t segments;
};

static struct ffn_part whole_ffn(uint32_t inner) {
    return (struct ffn_part){inner, {0, inner}, spec_inner_segments(inner)};
}

static void shape_ffn(const struct builder *b, struct expert_weights *x,
                      const struct ffn_part *part) {
    uint32_t hidden = b->spec->hidden;
    x->gate = x->up = builder_shape(b, part->own.n, hidden, 1);
    x->down = builder_shape(b, hidden, part->own.n, part->segments);
}

// gate, up and down are tensor kinds behind each other.
static int fill_ffn(struct builder *b, struct expert_weights *x, struct tensor_ref gate,
                    const struct ffn_part *part) {
    static_assert(TENSOR_UP == TENSOR_GATE + 1 && TENSOR_DOWN == TENSOR_GATE + 2 &&
                      TENSOR_SHARED_DOWN == TENSOR_SHARED_GATE + 2 &&
                      TENSOR_EXPERT_DOWN == TENSOR_EXPERT_GATE + 2,
                  "an FFN's kinds stand together");
    struct tensor_ref up = gate, down = gate;
    up.kind += 1;
    down.kind += 2;
    const struct want in = {part->inner, b->spec->hidden, part->own, {0}},
                      out = {b->spec->hidden, part->inner, {0}, part->own};
    int rc = builder_fill(b, &x->gate, gate, in);
    if (rc == 0) rc = builder_fill(b, &x->up, up, in);
    if (rc == 0) rc = builder_fill(b, &x->down, down, out);
    return rc;
}

// Lays the three matrices of an expert record (worker/weights.h) into its memory. Returns the
// record's size.
static size_t lay_record(struct expert_weights *x, uint8_t *at) {
    struct matrix *const parts[] = {&x->gate, &x->up, &x->down};
    size_t used = 0;
    for (int i = 0; i < 3; i++) {
        if (at != NULL) parts[i]->data = at + used;
        used += round_up(matrix_bytes(parts[i]), MATRIX_ALIGN);
    }
    return round_up(used, EXPERT_ALIGN);
}

// A feed-forward network that is no expert: gate, up and down are kinds behind each other.
static int plan_ffn(struct builder *b, struct expert_weights *x, struct tensor_ref gate,
                    const struct ffn_part *part) {
    shape_ffn(b, x, part);
    if (b->dry) return fill_ffn(b, x, gate, part);
    void *record = weights_alloc(b->w, lay_record(x, NULL), EXPERT_ALIGN);
    if (record == NULL) return builder_no_memory(b);
    lay_record(x, record);
    return fill_ffn(b, x, gate, part);
}

static int plan_dense(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct ffn_part part = {
        b->spec->inner_dense, {b->slice.first_inner, b->slice.n_inner}, b->slice.inner_segments};
    return plan_ffn(b, &l->dense, (struct tensor_ref){TENSOR_GATE, layer, 0}, &part);
}

// The shared expert of an MoE layer: whole on every rank, which runs it over its own rows.
static int plan_shared(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    if (s->shared.inner == 0) return 0;
    const struct ffn_part whole = whole_ffn(s->shared.inner);
    int rc = plan_ffn(b, &l->shared, (struct tensor_ref){TENSOR_SHARED_GATE, layer, 0}, &whole);
    if (rc != 0 || !s->shared.gated) return rc;
    l->shared_weight = builder_shape(b, 1, s->hidden, 1);
    rc = builder_alloc(b, &l->shared_weight);
    return rc == 0 ? builder_fill_whole(b, &l->shared_weight,
                                        (struct tensor_ref){TENSOR_SHARED_WEIGHT, layer, 0})
                   : rc;
}

// What this rank has of an expert of its place: ranks of ETP share its inner columns.
static struct ffn_part expert_part(const struct builder *b) {
    uint32_t etp = b->config->layout->etp, inner = b->spec->inner_expert;
    uint32_t segments = spec_inner_segments(inner);
    check(segments % etp == 0); // the layout is legal
    return (struct ffn_part){inner, {b->place.etp * (inner / etp), inner / etp}, segments / etp};
}

// Down biases of whole experts stand beside the others; those of shared ones are added by the
// tokens' owners, behind the sum of the parts (plan_down_biases).
static bool has_whole_experts(const struct builder *b) {
    return b->config->layout->etp == 1;
}

// Biases of one expert stand beside its record.
static int plan_expert_biases(struct builder *b, struct expert_weights *x, uint32_t layer,
                              uint32_t expert) {
    if (!b->spec->expert_bias) return 0;
    float *at = x->gate_bias; // where their memory begins
    const struct ffn_part part = expert_part(b);
    const struct want inner = {.rows = part.inner, .row = part.own},
                      hidden = {.rows = b->spec->hidden};
    const struct {
        enum tensor_kind kind;
        float **out;
        struct want want;
    } biases[] = {{TENSOR_EXPERT_GATE_BIAS, &x->gate_bias, inner},
                  {TENSOR_EXPERT_UP_BIAS, &x->up_bias, inner},
                  {TENSOR_EXPERT_DOWN_BIAS, &x->down_bias, hidden}};
    for (int i = 0; i < (has_whole_experts(b) ? 3 : 2); i++) {
        struct weights_item *item = builder_item(b, 1);
        item->dst_dtype = DTYPE_F32;
        item->expert = true;
        int rc = builder_source(b, item, (struct tensor_ref){biases[i].kind, layer, expert},
                                biases[i].want);
        if (rc != 0) return rc;
        *biases[i].out = item->vector = at;
        at += item->n_rows;
    }
    return 0;
}

// Of all experts of the layer, in the order of their ids.
static int plan_down_biases(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct model_spec *s = b->spec;
    size_t n = (size_t)s->router.n_experts * s->hidden;
    if (!s->expert_bias || has_whole_experts(b) || b->dry) return 0; // dry: experts are foreign
    l->down_biases = weights_alloc(b->w, n * sizeof *l->down_biases, MATRIX_ALIGN);
    if (l->down_biases == NULL) return builder_no_memory(b);
    for (uint32_t x = 0; x < s->router.n_experts; x++) {
        struct weights_item *item = builder_item(b, 1);
        item->dst_dtype = DTYPE_F32;
        item->vector = l->down_biases + (size_t)x * s->hidden;
        int rc = builder_source(b, item, (struct tensor_ref){TENSOR_EXPERT_DOWN_BIAS, layer, x},
                                (struct want){.rows = s->hidden});
        if (rc != 0) return rc;
    }
    return 0;
}

static int alloc_experts(struct builder *b, struct layer_weights *l) {
    struct weights *w = b->w;
    if (b->dry) return 0;
    struct expert_weights shape = {0};
    size_t total;
    const struct ffn_part part = expert_part(b);
    shape_ffn(b, &shape, &part);
    size_t record_bytes = lay_record(&shape, NULL);
    if (!size_mul(record_bytes, w->n_local_experts, &total)) return builder_no_memory(b);
    uint8_t *records = weights_alloc(w, total, EXPERT_ALIGN);
    l->experts = weights_alloc(w, w->n_local_experts * sizeof *l->experts, MATRIX_ALIGN);
    if (records == NULL || l->experts == NULL) return builder_no_memory(b);
    size_t n_biases = b->spec->expert_bias ? 2 * (size_t)part.own.n : 0;
    if (b->spec->expert_bias && has_whole_experts(b)) n_biases += b->spec->hidden;
    float *biases = NULL;
    if (n_biases != 0 && w->n_local_experts != 0) {
        biases = weights_alloc(w, w->n_local_experts * n_biases * sizeof *biases, MATRIX_ALIGN);
        if (biases == NULL) return builder_no_memory(b);
    }
    for (uint32_t i = 0; i < w->n_local_experts; i++) {
        l->experts[i] = shape;
        if (biases != NULL) l->experts[i].gate_bias = biases + i * n_biases;
        lay_record(&l->experts[i], records + i * record_bytes);
    }
    return 0;
}

static int plan_router(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct router_spec *router = &b->spec->router;
    const struct tensor_ref ref = {TENSOR_ROUTER, layer, 0};
    l->router = builder_shape(b, router->n_experts, b->spec->hidden, 1);
    int rc = builder_precise(b, &l->router, ref);
    if (rc == 0 && router->bias)
        rc = builder_vector(b, &l->router_bias, TENSOR_ROUTER_BIAS, layer, router->n_experts);
    if (rc == 0 && spec_layer_hash(b->spec, layer)) return builder_table(b, &l->experts_of, layer);
    if (rc == 0 && router->selection_bias)
        rc = builder_vector(b, &l->selection_bias, TENSOR_SELECTION_BIAS, layer, router->n_experts);
    return rc;
}

static int plan_experts(struct builder *b, struct layer_weights *l, uint32_t layer) {
    const struct weights *w = b->w;
    const struct ffn_part part = expert_part(b);
    int rc = alloc_experts(b, l);
    for (uint32_t x = 0; rc == 0 && x < b->spec->router.n_experts; x++) {
        bool own = x >= w->first_expert && x - w->first_expert < w->n_local_experts;
        if (!own) {
            rc = weights_check_expert(b, layer, x);
            continue;
        }
        struct expert_weights *expert = &l->experts[x - w->first_expert];
        rc = fill_ffn(b, expert, (struct tensor_ref){TENSOR_EXPERT_GATE, layer, x}, &part);
        if (rc == 0) rc = plan_expert_biases(b, expert, layer, x);
    }
    return rc == 0 ? plan_down_biases(b, l, layer) : rc;
}

static int plan_moe(struct builder *b, struct layer_weights *l, uint32_t layer) {
    int rc = plan_router(b, l, layer);
    if (rc == 0) rc = plan_shared(b, l, layer);
    return rc == 0 ? plan_experts(b, l, layer) : rc;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

// A tensor that nothing reads belongs to a model that is not this one (a shared expert, scales of a
// quantised format). Tables of rotary frequencies are derived, and a head beside a tied embedding
// is the embedding again.
static int refuse_unused(struct builder *b) {
    char head[TENSOR_NAME_MAX];
    check(b->family->tensor_name(b->spec, &(struct tensor_ref){.kind = TENSOR_HEAD}, head,
                                 sizeof head));
    for (size_t i = 0; i < safetensors_count(b->st); i++) {
        const char *name = safetensors_at(b->st, i)->name;
        if (b->used[i] || ends_with(name, "rotary_emb.inv_freq") || strcmp(name, head) == 0)
            continue;
        if (b->family->leaves_out != NULL && b->family->leaves_out(b->spec, name)) continue;
        return err_set(b->e, ERR_FATAL_MODEL, "tensor %s has no place in %s", name,
                       b->spec->architecture);
    }
    return 0;
}

static int plan_layer(struct builder *b, struct layer_weights *l, uint32_t layer) {
    int rc = plan_attention(b, l, layer);
    if (rc != 0) return rc;
    return b->spec->ffn[layer] == FFN_MOE ? plan_moe(b, l, layer) : plan_dense(b, l, layer);
}

// Layers of other stages are looked at too: one is planned without memory, then forgotten. It is of
// weights that have no expert, so all of its experts are foreign ones.
static int check_foreign_layer(struct builder *b, uint32_t layer) {
    struct weights *own = b->w, none = {.spec = own->spec, .dtype = own->dtype};
    struct layer_weights l = {0};
    const struct weights_plan before = *b->plan;
    b->w = &none;
    b->dry = true;
    int rc = plan_layer(b, &l, layer);
    check(none.blocks == NULL);
    b->dry = false;
    b->w = own;
    *b->plan = before;
    return rc;
}

static bool is_own_layer(const struct builder *b, uint32_t layer) {
    const struct layout *l = b->config->layout;
    uint32_t first = layout_layer_first(l, b->spec->n_layers, b->place.stage);
    return layer >= first &&
           layer - first < layout_layer_count(l, b->spec->n_layers, b->place.stage);
}

static int plan_all(struct builder *b) {
    const struct model_spec *s = b->spec;
    struct weights *w = b->w;
    w->layers = weights_alloc(w, s->n_layers * sizeof *w->layers, MATRIX_ALIGN);
    if (w->layers == NULL) return builder_no_memory(b);
    int rc = plan_embedding(b);
    if (rc == 0) rc = plan_head(b);
    if (rc == 0) rc = plan_final_norm(b);
    if (rc == 0 && s->hyper.n != 0) rc = weights_plan_head_hyper(b);
    for (uint32_t i = 0; rc == 0 && i < s->n_layers; i++) {
        rc = builder_cancelled(b);
        if (rc == 0)
            rc = is_own_layer(b, i) ? plan_layer(b, &w->layers[i], i) : check_foreign_layer(b, i);
    }
    return rc == 0 ? refuse_unused(b) : rc;
}

// A layer has at most this many items outside its experts and latent heads; what is outside the
// layers is 9 more. A foreign layer takes an own one's place for a while.
static size_t items_max(const struct weights *w, const struct layout *layout) {
    const struct model_spec *s = w->spec;
    uint32_t stage = layout_place(layout, w->rank).stage;
    size_t n_layers = layout_layer_count(layout, s->n_layers, stage) + 1;
    size_t in_heads = s->mla.kv_rank != 0 ? 2 * (size_t)s->n_heads : 0;
    size_t in_experts = 6 * (size_t)w->n_local_experts;
    if (s->expert_bias && layout->etp > 1) in_experts += s->router.n_experts;
    size_t in_index = s->indexer.top_k != 0 ? 5 : 0;
    size_t in_joint = s->joint.q_rank != 0 ? 16 + (size_t)s->joint.o_groups : 0;
    size_t in_hyper = s->hyper.n != 0 ? 6 : 0;
    size_t in_delta = (size_t)DELTA_RUNS_MAX * s->delta.kernel;
    return n_layers * (26 + in_delta + in_index + in_joint + in_hyper + in_heads + in_experts) + 9;
}

int weights_plan_make(struct weights_plan *out, struct weights *w,
                      const struct weights_config *config, const struct safetensors *st,
                      struct err_text *e) {
    const struct model_spec *s = config->spec;
    uint32_t n_experts = s->router.n_experts;
    w->spec = s;
    w->rank = config->rank;
    w->dtype = config->dtype;
    w->first_expert = layout_expert_first(config->layout, n_experts, config->rank);
    w->n_local_experts = layout_expert_count(config->layout, n_experts, config->rank);
    struct weights_plan plan = {.items_max = items_max(w, config->layout)};
    plan.items = mem_array(plan.items_max, sizeof *plan.items);
    struct builder b = {.plan = &plan, .w = w, .config = config, .spec = s, .st = st, .e = e};
    b.family = spec_family(s);
    b.place = layout_place(config->layout, config->rank);
    b.slice = slice_of(s, config->layout, config->rank);
    check(b.family != NULL);
    b.used = mem_zalloc(safetensors_count(st));
    int rc = plan.items == NULL || b.used == NULL ? builder_no_memory(&b) : plan_all(&b);
    mem_free(b.used);
    if (rc == 0)
        *out = plan;
    else
        weights_plan_finish(&plan);
    return rc;
}

void weights_plan_finish(struct weights_plan *plan) {
    mem_free(plan->items);
    *plan = (struct weights_plan){0};
}
