// deepseek_mla.c: DeepSeek-V2 and V2-Lite, DeepSeek-V3, R1 and V3.1, and Kimi K2, which is the same
// class: latent attention, dense first layers, shared experts. V2 routes by softmax, with groups by
// their best expert; V3 by sigmoid, with a bias that selects and groups by their two best. Layers
// behind the last predict further tokens and are left out.
//
// DeepSeek-V3.2 and GLM-5 are V3 with sparse attention; in GLM-5 some layers may attend to the keys
// that the layer before them chose.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

static bool is_v2(const struct model_spec *spec) {
    return strcmp(spec->architecture, "DeepseekV2ForCausalLM") == 0;
}

static bool is_v32(const struct model_spec *spec) {
    return strcmp(spec->architecture, "DeepseekV32ForCausalLM") == 0;
}

static bool is_glm(const struct model_spec *spec) {
    return strcmp(spec->architecture, "GlmMoeDsaForCausalLM") == 0;
}

static void share_by_names(struct config_reader *r, struct model_spec *spec, const char *key,
                           const json_t *names) {
    if (!json_is_array(names) || json_array_size(names) != spec->n_layers)
        config_refuse(r, "%s must be a list of num_hidden_layers %u names", key, spec->n_layers);
    for (uint32_t i = 0; r->rc == 0 && i < spec->n_layers; i++) {
        const char *kind = json_string_value(json_array_get(names, i));
        bool shared = kind != NULL && strcmp(kind, "shared") == 0;
        if (!shared && (kind == NULL || strcmp(kind, "full") != 0))
            config_refuse(r, "%s has an entry that is neither \"full\" nor \"shared\"", key);
        if (shared) spec->layer_flags[i] |= LAYER_SAME_KEYS;
    }
}

static void share_by_letters(struct config_reader *r, struct model_spec *spec, const char *key,
                             const char *letters) {
    if (strlen(letters) != spec->n_layers || strspn(letters, "FS") != spec->n_layers)
        config_refuse(r, "%s must be num_hidden_layers %u letters F or S", key, spec->n_layers);
    for (uint32_t i = 0; r->rc == 0 && i < spec->n_layers; i++)
        if (letters[i] == 'S') spec->layer_flags[i] |= LAYER_SAME_KEYS;
}

// A list, or letters or a list under an older key, or a frequency behind the first layers.
static void read_shared_keys(struct config_reader *r, struct model_spec *spec) {
    const char *older = "index_topk_pattern";
    const json_t *types = config_value(r, "indexer_types"), *pattern = config_value(r, older);
    uint32_t every = config_count_or(r, "index_topk_freq", LAYERS_MAX, 1),
             first = config_count_or(r, "index_skip_topk_offset", LAYERS_MAX, 2);
    if (every == 0) every = 1; // as the class takes it
    if (types != NULL) {
        share_by_names(r, spec, "indexer_types", types);
    } else if (json_is_string(pattern)) {
        share_by_letters(r, spec, older, json_string_value(pattern));
    } else if (pattern != NULL) {
        share_by_names(r, spec, older, pattern);
    } else {
        for (uint32_t i = first; r->rc == 0 && i < spec->n_layers; i++)
            if ((i - first + 1) % every != 0) spec->layer_flags[i] |= LAYER_SAME_KEYS;
    }
}

static void read_indexer(struct config_reader *r, struct model_spec *spec) {
    if (!is_v32(spec) && !is_glm(spec)) return;
    spec->indexer = (struct indexer_spec){
        .n_heads = config_size_or(r, "index_n_heads", HEADS_MAX, is_glm(spec) ? 32 : 64),
        .dim = config_size_or(r, "index_head_dim", HEAD_DIM_MAX, 128),
        .top_k = config_size_or(r, "index_topk", UINT32_MAX, 2048),
        .interleaved = is_glm(spec),
        .norm_eps = 1e-6f, // the class does not ask rms_norm_eps here
    };
    if (config_flag_or(r, "indexer_rope_interleave", is_glm(spec)) != is_glm(spec))
        config_refuse(r, "indexer_rope_interleave must be %s", is_glm(spec) ? "true" : "false");
    if (is_glm(spec)) read_shared_keys(r, spec);
}

