// qwen3_next.c: Qwen3-Next: three of four layers are gated delta nets, the fourth attends with a
// gate on its output and rotates a part of each head; softmax router, a gated shared expert.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

static void read_experts(struct config_reader *r, struct model_spec *spec) {
    spec->inner_expert = config_size(r, "moe_intermediate_size", INNER_MAX);
    spec->shared = (struct shared_spec){
        .inner = config_size(r, "shared_expert_intermediate_size", INNER_MAX), .gated = true};
    spec->router = (struct router_spec){
        .n_experts = decoder_read_experts(r),
        .top_k = config_size(r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .renorm = config_flag_or(r, "norm_topk_prob", true) ? RENORM_L1 : RENORM_NONE,
        .scale = 1.0f,
    };
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
    decoder_read_sparse_layers(&r, spec);
    if (r.rc != 0) return r.rc;
    if (decoder_has_layer(spec, FFN_DENSE))
        spec->inner_dense = config_size(&r, "intermediate_size", INNER_MAX);
    if (decoder_has_layer(spec, FFN_MOE)) read_experts(&r, spec);
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
                     [TENSOR_SHARED_GATE] = "mlp.shared_expert.gate_proj.weight",
                     [TENSOR_SHARED_UP] = "mlp.shared_expert.up_proj.weight",
                     [TENSOR_SHARED_DOWN] = "mlp.shared_expert.down_proj.weight",
                     [TENSOR_SHARED_WEIGHT] = "mlp.shared_expert_gate.weight"},
        .experts = "mlp.experts",
        .in_expert = {[TENSOR_EXPERT_GATE] = "gate_proj.weight",
                      [TENSOR_EXPERT_UP] = "up_proj.weight",
                      [TENSOR_EXPERT_DOWN] = "down_proj.weight"},
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
