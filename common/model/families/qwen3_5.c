// qwen3_5.c: Qwen3.5, with experts and dense: Qwen3-Next's layers with other tensors. The released
// checkpoints are multimodal (the text model's sizes stand in text_config, its vision parts are
// left out) and stack all experts of a layer; what transformers writes itself has them one by one.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

static bool is_nested(const struct model_spec *spec) {
    return strstr(spec->architecture, "ForConditionalGeneration") != NULL;
}

static bool has_experts(const struct model_spec *spec) {
    return strstr(spec->architecture, "Moe") != NULL;
}

static void read_ffn(struct config_reader *r, struct model_spec *spec) {
    decoder_all_layers(spec, has_experts(spec) ? FFN_MOE : FFN_DENSE);
    if (!has_experts(spec)) {
        spec->inner_dense = config_size(r, "intermediate_size", INNER_MAX);
        return;
    }
    spec->inner_expert = config_size(r, "moe_intermediate_size", INNER_MAX);
    decoder_read_gated_shared(r, spec);
    spec->router = (struct router_spec){
        .n_experts = config_size(r, "num_experts", EXPERTS_MAX),
        .top_k = config_size(r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .renorm = RENORM_L1,
        .scale = 1.0f,
    };
}

// The whole model's key decides, and is false where it is absent. Files may repeat it beside the
// sizes, but not say otherwise there.
static void read_tied(struct config_reader *r, struct model_spec *spec, const json_t *config) {
    const char *key = "tie_word_embeddings";
    if (!is_nested(spec)) return;
    struct config_reader whole = {.object = config, .file = "config.json", .e = r->e, .rc = r->rc};
    bool tied = config_flag_or(&whole, key, false);
    r->rc = whole.rc;
    if (config_value(&whole, key) != NULL && config_value(r, key) != NULL &&
        tied != spec->tied_embeddings)
        config_refuse(r, "%s and that of the whole model differ", key);
    spec->tied_embeddings = tied;
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    if (is_nested(spec)) decoder_enter_text(&r);
    if (r.rc != 0) return r.rc;
    decoder_read(&r, spec,
                 &(struct decoder_defaults){.max_position = 32768,
                                            .rope_theta = 10000.0f,
                                            .norm_eps = 1e-6f,
                                            .partial_rotary = 0.25f,
                                            .mrope = true});
    decoder_read_hybrid(&r, spec);
    read_tied(&r, spec, config);
    read_ffn(&r, spec);
    return r.rc;
}

#define OUTSIDE_EXPERTS                                                                            \
    [TENSOR_DELTA_QKV] = "linear_attn.in_proj_qkv.weight",                                         \
    [TENSOR_DELTA_Z] = "linear_attn.in_proj_z.weight",                                             \
    [TENSOR_DELTA_B] = "linear_attn.in_proj_b.weight",                                             \
    [TENSOR_DELTA_A] = "linear_attn.in_proj_a.weight",                                             \
    [TENSOR_DELTA_CONV] = "linear_attn.conv1d.weight", [TENSOR_DELTA_A_LOG] = "linear_attn.A_log", \
    [TENSOR_DELTA_DT_BIAS] = "linear_attn.dt_bias",                                                \
    [TENSOR_DELTA_NORM] = "linear_attn.norm.weight",                                               \
    [TENSOR_DELTA_OUT] = "linear_attn.out_proj.weight", [TENSOR_ROUTER] = "mlp.gate.weight",       \
    [TENSOR_SHARED_GATE] = "mlp.shared_expert.gate_proj.weight",                                   \
    [TENSOR_SHARED_UP] = "mlp.shared_expert.up_proj.weight",                                       \
    [TENSOR_SHARED_DOWN] = "mlp.shared_expert.down_proj.weight",                                   \
    [TENSOR_SHARED_WEIGHT] = "mlp.shared_expert_gate.weight"
#define STACKED                                                                                    \
    {                                                                                              \
        OUTSIDE_EXPERTS, [TENSOR_EXPERT_GATE] = "mlp.experts.gate_up_proj",                        \
                         [TENSOR_EXPERT_UP] = "mlp.experts.gate_up_proj",                          \
                         [TENSOR_EXPERT_DOWN] = "mlp.experts.down_proj"                            \
    }
#define APART                                                                                      \
    {                                                                                              \
        [TENSOR_EXPERT_GATE] = "gate_proj.weight", [TENSOR_EXPERT_UP] = "up_proj.weight",          \
        [TENSOR_EXPERT_DOWN] = "down_proj.weight"                                                  \
    }
#define NESTED_WHOLE                                                                               \
    {                                                                                              \
        [TENSOR_EMBED] = "model.language_model.embed_tokens.weight",                               \
        [TENSOR_FINAL_NORM] = "model.language_model.norm.weight"                                   \
    }
#define NESTED_LAYERS "model.language_model.layers"

static bool name_stacked(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                         uint32_t buf_bytes) {
    static const struct decoder_names flat = {.in_layer = STACKED},
                                      nested = {.in_layer = STACKED,
                                                .layers = NESTED_LAYERS,
                                                .whole = NESTED_WHOLE};
    return decoder_tensor_name(is_nested(spec) ? &nested : &flat, ref, buf, buf_bytes);
}

static bool name_apart(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                       uint32_t buf_bytes) {
    static const struct decoder_names flat = {.in_layer = {OUTSIDE_EXPERTS},
                                              .experts = "mlp.experts",
                                              .in_expert = APART},
                                      nested = {.in_layer = {OUTSIDE_EXPERTS},
                                                .experts = "mlp.experts",
                                                .in_expert = APART,
                                                .layers = NESTED_LAYERS,
                                                .whole = NESTED_WHOLE};
    return decoder_tensor_name(is_nested(spec) ? &nested : &flat, ref, buf, buf_bytes);
}

static void place_apart(const struct model_spec *spec, const struct tensor_ref *ref,
                        struct tensor_place *place) {
    if (ref->kind == TENSOR_DELTA_CONV) place_tap(place, spec, ref->expert);
}

static void place_together(const struct model_spec *spec, const struct tensor_ref *ref,
                           struct tensor_place *place) {
    place_apart(spec, ref, place);
    place_stacked(place, spec, ref);
}

// Layers that predict further tokens, and vision.
static bool leaves_out(const struct model_spec *spec, const char *name) {
    (void)spec;
    return strncmp(name, "mtp.", 4) == 0 || strncmp(name, "model.visual.", 13) == 0;
}

static const struct family apart = {
    .tensor_name = name_apart,
    .tensor_place = place_apart,
    .leaves_out = leaves_out,
};

const struct family family_qwen3_5 = {
    .names = (const struct model_name[]){{"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"},
                                         {"Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe"},
                                         {"Qwen3_5ForCausalLM", "qwen3_5_text"},
                                         {"Qwen3_5ForConditionalGeneration", "qwen3_5"},
                                         {NULL, NULL}},
    .read = read,
    .tensor_name = name_stacked,
    .tensor_place = place_together,
    .leaves_out = leaves_out,
    .other_form = &apart,
};