// Newer files name each layer's kind, and then nothing else counts.
static void read_layer_kinds(struct config_reader *r, struct model_spec *spec) {
    const json_t *kinds = config_value(r, "mlp_layer_types");
    decoder_read_first_dense(r, spec, is_v2(spec) ? 0 : 3);
    if (r->rc != 0 || kinds == NULL || !(is_v32(spec) || is_glm(spec))) return;
    if (!json_is_array(kinds) || json_array_size(kinds) != spec->n_layers)
        config_refuse(r, "mlp_layer_types must be a list of num_hidden_layers %u names",
                      spec->n_layers);
    for (uint32_t i = 0; r->rc == 0 && i < spec->n_layers; i++) {
        const char *kind = json_string_value(json_array_get(kinds, i));
        bool sparse = kind != NULL && strcmp(kind, "sparse") == 0;
        if (!sparse && (kind == NULL || strcmp(kind, "dense") != 0))
            config_refuse(r,
                          "mlp_layer_types has an entry that is neither \"dense\" nor \"sparse\"");
        spec->ffn[i] = sparse ? FFN_MOE : FFN_DENSE;
    }
}

static void read_latents(struct config_reader *r, struct model_spec *spec) {
    spec->mla = (struct mla_spec){
        .q_rank = config_size_or(r, "q_lora_rank", LATENT_DIM_MAX, 0),
        .kv_rank = config_size(r, "kv_lora_rank", LATENT_DIM_MAX),
        .nope_dim = config_size(r, "qk_nope_head_dim", HEAD_DIM_MAX),
        .value_dim = config_size(r, "v_head_dim", HEAD_DIM_MAX),
        .norm_eps = 1e-6f, // the class does not ask rms_norm_eps here
    };
    spec->rope.interleaved = true;
    spec->head_dim = spec->mla.nope_dim + spec->rope.dim;
    spec->attn_scale = decoder_head_scale(spec->head_dim) * decoder_yarn_scale(r, &spec->rope);
    config_refuse_flag(r, "attention_bias");
    if (!config_flag_or(r, "rope_interleave", true))
        config_refuse(r, "rope_interleave must be true");
}

