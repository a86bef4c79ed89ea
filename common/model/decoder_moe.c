// decoder_moe.c: what the families' experts have in common: which layers have them, and the
// settings of routers and shared experts.
#include <string.h>

#include "common/model/decoder.h"

uint32_t decoder_read_experts(struct config_reader *r) {
    const char *old = "num_experts", *new = "num_local_experts";
    if (config_value(r, old) == NULL && config_value(r, new) == NULL) {
        config_refuse(r, "%s (or %s) is missing", old, new);
        return 1;
    }
    uint32_t a = config_size_or(r, old, EXPERTS_MAX, 0), b = config_size_or(r, new, EXPERTS_MAX, 0);
    if (a != 0 && b != 0 && a != b) config_refuse(r, "%s %u and %s %u differ", old, a, new, b);
    return a != 0 ? a : b;
}

void decoder_all_layers(struct model_spec *spec, enum ffn_kind kind) {
    memset(spec->ffn, (int)kind, sizeof spec->ffn);
}

void decoder_read_first_dense(struct config_reader *r, struct model_spec *spec, uint32_t fallback) {
    const json_t *v = config_value(r, "first_k_dense_replace");
    json_int_t n = v == NULL ? fallback : json_is_integer(v) ? json_integer_value(v) : -1;
    if (n < 0 || n > (json_int_t)spec->n_layers)
        config_refuse(r, "first_k_dense_replace is not within 0 to num_hidden_layers %u",
                      spec->n_layers);
    for (uint32_t i = 0; i < LAYERS_MAX; i++)
        spec->ffn[i] = (json_int_t)i < n ? FFN_DENSE : FFN_MOE;
}

void decoder_read_later_layers(struct config_reader *r, struct model_spec *spec, const char *key) {
    spec->n_later_layers = config_count_or(r, key, LAYERS_MAX, 1);
}

bool decoder_is_later_layer(const struct model_spec *spec, const char *name) {
    static const char prefix[] = "model.layers.";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    const char *digits = name + sizeof prefix - 1;
    uint64_t layer = 0;
    size_t n = strspn(digits, "0123456789");
    for (size_t i = 0; i < n; i++)
        layer = layer * 10 + (uint64_t)(digits[i] - '0');
    return n > 0 && n < 9 && digits[n] == '.' && layer >= spec->n_layers &&
           layer - spec->n_layers < spec->n_later_layers;
}

static void read_sparse_layers(struct config_reader *r, struct model_spec *spec) {
    uint32_t step = config_size_or(r, "decoder_sparse_step", LAYERS_MAX, 1);
    if (r->rc != 0) return;
    for (uint32_t i = 0; i < spec->n_layers; i++)
        spec->ffn[i] = (i + 1) % step == 0 ? FFN_MOE : FFN_DENSE;
    const json_t *dense = config_value(r, "mlp_only_layers");
    if (dense != NULL && !json_is_array(dense)) {
        config_refuse(r, "mlp_only_layers must be a list");
        return;
    }
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *v = json_array_get(dense, i);
        json_int_t layer = json_is_integer(v) ? json_integer_value(v) : -1;
        if (layer < 0 || layer >= (json_int_t)spec->n_layers)
            config_refuse(r, "mlp_only_layers has an entry that is no layer (0 to %u)",
                          spec->n_layers - 1);
        else
            spec->ffn[layer] = FFN_DENSE;
    }
}

bool decoder_read_sparse_layers(struct config_reader *r, struct model_spec *spec) {
    read_sparse_layers(r, spec);
    if (r->rc != 0) return false;
    if (decoder_has_layer(spec, FFN_DENSE))
        spec->inner_dense = config_size(r, "intermediate_size", INNER_MAX);
    return decoder_has_layer(spec, FFN_MOE);
}

void decoder_refuse_window(struct config_reader *r, const struct model_spec *spec) {
    if (!config_flag_or(r, "use_sliding_window", false)) return;
    bool absent = json_object_get(r->object, "sliding_window") == NULL; // null is none
    uint32_t window = config_size_or(r, "sliding_window", UINT32_MAX, absent ? 4096 : UINT32_MAX);
    if (window < spec->max_position)
        config_refuse(r, "use_sliding_window with sliding_window %u is not supported", window);
}

bool decoder_has_layer(const struct model_spec *spec, enum ffn_kind kind) {
    for (uint32_t i = 0; i < spec->n_layers; i++)
        if (spec->ffn[i] == kind) return true;
    return false;
}

// How DeepSeek-V3 and its relatives route: sigmoid scores, a bias that selects, groups by their two
// best.
void decoder_read_sigmoid_router(struct config_reader *r, struct model_spec *spec,
                                 const struct router_spec *d) {
    bool renorm = config_flag_or(r, "norm_topk_prob", true);
    uint32_t n_groups = config_size_or(r, "n_group", EXPERTS_MAX, d->n_groups);
    spec->router = (struct router_spec){
        .n_experts = config_size(r, "n_routed_experts", EXPERTS_MAX),
        .top_k = config_size(r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SIGMOID,
        .selection_bias = true,
        .groups = n_groups == 1 ? GROUPS_NONE : GROUPS_TOP2,
        .n_groups = n_groups,
        .groups_kept = config_size_or(r, "topk_group", EXPERTS_MAX, d->groups_kept),
        .renorm = renorm ? RENORM_L1 : RENORM_NONE,
        .renorm_least = renorm ? 1e-20f : 0,
        .scale = config_real_or(r, "routed_scaling_factor", d->scale),
    };
}

// Shared experts run side by side are one of their widths together.
void decoder_read_shared(struct config_reader *r, struct model_spec *spec, const char *key) {
    uint32_t n = config_count_or(r, key, EXPERTS_MAX, 0);
    spec->inner_expert = config_size(r, "moe_intermediate_size", INNER_MAX);
    spec->shared.inner = n * spec->inner_expert;
}

void decoder_read_gated_shared(struct config_reader *r, struct model_spec *spec) {
    spec->shared = (struct shared_spec){
        .inner = config_size(r, "shared_expert_intermediate_size", INNER_MAX), .gated = true};
}

void decoder_read_chosen_router(struct config_reader *r, struct model_spec *spec) {
    spec->router = (struct router_spec){
        .n_experts = decoder_read_experts(r),
        .top_k = config_size(r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_RAW,
        .weights = WEIGHTS_SOFTMAX,
        .scale = 1.0f,
    };
}

void decoder_read_softmax_router(struct config_reader *r, struct model_spec *spec, bool renorm) {
    spec->router = (struct router_spec){
        .n_experts = decoder_read_experts(r),
        .top_k = config_size(r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .renorm = renorm ? RENORM_L1 : RENORM_NONE,
        .scale = 1.0f,
    };
}

void decoder_read_attention_bias(struct config_reader *r, struct model_spec *spec, bool fallback) {
    spec->attn_bias = spec->attn_out_bias = config_flag_or(r, "attention_bias", fallback);
}

float decoder_read_multiplier(struct config_reader *r, const char *key) {
    float multiplier = config_real_or(r, key, 1.0f);
    if (multiplier == 0) config_refuse(r, "%s must not be 0", key);
    return multiplier == 1.0f ? 0 : multiplier;
}
