// deepseek_v4.c: DeepSeek-V4: hyper-connections in place of the residual, one head whose keys are
// its values, windows with or without compressed entries beside them, and first layers whose
// experts a table of token ids has.
//
// config.json has two spellings (the released one, and that of transformers) and checkpoints three:
// the released one, what transformers writes, and the names of its modules.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

// --- which layer is what

static uint8_t kind_of_name(const char *name) {
    if (name == NULL) return UINT8_MAX;
    if (strcmp(name, "sliding_attention") == 0) return 0;
    if (strcmp(name, "compressed_sparse_attention") == 0) return LAYER_CSA;
    if (strcmp(name, "heavily_compressed_attention") == 0) return LAYER_HCA;
    return UINT8_MAX;
}

// Older files write the usual rates, whatever the layer's rate is.
static uint8_t kind_of_ratio(const json_t *v) {
    json_int_t ratio = json_is_integer(v) ? json_integer_value(v) : -1;
    return ratio == 0 ? 0 : ratio == 4 ? LAYER_CSA : ratio == 128 ? LAYER_HCA : UINT8_MAX;
}

// One entry a layer; those of layers behind the last one may follow. Two layers of HCA and then
// CSA and HCA by turns where no list says otherwise.
static void read_layer_types(struct config_reader *r, struct model_spec *spec) {
    const json_t *names = config_value(r, "layer_types"),
                 *ratios = config_value(r, "compress_ratios"),
                 *list = names != NULL ? names : ratios;
    const char *key = names != NULL ? "layer_types" : "compress_ratios";
    if (list != NULL && json_array_size(list) < spec->n_layers)
        config_refuse(r, "%s must be a list of num_hidden_layers %u kinds of layers", key,
                      spec->n_layers);
    for (uint32_t i = 0; i < spec->n_layers && r->rc == 0; i++) {
        const json_t *v = json_array_get(list, i);
        uint8_t kind = i >= 2 && i % 2 == 1 ? LAYER_CSA : LAYER_HCA;
        if (list != NULL)
            kind = names != NULL ? kind_of_name(json_string_value(v)) : kind_of_ratio(v);
        if (kind == UINT8_MAX) config_refuse(r, "%s[%u] is no kind of layer that is known", key, i);
        spec->layer_flags[i] = kind;
    }
}

// The first layers look their experts up.
static void read_hash_layers(struct config_reader *r, struct model_spec *spec) {
    const char *key = "mlp_layer_types";
    const json_t *names = config_value(r, key);
    uint32_t n = config_count_or(r, "num_hash_layers", UINT32_MAX, 3);
    if (names != NULL && json_array_size(names) < spec->n_layers)
        config_refuse(r, "%s must be a list of num_hidden_layers %u names", key, spec->n_layers);
    for (uint32_t i = 0; i < spec->n_layers && r->rc == 0; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        bool hash = names == NULL ? i < n : name != NULL && strcmp(name, "hash_moe") == 0;
        if (names != NULL && !hash && (name == NULL || strcmp(name, "moe") != 0))
            config_refuse(r, "%s[%u] is neither \"hash_moe\" nor \"moe\"", key, i);
        if (hash) spec->layer_flags[i] |= LAYER_HASH;
    }
}

// --- compressed entries

// A key of the object compress_rates, which an older key outside of it overrides.
static uint32_t read_rate(struct config_reader *r, const char *name, const char *older,
                          uint32_t fallback) {
    const json_t *rates = config_value(r, "compress_rates");
    if (rates != NULL && !json_is_object(rates))
        config_refuse(r, "compress_rates must be an object");
    struct config_reader inner = {
        .object = rates, .file = "config.json: compress_rates", .e = r->e, .rc = r->rc};
    if (rates != NULL && r->rc == 0) fallback = config_size(&inner, name, COMPRESS_RATE_MAX);
    r->rc = inner.rc;
    return config_size_or(r, older, COMPRESS_RATE_MAX, fallback);
}

static void read_compress(struct config_reader *r, struct model_spec *spec) {
    spec->compress.csa_rate = read_rate(r, "compressed_sparse_attention", "compress_rate_csa", 4);
    spec->compress.hca_rate =
        read_rate(r, "heavily_compressed_attention", "compress_rate_hca", 128);
    spec->compress.n_heads = config_size_or(r, "index_n_heads", HEADS_MAX, 64);
    spec->compress.dim = config_size_or(r, "index_head_dim", HEAD_DIM_MAX, 128);
    spec->compress.top_k = config_size_or(r, "index_topk", POSITIONS_MAX, 512);
}

