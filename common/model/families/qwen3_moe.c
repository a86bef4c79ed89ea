// qwen3_moe.c: Qwen3-MoE: grouped-query attention with a norm on each query and key head, softmax
// router, no shared expert.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static void read_experts(struct config_reader *r, struct model_spec *spec) {
    spec->inner_expert = config_size(r, "moe_intermediate_size", INNER_MAX);
    decoder_read_softmax_router(r, spec, config_flag_or(r, "norm_topk_prob", false));
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = 32768, .rope_theta = 10000.0f, .norm_eps = 1e-6f});
    spec->qk_norm = QK_NORM_HEAD;
    decoder_read_attention_bias(&r, spec, false);
    decoder_refuse_window(&r, spec);
    if (decoder_read_sparse_layers(&r, spec)) read_experts(&r, spec);
    return r.rc;
}

const struct family family_qwen3_moe = {
    .names = (const struct model_name[]){{"Qwen3MoeForCausalLM", "qwen3_moe"}, {NULL, NULL}},
    .read = read,
    .tensor_name = decoder_mlp_name,
};
