// qwen3_next.c: Qwen3-Next: three of four layers are gated delta nets, the fourth attends with a
// gate on its output and rotates a part of each head; softmax router, a gated shared expert.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

static void read_experts(struct config_reader *r, struct model_spec *spec) {
    spec->inner_expert = config_size(r, "moe_intermediate_size", INNER_MAX);
    decoder_read_gated_shared(r, spec);
    decoder_read_softmax_router(r, spec, config_flag_or(r, "norm_topk_prob", true));
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){.max_position = 32768,
                                            .rope_theta = 10000.0f,
                                            .norm_eps = 1e-6f,
                                            .partial_rotary = 0.25f});
    decoder_read_hybrid(&r, spec);
    spec->delta.by_head = true;
    if (decoder_read_sparse_layers(&r, spec)) read_experts(&r, spec);
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_DELTA_QKV] = "linear_attn.in_proj_qkvz.weight",
                     [TENSOR_DELTA_B] = "linear_attn.in_proj_ba.weight",
                     [TENSOR_DELTA_CONV] = "linear_attn.conv1d.weight",
                     [TENSOR_DELTA_A_LOG] = "linear_attn.A_log",
                     [TENSOR_DELTA_DT_BIAS] = "linear_attn.dt_bias",
                     [TENSOR_DELTA_NORM] = "linear_attn.norm.weight",
                     [TENSOR_DELTA_OUT] = "linear_attn.out_proj.weight",
                     [TENSOR_ROUTER] = "mlp.gate.weight",
                     [TENSOR_SHARED_WEIGHT] = "mlp.shared_expert_gate.weight"},
        .experts = "mlp.experts",
        .shared = "mlp.shared_expert",
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

static void tensor_place(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place) {
    if (ref->kind == TENSOR_DELTA_CONV) place_tap(place, spec, ref->expert);
}

// Layers that predict further tokens.
static bool leaves_out(const struct model_spec *spec, const char *name) {
    (void)spec;
    return strncmp(name, "mtp.", 4) == 0;
}

const struct family family_qwen3_next = {
    .names = (const struct model_name[]){{"Qwen3NextForCausalLM", "qwen3_next"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .tensor_place = tensor_place,
    .leaves_out = leaves_out,
};