// --- two rotary embeddings

static const struct decoder_defaults defaults = {
    .max_position = 1048576, .rope_theta = 10000.0f, .norm_eps = 1e-6f, .partial_rotary = 0.125f};

// partial_rotary_factor counts before qk_rope_head_dim.
static void read_rotary_part(struct config_reader *r, struct model_spec *spec) {
    double part = config_double_or(r, "partial_rotary_factor", 0.125);
    const char *key = "qk_rope_head_dim";
    uint32_t dim = config_size_or(r, key, HEAD_DIM_MAX, 0);
    if (!(part > 0 && part <= 1))
        config_refuse(r, "partial_rotary_factor is %g, not within 0 and 1", part);
    else if (dim != 0 && config_value(r, "partial_rotary_factor") == NULL)
        spec->rope.dim = dim;
    else
        spec->rope.dim = (uint32_t)(spec->head_dim * part);
    if (dim != 0 && dim != spec->rope.dim)
        config_refuse(r, "%s %u and partial_rotary_factor differ", key, dim);
}

// One of the two objects of rope_parameters, which must say what part of a head it rotates where
// nothing outside does.
static void read_nested(struct config_reader *r, const json_t *both, const char *key,
                        struct model_spec *spec) {
    struct config_reader inner = {
        .object = both, .file = "config.json: rope_parameters", .e = r->e, .rc = r->rc};
    const char *part = "partial_rotary_factor";
    if (config_value(r, part) == NULL && json_object_get(json_object_get(both, key), part) == NULL)
        config_refuse(&inner, "%s.%s is missing", key, part);
    decoder_read_rope_object(&inner, key, spec, &defaults);
    r->rc = inner.rc;
}

// One object is of the compressed layers, whose theta stands beside it. Their YaRN multiplies
// cosines and sines by 1 if it does not say otherwise.
static void read_flat(struct config_reader *r, const struct model_spec *spec,
                      struct model_spec *compressed) {
    const char *key = decoder_rope_key(r);
    const json_t *object = config_value(r, key);
    decoder_read_rope_object(r, key, compressed, &defaults);
    if (compressed->rope.dim != spec->rope.dim)
        config_refuse(r, "%s: partial_rotary_factor differs from that outside", key);
    if (compressed->rope.kind == ROPE_YARN && json_object_get(object, "attention_factor") == NULL)
        compressed->rope.attention = 0;
    compressed->rope.theta = config_real_or(r, "compress_rope_theta", 160000.0f);
}

// The class looks for the key where it never is, and so rounds always.
static void refuse_unrounded(struct config_reader *r, const struct rope_spec *rope) {
    if (r->rc == 0 && rope->kind == ROPE_YARN && !rope->truncate)
        config_refuse(r, "truncate false is not supported: the class does not read it");
}

static void read_ropes(struct config_reader *r, struct model_spec *spec) {
    const char *length = "original_max_position_embeddings";
    if (config_value(r, length) != NULL)
        config_refuse(r, "%s outside of the rotary settings is not supported", length);
    spec->rope = (struct rope_spec){.theta = config_real_or(r, "rope_theta", 10000.0f)};
    read_rotary_part(r, spec);
    struct model_spec compressed = *spec;
    const json_t *both = config_value(r, decoder_rope_key(r));
    if (json_is_object(json_object_get(both, "main")) &&
        json_is_object(json_object_get(both, "compress"))) {
        read_nested(r, both, "main", spec);
        read_nested(r, both, "compress", &compressed);
    } else {
        read_flat(r, spec, &compressed);
    }
    refuse_unrounded(r, &spec->rope);
    refuse_unrounded(r, &compressed.rope);
    spec->rope.interleaved = compressed.rope.interleaved = true;
    spec->compress.rope = compressed.rope;
}

// --- the rest

static enum router_score read_score(struct config_reader *r) {
    static const struct {
        const char *name;
        enum router_score score;
    } scores[] = {{"sqrtsoftplus", ROUTER_SQRT_SOFTPLUS}, {"sigmoid", ROUTER_SIGMOID}};
    const char *name = config_text_or(r, "scoring_func", scores[0].name);
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        if (strcmp(name, scores[i].name) == 0) return scores[i].score;
    config_refuse(r, "scoring_func \"%.64s\" is not supported", name);
    return ROUTER_RAW;
}

