// dense.c: the dense relatives: Llama 2 and 3, Mistral, Qwen2 and Qwen3. No experts, so workers
// share nothing but the requests.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

static bool is(const struct model_spec *spec, const char *architecture) {
    return strcmp(spec->architecture, architecture) == 0;
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    uint32_t max_position = is(spec, "LlamaForCausalLM")     ? 2048
                            : is(spec, "MistralForCausalLM") ? 131072
                                                             : 32768;
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = max_position, .rope_theta = 10000.0f, .norm_eps = 1e-6f});
    if (is(spec, "MistralForCausalLM"))
        spec->sliding_window = config_size_or(
            &r, "sliding_window", POSITIONS_MAX,
            json_object_get(config, "sliding_window") == NULL ? 4096 : 0); // null is none
    else if (!is(spec, "LlamaForCausalLM"))
        decoder_refuse_window(&r, spec);
    if (is(spec, "LlamaForCausalLM") || is(spec, "Qwen3ForCausalLM"))
        decoder_read_attention_bias(&r, spec, false);
    if (is(spec, "LlamaForCausalLM")) config_refuse_flag(&r, "mlp_bias");
    if (is(spec, "Qwen2ForCausalLM")) spec->attn_bias = true;
    if (is(spec, "Qwen3ForCausalLM")) spec->qk_norm = QK_NORM_HEAD;
    spec->inner_dense = config_size(&r, "intermediate_size", INNER_MAX);
    decoder_all_layers(spec, FFN_DENSE);
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names usual = {.experts = NULL};
    (void)spec;
    return decoder_tensor_name(&usual, ref, buf, buf_bytes);
}

const struct family family_dense = {
    .names = (const struct model_name[]){{"LlamaForCausalLM", "llama"},
                                         {"MistralForCausalLM", "mistral"},
                                         {"Qwen2ForCausalLM", "qwen2"},
                                         {"Qwen3ForCausalLM", "qwen3"},
                                         {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
};
