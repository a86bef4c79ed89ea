// decoder.c: see decoder.h.
#include "common/model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void decoder_refuse_quantised(struct config_reader *r) {
    static const char *const keys[] = {"quantization_config", "compression_config"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *q = config_value(r, keys[i]);
        if (q == NULL) continue;
        const json_t *method = json_object_get(q, "quant_method");
        config_refuse(r, "%s with quant_method \"%.64s\" is not supported", keys[i],
                      json_is_string(method) ? json_string_value(method) : "?");
    }
}

void decoder_enter_text(struct config_reader *r) {
    decoder_refuse_quantised(r);
    const json_t *text = config_value(r, "text_config");
    if (!json_is_object(text)) {
        config_refuse(r, "text_config must be an object");
        return;
    }
    r->object = text;
    r->file = "config.json: text_config";
}

// Rounded once from double, as Hugging Face's python float times a float32 tensor is.
float decoder_head_scale(uint32_t head_dim) {
    return (float)(1.0 / sqrt((double)head_dim));
}

static void read_heads(struct config_reader *r, struct model_spec *spec, const char *head_dim) {
    spec->n_heads = config_size(r, "num_attention_heads", HEADS_MAX);
    spec->n_kv_heads = config_size_or(r, "num_key_value_heads", HEADS_MAX, spec->n_heads);
    spec->head_dim = config_size_or(r, head_dim, HEAD_DIM_MAX, 0);
    if (spec->head_dim == 0 && r->rc == 0) {
        spec->head_dim = spec->hidden / spec->n_heads;
        if (spec->head_dim == 0 || spec->head_dim > HEAD_DIM_MAX ||
            spec->hidden % spec->n_heads != 0)
            config_refuse(r,
                          "hidden_size %u over num_attention_heads %u gives no head size, and "
                          "head_dim is missing",
                          spec->hidden, spec->n_heads);
    }
    spec->attn_scale = spec->head_dim == 0 ? 0 : decoder_head_scale(spec->head_dim);
}

// "gelu" is the exact one elsewhere; the families that have d->gelu mean the form with tanh by it.
static void expect_activation(struct config_reader *r, const struct decoder_defaults *d) {
    static const char *const forms[] = {"gelu", "gelu_new", "gelu_pytorch_tanh"};
    const char *key = "hidden_act";
    if (!d->gelu) {
        config_expect_text(r, key, "silu");
        return;
    }
    const char *name = config_text_or(r, key, forms[0]);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(name, forms[i]) == 0) return;
    config_refuse(r, "%s \"%.64s\" is not supported, only \"gelu\" (the form with tanh)", key,
                  name);
}

void decoder_read(struct config_reader *r, struct model_spec *spec,
                  const struct decoder_defaults *d) {
    decoder_refuse_quantised(r);
    spec->n_layers = config_size(r, "num_hidden_layers", LAYERS_MAX);
    spec->hidden = config_size(r, "hidden_size", HIDDEN_MAX);
    spec->vocab = config_size(r, "vocab_size", VOCAB_MAX);
    uint32_t most = d->clamp_position ? UINT32_MAX : POSITIONS_MAX;
    spec->max_position = config_size_or(r, "max_position_embeddings", most, d->max_position);
    if (spec->max_position > POSITIONS_MAX) spec->max_position = POSITIONS_MAX;
    spec->norm_eps = config_real_or(r, "rms_norm_eps", d->norm_eps);
    spec->tied_embeddings = config_flag_or(r, "tie_word_embeddings", false);
    read_heads(r, spec, d->head_dim == NULL ? "head_dim" : d->head_dim);
    decoder_read_rope(r, spec, d);
    expect_activation(r, d);
}

// Of a feed-forward network's three matrices, whose kinds stand behind each other.
static const char *in_network(enum tensor_kind kind, enum tensor_kind gate) {
    static const char *const parts[] = {"gate_proj.weight", "up_proj.weight", "down_proj.weight"};
    return kind >= gate && kind <= gate + 2 ? parts[kind - gate] : NULL;
}

static const char *in_expert(const struct decoder_names *names, enum tensor_kind kind) {
    if (names->in_expert[kind] != NULL) return names->in_expert[kind];
    return names->experts == NULL ? NULL : in_network(kind, TENSOR_EXPERT_GATE);
}

static const char *in_shared(const struct decoder_names *names, enum tensor_kind kind) {
    return names->shared == NULL ? NULL : in_network(kind, TENSOR_SHARED_GATE);
}

