// olmoe.c: OLMoE: norms over all query heads and all key heads, values that may be clipped, experts
// in every layer.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = 4096, .rope_theta = 10000.0f, .norm_eps = 1e-5f});
    spec->qk_norm = QK_NORM_WIDE;
    spec->clip_qkv = config_real_or(&r, "clip_qkv", 0);
    decoder_read_attention_bias(&r, spec, false);
    spec->inner_expert = config_size(&r, "intermediate_size", INNER_MAX);
    decoder_read_softmax_router(&r, spec, config_flag_or(&r, "norm_topk_prob", false));
    decoder_all_layers(spec, FFN_MOE);
    return r.rc;
}

const struct family family_olmoe = {
    .names = (const struct model_name[]){{"OlmoeForCausalLM", "olmoe"}, {NULL, NULL}},
    .read = read,
    .tensor_name = decoder_mlp_name,
};
