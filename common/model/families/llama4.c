// llama4.c: the text model of Llama 4, alone or inside a multimodal checkpoint, whose vision parts
// are left out: most layers see one chunk and rotate neighbours, the others see everything, without
// rotation; one expert a token, weighed at its input, beside a shared one. All experts of a layer
// are one transposed tensor.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

#define NESTED "Llama4ForConditionalGeneration"

static bool is_nested(const struct model_spec *spec) {
    return strcmp(spec->architecture, NESTED) == 0;
}

// 1 or 0 of layer i in a list of numbers.
static bool listed(struct config_reader *r, const char *key, uint32_t i, bool fallback) {
    const json_t *list = config_value(r, key);
    if (list == NULL || (json_is_array(list) && json_array_size(list) == 0)) return fallback;
    const json_t *v = json_array_get(list, i);
    if (!json_is_integer(v)) {
        config_refuse(r, "%s must have a number for each layer", key);
        return fallback;
    }
    return json_integer_value(v) != 0;
}

static bool has_experts(const json_t *layers, uint32_t i, uint32_t step) {
    if (layers == NULL) return (i + 1) % step == 0;
    for (size_t k = 0; k < json_array_size(layers); k++)
        if (json_integer_value(json_array_get(layers, k)) == (json_int_t)i) return true;
    return false;
}

static void read_layers(struct config_reader *r, struct model_spec *spec) {
    uint32_t no_rope = config_size_or(r, "no_rope_layer_interval", LAYERS_MAX, 4);
    uint32_t step = config_size_or(r, "interleave_moe_layer_step", LAYERS_MAX, 1);
    const json_t *moe = config_value(r, "moe_layers");
    if (moe != NULL && !json_is_array(moe)) config_refuse(r, "moe_layers must be a list");
    for (uint32_t i = 0; i < spec->n_layers && r->rc == 0; i++) {
        bool rope = listed(r, "no_rope_layers", i, (i + 1) % no_rope != 0);
        spec->layer_flags[i] = rope ? 0 : LAYER_FULL | LAYER_NO_ROPE;
        spec->ffn[i] = has_experts(moe, i, step) ? FFN_MOE : FFN_DENSE;
    }
}

static void read_attention(struct config_reader *r, struct model_spec *spec) {
    spec->rope.interleaved = true;
    decoder_read_attention_bias(r, spec, false);
    spec->attn_chunk = config_size_or(r, "attention_chunk_size", POSITIONS_MAX, 0);
    if (json_object_get(r->object, "attention_chunk_size") == NULL) spec->attn_chunk = 8192;
    if (config_flag_or(r, "use_qk_norm", true)) spec->qk_norm = QK_NORM_AFTER_ROPE;
    // Some files have a number here.
    const json_t *tuned = config_value(r, "attn_temperature_tuning");
    if (tuned == NULL || json_is_true(tuned) || json_integer_value(tuned) != 0)
        spec->temperature = (struct temperature_spec){
            .floor = config_size_or(r, "floor_scale", POSITIONS_MAX, 8192),
            .scale = config_real_or(r, "attn_scale", 0.1f)};
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    if (is_nested(spec)) decoder_enter_text(&r);
    if (r.rc != 0) return r.rc;
    decoder_read(&r, spec,
                 &(struct decoder_defaults){.max_position = 131072,
                                            .rope_theta = 500000.0f,
                                            .norm_eps = 1e-5f,
                                            .clamp_position = true});
    read_attention(&r, spec);
    read_layers(&r, spec);
    spec->inner_dense = config_size_or(&r, "intermediate_size_mlp", INNER_MAX, 16384);
    spec->inner_expert = spec->shared.inner = config_size(&r, "intermediate_size", INNER_MAX);
    spec->router = (struct router_spec){
        .n_experts = config_size(&r, "num_local_experts", EXPERTS_MAX),
        .top_k = config_size_or(&r, "num_experts_per_tok", EXPERTS_MAX, 1),
        .score = ROUTER_RAW,
        .weights = WEIGHTS_SIGMOID,
        .scale = 1.0f,
        .on_input = true,
    };
    return r.rc;
}

#define IN_LAYER                                                                                   \
    {                                                                                              \
        [TENSOR_ROUTER] = "feed_forward.router.weight",                                            \
        [TENSOR_GATE] = "feed_forward.gate_proj.weight",                                           \
        [TENSOR_UP] = "feed_forward.up_proj.weight",                                               \
        [TENSOR_DOWN] = "feed_forward.down_proj.weight",                                           \
        [TENSOR_SHARED_GATE] = "feed_forward.shared_expert.gate_proj.weight",                      \
        [TENSOR_SHARED_UP] = "feed_forward.shared_expert.up_proj.weight",                          \
        [TENSOR_SHARED_DOWN] = "feed_forward.shared_expert.down_proj.weight",                      \
        [TENSOR_EXPERT_GATE] = "feed_forward.experts.gate_up_proj",                                \
        [TENSOR_EXPERT_UP] = "feed_forward.experts.gate_up_proj",                                  \
        [TENSOR_EXPERT_DOWN] = "feed_forward.experts.down_proj"                                    \
    }

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names flat = {.in_layer = IN_LAYER},
                                      nested = {
                                          .layers = "language_model.model.layers",
                                          .whole = {[TENSOR_EMBED] =
                                                        "language_model.model.embed_tokens.weight",
                                                    [TENSOR_FINAL_NORM] =
                                                        "language_model.model.norm.weight",
                                                    [TENSOR_HEAD] =
                                                        "language_model.lm_head.weight"},
                                          .in_layer = IN_LAYER,
                                      };
    return decoder_tensor_name(is_nested(spec) ? &nested : &flat, ref, buf, buf_bytes);
}

static void tensor_place(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place) {
    if (ref->kind < TENSOR_EXPERT_GATE || ref->kind > TENSOR_EXPERT_DOWN) return;
    if (ref->kind == TENSOR_EXPERT_DOWN)
        place_transposed(place);
    else
        place_half_transposed(place, ref->kind == TENSOR_EXPERT_UP, false);
    place_expert(place, spec, ref->expert);
}

static bool leaves_out(const struct model_spec *spec, const char *name) {
    return is_nested(spec) && (strncmp(name, "vision_model.", 13) == 0 ||
                               strncmp(name, "multi_modal_projector.", 22) == 0);
}

const struct family family_llama4 = {
    .names = (const struct model_name[]){{"Llama4ForCausalLM", "llama4_text"},
                                         {NESTED, "llama4"},
                                         {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .tensor_place = tensor_place,
    .leaves_out = leaves_out,
};
