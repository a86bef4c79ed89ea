// decoder_hybrid.c: what config.json says of decoders whose layers are partly recurrent (gated
// delta net).
#include <string.h>

#include "common/model/decoder.h"

// Without a list every full_attention_interval-th layer attends.
static void read_layer_types(struct config_reader *r, struct model_spec *spec) {
    const json_t *types = config_value(r, "layer_types");
    uint32_t interval = config_size_or(r, "full_attention_interval", UINT32_MAX, 4);
    if (types != NULL && json_array_size(types) != spec->n_layers) {
        config_refuse(r, "layer_types must be a list of %u kinds of layers", spec->n_layers);
        return;
    }
    for (uint32_t i = 0; i < spec->n_layers && r->rc == 0; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool recurrent = (i + 1) % interval != 0;
        if (types != NULL) recurrent = type != NULL && strcmp(type, "linear_attention") == 0;
        if (types != NULL && !recurrent && (type == NULL || strcmp(type, "full_attention") != 0))
            config_refuse(r, "layer_types[%u] is neither linear_attention nor full_attention", i);
        spec->layer_flags[i] = recurrent ? LAYER_RECURRENT : 0;
    }
}

// What the norm of a delta net's output is multiplied by. Some files name it; no class of these
// families asks.
static void expect_output_gate(struct config_reader *r) {
    const char *key = "output_gate_type", *name = config_text_or(r, key, "silu");
    if (strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0)
        config_refuse(r, "%s \"%.64s\" is not supported, only \"silu\" and \"swish\"", key, name);
}

void decoder_read_hybrid(struct config_reader *r, struct model_spec *spec) {
    read_layer_types(r, spec);
    // What the reference assumes when one of these is absent fits no model but one.
    spec->n_kv_heads = config_size(r, "num_key_value_heads", HEADS_MAX);
    config_size(r, "head_dim", HEAD_DIM_MAX);
    spec->delta = (struct delta_spec){
        .kernel = config_size(r, "linear_conv_kernel_dim", CONV_KERNEL_MAX),
        .n_k_heads = config_size(r, "linear_num_key_heads", HEADS_MAX),
        .n_v_heads = config_size(r, "linear_num_value_heads", HEADS_MAX),
        .k_dim = config_size(r, "linear_key_head_dim", HEAD_DIM_MAX),
        .v_dim = config_size(r, "linear_value_head_dim", HEAD_DIM_MAX),
    };
    spec->attn_bias = spec->attn_out_bias = config_flag_or(r, "attention_bias", false);
    spec->qk_norm = QK_NORM_HEAD;
    spec->norm_from_one = true;
    spec->attn_gate = true;
    expect_output_gate(r);
    if (!config_flag_or(r, "attn_output_gate", true))
        config_refuse(r, "attn_output_gate false is not supported");
}

void place_tap(struct tensor_place *place, const struct model_spec *spec, uint32_t tap) {
    place->dims[1] = 1;
    place->dims[2] = place->row_stride = spec->delta.kernel;
    place->n_dims = 3;
    place->offset = tap;
}
