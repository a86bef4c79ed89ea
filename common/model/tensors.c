// tensors.c: see tensors.h.
#include "common/model/tensors.h"

#include <string.h>

#include "common/base/check.h"

struct walk {
    const struct model_spec *spec;
    tensor_visit *visit;
    void *context;
    uint32_t layer;
    bool ended;
};

static void want(struct walk *w, struct tensor_ref ref, uint32_t rows, uint32_t cols) {
    ref.layer = w->layer;
    if (!w->ended) w->ended = !w->visit(w->context, &(struct tensor_want){ref, rows, cols});
}

static void want_matrix(struct walk *w, enum tensor_kind kind, uint32_t rows, uint32_t cols) {
    want(w, (struct tensor_ref){.kind = kind}, rows, cols);
}

static void want_vector(struct walk *w, enum tensor_kind kind, uint32_t n) {
    want_matrix(w, kind, n, 0);
}

static void walk_outside(struct walk *w) {
    const struct model_spec *s = w->spec;
    want_matrix(w, TENSOR_EMBED, s->vocab, s->hidden);
    if (!s->tied_embeddings) want_matrix(w, TENSOR_HEAD, s->vocab, s->hidden);
    want_vector(w, TENSOR_FINAL_NORM, s->hidden);
    if (s->norm_bias) want_vector(w, TENSOR_FINAL_NORM_BIAS, s->hidden);
    if (s->head_bias) want_vector(w, TENSOR_HEAD_BIAS, s->vocab);
    if (s->hyper.n == 0) return;
    want_matrix(w, TENSOR_HYPER_HEAD_MIX, s->hyper.n, spec_stream_dim(s));
    want_vector(w, TENSOR_HYPER_HEAD_BASE, s->hyper.n);
    want_vector(w, TENSOR_HYPER_HEAD_SCALE, 1);
}

// Of both blocks: mix, base and scale are kinds behind each other.
static void walk_hyper(struct walk *w) {
    const uint32_t n = w->spec->hyper.n, mixes = (2 + n) * n;
    const enum tensor_kind blocks[] = {TENSOR_HYPER_ATTN_MIX, TENSOR_HYPER_FFN_MIX};
    for (int i = 0; i < 2 && n != 0; i++) {
        want_matrix(w, blocks[i], mixes, spec_stream_dim(w->spec));
        want_vector(w, blocks[i] + 1, mixes);
        want_vector(w, blocks[i] + 2, 3);
    }
}

static void walk_norms(struct walk *w) {
    const struct model_spec *s = w->spec;
    want_vector(w, TENSOR_ATTN_NORM, s->hidden);
    want_vector(w, TENSOR_FFN_NORM, s->hidden);
    if (s->norm_bias) want_vector(w, TENSOR_ATTN_NORM_BIAS, s->hidden);
    if (s->norm_bias) want_vector(w, TENSOR_FFN_NORM_BIAS, s->hidden);
    if (s->post_norms) want_vector(w, TENSOR_ATTN_POST_NORM, s->hidden);
    if (s->post_norms) want_vector(w, TENSOR_FFN_POST_NORM, s->hidden);
}

static void walk_qkv(struct walk *w) {
    const struct model_spec *s = w->spec;
    const uint32_t q = s->n_heads * spec_query_dim(s), kv = s->n_kv_heads * s->head_dim;
    const uint32_t rows[] = {q, kv, kv};
    for (int i = 0; i < 3; i++)
        want_matrix(w, (enum tensor_kind)(TENSOR_Q + i), rows[i], s->hidden);
    for (int i = 0; i < 3 && s->attn_bias; i++)
        want_vector(w, (enum tensor_kind)(TENSOR_Q_BIAS + i), rows[i]);
    bool wide = s->qk_norm == QK_NORM_WIDE;
    if (!wide && s->qk_norm != QK_NORM_HEAD) return;
    want_vector(w, TENSOR_Q_NORM, wide ? q : s->head_dim);
    want_vector(w, TENSOR_K_NORM, wide ? kv : s->head_dim);
}

static void walk_latent(struct walk *w) {
    const struct model_spec *s = w->spec;
    const struct mla_spec *mla = &s->mla;
    if (mla->q_rank != 0) want_matrix(w, TENSOR_Q_A, mla->q_rank, s->hidden);
    if (mla->q_rank != 0) want_vector(w, TENSOR_Q_A_NORM, mla->q_rank);
    want_matrix(w, TENSOR_Q, s->n_heads * (mla->nope_dim + s->rope.dim),
                mla->q_rank != 0 ? mla->q_rank : s->hidden);
    want_matrix(w, TENSOR_KV_A, mla->kv_rank + s->rope.dim, s->hidden);
    want_vector(w, TENSOR_KV_A_NORM, mla->kv_rank);
    if (mla->expanded)
        want_matrix(w, TENSOR_KV_B, s->n_heads * (mla->nope_dim + mla->value_dim), mla->kv_rank);
    for (uint32_t h = 0; h < s->n_heads && !mla->expanded && !w->ended; h++) {
        want(w, (struct tensor_ref){.kind = TENSOR_UK, .expert = h}, mla->kv_rank, mla->nope_dim);
        want(w, (struct tensor_ref){.kind = TENSOR_UV, .expert = h}, mla->value_dim, mla->kv_rank);
    }
}

