// minimax_m2.c: MiniMax-M2: norms over all heads, a part of each head rotates, sigmoid router with
// a bias that selects.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(
        &r, spec,
        &(struct decoder_defaults){
            .max_position = 196608, .rope_theta = 5e6f, .norm_eps = 1e-6f, .partial_rotary = 1.0f});
    spec->rope.dim = config_size_or(&r, "rotary_dim", HEAD_DIM_MAX, spec->rope.dim);
    if (!config_flag_or(&r, "use_qk_norm", true)) config_refuse(&r, "use_qk_norm must be true");
    spec->qk_norm = QK_NORM_WIDE;
    decoder_read_later_layers(&r, spec, "num_mtp_modules");
    spec->inner_expert = config_size(&r, "intermediate_size", INNER_MAX);
    spec->router = (struct router_spec){
        .n_experts = decoder_read_experts(&r),
        .top_k = config_size(&r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SIGMOID,
        .selection_bias = true,
        .renorm = RENORM_L1,
        .scale = 1.0f,
    };
    decoder_all_layers(spec, FFN_MOE);
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names bias = {
        .in_layer = {[TENSOR_SELECTION_BIAS] = "block_sparse_moe.e_score_correction_bias"}};
    return ref->kind == TENSOR_SELECTION_BIAS ? decoder_tensor_name(&bias, ref, buf, buf_bytes)
                                              : decoder_mixtral_name(spec, ref, buf, buf_bytes);
}

const struct family family_minimax_m2 = {
    .names = (const struct model_name[]){{"MiniMaxM2ForCausalLM", "minimax_m2"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .leaves_out = decoder_is_later_layer,
};