static void read_experts(struct config_reader *r, struct model_spec *spec) {
    decoder_all_layers(spec, FFN_MOE);
    spec->inner_expert = config_size_or(r, "moe_intermediate_size", INNER_MAX, 2048);
    spec->shared.inner = spec->inner_expert;
    if (config_count_or(r, "n_shared_experts", EXPERTS_MAX, 1) != 1)
        config_refuse(r, "n_shared_experts must be 1: the class knows no other");
    if (!config_flag_or(r, "norm_topk_prob", true))
        config_refuse(r, "norm_topk_prob false is not supported");
    spec->router = (struct router_spec){
        .n_experts = config_size_or(r, "n_routed_experts", EXPERTS_MAX, 256),
        .top_k = config_size_or(r, "num_experts_per_tok", EXPERTS_MAX, 6),
        .score = read_score(r),
        .selection_bias = true,
        .renorm = RENORM_L1,
        .renorm_least = 1e-20f,
        .scale = config_real_or(r, "routed_scaling_factor", 1.5f),
    };
    spec->activation = ACT_LIMITED;
    spec->act_limit = config_real_or(r, "swiglu_limit", 10.0f);
    if (!(spec->act_limit > 0)) config_refuse(r, "swiglu_limit must be above 0");
    config_refuse_flag(r, "mlp_bias");
}

static void read_attention(struct config_reader *r, struct model_spec *spec) {
    spec->head_dim = config_size_or(r, "head_dim", HEAD_DIM_MAX, 512);
    spec->attn_scale = decoder_head_scale(spec->head_dim);
    spec->n_kv_heads = config_size_or(r, "num_key_value_heads", HEADS_MAX, 1);
    if (spec->n_kv_heads != 1) config_refuse(r, "num_key_value_heads must be 1");
    spec->sliding_window = config_size_or(r, "sliding_window", POSITIONS_MAX, 128);
    spec->sinks = true;
    spec->joint = (struct joint_spec){
        .q_rank = config_size_or(r, "q_lora_rank", LATENT_DIM_MAX, 1024),
        .o_groups = config_size_or(r, "o_groups", HEADS_MAX, 8),
        .o_rank = config_size_or(r, "o_lora_rank", LATENT_DIM_MAX, 1024),
    };
    config_refuse_flag(r, "attention_bias");
}

static void read_hyper(struct config_reader *r, struct model_spec *spec) {
    spec->hyper = (struct hyper_spec){
        .n = config_size_or(r, "hc_mult", HYPER_STREAMS_MAX, 4),
        .rounds = config_size_or(r, "hc_sinkhorn_iters", SINKHORN_ROUNDS_MAX, 20),
        .eps = config_real_or(r, "hc_eps", 1e-6f),
    };
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_refuse_quantised(&r);
    spec->n_layers = config_size(&r, "num_hidden_layers", LAYERS_MAX);
    spec->hidden = config_size(&r, "hidden_size", HIDDEN_MAX);
    spec->vocab = config_size(&r, "vocab_size", VOCAB_MAX);
    spec->n_heads = config_size(&r, "num_attention_heads", HEADS_MAX);
    spec->max_position =
        config_size_or(&r, "max_position_embeddings", POSITIONS_MAX, defaults.max_position);
    spec->norm_eps = config_real_or(&r, "rms_norm_eps", defaults.norm_eps);
    spec->tied_embeddings = config_flag_or(&r, "tie_word_embeddings", false);
    config_expect_text(&r, "hidden_act", "silu");
    read_attention(&r, spec);
    if (r.rc != 0) return r.rc;
    read_layer_types(&r, spec);
    read_hash_layers(&r, spec);
    read_compress(&r, spec);
    read_ropes(&r, spec);
    read_hyper(&r, spec);
    read_experts(&r, spec);
    return r.rc;
}

// --- names and places

