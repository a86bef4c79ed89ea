// mixtral.c: Mixtral: grouped-query attention with an optional sliding window, experts in every
// layer, renormalised softmax router.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(
        &r, spec,
        &(struct decoder_defaults){.max_position = 131072, .rope_theta = 1e6f, .norm_eps = 1e-5f});
    spec->sliding_window = config_size_or(&r, "sliding_window", POSITIONS_MAX, 0);
    spec->inner_expert = config_size(&r, "intermediate_size", INNER_MAX);
    decoder_read_softmax_router(&r, spec, true);
    decoder_all_layers(spec, FFN_MOE);
    return r.rc;
}

const struct family family_mixtral = {
    .names = (const struct model_name[]){{"MixtralForCausalLM", "mixtral"}, {NULL, NULL}},
    .read = read,
    .tensor_name = decoder_mixtral_name,
};
