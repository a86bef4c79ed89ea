// granitemoe.c: Granite MoE, with and without a shared expert: multipliers on embedding, attention,
// residual and logits; weights from a softmax over the chosen logits. A checkpoint holds all
// experts of a layer in one tensor, with gate and up behind each other.
#include "common/model/decoder.h"
#include "common/model/families/families.h"

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){
                     .max_position = 2048, .rope_theta = 10000.0f, .norm_eps = 1e-6f});
    decoder_read_attention_bias(&r, spec, false);
    spec->attn_scale = config_real_or(&r, "attention_multiplier", 1.0f);
    spec->scale.embedding = decoder_read_multiplier(&r, "embedding_multiplier");
    spec->scale.residual = decoder_read_multiplier(&r, "residual_multiplier");
    float divisor = decoder_read_multiplier(&r, "logits_scaling");
    spec->scale.logits = divisor == 0 ? 0 : 1.0f / divisor;
    spec->inner_expert = config_size(&r, "intermediate_size", INNER_MAX);
    // Only the class with "shared" in its name reads this key; the other's files do not have it.
    if (json_integer_value(config_value(&r, "shared_intermediate_size")) != 0)
        spec->shared.inner = config_size(&r, "shared_intermediate_size", INNER_MAX);
    decoder_read_chosen_router(&r, spec);
    decoder_all_layers(spec, FFN_MOE);
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_ROUTER] = "block_sparse_moe.router.layer.weight",
                     [TENSOR_EXPERT_GATE] = "block_sparse_moe.input_linear.weight",
                     [TENSOR_EXPERT_UP] = "block_sparse_moe.input_linear.weight",
                     [TENSOR_EXPERT_DOWN] = "block_sparse_moe.output_linear.weight",
                     [TENSOR_SHARED_GATE] = "shared_mlp.input_linear.weight",
                     [TENSOR_SHARED_UP] = "shared_mlp.input_linear.weight",
                     [TENSOR_SHARED_DOWN] = "shared_mlp.output_linear.weight"},
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

static void tensor_place(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place) {
    bool up = ref->kind == TENSOR_SHARED_UP;
    if (ref->kind == TENSOR_SHARED_GATE || up) place_half(place, up);
    place_stacked(place, spec, ref);
}

const struct family family_granitemoe = {
    .names = (const struct model_name[]){{"GraniteMoeForCausalLM", "granitemoe"},
                                         {"GraniteMoeSharedForCausalLM", "granitemoeshared"},
                                         {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .tensor_place = tensor_place,
};
