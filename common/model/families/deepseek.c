// deepseek.c: DeepSeekMoE (16B): dense first layers, shared experts, plain softmax router.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = 2048, .rope_theta = 10000.0f, .norm_eps = 1e-6f});
    decoder_read_attention_bias(&r, spec, false);
    config_expect_text(&r, "scoring_func", "softmax");
    if (config_size_or(&r, "moe_layer_freq", LAYERS_MAX, 1) != 1)
        config_refuse(&r, "moe_layer_freq other than 1 is not supported");
    decoder_read_first_dense(&r, spec, 0);
    spec->inner_dense = config_size(&r, "intermediate_size", INNER_MAX);
    decoder_read_shared(&r, spec, "n_shared_experts");
    bool renorm = config_flag_or(&r, "norm_topk_prob", false);
    spec->router = (struct router_spec){
        .n_experts = config_size(&r, "n_routed_experts", EXPERTS_MAX),
        .top_k = config_size(&r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .renorm = renorm ? RENORM_L1 : RENORM_NONE,
        .renorm_least = renorm ? 1e-20f : 0,
        .scale = 1.0f,
    };
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_ROUTER] = "mlp.gate.weight"},
        .shared = "mlp.shared_experts",
        .experts = "mlp.experts",
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

const struct family family_deepseek = {
    .names = (const struct model_name[]){{"DeepseekForCausalLM", "deepseek"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
};
