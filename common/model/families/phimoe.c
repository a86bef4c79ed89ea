// phimoe.c: Phi-3.5-MoE: LayerNorm with biases, biases in attention and head, the sparse mixer,
// long context by its own list of factors.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(
        &r, spec,
        &(struct decoder_defaults){.max_position = 131072, .rope_theta = 1e6f, .norm_eps = 1e-5f});
    spec->norm = NORM_LAYER;
    spec->norm_bias = true;
    decoder_read_attention_bias(&r, spec, false);
    spec->head_bias = config_flag_or(&r, "lm_head_bias", false);
    spec->sliding_window = config_size_or(&r, "sliding_window", POSITIONS_MAX, 0);
    spec->inner_expert = config_size(&r, "intermediate_size", INNER_MAX);
    spec->router = (struct router_spec){
        .n_experts = decoder_read_experts(&r),
        .top_k = config_size_or(&r, "num_experts_per_tok", EXPERTS_MAX, 2),
        .score = ROUTER_RAW,
        .weights = WEIGHTS_MIXER,
        .scale = 1.0f,
        .jitter = config_real_or(&r, "router_jitter_noise", 0.01f),
    };
    if (spec->router.top_k != 2)
        config_refuse(&r, "num_experts_per_tok is %u; the sparse mixer chooses 2",
                      spec->router.top_k);
    decoder_all_layers(spec, FFN_MOE);
    return r.rc;
}

const struct family family_phimoe = {
    .names = (const struct model_name[]){{"PhimoeForCausalLM", "phimoe"},
                                         {"PhiMoEForCausalLM", "phimoe"},
                                         {NULL, NULL}},
    .read = read,
    .tensor_name = decoder_mixtral_name,
};