// What makes entries of dim elements: projections, the gates' biases and a norm are kinds behind
// each other. In CSA a token gives two parts, one for its own window's entry and one for the next.
static void walk_entries(struct walk *w, enum tensor_kind kv, uint32_t dim) {
    const struct model_spec *s = w->spec;
    uint32_t rows = s->layer_flags[w->layer] & LAYER_CSA ? 2 * dim : dim;
    want_matrix(w, kv, rows, s->hidden);
    want_matrix(w, kv + 1, rows, s->hidden);
    want_vector(w, kv + 2, spec_compress_rate(s, w->layer) * rows);
    want_vector(w, kv + 3, dim);
}

static void walk_joint(struct walk *w) {
    const struct model_spec *s = w->spec;
    const struct joint_spec *j = &s->joint;
    const struct compress_spec *c = &s->compress;
    want_matrix(w, TENSOR_Q_A, j->q_rank, s->hidden);
    want_vector(w, TENSOR_Q_A_NORM, j->q_rank);
    want_matrix(w, TENSOR_Q, s->n_heads * s->head_dim, j->q_rank);
    want_matrix(w, TENSOR_KV_A, s->head_dim, s->hidden);
    want_vector(w, TENSOR_KV_A_NORM, s->head_dim);
    if (spec_layer_compressed(s, w->layer)) walk_entries(w, TENSOR_ENTRY_KV, s->head_dim);
    if (s->layer_flags[w->layer] & LAYER_CSA) {
        walk_entries(w, TENSOR_INDEX_ENTRY_KV, c->dim);
        want_matrix(w, TENSOR_INDEX_Q, c->n_heads * c->dim, j->q_rank);
        want_matrix(w, TENSOR_INDEX_WEIGHTS, c->n_heads, s->hidden);
    }
    for (uint32_t group = 0; group < j->o_groups; group++)
        want(w, (struct tensor_ref){.kind = TENSOR_O_A, .expert = group}, j->o_rank,
             s->n_heads / j->o_groups * s->head_dim);
}

static void walk_delta(struct walk *w) {
    const struct model_spec *s = w->spec;
    const struct delta_rows rows = spec_delta_rows(s);
    want_matrix(w, TENSOR_DELTA_QKV, rows.qkv, s->hidden);
    if (rows.z != 0) want_matrix(w, TENSOR_DELTA_Z, rows.z, s->hidden);
    want_matrix(w, TENSOR_DELTA_B, rows.b, s->hidden);
    if (rows.a != 0) want_matrix(w, TENSOR_DELTA_A, rows.a, s->hidden);
    for (uint32_t tap = 0; tap < s->delta.kernel; tap++)
        want(w, (struct tensor_ref){.kind = TENSOR_DELTA_CONV, .expert = tap},
             spec_delta_channels(s), 0);
    want_vector(w, TENSOR_DELTA_A_LOG, s->delta.n_v_heads);
    want_vector(w, TENSOR_DELTA_DT_BIAS, s->delta.n_v_heads);
    want_vector(w, TENSOR_DELTA_NORM, s->delta.v_dim);
    want_matrix(w, TENSOR_DELTA_OUT, s->hidden, spec_delta_values(s));
}

static void walk_indexer(struct walk *w) {
    const struct model_spec *s = w->spec;
    const struct indexer_spec *x = &s->indexer;
    if (!spec_layer_chooses(s, w->layer)) return;
    want_matrix(w, TENSOR_INDEX_Q, x->n_heads * x->dim, s->mla.q_rank);
    want_matrix(w, TENSOR_INDEX_K, x->dim, s->hidden);
    want_vector(w, TENSOR_INDEX_K_NORM, x->dim);
    want_vector(w, TENSOR_INDEX_K_NORM_BIAS, x->dim);
    want_matrix(w, TENSOR_INDEX_WEIGHTS, x->n_heads, s->hidden);
}

static void walk_attention(struct walk *w) {
    const struct model_spec *s = w->spec;
    walk_norms(w);
    if (spec_layer_recurrent(s, w->layer)) {
        walk_delta(w);
        return;
    }
    walk_hyper(w);
    if (s->mla.kv_rank != 0)
        walk_latent(w);
    else if (s->joint.q_rank != 0)
        walk_joint(w);
    else
        walk_qkv(w);
    walk_indexer(w);
    if (s->sinks) want_vector(w, TENSOR_SINKS, s->n_heads);
    want_matrix(w, TENSOR_O, s->hidden, spec_out_width(s));
    if (s->attn_out_bias) want_vector(w, TENSOR_O_BIAS, s->hidden);
}

