// ernie4_5_moe.c: ERNIE 4.5: neighbours rotate together, softmax router with a bias that selects,
// experts in a range of layers.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

static void read_layers(struct config_reader *r, struct model_spec *spec) {
    uint32_t last = spec->n_layers == 0 ? 0 : spec->n_layers - 1;
    uint32_t first = config_count_or(r, "moe_layer_start_index", LAYERS_MAX, 1);
    uint32_t step = config_size_or(r, "moe_layer_interval", LAYERS_MAX, 1);
    const json_t *end = config_value(r, "moe_layer_end_index");
    if (!json_is_integer(end) || json_integer_value(end) != -1) // -1 is the last one
        last = config_count_or(r, "moe_layer_end_index", LAYERS_MAX, last);
    for (uint32_t i = 0; i < spec->n_layers; i++)
        spec->ffn[i] = (i + 1) % step == 0 && i >= first && i <= last ? FFN_MOE : FFN_DENSE;
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = 131072, .rope_theta = 500000.0f, .norm_eps = 1e-5f});
    spec->rope.interleaved = true;
    spec->tied_embeddings = config_flag_or(&r, "tie_word_embeddings", true);
    config_refuse_flag(&r, "use_bias");
    read_layers(&r, spec);
    spec->inner_dense = config_size(&r, "intermediate_size", INNER_MAX);
    decoder_read_shared(&r, spec, "moe_num_shared_experts");
    decoder_read_later_layers(&r, spec, "num_nextn_predict_layers");
    spec->router = (struct router_spec){
        .n_experts = config_size(&r, "moe_num_experts", EXPERTS_MAX),
        .top_k = config_size(&r, "moe_k", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .selection_bias = true,
        .renorm = RENORM_FLOOR,
        .renorm_least = config_real_or(&r, "moe_norm_min", 1e-12f),
        .scale = 1.0f,
    };
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_ROUTER] = "mlp.gate.weight",
                     [TENSOR_SELECTION_BIAS] = "mlp.moe_statics.e_score_correction_bias"},
        .shared = "mlp.shared_experts",
        .experts = "mlp.experts",
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

// The bias has a row for each of one group of experts.
static void tensor_place(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place) {
    (void)spec;
    if (ref->kind != TENSOR_SELECTION_BIAS) return;
    place->dims[1] = place->dims[0];
    place->dims[0] = 1;
    place->n_dims = 2;
}

// What predicts further tokens has names of its own in released files.
static bool leaves_out(const struct model_spec *spec, const char *name) {
    return strncmp(name, "model.mtp_", 10) == 0 || decoder_is_later_layer(spec, name);
}

const struct family family_ernie4_5_moe = {
    .names = (const struct model_name[]){{"Ernie4_5_MoeForCausalLM", "ernie4_5_moe"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .tensor_place = tensor_place,
    .leaves_out = leaves_out,
};
