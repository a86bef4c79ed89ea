// qwen2_moe.c: Qwen1.5-MoE and Qwen2-MoE: biases on queries, keys and values, a shared expert whose
// weight the row decides.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static void read_experts(struct config_reader *r, struct model_spec *spec) {
    spec->inner_expert = config_size(r, "moe_intermediate_size", INNER_MAX);
    decoder_read_gated_shared(r, spec);
    decoder_read_softmax_router(r, spec, config_flag_or(r, "norm_topk_prob", false));
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = 32768, .rope_theta = 10000.0f, .norm_eps = 1e-6f});
    spec->attn_bias = config_flag_or(&r, "qkv_bias", true);
    decoder_refuse_window(&r, spec);
    if (decoder_read_sparse_layers(&r, spec)) read_experts(&r, spec);
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_ROUTER] = "mlp.gate.weight",
                     [TENSOR_SHARED_WEIGHT] = "mlp.shared_expert_gate.weight"},
        .experts = "mlp.experts",
        .shared = "mlp.shared_expert",
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

const struct family family_qwen2_moe = {
    .names = (const struct model_name[]){{"Qwen2MoeForCausalLM", "qwen2_moe"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
};
