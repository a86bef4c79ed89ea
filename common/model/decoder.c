// decoder.c: see decoder.h.
#include "common/model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void refuse_quantised(struct config_reader *r) {
    static const char *const keys[] = {"quantization_config", "compression_config"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *q = config_value(r, keys[i]);
        if (q == NULL) continue;
        const json_t *method = json_object_get(q, "quant_method");
        config_refuse(r, "%s with quant_method \"%.64s\" is not supported", keys[i],
                      json_is_string(method) ? json_string_value(method) : "?");
    }
}

// Old files have rope_theta and rope_scaling, new ones the object rope_parameters with both.
// Sub-keys belong to scaled kinds of rotary embedding, so beside the plain kind each is refused.
static void read_rope_object(struct config_reader *r, const char *key, float *theta) {
    const json_t *o = config_value(r, key);
    if (o == NULL) return;
    if (!json_is_object(o)) {
        config_refuse(r, "%s must be an object", key);
        return;
    }
    struct config_reader inner = {.object = o, .file = r->file, .e = r->e, .rc = r->rc};
    const char *kind =
        config_text_or(&inner, "rope_type", config_text_or(&inner, "type", "default"));
    if (strcmp(kind, "default") != 0)
        config_refuse(&inner, "%s.rope_type \"%.64s\" is not supported", key, kind);
    if (config_real_or(&inner, "partial_rotary_factor", 1.0f) != 1.0f)
        config_refuse(&inner, "%s.partial_rotary_factor other than 1 is not supported", key);
    float inner_theta = config_real_or(&inner, "rope_theta", *theta);
    if (inner_theta != *theta && config_value(r, "rope_theta") != NULL)
        config_refuse(&inner, "rope_theta and %s.rope_theta differ", key);
    *theta = inner_theta;
    for (void *i = json_object_iter((json_t *)o); i != NULL;
         i = json_object_iter_next((json_t *)o, i)) {
        static const char *const known[] = {"rope_type", "type", "rope_theta",
                                            "partial_rotary_factor"};
        const char *name = json_object_iter_key(i);
        bool found = json_is_null(json_object_iter_value(i));
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found |= strcmp(name, known[k]) == 0;
        if (!found) config_refuse(&inner, "%s.%.64s is not supported", key, name);
    }
    r->rc = inner.rc;
}

static void read_rope(struct config_reader *r, struct model_spec *spec, float default_theta) {
    spec->rope_theta = config_real_or(r, "rope_theta", default_theta);
    read_rope_object(r, "rope_scaling", &spec->rope_theta);
    read_rope_object(r, "rope_parameters", &spec->rope_theta);
    if (config_real_or(r, "partial_rotary_factor", 1.0f) != 1.0f)
        config_refuse(r, "partial_rotary_factor other than 1 is not supported");
    spec->rotary_dim = spec->head_dim;
}

static void read_heads(struct config_reader *r, struct model_spec *spec) {
    spec->n_heads = config_size(r, "num_attention_heads", HEADS_MAX);
    spec->n_kv_heads = config_size_or(r, "num_key_value_heads", HEADS_MAX, spec->n_heads);
    spec->head_dim = config_size_or(r, "head_dim", HEAD_DIM_MAX, 0);
    if (spec->head_dim == 0 && r->rc == 0) {
        spec->head_dim = spec->hidden / spec->n_heads;
        if (spec->head_dim == 0 || spec->head_dim > HEAD_DIM_MAX ||
            spec->hidden % spec->n_heads != 0)
            config_refuse(r,
                          "hidden_size %u over num_attention_heads %u gives no head size, and "
                          "head_dim is missing",
                          spec->hidden, spec->n_heads);
    }
    // Rounded once from double, as Hugging Face's python float times a float32 tensor is.
    spec->attn_scale = spec->head_dim == 0 ? 0 : (float)(1.0 / sqrt((double)spec->head_dim));
}

void decoder_read(struct config_reader *r, struct model_spec *spec,
                  const struct decoder_defaults *d) {
    refuse_quantised(r);
    spec->n_layers = config_size(r, "num_hidden_layers", LAYERS_MAX);
    spec->hidden = config_size(r, "hidden_size", HIDDEN_MAX);
    spec->vocab = config_size(r, "vocab_size", VOCAB_MAX);
    spec->max_position =
        config_size_or(r, "max_position_embeddings", POSITIONS_MAX, d->max_position);
    spec->norm_eps = config_real_or(r, "rms_norm_eps", d->norm_eps);
    spec->tied_embeddings = config_flag_or(r, "tie_word_embeddings", false);
    read_heads(r, spec);
    read_rope(r, spec, d->rope_theta);
    const char *act = config_text_or(r, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0)
        config_refuse(r, "hidden_act \"%.64s\" is not supported, only \"silu\"", act);
}

