// weights_foreign.c: the part of weights_plan.c that only looks: tensors that other ranks hold, so
// that a wrong checkpoint is refused by every rank, and each tensor of a right one has a place.
#include "worker/weights_builder.h"

int weights_check_head(struct builder *b) {
    const struct model_spec *s = b->spec;
    int rc = 0;
    if (!s->tied_embeddings)
        rc = builder_check(b, (struct tensor_ref){.kind = TENSOR_HEAD},
                           (struct want){.rows = s->vocab, .cols = s->hidden});
    if (rc != 0 || !s->head_bias) return rc;
    return builder_check(b, (struct tensor_ref){.kind = TENSOR_HEAD_BIAS},
                         (struct want){.rows = s->vocab});
}

int weights_check_latent_heads(struct builder *b, uint32_t layer) {
    const struct mla_spec *mla = &b->spec->mla;
    int rc = 0;
    for (uint32_t h = 0; rc == 0 && h < b->spec->n_heads; h++) {
        rc = builder_check(b, (struct tensor_ref){TENSOR_UK, layer, h},
                           (struct want){.rows = mla->kv_rank, .cols = mla->nope_dim});
        if (rc == 0)
            rc = builder_check(b, (struct tensor_ref){TENSOR_UV, layer, h},
                               (struct want){.rows = mla->value_dim, .cols = mla->kv_rank});
    }
    return rc;
}

int weights_check_expert(struct builder *b, uint32_t layer, uint32_t expert) {
    uint32_t hidden = b->spec->hidden, inner = b->spec->inner_expert;
    const struct {
        enum tensor_kind kind;
        struct want want;
    } parts[] = {{TENSOR_EXPERT_GATE, {.rows = inner, .cols = hidden}},
                 {TENSOR_EXPERT_UP, {.rows = inner, .cols = hidden}},
                 {TENSOR_EXPERT_DOWN, {.rows = hidden, .cols = inner}},
                 {TENSOR_EXPERT_GATE_BIAS, {.rows = inner}},
                 {TENSOR_EXPERT_UP_BIAS, {.rows = inner}},
                 {TENSOR_EXPERT_DOWN_BIAS, {.rows = hidden}}};
    int rc = 0;
    for (int i = 0; rc == 0 && i < (b->spec->expert_bias ? 6 : 3); i++)
        rc = builder_check(b, (struct tensor_ref){parts[i].kind, layer, expert}, parts[i].want);
    return rc;
}
