// dbrx.c: DBRX: LayerNorm without biases, clipped values, queries, keys and values in one tensor,
// all experts of a layer stacked as rows, their last matrix transposed. Its config.json has names
// of its own.
#include <string.h>

#include "common/model/decoder.h"
#include "common/model/families/families.h"

static const json_t *part(struct config_reader *r, const char *key) {
    const json_t *o = config_value(r, key);
    if (!json_is_object(o)) config_refuse(r, "%s must be an object", key);
    return o;
}

static void read_attention(struct config_reader *whole, struct model_spec *spec) {
    struct config_reader r = {.object = part(whole, "attn_config"),
                              .file = "config.json: attn_config",
                              .e = whole->e,
                              .rc = whole->rc};
    if (whole->rc != 0) return;
    spec->n_kv_heads = config_size_or(&r, "kv_n_heads", HEADS_MAX, 1);
    spec->clip_qkv = config_real_or(&r, "clip_qkv", 0);
    float theta = config_real_or(whole, "rope_theta", 10000.0f);
    struct decoder_defaults d = {.rope_theta = config_real_or(&r, "rope_theta", theta)};
    decoder_read_rope(whole, spec, &d);
    if (config_value(&r, "rope_theta") != NULL && spec->rope.theta != d.rope_theta)
        config_refuse(&r, "rope_theta differs from the one outside");
    if (whole->rc == 0) whole->rc = r.rc;
}

static void read_ffn(struct config_reader *whole, struct model_spec *spec) {
    struct config_reader r = {.object = part(whole, "ffn_config"),
                              .file = "config.json: ffn_config",
                              .e = whole->e,
                              .rc = whole->rc};
    if (whole->rc != 0) return;
    const char *act = json_string_value(json_object_get(config_value(&r, "ffn_act_fn"), "name"));
    if (act != NULL && strcmp(act, "silu") != 0)
        config_refuse(&r, "ffn_act_fn \"%.64s\" is not supported, only \"silu\"", act);
    spec->inner_expert = config_size(&r, "ffn_hidden_size", INNER_MAX);
    // The p of the norm that weights are divided by; absent is 1, the sum.
    float p = config_real_or(&r, "moe_normalize_expert_weights", 1.0f);
    if (p != 1.0f && p != 2.0f)
        config_refuse(&r, "moe_normalize_expert_weights other than 1 and 2 is not supported");
    bool none = json_is_null(json_object_get(r.object, "moe_normalize_expert_weights"));
    spec->router = (struct router_spec){
        .n_experts = config_size(&r, "moe_num_experts", EXPERTS_MAX),
        .top_k = config_size(&r, "moe_top_k", EXPERTS_MAX),
        .score = ROUTER_SOFTMAX,
        .renorm = none        ? RENORM_NONE
                  : p == 2.0f ? RENORM_L2
                              : RENORM_L1,
        .scale = 1.0f,
    };
    whole->rc = r.rc;
}

static int read(struct model_spec *spec, const struct json_t *config, struct err_text *e) {
    struct config_reader r = {.object = config, .file = "config.json", .e = e};
    decoder_refuse_quantised(&r);
    spec->n_layers = config_size(&r, "n_layers", LAYERS_MAX);
    spec->hidden = config_size(&r, "d_model", HIDDEN_MAX);
    spec->vocab = config_size(&r, "vocab_size", VOCAB_MAX);
    spec->max_position = config_size_or(&r, "max_seq_len", POSITIONS_MAX, 2048);
    spec->n_heads = config_size(&r, "n_heads", HEADS_MAX);
    config_refuse_flag(&r, "tie_word_embeddings");
    spec->head_dim = spec->hidden / spec->n_heads;
    if (spec->head_dim == 0 || spec->head_dim > HEAD_DIM_MAX || spec->hidden % spec->n_heads != 0)
        config_refuse(&r, "d_model %u over n_heads %u gives no head size", spec->hidden,
                      spec->n_heads);
    if (r.rc != 0) return r.rc;
    spec->attn_scale = decoder_head_scale(spec->head_dim);
    spec->norm = NORM_LAYER;
    spec->norm_eps = 1e-5f;
    read_attention(&r, spec);
    read_ffn(&r, spec);
    decoder_all_layers(spec, FFN_MOE);
    return r.rc;
}

static bool tensor_name(const struct model_spec *spec, const struct tensor_ref *ref, char *buf,
                        uint32_t buf_bytes) {
    static const struct decoder_names names = {
        .layers = "transformer.blocks",
        .whole = {[TENSOR_EMBED] = "transformer.wte.weight",
                  [TENSOR_FINAL_NORM] = "transformer.norm_f.weight"},
        .in_layer = {[TENSOR_ATTN_NORM] = "norm_attn_norm.norm_1.weight",
                     [TENSOR_FFN_NORM] = "norm_attn_norm.norm_2.weight",
                     [TENSOR_Q] = "norm_attn_norm.attn.Wqkv.weight",
                     [TENSOR_K] = "norm_attn_norm.attn.Wqkv.weight",
                     [TENSOR_V] = "norm_attn_norm.attn.Wqkv.weight",
                     [TENSOR_O] = "norm_attn_norm.attn.out_proj.weight",
                     [TENSOR_ROUTER] = "ffn.router.layer.weight",
                     [TENSOR_EXPERT_GATE] = "ffn.experts.mlp.w1",
                     [TENSOR_EXPERT_UP] = "ffn.experts.mlp.v1",
                     [TENSOR_EXPERT_DOWN] = "ffn.experts.mlp.w2"},
    };
    (void)spec;
    return decoder_tensor_name(&names, ref, buf, buf_bytes);
}

static void tensor_place(const struct model_spec *spec, const struct tensor_ref *ref,
                         struct tensor_place *place) {
    uint64_t q = (uint64_t)spec->n_heads * spec->head_dim,
             kv = (uint64_t)spec->n_kv_heads * spec->head_dim;
    uint64_t before = ref->kind == TENSOR_K ? q : ref->kind == TENSOR_V ? q + kv : 0;
    switch (ref->kind) {
    case TENSOR_Q:
    case TENSOR_K:
    case TENSOR_V:
        place->dims[0] = q + 2 * kv;
        place->offset = before * spec->hidden;
        break;
    case TENSOR_EXPERT_DOWN:
        place_transposed(place);
        place_expert_rows(place, spec, ref->expert);
        break;
    case TENSOR_EXPERT_GATE:
    case TENSOR_EXPERT_UP: place_expert_rows(place, spec, ref->expert); break;
    default: break;
    }
}

const struct family family_dbrx = {
    .names = (const struct model_name[]){{"DbrxForCausalLM", "dbrx"}, {NULL, NULL}},
    .read = read,
    .tensor_name = tensor_name,
    .tensor_place = tensor_place,
};
