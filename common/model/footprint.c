// footprint.c: see footprint.h. Numbers of weights are counted as the worker lays them out.
#include "common/model/footprint.h"

// The option table knows the choices; two of the pages' are vLLM's other names.
struct footprint_types footprint_types_of(const struct model_spec *s, const char *dtype,
                                          const char *kv_cache_dtype) {
    struct footprint_types types = {.weights = s->dtype};
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (strcmp(dtype, dtype_name((enum dtype)t)) == 0) types.weights = (enum dtype)t;
    if (dtype_kv_parse(kv_cache_dtype, &types.kv)) return types;
    if (strcmp(kv_cache_dtype, "fp8") == 0)
        types.kv = DTYPE_E4M3;
    else if (strcmp(kv_cache_dtype, "int8_per_token_head") == 0)
        types.kv = DTYPE_I8;
    else
        types.kv = types.weights == DTYPE_F32 ? DTYPE_F32 : DTYPE_BF16;
    return types;
}

static uint64_t attention(const struct model_spec *s, uint32_t tp) {
    uint64_t hidden = s->hidden, heads = s->n_heads / tp;
    uint64_t kv_heads = s->n_kv_heads > tp ? s->n_kv_heads / tp : 1;
    uint64_t out = hidden * heads * spec_out_dim(s);
    const struct mla_spec *m = &s->mla;
    if (m->kv_rank == 0) return hidden * (heads + 2 * kv_heads) * s->head_dim + out;
    uint64_t q_in = m->q_rank != 0 ? m->q_rank : hidden;
    return hidden * m->q_rank + q_in * heads * (m->nope_dim + s->rope.dim) +
           hidden * (m->kv_rank + s->rope.dim) + heads * m->kv_rank * (m->nope_dim + m->value_dim) +
           out;
}

static uint64_t ffn(const struct model_spec *s, uint64_t inner) {
    return 3 * inner * s->hidden;
}

// One layer without its routed experts. A dense layer that TP cannot split, and a shared expert,
// are whole everywhere.
static uint64_t layer(const struct model_spec *s, uint32_t index, uint32_t tp) {
    uint64_t n = attention(s, tp);
    if (s->ffn[index] == FFN_MOE)
        return n + (uint64_t)s->router.n_experts * s->hidden + ffn(s, s->shared.inner);
    bool split = spec_inner_segments(s->inner_dense) % tp == 0;
    return n + ffn(s, split ? s->inner_dense / tp : s->inner_dense);
}

// Of a rank of this stage with so many experts a layer.
static uint64_t weights(const struct model_spec *s, const struct layout *l, uint32_t stage,
                        uint32_t n_experts) {
    uint32_t first = layout_layer_first(l, s->n_layers, stage);
    uint32_t count = layout_layer_count(l, s->n_layers, stage);
    uint64_t n = 0, table = (uint64_t)s->vocab * s->hidden;
    for (uint32_t i = first; i < first + count; i++) {
        n += layer(s, i, l->tp);
        if (s->ffn[i] == FFN_MOE) n += n_experts * ffn(s, s->inner_expert / l->etp);
    }
    if (stage == 0) n += table;
    if (stage == l->pp - 1) n += table / l->tp;
    return n;
}

// Layers without pages, where a model has some, are taken to be spread evenly.
static uint64_t kv_token(const struct model_spec *s, const struct layout *l, uint32_t stage,
                         enum dtype kv) {
    uint32_t heads = spec_kv_heads(s), own = heads > l->tp ? heads / l->tp : 1;
    return spec_kv_token_bytes(s, kv) * layout_layer_count(l, s->n_layers, stage) / s->n_layers *
           own / heads;
}

void footprint_of(struct footprint *out, const struct model_spec *s, const struct layout *l,
                  uint32_t rank, const struct footprint_types *types) {
    uint32_t stage = layout_place(l, rank).stage;
    uint32_t n_experts = layout_expert_count(l, s->router.n_experts, rank);
    *out = (struct footprint){.first_layer = layout_layer_first(l, s->n_layers, stage),
                              .n_layers = layout_layer_count(l, s->n_layers, stage),
                              .first_expert = layout_expert_first(l, s->router.n_experts, rank),
                              .n_experts = n_experts,
                              .weight_bytes =
                                  weights(s, l, stage, n_experts) * dtype_bytes(types->weights),
                              .kv_token_bytes = kv_token(s, l, stage, types->kv)};
}

uint64_t footprint_most(const struct model_spec *s, const struct layout *l,
                        const struct footprint_types *types, uint64_t n_tokens) {
    uint64_t most = 0;
    uint32_t n_experts = (s->router.n_experts + l->ep - 1) / l->ep;
    for (uint32_t stage = 0; stage < l->pp; stage++) {
        uint64_t bytes = weights(s, l, stage, n_experts) * dtype_bytes(types->weights) +
                         n_tokens * kv_token(s, l, stage, types->kv);
        if (bytes > most) most = bytes;
    }
    return most;
}
