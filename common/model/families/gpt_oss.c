// gpt_oss.c: gpt-oss: sinks, a window in every other layer, biases everywhere, a clamped
// activation, softmax over the chosen. A checkpoint holds all experts of a layer in one transposed
// tensor, where columns of gate and up alternate.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

// layer_types names each layer; without it the even ones have the window.
static void read_layers(struct config_reader *r, struct model_spec *spec) {
    const json_t *types = config_value(r, "layer_types");
    if (types != NULL && json_array_size(types) != spec->n_layers)
        config_refuse(r, "layer_types must be a list of %u names", spec->n_layers);
    for (uint32_t i = 0; i < spec->n_layers && r->rc == 0; i++) {
        const char *type = i % 2 == 0 ? "sliding_attention" : "full_attention";
        if (types != NULL) type = json_string_value(json_array_get(types, i));
        if (type != NULL && strcmp(type, "full_attention") == 0)
            spec->layer_flags[i] = LAYER_FULL;
        else if (type == NULL || strcmp(type, "sliding_attention") != 0)
            config_refuse(r, "layer_types has an entry that is not supported");
    }
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = 131072, .rope_theta = 150000.0f, .norm_eps = 1e-5f});
    if (config_value(&r, "rope_scaling") == NULL && config_value(&r, "rope_parameters") == NULL)
        config_refuse(&r, "rope_scaling is missing");
    decoder_read_attention_bias(&r, spec, true);
    spec->sinks = true;
    spec->sliding_window = config_size(&r, "sliding_window", POSITIONS_MAX);
    read_layers(&r, spec);
    spec->inner_expert = config_size(&r, "intermediate_size", INNER_MAX);
    spec->expert_bias = true;
    spec->activation = ACT_CLAMPED;
    spec->act_alpha = config_real_or(&r, "swiglu_alpha", 1.702f);
    spec->act_limit = config_real_or(&r, "swiglu_limit", 7.0f);
    decoder_read_chosen_router(&r, spec);
    spec->router.bias = true;
    decoder_all_layers(spec, FFN_MOE);
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_SINKS] = "self_attn.sinks",
                     [TENSOR_ROUTER] = "mlp.router.weight",
                     [TENSOR_ROUTER_BIAS] = "mlp.router.bias",
                     [TENSOR_EXPERT_GATE] = "mlp.experts.gate_up_proj",
                     [TENSOR_EXPERT_UP] = "mlp.experts.gate_up_proj",
                     [TENSOR_EXPERT_DOWN] = "mlp.experts.down_proj",
                     [TENSOR_EXPERT_GATE_BIAS] = "mlp.experts.gate_up_proj_bias",
                     [TENSOR_EXPERT_UP_BIAS] = "mlp.experts.gate_up_proj_bias",
                     [TENSOR_EXPERT_DOWN_BIAS] = "mlp.experts.down_proj_bias"},
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

static void tensor_place(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place) {
    bool up = ref->kind == TENSOR_EXPERT_UP || ref->kind == TENSOR_EXPERT_UP_BIAS;
    switch (ref->kind) {
    case TENSOR_EXPERT_GATE:
    case TENSOR_EXPERT_UP: place_half_transposed(place, up, true); break;
    case TENSOR_EXPERT_DOWN: place_transposed(place); break;
    case TENSOR_EXPERT_GATE_BIAS:
    case TENSOR_EXPERT_UP_BIAS:
        place->dims[0] *= 2;
        place->row_stride = 2;
        place->offset = up;
        break;
    case TENSOR_EXPERT_DOWN_BIAS: break;
    default: return;
    }
    place_expert(place, spec, ref->expert);
}

const struct family family_gpt_oss = {
    .names = (const struct model_name[]){{"GptOssForCausalLM", "gpt_oss"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .tensor_place = tensor_place,
};