#define RELEASED_LAYER(kv_norm)                                                                    \
    [TENSOR_ATTN_NORM] = "attn_norm.weight", [TENSOR_FFN_NORM] = "ffn_norm.weight",                \
    [TENSOR_Q_A] = "attn.wq_a.weight", [TENSOR_Q_A_NORM] = "attn.q_norm.weight",                   \
    [TENSOR_Q] = "attn.wq_b.weight", [TENSOR_KV_A] = "attn.wkv.weight",                            \
    [TENSOR_KV_A_NORM] = kv_norm, [TENSOR_SINKS] = "attn.attn_sink",                               \
    [TENSOR_O_A] = "attn.wo_a.weight", [TENSOR_O] = "attn.wo_b.weight",                            \
    [TENSOR_ENTRY_KV] = "attn.compressor.wkv.weight",                                              \
    [TENSOR_ENTRY_GATE] = "attn.compressor.wgate.weight",                                          \
    [TENSOR_ENTRY_BIAS] = "attn.compressor.ape",                                                   \
    [TENSOR_ENTRY_NORM] = "attn.compressor.norm.weight",                                           \
    [TENSOR_INDEX_ENTRY_KV] = "attn.indexer.compressor.wkv.weight",                                \
    [TENSOR_INDEX_ENTRY_GATE] = "attn.indexer.compressor.wgate.weight",                            \
    [TENSOR_INDEX_ENTRY_BIAS] = "attn.indexer.compressor.ape",                                     \
    [TENSOR_INDEX_ENTRY_NORM] = "attn.indexer.compressor.norm.weight",                             \
    [TENSOR_INDEX_Q] = "attn.indexer.wq_b.weight",                                                 \
    [TENSOR_INDEX_WEIGHTS] = "attn.indexer.weights_proj.weight",                                   \
    [TENSOR_HYPER_ATTN_MIX] = "hc_attn_fn", [TENSOR_HYPER_ATTN_BASE] = "hc_attn_base",             \
    [TENSOR_HYPER_ATTN_SCALE] = "hc_attn_scale", [TENSOR_HYPER_FFN_MIX] = "hc_ffn_fn",             \
    [TENSOR_HYPER_FFN_BASE] = "hc_ffn_base", [TENSOR_HYPER_FFN_SCALE] = "hc_ffn_scale",            \
    [TENSOR_ROUTER] = "ffn.gate.weight", [TENSOR_SELECTION_BIAS] = "ffn.gate.bias",                \
    [TENSOR_HASH] = "ffn.gate.tid2eid", [TENSOR_SHARED_GATE] = "ffn.shared_experts.w1.weight",     \
    [TENSOR_SHARED_UP] = "ffn.shared_experts.w3.weight",                                           \
    [TENSOR_SHARED_DOWN] = "ffn.shared_experts.w2.weight"
#define RELEASED_EXPERT                                                                            \
    {                                                                                              \
        [TENSOR_EXPERT_GATE] = "w1.weight", [TENSOR_EXPERT_UP] = "w3.weight",                      \
        [TENSOR_EXPERT_DOWN] = "w2.weight"                                                         \
    }

