// mixtral.c: Mixtral: grouped-query attention with an optional sliding window, experts in every
// layer, renormalised softmax router.
#include <stdio.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(
        &r, spec,
        &(struct decoder_defaults){.max_position = 131072, .rope_theta = 1e6f, .norm_eps = 1e-5f});
    spec->sliding_window = config_size_or(&r, "sliding_window", POSITIONS_MAX, 0);
    spec->inner_expert = config_size(&r, "intermediate_size", INNER_MAX);
    spec->router = (struct router_spec){
        .n_experts = decoder_read_experts(&r),
        .top_k = config_size(&r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .renorm = RENORM_L1,
        .scale = 1.0f,
    };
    if (r.rc != 0) return r.rc;
    for (uint32_t i = 0; i < spec->n_layers; i++)
        spec->ffn[i] = FFN_MOE;
    return 0;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    if (decoder_tensor_name(ref, buf, buf_bytes)) return true;
    static const char *const in_expert[TENSOR_KIND_COUNT] = {
        [TENSOR_EXPERT_GATE] = "w1", [TENSOR_EXPERT_UP] = "w3", [TENSOR_EXPERT_DOWN] = "w2"};
    (void)spec;
    int n = -1;
    if (ref->kind == TENSOR_ROUTER)
        n = snprintf(buf, buf_bytes, "model.layers.%u.block_sparse_moe.gate.weight", ref->layer);
    if (in_expert[ref->kind] != NULL)
        n = snprintf(buf, buf_bytes, "model.layers.%u.block_sparse_moe.experts.%u.%s.weight",
                     ref->layer, ref->expert, in_expert[ref->kind]);
    return n > 0 && (uint32_t)n < buf_bytes;
}

const struct family family_mixtral = {
    .name = "mixtral",
    .architectures = (const char *const[]){"MixtralForCausalLM", NULL},
    .read = read,
    .tensor_name = tensor_name,
};
