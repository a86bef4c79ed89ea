// glm4_moe.c: GLM-4.5, 4.6 and 4.7: half of each head rotates, the first layers are dense, sigmoid
// router with a bias that selects, shared experts. Layers behind the last predict further tokens
// and are left out.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){.max_position = 131072,
                                            .rope_theta = 10000.0f,
                                            .norm_eps = 1e-5f,
                                            .partial_rotary = 0.5f});
    spec->attn_bias = config_flag_or(&r, "attention_bias", false);
    spec->qk_norm = config_flag_or(&r, "use_qk_norm", false) ? QK_NORM_HEAD : QK_NORM_NONE;
    decoder_read_first_dense(&r, spec, 1);
    spec->inner_dense = config_size(&r, "intermediate_size", INNER_MAX);
    decoder_read_shared(&r, spec, "n_shared_experts");
    decoder_read_later_layers(&r, spec, "num_nextn_predict_layers");
    decoder_read_sigmoid_router(
        &r, spec, &(struct router_spec){.n_groups = 1, .groups_kept = 1, .scale = 1.0f});
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_ROUTER] = "mlp.gate.weight",
                     [TENSOR_SELECTION_BIAS] = "mlp.gate.e_score_correction_bias"},
        .shared = "mlp.shared_experts",
        .experts = "mlp.experts",
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

const struct family family_glm4_moe = {
    .names = (const struct model_name[]){{"Glm4MoeForCausalLM", "glm4_moe"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .leaves_out = decoder_is_later_layer,
};