bool decoder_tensor_name(const struct decoder_names *names, const struct tensor_ref *ref, char *buf,
                         uint32_t buf_bytes) {
    static const char *const whole[TENSOR_KIND_COUNT] = {
        [TENSOR_EMBED] = "model.embed_tokens.weight", [TENSOR_FINAL_NORM] = "model.norm.weight",
        [TENSOR_FINAL_NORM_BIAS] = "model.norm.bias", [TENSOR_HEAD] = "lm_head.weight",
        [TENSOR_HEAD_BIAS] = "lm_head.bias",
    };
    static const char *const usual[TENSOR_KIND_COUNT] = {
        [TENSOR_ATTN_NORM] = "input_layernorm.weight",
        [TENSOR_FFN_NORM] = "post_attention_layernorm.weight",
        [TENSOR_ATTN_NORM_BIAS] = "input_layernorm.bias",
        [TENSOR_FFN_NORM_BIAS] = "post_attention_layernorm.bias",
        [TENSOR_Q] = "self_attn.q_proj.weight",
        [TENSOR_K] = "self_attn.k_proj.weight",
        [TENSOR_V] = "self_attn.v_proj.weight",
        [TENSOR_O] = "self_attn.o_proj.weight",
        [TENSOR_Q_BIAS] = "self_attn.q_proj.bias",
        [TENSOR_K_BIAS] = "self_attn.k_proj.bias",
        [TENSOR_V_BIAS] = "self_attn.v_proj.bias",
        [TENSOR_O_BIAS] = "self_attn.o_proj.bias",
        [TENSOR_Q_NORM] = "self_attn.q_norm.weight",
        [TENSOR_K_NORM] = "self_attn.k_norm.weight",
        [TENSOR_GATE] = "mlp.gate_proj.weight",
        [TENSOR_UP] = "mlp.up_proj.weight",
        [TENSOR_DOWN] = "mlp.down_proj.weight",
    };
    const char *layers = names->layers == NULL ? "model.layers" : names->layers;
    const char *outside = names->whole[ref->kind], *inside = names->in_layer[ref->kind];
    const char *expert = in_expert(names, ref->kind), *shared = in_shared(names, ref->kind);
    int n = -1;
    if (outside == NULL) outside = whole[ref->kind];
    if (inside == NULL) inside = usual[ref->kind];
    if (outside != NULL)
        n = snprintf(buf, buf_bytes, "%s", outside);
    else if (expert != NULL)
        n = snprintf(buf, buf_bytes, "%s.%u.%s.%u.%s", layers, ref->layer, names->experts,
                     ref->expert, expert);
    else if (shared != NULL)
        n = snprintf(buf, buf_bytes, "%s.%u.%s.%s", layers, ref->layer, names->shared, shared);
    else if (inside != NULL)
        n = snprintf(buf, buf_bytes, "%s.%u.%s", layers, ref->layer, inside);
    return n > 0 && (uint32_t)n < buf_bytes;
}

bool decoder_mixtral_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                          uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_ROUTER] = "block_sparse_moe.gate.weight"},
        .experts = "block_sparse_moe.experts",
        .in_expert = {[TENSOR_EXPERT_GATE] = "w1.weight",
                      [TENSOR_EXPERT_UP] = "w3.weight",
                      [TENSOR_EXPERT_DOWN] = "w2.weight"},
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

bool decoder_mlp_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                      uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_ROUTER] = "mlp.gate.weight"},
        .experts = "mlp.experts",
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

void place_half(struct tensor_place *place, bool second) {
    if (second) place->offset += place->dims[0] * place->row_stride;
    place->dims[0] *= 2;
}

void place_transposed(struct tensor_place *place) {
    uint64_t rows = place->dims[0];
    place->dims[0] = place->dims[1];
    place->dims[1] = rows;
    place->row_stride = 1;
    place->column_stride = rows;
}

void place_half_transposed(struct tensor_place *place, bool second, bool alternate) {
    uint64_t rows = place->dims[0];
    place_transposed(place);
    place->dims[1] = place->column_stride = 2 * rows;
    if (alternate) place->row_stride = 2;
    if (second) place->offset += alternate ? 1 : rows;
}

void place_expert(struct tensor_place *place, const struct model_spec *spec, uint32_t expert) {
    uint64_t elements = 1;
    for (uint32_t i = place->n_dims; i > 0; i--) {
        elements *= place->dims[i - 1];
        place->dims[i] = place->dims[i - 1];
    }
    place->dims[0] = spec->router.n_experts;
    place->n_dims++;
    place->offset += expert * elements;
}

void place_stacked(struct tensor_place *place, const struct model_spec *spec,
                   const struct tensor_ref *ref) {
    if (ref->kind < TENSOR_EXPERT_GATE || ref->kind > TENSOR_EXPERT_DOWN) return;
    if (ref->kind != TENSOR_EXPERT_DOWN) place_half(place, ref->kind == TENSOR_EXPERT_UP);
    place_expert(place, spec, ref->expert);
}

void place_expert_rows(struct tensor_place *place, const struct model_spec *spec, uint32_t expert) {
    place->offset += expert * place->dims[0] * place->dims[1];
    place->dims[0] *= spec->router.n_experts;
}
