// footprint.c: see footprint.h.
#include "common/model/footprint.h"

#include "common/model/tensors.h"

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

// --- the model

struct measure {
    struct footprint_model *m;
    uint64_t weight_bytes; // of one
};

// Where the bytes of a tensor of a layer count.
static uint64_t *share_of(struct footprint_layer *l, enum tensor_kind kind) {
    switch (kind) {
    case TENSOR_Q:
    case TENSOR_Q_BIAS:
    case TENSOR_O:
    case TENSOR_SINKS:
    case TENSOR_O_A:
    case TENSOR_UK:
    case TENSOR_UV:
    case TENSOR_KV_B:
    case TENSOR_DELTA_QKV:
    case TENSOR_DELTA_Z:
    case TENSOR_DELTA_B:
    case TENSOR_DELTA_A:
    case TENSOR_DELTA_CONV:
    case TENSOR_DELTA_A_LOG:
    case TENSOR_DELTA_DT_BIAS:
    case TENSOR_DELTA_OUT: return &l->by_heads;
    case TENSOR_K:
    case TENSOR_V:
    case TENSOR_K_BIAS:
    case TENSOR_V_BIAS: return &l->kv;
    case TENSOR_GATE:
    case TENSOR_UP:
    case TENSOR_DOWN: return &l->dense;
    default: return tensor_of_expert(kind) ? &l->experts : &l->whole;
    }
}

static bool add(void *context, const struct tensor_want *want) {
    struct measure *x = context;
    enum tensor_kind kind = want->ref.kind;
    uint64_t n = want->cols == 0 ? 4 : want->cols * x->weight_bytes;
    if (tensor_of_ids(kind)) n = want->cols * sizeof(uint16_t);
    n *= want->rows;
    if (kind == TENSOR_EMBED)
        x->m->embedding += n;
    else if (kind == TENSOR_HEAD || kind == TENSOR_HEAD_BIAS)
        x->m->head += n;
    else if (kind == TENSOR_FINAL_NORM || kind == TENSOR_FINAL_NORM_BIAS ||
             (kind >= TENSOR_HYPER_HEAD_MIX && kind <= TENSOR_HYPER_HEAD_SCALE))
        x->m->final += n;
    else
        *share_of(&x->m->layers[want->ref.layer], kind) += n;
    if (kind == TENSOR_EXPERT_DOWN_BIAS) x->m->layers[want->ref.layer].expert_rest += n;
    return true;
}

void footprint_measure(struct footprint_model *out, const struct model_spec *spec,
                       const struct footprint_types *types) {
    *out = (struct footprint_model){.spec = spec, .kv = types->kv};
    struct measure x = {out, dtype_bytes(types->weights)};
    (void)tensors_each(spec, add, &x);
    if (spec->tied_embeddings) out->head += out->embedding; // packed as a matrix of its own
}

// --- a rank

static uint64_t layer(const struct footprint_model *m, uint32_t index, const struct layout *l,
                      uint32_t n_experts) {
    const struct footprint_layer *x = &m->layers[index];
    const struct model_spec *s = m->spec;
    uint32_t kv_parts = s->n_kv_heads < l->tp ? s->n_kv_heads : l->tp;
    uint64_t n = x->whole + x->by_heads / l->tp + x->kv / kv_parts;
    n += spec_inner_segments(s->inner_dense) % l->tp == 0 ? x->dense / l->tp : x->dense;
    if (s->router.n_experts == 0) return n;
    return n + ((x->experts - x->expert_rest) / l->etp + x->expert_rest) * n_experts /
                   s->router.n_experts;
}

// Of a rank of this stage with so many experts a layer.
static uint64_t weights(const struct footprint_model *m, const struct layout *l, uint32_t stage,
                        uint32_t n_experts) {
    uint32_t first = layout_layer_first(l, m->spec->n_layers, stage);
    uint32_t count = layout_layer_count(l, m->spec->n_layers, stage);
    uint64_t n = 0;
    for (uint32_t i = first; i < first + count; i++)
        n += layer(m, i, l, n_experts);
    if (stage == 0) n += m->embedding;
    if (stage == l->pp - 1) n += m->final + m->head / l->tp;
    return n;
}

static uint64_t kv_token(const struct footprint_model *m, const struct layout *l, uint32_t stage) {
    uint32_t heads = spec_kv_heads(m->spec), own = heads > l->tp ? heads / l->tp : 1;
    uint32_t first = layout_layer_first(l, m->spec->n_layers, stage);
    uint64_t page = 0;
    for (uint32_t i = 0; i < layout_layer_count(l, m->spec->n_layers, stage); i++)
        page += spec_page_bytes(m->spec, first + i, m->kv) * own;
    return (page + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

uint64_t footprint_state_bytes(const struct model_spec *spec, const struct layout *l,
                               uint32_t stage) {
    uint32_t first = layout_layer_first(l, spec->n_layers, stage);
    uint64_t n = 0;
    for (uint32_t i = 0; i < layout_layer_count(l, spec->n_layers, stage); i++)
        n += spec_layer_state_bytes(spec, first + i, l->tp);
    return n;
}

void footprint_of(struct footprint *out, const struct footprint_model *m, const struct layout *l,
                  uint32_t rank) {
    const struct model_spec *s = m->spec;
    uint32_t stage = layout_place(l, rank).stage;
    uint32_t n_experts = layout_expert_count(l, s->router.n_experts, rank);
    *out = (struct footprint){.first_layer = layout_layer_first(l, s->n_layers, stage),
                              .n_layers = layout_layer_count(l, s->n_layers, stage),
                              .first_expert = layout_expert_first(l, s->router.n_experts, rank),
                              .n_experts = n_experts,
                              .weight_bytes = weights(m, l, stage, n_experts),
                              .kv_token_bytes = kv_token(m, l, stage),
                              .state_bytes = footprint_state_bytes(s, l, stage)};
}

uint64_t footprint_most(const struct footprint_model *m, const struct layout *l, uint64_t n_tokens,
                        uint32_t n_slots) {
    uint64_t most = 0;
    uint32_t n_experts = (m->spec->router.n_experts + l->ep - 1) / l->ep;
    for (uint32_t stage = 0; stage < l->pp; stage++) {
        uint64_t bytes = weights(m, l, stage, n_experts) + n_tokens * kv_token(m, l, stage) +
                         n_slots * footprint_state_bytes(m->spec, l, stage);
        if (bytes > most) most = bytes;
    }
    return most;
}