// Gate, up and down are kinds behind each other.
static void walk_network(struct walk *w, struct tensor_ref gate, uint32_t inner) {
    struct tensor_ref up = gate, down = gate;
    up.kind += 1;
    down.kind += 2;
    want(w, gate, inner, w->spec->hidden);
    want(w, up, inner, w->spec->hidden);
    want(w, down, w->spec->hidden, inner);
}

static void walk_experts(struct walk *w) {
    const struct model_spec *s = w->spec;
    for (uint32_t e = 0; e < s->router.n_experts && !w->ended; e++) {
        walk_network(w, (struct tensor_ref){.kind = TENSOR_EXPERT_GATE, .expert = e},
                     s->inner_expert);
        if (!s->expert_bias) continue;
        const uint32_t n[] = {s->inner_expert, s->inner_expert, s->hidden};
        for (int i = 0; i < 3; i++)
            want(w,
                 (struct tensor_ref){.kind = (enum tensor_kind)(TENSOR_EXPERT_GATE_BIAS + i),
                                     .expert = e},
                 n[i], 0);
    }
}

static void walk_moe(struct walk *w) {
    const struct model_spec *s = w->spec;
    want_matrix(w, TENSOR_ROUTER, s->router.n_experts, s->hidden);
    if (s->router.bias) want_vector(w, TENSOR_ROUTER_BIAS, s->router.n_experts);
    if (spec_layer_hash(s, w->layer))
        want_matrix(w, TENSOR_HASH, s->vocab, s->router.top_k);
    else if (s->router.selection_bias)
        want_vector(w, TENSOR_SELECTION_BIAS, s->router.n_experts);
    if (s->shared.inner != 0) {
        walk_network(w, (struct tensor_ref){.kind = TENSOR_SHARED_GATE}, s->shared.inner);
        if (s->shared.gated) want_matrix(w, TENSOR_SHARED_WEIGHT, 1, s->hidden);
    }
    walk_experts(w);
}

bool tensors_each(const struct model_spec *spec, tensor_visit *visit, void *context) {
    struct walk w = {.spec = spec, .visit = visit, .context = context};
    walk_outside(&w);
    for (; w.layer < spec->n_layers && !w.ended; w.layer++) {
        walk_attention(&w);
        if (spec->ffn[w.layer] == FFN_MOE)
            walk_moe(&w);
        else
            walk_network(&w, (struct tensor_ref){.kind = TENSOR_GATE}, spec->inner_dense);
    }
    return !w.ended;
}

struct tensor_place tensor_want_place(const struct model_spec *spec,
                                      const struct tensor_want *want) {
    const struct family *family = spec_family(spec);
    uint32_t cols = want->cols == 0 ? 1 : want->cols;
    struct tensor_place place = {.dims = {want->rows, cols},
                                 .n_dims = want->cols == 0 ? 1 : 2,
                                 .row_stride = cols,
                                 .column_stride = 1};
    if (family->tensor_place != NULL) family->tensor_place(spec, &want->ref, &place);
    return place;
}

void tensor_want_name(const struct model_spec *spec, const struct tensor_want *want,
                      char name[TENSOR_NAME_MAX]) {
    const struct family *family = spec_family(spec);
    check(family->tensor_name(spec, &want->ref, name, TENSOR_NAME_MAX));
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

bool tensor_is_left_out(const struct model_spec *spec, const char *name) {
    const struct family *family = spec_family(spec);
    char head[TENSOR_NAME_MAX];
    tensor_want_name(spec, &(struct tensor_want){.ref = {.kind = TENSOR_HEAD}}, head);
    return ends_with(name, "rotary_emb.inv_freq") ||
           (spec->tied_embeddings && strcmp(name, head) == 0) ||
           (family->leaves_out != NULL && family->leaves_out(spec, name));
}

enum dtype tensor_held_dtype(const struct model_spec *spec, const struct tensor_want *want,
                             enum dtype found, enum dtype asked) {
    enum tensor_kind kind = want->ref.kind;
    if (want->cols == 0) return DTYPE_F32;
    bool mixes = kind == TENSOR_HYPER_ATTN_MIX || kind == TENSOR_HYPER_FFN_MIX ||
                 kind == TENSOR_HYPER_HEAD_MIX;
    bool precise = mixes || kind == TENSOR_ROUTER || kind == TENSOR_INDEX_WEIGHTS;
    return precise && found == DTYPE_F32 && spec->dtype != DTYPE_F32 ? DTYPE_F32 : asked;
}