uint32_t decoder_read_experts(struct config_reader *r) {
    const char *old = "num_experts", *new = "num_local_experts";
    if (config_value(r, old) == NULL && config_value(r, new) == NULL) {
        config_refuse(r, "%s (or %s) is missing", old, new);
        return 1;
    }
    uint32_t a = config_size_or(r, old, EXPERTS_MAX, 0), b = config_size_or(r, new, EXPERTS_MAX, 0);
    if (a != 0 && b != 0 && a != b) config_refuse(r, "%s %u and %s %u differ", old, a, new, b);
    return a != 0 ? a : b;
}

void decoder_all_layers(struct model_spec *spec, enum ffn_kind kind) {
    memset(spec->ffn, (int)kind, sizeof spec->ffn);
}

void decoder_read_sparse_layers(struct config_reader *r, struct model_spec *spec) {
    uint32_t step = config_size_or(r, "decoder_sparse_step", LAYERS_MAX, 1);
    if (r->rc != 0) return;
    for (uint32_t i = 0; i < spec->n_layers; i++)
        spec->ffn[i] = (i + 1) % step == 0 ? FFN_MOE : FFN_DENSE;
    const json_t *dense = config_value(r, "mlp_only_layers");
    if (dense != NULL && !json_is_array(dense)) {
        config_refuse(r, "mlp_only_layers must be a list");
        return;
    }
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *v = json_array_get(dense, i);
        json_int_t layer = json_is_integer(v) ? json_integer_value(v) : -1;
        if (layer < 0 || layer >= (json_int_t)spec->n_layers)
            config_refuse(r, "mlp_only_layers has an entry that is no layer (0 to %u)",
                          spec->n_layers - 1);
        else
            spec->ffn[layer] = FFN_DENSE;
    }
}

void decoder_refuse_window(struct config_reader *r, const struct model_spec *spec) {
    if (!config_flag_or(r, "use_sliding_window", false)) return;
    uint32_t window = config_size_or(r, "sliding_window", UINT32_MAX, UINT32_MAX);
    if (window < spec->max_position)
        config_refuse(r, "use_sliding_window with sliding_window %u is not supported", window);
}

bool decoder_has_layer(const struct model_spec *spec, enum ffn_kind kind) {
    for (uint32_t i = 0; i < spec->n_layers; i++)
        if (spec->ffn[i] == kind) return true;
    return false;
}

float decoder_read_multiplier(struct config_reader *r, const char *key) {
    float multiplier = config_real_or(r, key, 1.0f);
    if (multiplier == 0) config_refuse(r, "%s must not be 0", key);
    return multiplier == 1.0f ? 0 : multiplier;
}

bool decoder_tensor_name(const struct decoder_names *names, const struct tensor_ref *ref, char *buf,
                         uint32_t buf_bytes) {
    static const char *const whole[TENSOR_KIND_COUNT] = {
        [TENSOR_EMBED] = "model.embed_tokens.weight",
        [TENSOR_FINAL_NORM] = "model.norm.weight",
        [TENSOR_HEAD] = "lm_head.weight",
    };
    static const char *const usual[TENSOR_KIND_COUNT] = {
        [TENSOR_ATTN_NORM] = "input_layernorm.weight",
        [TENSOR_FFN_NORM] = "post_attention_layernorm.weight",
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
    int n = -1;
    const char *here = names->in_layer[ref->kind];
    if (here == NULL) here = usual[ref->kind];
    if (whole[ref->kind] != NULL)
        n = snprintf(buf, buf_bytes, "%s", whole[ref->kind]);
    else if (names->in_expert[ref->kind] != NULL)
        n = snprintf(buf, buf_bytes, "model.layers.%u.%s.%u.%s", ref->layer, names->experts,
                     ref->expert, names->in_expert[ref->kind]);
    else if (here != NULL)
        n = snprintf(buf, buf_bytes, "model.layers.%u.%s", ref->layer, here);
    return n > 0 && (uint32_t)n < buf_bytes;
}

void place_half(struct tensor_place *place, bool second) {
    if (second) place->offset += place->dims[0] * place->row_stride;
    place->dims[0] *= 2;
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