static void read_v2_router(struct config_reader *r, struct model_spec *spec) {
    const char *method = config_text_or(r, "topk_method", "greedy");
    bool groups = strcmp(method, "group_limited_greedy") == 0;
    if (!groups && strcmp(method, "greedy") != 0)
        config_refuse(r, "topk_method \"%.64s\" is not supported", method);
    config_expect_text(r, "scoring_func", "softmax");
    config_refuse_flag(r, "norm_topk_prob");
    spec->router = (struct router_spec){
        .n_experts = config_size(r, "n_routed_experts", EXPERTS_MAX),
        .top_k = config_size(r, "num_experts_per_tok", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .groups = groups ? GROUPS_MAX : GROUPS_NONE,
        .n_groups = groups ? config_size(r, "n_group", EXPERTS_MAX) : 1,
        .groups_kept = groups ? config_size(r, "topk_group", EXPERTS_MAX) : 1,
        .scale = config_real_or(r, "routed_scaling_factor", 1.0f),
    };
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_read(&r, spec,
                 &(struct decoder_defaults){.max_position = is_v2(spec) ? 2048 : 4096,
                                            .rope_theta = 10000.0f,
                                            .norm_eps = 1e-6f,
                                            .head_dim = "qk_rope_head_dim"});
    read_latents(&r, spec);
    decoder_read_later_layers(&r, spec, "num_nextn_predict_layers");
    if (config_size_or(&r, "moe_layer_freq", LAYERS_MAX, 1) != 1)
        config_refuse(&r, "moe_layer_freq other than 1 is not supported");
    read_layer_kinds(&r, spec);
    read_indexer(&r, spec);
    spec->inner_dense = config_size(&r, "intermediate_size", INNER_MAX);
    decoder_read_shared(&r, spec, "n_shared_experts");
    if (is_v2(spec)) {
        read_v2_router(&r, spec);
        return r.rc;
    }
    config_expect_text(&r, "scoring_func", "sigmoid");
    config_expect_text(&r, "topk_method", "noaux_tc");
    struct router_spec defaults = {.n_groups = 8, .groups_kept = 4, .scale = 2.5f};
    if (is_glm(spec)) defaults.n_groups = defaults.groups_kept = 1;
    decoder_read_sigmoid_router(&r, spec, &defaults);
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .in_layer = {[TENSOR_Q] = "self_attn.q_b_proj.weight",
                     [TENSOR_Q_A] = "self_attn.q_a_proj.weight",
                     [TENSOR_Q_A_NORM] = "self_attn.q_a_layernorm.weight",
                     [TENSOR_KV_A] = "self_attn.kv_a_proj_with_mqa.weight",
                     [TENSOR_KV_A_NORM] = "self_attn.kv_a_layernorm.weight",
                     [TENSOR_UK] = "self_attn.kv_b_proj.weight",
                     [TENSOR_UV] = "self_attn.kv_b_proj.weight",
                     [TENSOR_KV_B] = "self_attn.kv_b_proj.weight",
                     [TENSOR_INDEX_Q] = "self_attn.indexer.wq_b.weight",
                     [TENSOR_INDEX_K] = "self_attn.indexer.wk.weight",
                     [TENSOR_INDEX_K_NORM] = "self_attn.indexer.k_norm.weight",
                     [TENSOR_INDEX_K_NORM_BIAS] = "self_attn.indexer.k_norm.bias",
                     [TENSOR_INDEX_WEIGHTS] = "self_attn.indexer.weights_proj.weight",
                     [TENSOR_ROUTER] = "mlp.gate.weight",
                     [TENSOR_SELECTION_BIAS] = "mlp.gate.e_score_correction_bias",
                     [TENSOR_SHARED_GATE] = "mlp.shared_experts.gate_proj.weight",
                     [TENSOR_SHARED_UP] = "mlp.shared_experts.up_proj.weight",
                     [TENSOR_SHARED_DOWN] = "mlp.shared_experts.down_proj.weight"},
        .experts = "mlp.experts",
        .in_expert = {[TENSOR_EXPERT_GATE] = "gate_proj.weight",
                      [TENSOR_EXPERT_UP] = "up_proj.weight",
                      [TENSOR_EXPERT_DOWN] = "down_proj.weight"},
    };
    static const struct decoder_names usual = {.experts = NULL};
    bool plain_q = ref->kind == TENSOR_Q && spec->mla.q_rank == 0;
    return decoder_tensor_name(plain_q ? &usual : &names, ref, buf, buf_bytes);
}

// One tensor has, for each head, nope_dim rows that make keys of latents and value_dim rows that
// make values. Queries are multiplied by the former from the other side.
static void tensor_place(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place) {
    if (ref->kind != TENSOR_UK && ref->kind != TENSOR_UV) return;
    const struct mla_spec *mla = &spec->mla;
    uint64_t rows = mla->nope_dim + mla->value_dim;
    if (ref->kind == TENSOR_UK) place_transposed(place);
    place->dims[0] = spec->n_heads * rows;
    place->dims[1] = mla->kv_rank;
    place->offset =
        (ref->expert * rows + (ref->kind == TENSOR_UV ? mla->nope_dim : 0)) * mla->kv_rank;
}

const struct family family_deepseek_mla = {
    .names = (const struct model_name[]){{"DeepseekV2ForCausalLM", "deepseek_v2"},
                                         {"DeepseekV3ForCausalLM", "deepseek_v3"},
                                         {"DeepseekV3ForCausalLM", "kimi_k2"},
                                         {"DeepseekV32ForCausalLM", "deepseek_v32"},
                                         {"GlmMoeDsaForCausalLM", "glm_moe_dsa"},
                                         {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .tensor_place = tensor_place,
    .leaves_out = decoder_is_later_layer,
};
