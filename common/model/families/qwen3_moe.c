// qwen3_moe.c: Qwen3-MoE: grouped-query attention with a norm on each query and key head, softmax
// router, no shared expert.
#include <stdio.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

// Every decoder_sparse_step-th layer has experts, except those of mlp_only_layers.
static void read_layers(struct config_reader *r, struct model_spec *spec) {
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

// Releases differ in which layers the window would apply to, so it is taken only where it cannot
// matter.
static void refuse_window(struct config_reader *r, const struct model_spec *spec) {
    if (!config_flag_or(r, "use_sliding_window", false)) return;
    uint32_t window = config_size_or(r, "sliding_window", UINT32_MAX, UINT32_MAX);
    if (window < spec->max_position)
        config_refuse(r, "use_sliding_window with sliding_window %u is not supported", window);
}

static bool has_layer(const struct model_spec *spec, enum ffn_kind kind) {
    for (uint32_t i = 0; i < spec->n_layers; i++)
        if (spec->ffn[i] == kind) return true;
    return false;
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = 32768, .rope_theta = 10000.0f, .norm_eps = 1e-6f});
    spec->qk_norm = true;
    spec->attn_bias = spec->attn_out_bias = config_flag_or(&r, "attention_bias", false);
    refuse_window(&r, spec);
    read_layers(&r, spec);
    if (r.rc != 0) return r.rc;
    if (has_layer(spec, FFN_DENSE))
        spec->inner_dense = config_size(&r, "intermediate_size", INNER_MAX);
    if (has_layer(spec, FFN_MOE)) {
        spec->inner_expert = config_size(&r, "moe_intermediate_size", INNER_MAX);
        spec->router = (struct router_spec){
            .n_experts = decoder_read_experts(&r),
            .top_k = config_size(&r, "num_experts_per_tok", EXPERTS_MAX),
            .score = ROUTER_SOFTMAX,
            .renorm = config_flag_or(&r, "norm_topk_prob", false) ? RENORM_L1 : RENORM_NONE,
            .scale = 1.0f,
        };
    }
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    if (decoder_tensor_name(ref, buf, buf_bytes)) return true;
    static const char *const in_layer[TENSOR_KIND_COUNT] = {
        [TENSOR_Q_BIAS] = "self_attn.q_proj.bias",   [TENSOR_K_BIAS] = "self_attn.k_proj.bias",
        [TENSOR_V_BIAS] = "self_attn.v_proj.bias",   [TENSOR_O_BIAS] = "self_attn.o_proj.bias",
        [TENSOR_Q_NORM] = "self_attn.q_norm.weight", [TENSOR_K_NORM] = "self_attn.k_norm.weight",
        [TENSOR_ROUTER] = "mlp.gate.weight",         [TENSOR_GATE] = "mlp.gate_proj.weight",
        [TENSOR_UP] = "mlp.up_proj.weight",          [TENSOR_DOWN] = "mlp.down_proj.weight",
    };
    static const char *const in_expert[TENSOR_KIND_COUNT] = {[TENSOR_EXPERT_GATE] = "gate_proj",
                                                             [TENSOR_EXPERT_UP] = "up_proj",
                                                             [TENSOR_EXPERT_DOWN] = "down_proj"};
    (void)spec;
    int n = -1;
    if (in_layer[ref->kind] != NULL)
        n = snprintf(buf, buf_bytes, "model.layers.%u.%s", ref->layer, in_layer[ref->kind]);
    if (in_expert[ref->kind] != NULL)
        n = snprintf(buf, buf_bytes, "model.layers.%u.mlp.experts.%u.%s.weight", ref->layer,
                     ref->expert, in_expert[ref->kind]);
    return n > 0 && (uint32_t)n < buf_bytes;
}

const struct family family_qwen3_moe = {
    .name = "qwen3_moe",
    .architectures = (const char *const[]){"Qwen3MoeForCausalLM", NULL},
    .read = read,
    .tensor_name = tensor_name,
};
