// fuzz_config.c: any bytes as config.json and, behind a NUL, generation_config.json; an accepted
// spec must be sound.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/check.h"
#include "common/model/rope.h"
#include "common/model/spec.h"
#include "common/model/tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Frequencies are numbers for short and long contexts, whatever the file says.
static void check_stretch(const struct rope_spec *rope) {
    float inv_freq[HEAD_DIM_MAX / 2];
    const uint32_t lengths[] = {1, POSITIONS_MAX};
    for (int l = 0; l < 2; l++) {
        check(isfinite(rope_frequencies(inv_freq, rope, lengths[l])));
        for (uint32_t i = 0; i < rope->dim / 2; i++)
            check(isfinite(inv_freq[i]));
    }
}

#define LISTED_MAX 4096 // more tensors of one input would only be slow

struct listing {
    const struct model_spec *spec;
    uint32_t left;
};

// Every matrix lies inside its tensor.
static bool list_tensor(void *context, const struct tensor_want *want) {
    struct listing *l = context;
    char name[TENSOR_NAME_MAX];
    const struct tensor_place place = tensor_want_place(l->spec, want);
    uint64_t elements = 1, cols = want->cols == 0 ? 1 : want->cols;
    tensor_want_name(l->spec, want, name);
    check(want->rows >= 1 && place.n_dims >= 1 && place.n_dims <= 3);
    for (uint32_t i = 0; i < place.n_dims; i++)
        elements *= place.dims[i];
    check(place.offset + (want->rows - 1) * place.row_stride + (cols - 1) * place.column_stride <
          elements);
    return --l->left > 0;
}

// What readers of a spec rely on, written down a second time: of heads that share a row, compressed
// entries, recurrent layers and several streams.
static void check_beside_attention(const struct model_spec *s) {
    const struct joint_spec *j = &s->joint;
    const struct compress_spec *c = &s->compress;
    const struct hyper_spec *h = &s->hyper;
    const struct delta_spec *d = &s->delta;
    if (j->q_rank != 0)
        check(j->q_rank <= LATENT_DIM_MAX && j->o_groups >= 1 && s->n_heads % j->o_groups == 0 &&
              j->o_rank >= 1 && j->o_rank <= LATENT_DIM_MAX && s->n_kv_heads == 1 &&
              s->sliding_window >= 1);
    if (c->csa_rate != 0) {
        check(c->csa_rate <= COMPRESS_RATE_MAX && c->hca_rate >= 1 &&
              c->hca_rate <= COMPRESS_RATE_MAX);
        check(KV_BLOCK_TOKENS % c->csa_rate == 0 || c->csa_rate % KV_BLOCK_TOKENS == 0);
        check(KV_BLOCK_TOKENS % c->hca_rate == 0 || c->hca_rate % KV_BLOCK_TOKENS == 0);
        check(c->n_heads >= 1 && c->n_heads <= HEADS_MAX && c->dim >= s->rope.dim &&
              c->dim <= HEAD_DIM_MAX && c->top_k >= 1 && c->top_k <= POSITIONS_MAX);
        check(c->rope.dim == s->rope.dim);
        check_stretch(&c->rope);
    }
    if (h->n != 0)
        check(h->n <= HYPER_STREAMS_MAX && h->rounds >= 1 && h->rounds <= SINKHORN_ROUNDS_MAX &&
              h->eps >= 0 && h->eps < 1);
    if (spec_recurrent_layers(s) != 0)
        check(d->kernel >= 2 && d->kernel <= CONV_KERNEL_MAX && d->n_k_heads >= 1 &&
              d->n_v_heads <= HEADS_MAX && d->n_v_heads >= 1 && d->n_v_heads % d->n_k_heads == 0 &&
              d->k_dim >= 1 && d->k_dim <= HEAD_DIM_MAX && d->v_dim >= 1 &&
              d->v_dim <= HEAD_DIM_MAX);
}

// Of all else.
static void check_promises(const struct model_spec *s) {
    char name[TENSOR_NAME_MAX];
    check(s->n_layers >= 1 && s->n_layers <= LAYERS_MAX && s->hidden >= 1 &&
          s->hidden <= HIDDEN_MAX);
    check(s->n_kv_heads >= 1 && s->n_heads % s->n_kv_heads == 0 && s->n_heads <= HEADS_MAX);
    check(s->head_dim >= 2 && s->head_dim <= HEAD_DIM_MAX);
    check(s->rope.dim >= 2 && s->rope.dim % 2 == 0 && s->rope.dim <= s->head_dim);
    check(s->mla.kv_rank <= LATENT_DIM_MAX && s->mla.q_rank <= LATENT_DIM_MAX);
    if (s->mla.kv_rank != 0)
        check(s->mla.value_dim >= 1 && s->mla.nope_dim + s->rope.dim == s->head_dim);
    if (s->indexer.top_k != 0)
        check(s->mla.q_rank >= 1 && s->mla.kv_rank >= 1 && s->indexer.n_heads >= 1 &&
              s->indexer.n_heads <= HEADS_MAX && s->indexer.dim >= s->rope.dim &&
              s->indexer.dim <= HEAD_DIM_MAX && s->indexer.top_k <= POSITIONS_MAX &&
              !(s->layer_flags[0] & LAYER_SAME_KEYS));
    check_stretch(&s->rope);
    check_beside_attention(s);
    check(s->vocab >= 1 && s->vocab <= VOCAB_MAX && s->max_position >= 1 &&
          s->max_position <= POSITIONS_MAX);
    check(s->dtype < DTYPE_COUNT && s->n_stop_ids <= STOP_IDS_MAX);
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        check(s->stop_ids[i] < s->vocab);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        if (s->ffn[i] == FFN_MOE)
            check(s->inner_expert >= 1 && s->router.top_k >= 1 &&
                  s->router.top_k <= s->router.n_experts);
        else
            check(s->inner_dense >= 1);
    }
    check(isfinite(s->attn_cap) && s->attn_cap >= 0 && isfinite(s->router.logit_cap) &&
          s->router.logit_cap >= 0 && isfinite(s->scale.logits_cap) && s->scale.logits_cap >= 0);
    check(s->temperature.length != 1);
    tensors_each(s, list_tensor, &(struct listing){s, LISTED_MAX});
    const struct family *f = family_find(s->architecture);
    check(f != NULL && s->family[0] != 0);
    check(f->tensor_name(s, &(struct tensor_ref){TENSOR_O, LAYERS_MAX, EXPERTS_MAX}, name,
                         sizeof name));
    if (s->router.n_experts > 0)
        check(f->tensor_name(s, &(struct tensor_ref){TENSOR_EXPERT_UP, LAYERS_MAX, EXPERTS_MAX},
                             name, sizeof name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_spec spec;
    struct err_text e;
    const char *text = (const char *)data;
    const char *nul = size == 0 ? NULL : memchr(text, '\0', size);
    struct spec_source source = {.config = size == 0 ? "" : text, .config_bytes = size};
    if (nul != NULL) {
        source.config_bytes = (size_t)(nul - text);
        source.generation = nul + 1;
        source.generation_bytes = size - source.config_bytes - 1;
    }
    if (spec_parse(&spec, &source, &e) == 0) check_promises(&spec);
    return 0;
}
