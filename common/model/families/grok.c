// grok.c: Grok-1 and Grok-2: norms before and behind attention and feed-forward networks, GeGLU,
// soft caps, multipliers. Grok-2 has a dense network beside its experts, and its scores grow with
// the position. Their config.json and tensors have names of their own each; Grok-2's model_type is
// "git".
#include <stdio.h>
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

#define GROK_1 "Grok1ModelForCausalLM"

static bool is_grok1(const struct model_spec *spec) {
    return strcmp(spec->architecture, GROK_1) == 0;
}

static float multiplier(struct config_reader *r, const char *key) {
    if (config_value(r, key) == NULL) config_refuse(r, "%s is missing", key);
    return decoder_read_multiplier(r, key);
}

static void read_shared(struct config_reader *r, struct model_spec *spec) {
    spec->norm = NORM_RMS;
    spec->post_norms = true;
    spec->activation = ACT_GEGLU;
    spec->scale.embedding = multiplier(r, "embedding_multiplier_scale");
    spec->scale.logits = multiplier(r, "output_multiplier_scale");
    decoder_all_layers(spec, FFN_MOE);
}

static void read_grok1(struct config_reader *r, struct model_spec *spec) {
    float scale = multiplier(r, "attn_output_multiplier");
    spec->attn_scale = scale == 0 ? 1.0f : scale;
    spec->attn_cap = config_real_or(r, "max_attn_value", 30.0f);
    spec->tied_embeddings = config_flag_or(r, "tie_word_embeddings", true);
    spec->inner_expert = config_size(r, "intermediate_size", INNER_MAX);
    spec->router = (struct router_spec){
        .n_experts = config_size(r, "num_experts", EXPERTS_MAX),
        .top_k = config_size(r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .scale = 1.0f,
    };
}

// What Grok-2's file says of its context is read as its own server reads it: "original" is a plain
// rotary embedding, whatever stands beside it, and there are no windows.
static void refuse_contexts(struct config_reader *r) {
    config_expect_text(r, "rope_type", "original");
    config_refuse_flag(r, "rope_rotate_half_dims");
    config_expect_text(r, "attn_logit_softcapping_method", "tanh");
    const json_t *window = config_value(r, "sliding_window_size");
    if (window != NULL && !(json_is_integer(window) && json_integer_value(window) == -1))
        config_refuse(r, "sliding_window_size other than -1 is not supported");
    if (config_size_or(r, "global_attn_every_n", LAYERS_MAX, 1) != 1)
        config_refuse(r, "global_attn_every_n other than 1 is not supported");
    // Programs differ on what it multiplies.
    if (config_value(r, "attn_output_multiplier") != NULL)
        config_refuse(r, "attn_output_multiplier is not supported in this architecture");
}

static void read_grok2(struct config_reader *r, struct model_spec *spec) {
    refuse_contexts(r);
    spec->attn_cap = config_real_or(r, "attn_logit_softcapping", 30.0f);
    spec->scale.logits_cap = config_real_or(r, "final_logit_softcapping", 0);
    const json_t *length = config_value(r, "attn_temperature_len");
    bool none = json_is_integer(length) && json_integer_value(length) <= 0;
    if (!none)
        spec->temperature.length = config_size_or(r, "attn_temperature_len", POSITIONS_MAX, 0);
    spec->router = (struct router_spec){
        .n_experts = config_size(r, "num_local_experts", EXPERTS_MAX),
        .top_k = config_size(r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .scale = 1.0f,
        .logit_cap = config_real_or(r, "router_logit_softcapping", 30.0f),
    };
    bool both = config_flag_or(r, "residual_moe", false);
    const char *inner = "moe_intermediate_size";
    if (config_value(r, inner) == NULL) inner = "intermediate_size";
    spec->inner_expert = config_size(r, inner, INNER_MAX);
    if (!both) return;
    spec->shared.inner = config_size(r, "intermediate_size", INNER_MAX);
    spec->shared.sum = 0x1.6a09e6p-1f; // sqrt(1/2)
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(
        &r, spec,
        &(struct decoder_defaults){
            .max_position = 8192, .rope_theta = 10000.0f, .norm_eps = 1e-5f, .gelu = true});
    read_shared(&r, spec);
    if (is_grok1(spec))
        read_grok1(&r, spec);
    else
        read_grok2(&r, spec);
    snprintf(spec->family, sizeof spec->family, "%s", is_grok1(spec) ? "grok-1" : "grok-2");
    return r.rc;
}

static const struct decoder_names grok1_names = {
    .whole = {[TENSOR_FINAL_NORM] = "model.norm.scale"},
    .in_layer = {[TENSOR_ATTN_NORM] = "pre_attn_norm.scale",
                 [TENSOR_ATTN_POST_NORM] = "post_attn_norm.scale",
                 [TENSOR_FFN_NORM] = "pre_moe_norm.scale",
                 [TENSOR_FFN_POST_NORM] = "post_moe_norm.scale",
                 [TENSOR_Q] = "attn.q_proj.weight",
                 [TENSOR_K] = "attn.k_proj.weight",
                 [TENSOR_V] = "attn.v_proj.weight",
                 [TENSOR_O] = "attn.o_proj.weight",
                 [TENSOR_ROUTER] = "moe_block.gate.weight"},
    .experts = "moe_block.experts",
    .in_expert = {[TENSOR_EXPERT_GATE] = "linear.weight",
                  [TENSOR_EXPERT_UP] = "linear_v.weight",
                  [TENSOR_EXPERT_DOWN] = "linear_1.weight"},
};

static const struct decoder_names grok2_names = {
    .in_layer = {[TENSOR_ATTN_NORM] = "pre_attn_norm.weight",
                 [TENSOR_ATTN_POST_NORM] = "post_attn_norm.weight",
                 [TENSOR_FFN_NORM] = "pre_moe_norm.weight",
                 [TENSOR_FFN_POST_NORM] = "post_moe_norm.weight",
                 [TENSOR_ROUTER] = "block_sparse_moe.gate.weight"},
    .shared = "mlp",
    .experts = "block_sparse_moe.experts",
    .in_expert = {[TENSOR_EXPERT_GATE] = "w1.weight",
                  [TENSOR_EXPERT_UP] = "w3.weight",
                  [TENSOR_EXPERT_DOWN] = "w2.weight"},
};

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    return decoder_tensor_name(is_grok1(spec) ? &grok1_names : &grok2_names, ref, buf, buf_bytes);
}

const struct family family_grok = {
    .names =
        (const struct model_name[]){{GROK_1, "grok-1"}, {"Grok1ForCausalLM", "git"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
};