static bool name_released(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                          uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {RELEASED_LAYER("attn.kv_norm.weight")},
        .experts = "ffn.experts",
        .in_expert = RELEASED_EXPERT,
        .layers = "layers",
        .whole = {[TENSOR_EMBED] = "embed.weight",
                  [TENSOR_FINAL_NORM] = "norm.weight",
                  [TENSOR_HEAD] = "head.weight",
                  [TENSOR_HYPER_HEAD_MIX] = "hc_head_fn",
                  [TENSOR_HYPER_HEAD_BASE] = "hc_head_base",
                  [TENSOR_HYPER_HEAD_SCALE] = "hc_head_scale"},
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

// Neither the released names nor those of its modules: transformers renames back a part of them.
static bool name_saved(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                       uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {RELEASED_LAYER("attn.norm.weight")},
        .experts = "ffn.experts",
        .in_expert = RELEASED_EXPERT,
        .whole = {[TENSOR_HEAD] = "head.weight",
                  [TENSOR_HYPER_HEAD_MIX] = "model.hc_head.hc_fn",
                  [TENSOR_HYPER_HEAD_BASE] = "model.hc_head.hc_base",
                  [TENSOR_HYPER_HEAD_SCALE] = "model.hc_head.hc_scale"},
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

static bool name_modules(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                         uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_Q_A] = "self_attn.q_a_proj.weight",
                     [TENSOR_Q_A_NORM] = "self_attn.q_a_norm.weight",
                     [TENSOR_Q] = "self_attn.q_b_proj.weight",
                     [TENSOR_KV_A] = "self_attn.kv_proj.weight",
                     [TENSOR_KV_A_NORM] = "self_attn.kv_norm.weight",
                     [TENSOR_SINKS] = "self_attn.sinks",
                     [TENSOR_O_A] = "self_attn.o_a_proj.weight",
                     [TENSOR_O] = "self_attn.o_b_proj.weight",
                     [TENSOR_ENTRY_KV] = "self_attn.compressor.kv_proj.weight",
                     [TENSOR_ENTRY_GATE] = "self_attn.compressor.gate_proj.weight",
                     [TENSOR_ENTRY_BIAS] = "self_attn.compressor.position_bias",
                     [TENSOR_ENTRY_NORM] = "self_attn.compressor.kv_norm.weight",
                     [TENSOR_INDEX_ENTRY_KV] = "self_attn.compressor.indexer.kv_proj.weight",
                     [TENSOR_INDEX_ENTRY_GATE] = "self_attn.compressor.indexer.gate_proj.weight",
                     [TENSOR_INDEX_ENTRY_BIAS] = "self_attn.compressor.indexer.position_bias",
                     [TENSOR_INDEX_ENTRY_NORM] = "self_attn.compressor.indexer.kv_norm.weight",
                     [TENSOR_INDEX_Q] = "self_attn.compressor.indexer.q_b_proj.weight",
                     [TENSOR_INDEX_WEIGHTS] =
                         "self_attn.compressor.indexer.scorer.weights_proj.weight",
                     [TENSOR_HYPER_ATTN_MIX] = "attn_hc.fn",
                     [TENSOR_HYPER_ATTN_BASE] = "attn_hc.base",
                     [TENSOR_HYPER_ATTN_SCALE] = "attn_hc.scale",
                     [TENSOR_HYPER_FFN_MIX] = "ffn_hc.fn",
                     [TENSOR_HYPER_FFN_BASE] = "ffn_hc.base",
                     [TENSOR_HYPER_FFN_SCALE] = "ffn_hc.scale",
                     [TENSOR_ROUTER] = "mlp.gate.weight",
                     [TENSOR_SELECTION_BIAS] = "mlp.gate.e_score_correction_bias",
                     [TENSOR_HASH] = "mlp.gate.tid2eid",
                     [TENSOR_EXPERT_GATE] = "mlp.experts.gate_up_proj",
                     [TENSOR_EXPERT_UP] = "mlp.experts.gate_up_proj",
                     [TENSOR_EXPERT_DOWN] = "mlp.experts.down_proj"},
        .shared = "mlp.shared_experts",
        .whole = {[TENSOR_HYPER_HEAD_MIX] = "model.hc_head.hc_fn",
                  [TENSOR_HYPER_HEAD_BASE] = "model.hc_head.hc_base",
                  [TENSOR_HYPER_HEAD_SCALE] = "model.hc_head.hc_scale"},
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

// A vector of gates' biases is a table there: a row for each token of a window.
static void place_table(struct tensor_place *place, uint32_t rate) {
    place->dims[1] = place->dims[0] / rate;
    place->dims[0] = rate;
    place->n_dims = 2;
}

static void place_apart(const struct model_spec *spec, const struct tensor_ref *ref,
                        struct tensor_place *place) {
    if (ref->kind == TENSOR_ENTRY_BIAS || ref->kind == TENSOR_INDEX_ENTRY_BIAS)
        place_table(place, spec_compress_rate(spec, ref->layer));
    if (ref->kind != TENSOR_O_A) return;
    place->offset = ref->expert * place->dims[0] * place->dims[1];
    place->dims[0] *= spec->joint.o_groups;
}

static void place_modules(const struct model_spec *spec, const struct tensor_ref *ref,
                          struct tensor_place *place) {
    place_apart(spec, ref, place);
    place_stacked(place, spec, ref);
}

// Layers that predict further tokens.
static bool leaves_out(const struct model_spec *spec, const char *name) {
    (void)spec;
    return strncmp(name, "mtp.", 4) == 0 || strncmp(name, "model.mtp.", 10) == 0;
}

static const struct family modules = {
    .tensor_name = name_modules,
    .tensor_place = place_modules,
    .leaves_out = leaves_out,
};

static const struct family saved = {
    .tensor_name = name_saved,
    .tensor_place = place_apart,
    .leaves_out = leaves_out,
    .other_form = &modules,
};

const struct family family_deepseek_v4 = {
    .names = (const struct model_name[]){{"DeepseekV4ForCausalLM", "deepseek_v4"}, {NULL, NULL}},
    .read = read,
    .tensor_name = name_released,
    .tensor_place = place_apart,
    .leaves_out = leaves_out,
    .other_form = &saved,
};
