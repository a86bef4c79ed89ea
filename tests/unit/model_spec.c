// model_spec.c: config.json to a spec: what is understood, and that everything else is refused by
// its name.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/spec.h"
#include "tests/harness/suite.h"

static const char qwen_base[] =
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", "
    "\"attention_bias\": false,"
    "\"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"head_dim\": 32, \"hidden_act\": "
    "\"silu\","
    "\"hidden_size\": 256, \"intermediate_size\": 512, \"max_position_embeddings\": 2048,"
    "\"moe_intermediate_size\": 128, \"norm_topk_prob\": true, \"num_attention_heads\": 8, "
    "\"num_experts\": 16,"
    "\"num_experts_per_tok\": 2, \"num_hidden_layers\": 4, \"num_key_value_heads\": 2, "
    "\"rms_norm_eps\": 1e-6,"
    "\"rope_scaling\": null, \"rope_theta\": 10000.0, \"sliding_window\": null, "
    "\"tie_word_embeddings\": true,"
    "\"torch_dtype\": \"bfloat16\", \"use_sliding_window\": false, \"vocab_size\": 2048, "
    "\"eos_token_id\": 7}";

static const char mixtral_base[] = "{\"architectures\": [\"MixtralForCausalLM\"], \"model_type\": "
                                   "\"mixtral\", \"hidden_act\": \"silu\","
                                   "\"hidden_size\": 64, \"intermediate_size\": 96, "
                                   "\"max_position_embeddings\": 4096, \"num_attention_heads\": 4,"
                                   "\"num_key_value_heads\": 2, \"num_hidden_layers\": 2, "
                                   "\"num_local_experts\": 4, \"num_experts_per_tok\": 2,"
                                   "\"rms_norm_eps\": 1e-5, \"rope_theta\": 1000000.0, "
                                   "\"sliding_window\": null, \"vocab_size\": 300}";

// Parses base with the keys of patch in place of its own.
static int parse_patched(struct model_spec *out, const char *base, const char *patch,
                         const char *generation, struct err_text *e) {
    json_t *config = json_loads(base, 0, NULL), *changes = json_loads(patch, 0, NULL);
    ck_assert_msg(config != NULL && changes != NULL, "bad test text %s", patch);
    json_object_update(config, changes);
    char *text = json_dumps(config, 0);
    int rc = spec_parse(out,
                        &(struct spec_source){text, generation, strlen(text),
                                              generation == NULL ? 0 : strlen(generation)},
                        e);
    free(text);
    json_decref(config);
    json_decref(changes);
    return rc;
}

static struct model_spec accept_patched(const char *base, const char *patch) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = parse_patched(&spec, base, patch, NULL, &e);
    ck_assert_msg(rc == 0, "%s refused: %s", patch, e.text);
    return spec;
}

START_TEST(spec_reads_every_field_of_qwen3_moe) {
    struct model_spec s = accept_patched(qwen_base, "{\"bos_token_id\": 5}");
    ck_assert_str_eq(s.family, "qwen3_moe");
    ck_assert_str_eq(s.architecture, "Qwen3MoeForCausalLM");
    ck_assert_uint_eq(s.n_layers, 4);
    ck_assert_uint_eq(s.hidden, 256);
    ck_assert_uint_eq(s.vocab, 2048);
    ck_assert_uint_eq(s.n_heads, 8);
    ck_assert_uint_eq(s.n_kv_heads, 2);
    ck_assert_uint_eq(s.head_dim, 32);
    ck_assert_uint_eq(s.rope.dim, 32);
    ck_assert_uint_eq(s.max_position, 2048);
    ck_assert_uint_eq(s.sliding_window, 0);
    ck_assert_uint_eq(s.inner_expert, 128);
    ck_assert_uint_eq(s.router.n_experts, 16);
    ck_assert_uint_eq(s.router.top_k, 2);
    ck_assert_int_eq(s.router.score, ROUTER_SOFTMAX);
    ck_assert_int_eq(s.router.renorm, RENORM_L1);
    ck_assert(s.router.scale == 1.0f && s.rope.theta == 10000.0f && s.norm_eps == 1e-6f);
    ck_assert(s.attn_scale == 0.17677669f);
    ck_assert(s.qk_norm == QK_NORM_HEAD && !s.attn_bias && !s.attn_out_bias && s.tied_embeddings);
    ck_assert_int_eq(s.dtype, DTYPE_BF16);
    ck_assert_uint_eq(s.bos_id, 5);
    ck_assert_uint_eq(s.n_stop_ids, 1);
    ck_assert_uint_eq(s.stop_ids[0], 7);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(s.ffn[i], FFN_MOE);
}
END_TEST

START_TEST(spec_reads_every_field_of_mixtral) {
    struct model_spec s = accept_patched(mixtral_base, "{\"sliding_window\": 24}");
    ck_assert_str_eq(s.family, "mixtral");
    ck_assert_uint_eq(s.sliding_window, 24);
    ck_assert_uint_eq(s.head_dim, 16);
    ck_assert_uint_eq(s.inner_expert, 96);
    ck_assert_uint_eq(s.router.n_experts, 4);
    ck_assert_int_eq(s.router.renorm, RENORM_L1);
    ck_assert(s.qk_norm == QK_NORM_NONE && !s.attn_bias && !s.tied_embeddings);
    ck_assert(s.rope.theta == 1e6f && s.norm_eps == 1e-5f);
    ck_assert_int_eq(s.dtype, DTYPE_F32);
    ck_assert_uint_eq(s.bos_id, UINT32_MAX);
    ck_assert_uint_eq(s.n_stop_ids, 0);
    ck_assert_uint_eq(s.ffn[1], FFN_MOE);
}
END_TEST

START_TEST(spec_places_dense_layers_by_step_and_list) {
    struct model_spec s =
        accept_patched(qwen_base, "{\"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]}");
    const uint8_t want[] = {FFN_DENSE, FFN_MOE, FFN_DENSE, FFN_DENSE};
    ck_assert_mem_eq(s.ffn, want, sizeof want);
    ck_assert_uint_eq(s.inner_dense, 512);
}
END_TEST

// A model without experts needs none of their keys.
START_TEST(spec_takes_a_model_that_is_dense_throughout) {
    struct model_spec s =
        accept_patched(qwen_base, "{\"mlp_only_layers\": [0, 1, 2, 3], \"num_experts\": null, "
                                  "\"num_experts_per_tok\": null}");
    ck_assert_uint_eq(s.router.n_experts, 0);
}
END_TEST

START_TEST(spec_understands_newer_keys) {
    struct model_spec s = accept_patched(
        qwen_base, "{\"rope_theta\": null, \"rope_scaling\": null, \"torch_dtype\": null, "
                   "\"dtype\": \"float16\","
                   "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 500000},"
                   "\"num_experts\": null, \"num_local_experts\": 8, \"attention_bias\": true}");
    ck_assert(s.rope.theta == 500000.0f);
    ck_assert_int_eq(s.dtype, DTYPE_F16);
    ck_assert_uint_eq(s.router.n_experts, 8);
    ck_assert(s.attn_bias && s.attn_out_bias);
    accept_patched(qwen_base, "{\"rope_scaling\": {\"type\": \"default\"}}");
    accept_patched(qwen_base, "{\"architectures\": null}");
    accept_patched(qwen_base, "{\"model_type\": null}");
    // A window that no position can leave has no effect.
    s = accept_patched(qwen_base, "{\"use_sliding_window\": true, \"sliding_window\": 2048}");
    ck_assert_uint_eq(s.sliding_window, 0);
    accept_patched(qwen_base, "{\"use_sliding_window\": true}");
    accept_patched(qwen_base, "{\"a_key_of_a_fine_tuner\": {\"x\": 1}}");
}
END_TEST

// The sizes that two released models have, and the weights that follow from them, in billions.
static double parameters(const struct model_spec *s) {
    double attention = (2.0 * s->n_heads + 2.0 * s->n_kv_heads) * s->head_dim * s->hidden;
    double experts = (3.0 * s->inner_expert + 1) * s->router.n_experts * s->hidden;
    return (s->n_layers * (attention + experts) +
            (s->tied_embeddings ? 1.0 : 2.0) * s->vocab * s->hidden) /
           1e9;
}

START_TEST(spec_takes_released_models) {
    struct model_spec s =
        accept_patched(qwen_base, "{\"bos_token_id\": 151643, \"eos_token_id\": 151645, "
                                  "\"head_dim\": 128, \"hidden_size\": 2048,"
                                  "\"intermediate_size\": 6144, \"max_position_embeddings\": "
                                  "40960, \"moe_intermediate_size\": 768,"
                                  "\"num_attention_heads\": 32, \"num_experts\": 128, "
                                  "\"num_experts_per_tok\": 8, \"num_hidden_layers\": 48,"
                                  "\"num_key_value_heads\": 4, \"rope_theta\": 1000000.0, "
                                  "\"tie_word_embeddings\": false, \"vocab_size\": 151936}");
    ck_assert_double_eq_tol(parameters(&s), 30.53, 0.01);
    s = accept_patched(mixtral_base, "{\"bos_token_id\": 1, \"eos_token_id\": 2, \"hidden_size\": "
                                     "4096, \"intermediate_size\": 14336,"
                                     "\"max_position_embeddings\": 32768, \"num_attention_heads\": "
                                     "32, \"num_hidden_layers\": 32,"
                                     "\"num_key_value_heads\": 8, \"num_local_experts\": 8, "
                                     "\"tie_word_embeddings\": false, \"vocab_size\": 32000}");
    ck_assert_double_eq_tol(parameters(&s), 46.7, 0.01);
}
END_TEST

static const struct {
    const char *patch, *word; // the message must contain the word
} refused[] = {
    // Absent, and of another kind.
    {"{\"hidden_size\": null}", "hidden_size is missing"},
    {"{\"num_hidden_layers\": null}", "num_hidden_layers is missing"},
    {"{\"vocab_size\": null}", "vocab_size is missing"},
    {"{\"num_attention_heads\": null}", "num_attention_heads is missing"},
    {"{\"num_experts\": null}", "num_experts"},
    {"{\"num_experts_per_tok\": null}", "num_experts_per_tok is missing"},
    {"{\"moe_intermediate_size\": null}", "moe_intermediate_size is missing"},
    {"{\"mlp_only_layers\": [0], \"intermediate_size\": null}", "intermediate_size is missing"},
    {"{\"hidden_size\": \"256\"}", "hidden_size must be a whole number"},
    {"{\"hidden_size\": 256.5}", "hidden_size must be a whole number"},
    {"{\"hidden_size\": [256]}", "hidden_size must be a whole number"},
    {"{\"norm_topk_prob\": 1}", "norm_topk_prob must be true or false"},
    {"{\"rope_theta\": \"big\"}", "rope_theta must be a number"},
    {"{\"hidden_act\": 3}", "hidden_act must be a string"},
    {"{\"mlp_only_layers\": 3}", "mlp_only_layers must be a list"},
    {"{\"mlp_only_layers\": [4]}", "mlp_only_layers"},
    {"{\"mlp_only_layers\": [-1]}", "mlp_only_layers"},
    {"{\"mlp_only_layers\": [0.5]}", "mlp_only_layers"},
    // Out of range.
    {"{\"num_hidden_layers\": 1000000000}", "num_hidden_layers is 1000000000"},
    {"{\"num_hidden_layers\": 0}", "num_hidden_layers is 0"},
    {"{\"num_hidden_layers\": -4}", "num_hidden_layers is -4"},
    {"{\"num_hidden_layers\": 9223372036854775807}", "num_hidden_layers"},
    {"{\"hidden_size\": 65537}", "hidden_size"},
    {"{\"hidden_size\": 4294967552}", "hidden_size"},
    {"{\"vocab_size\": 0}", "vocab_size"},
    {"{\"vocab_size\": 99999999}", "vocab_size"},
    {"{\"num_attention_heads\": 2000}", "num_attention_heads"},
    {"{\"num_key_value_heads\": 0}", "num_key_value_heads"},
    {"{\"head_dim\": 0}", "head_dim is 0"},
    {"{\"head_dim\": 1024}", "head_dim"},
    {"{\"head_dim\": 33}", "head_dim 33"},
    {"{\"num_experts\": 0}", "num_experts is 0"},
    {"{\"num_experts\": 5000}", "num_experts"},
    {"{\"num_experts_per_tok\": 0}", "num_experts_per_tok"},
    {"{\"num_experts\": 64, \"num_experts_per_tok\": 33}", "num_experts_per_tok"},
    {"{\"moe_intermediate_size\": 0}", "moe_intermediate_size"},
    {"{\"decoder_sparse_step\": 0}", "decoder_sparse_step"},
    {"{\"max_position_embeddings\": 0}", "max_position_embeddings"},
    {"{\"max_position_embeddings\": 99999999}", "max_position_embeddings"},
    {"{\"rms_norm_eps\": 0}", "rms_norm_eps"},
    {"{\"rms_norm_eps\": -1e-6}", "rms_norm_eps"},
    {"{\"rms_norm_eps\": 2}", "rms_norm_eps"},
    {"{\"rope_theta\": 0}", "rope_theta"},
    {"{\"rope_theta\": -10000}", "rope_theta"},
    {"{\"rope_theta\": 1e300}", "rope_theta"},
    // Sizes that do not fit each other.
    {"{\"num_key_value_heads\": 3}",
     "num_attention_heads 8 is not a multiple of num_key_value_heads 3"},
    {"{\"num_experts_per_tok\": 17}", "num_experts_per_tok 17 is above the number of experts 16"},
    {"{\"num_experts_per_tok\": 40}", "num_experts_per_tok 40 is above the number of experts 16"},
    {"{\"head_dim\": null, \"num_attention_heads\": 7, \"num_key_value_heads\": 7}",
     "hidden_size 256"},
    {"{\"num_local_experts\": 8}", "num_experts 16 and num_local_experts 8 differ"},
    {"{\"rope_parameters\": {\"rope_theta\": 5.0}}",
     "rope_theta and rope_parameters.rope_theta differ"},
    {"{\"eos_token_id\": 2048}", "eos_token_id 2048"},
    {"{\"eos_token_id\": [1, -2]}", "eos_token_id -2"},
    {"{\"eos_token_id\": \"x\"}", "eos_token_id"},
    {"{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}",
     "eos_token_id has 17 entries"},
    {"{\"bos_token_id\": 4000000000}", "bos_token_id"},
    {"{\"bos_token_id\": 3000}", "bos_token_id 3000"},
    // Not supported.
    {"{\"architectures\": [\"SwitchTransformersForConditionalGeneration\"]}",
     "SwitchTransformersForConditionalGeneration"},
    {"{\"architectures\": []}", "architectures"},
    {"{\"architectures\": \"Qwen3MoeForCausalLM\"}", "architectures"},
    {"{\"architectures\": null, \"model_type\": null}", "architectures is missing"},
    {"{\"architectures\": null, \"model_type\": \"gpt2\"}", "gpt2"},
    {"{\"model_type\": \"mixtral\"}", "model_type \"mixtral\""},
    {"{\"hidden_act\": \"gelu\"}", "hidden_act \"gelu\""},
    {"{\"rope_scaling\": {\"rope_type\": \"ntk\", \"factor\": 4.0}}",
     "rope_scaling.rope_type \"ntk\""},
    {"{\"rope_scaling\": {\"factor\": 2}}", "rope_scaling.factor"},
    {"{\"rope_scaling\": {\"type\": \"linear\"}}", "rope_scaling: factor is missing"},
    {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": -2}}", "factor is -2"},
    {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"beta_fast\": 1}}",
     "rope_scaling.beta_fast"},
    {"{\"rope_scaling\": \"yarn\"}", "rope_scaling must be an object"},
    {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"beta_slow\": -1}}", "beta_slow"},
    {"{\"rope_parameters\": {\"rope_type\": \"llama3\"}}", "rope_parameters: factor is missing"},
    {"{\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
     "\"high_freq_factor\": 1}}",
     "high_freq_factor must be at least"},
    {"{\"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2, \"short_factor\": [1, 1]}}",
     "short_factor must be a list of 16"},
    {"{\"rope_parameters\": {\"partial_rotary_factor\": 0.5}}", "partial_rotary_factor"},
    {"{\"partial_rotary_factor\": 0.25}", "partial_rotary_factor"},
    {"{\"use_sliding_window\": true, \"sliding_window\": 1024}", "use_sliding_window"},
    {"{\"quantization_config\": {\"quant_method\": \"fp8\"}}",
     "quantization_config with quant_method \"fp8\""},
    {"{\"quantization_config\": {}}", "quantization_config"},
    {"{\"compression_config\": {\"quant_method\": \"x\"}}", "compression_config"},
    {"{\"torch_dtype\": \"float8_e4m3fn\"}", "torch_dtype \"float8_e4m3fn\""},
    {"{\"dtype\": \"int8\"}", "dtype \"int8\""},
};

START_TEST(spec_refuses_by_name) {
    struct model_spec spec, before;
    struct err_text e = {""};
    memset(&spec, 0x5a, sizeof spec);
    before = spec;
    int rc = parse_patched(&spec, qwen_base, refused[_i].patch, NULL, &e);
    ck_assert_msg(rc == ERR_FATAL_MODEL, "%s: %d", refused[_i].patch, rc);
    ck_assert_msg(strstr(e.text, refused[_i].word) != NULL, "%s: \"%s\" lacks \"%s\"",
                  refused[_i].patch, e.text, refused[_i].word);
    ck_assert_mem_eq(&spec, &before, sizeof spec);
}
END_TEST

START_TEST(spec_refuses_a_bad_mixtral_window) {
    struct model_spec spec;
    struct err_text e;
    ck_assert_int_eq(parse_patched(&spec, mixtral_base, "{\"sliding_window\": 0}", NULL, &e),
                     ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "sliding_window"));
    ck_assert_int_eq(parse_patched(&spec, mixtral_base, "{\"num_local_experts\": 1}", NULL, &e),
                     ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "num_experts_per_tok 2"));
}
END_TEST

START_TEST(spec_prefers_stop_ids_of_the_generation_config) {
    struct model_spec s;
    struct err_text e;
    ck_assert_int_eq(
        parse_patched(&s, qwen_base, "{}", "{\"eos_token_id\": [9, 11], \"bos_token_id\": 3}", &e),
        0);
    ck_assert_uint_eq(s.n_stop_ids, 2);
    ck_assert_uint_eq(s.stop_ids[1], 11);
    ck_assert_uint_eq(s.bos_id, 3);
    ck_assert_int_eq(parse_patched(&s, qwen_base, "{}", "{\"eos_token_id\": 12}", &e), 0);
    ck_assert_uint_eq(s.stop_ids[0], 12);
    ck_assert_int_eq(parse_patched(&s, qwen_base, "{}", "{\"eos_token_id\": null}", &e), 0);
    ck_assert_uint_eq(s.stop_ids[0], 7);
    ck_assert_int_eq(parse_patched(&s, qwen_base, "{}", "{\"eos_token_id\": 99999}", &e),
                     ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "eos_token_id"));
    ck_assert_int_eq(parse_patched(&s, qwen_base, "{}", "[]", &e), ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "generation_config.json"));
}
END_TEST

static const char *const broken[][2] = {
    {"", "config.json"},
    {"[]", "not a JSON object"},
    {"{\"a\": 1, \"a\": 2}", "duplicate"},
    {"{\"a\": NaN}", "config.json, line 1"},
    {"{\"hidden_size\": 1e999}", "config.json"},
    {"{\"a\": 99999999999999999999}", "config.json"},
    {"{\"a\": \"\\u0000\"}", "config.json"},
    {"{} {}", "config.json"},
    {"{\"a\": ", "config.json"},
};

START_TEST(spec_refuses_broken_json) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = spec_parse(
        &spec,
        &(struct spec_source){.config = broken[_i][0], .config_bytes = strlen(broken[_i][0])}, &e);
    ck_assert_int_eq(rc, ERR_FATAL_MODEL);
    ck_assert_msg(strstr(e.text, broken[_i][1]) != NULL, "%s: %s", broken[_i][0], e.text);
}
END_TEST

START_TEST(spec_refuses_deep_nesting) {
    char text[4096] = "{\"a\": ";
    memset(text + 6, '[', 2000);
    struct model_spec spec;
    struct err_text e = {""};
    ck_assert_int_eq(
        spec_parse(&spec, &(struct spec_source){.config = text, .config_bytes = 2006}, &e),
        ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "nested deeper"));
}
END_TEST

// What a spec from another source than a family could hold.
START_TEST(spec_check_stands_alone) {
    const struct model_spec good = accept_patched(qwen_base, "{}");
    struct err_text e;
    struct model_spec s = good;
    s.n_layers = LAYERS_MAX + 1;
    ck_assert_int_eq(spec_check(&s, &e), ERR_FATAL_MODEL);
    s = good, s.head_dim = 0;
    ck_assert_int_eq(spec_check(&s, &e), ERR_FATAL_MODEL);
    s = good, s.rope.dim = s.head_dim + 2;
    ck_assert_int_eq(spec_check(&s, &e), ERR_FATAL_MODEL);
    s = good, s.n_kv_heads = 0;
    ck_assert_int_eq(spec_check(&s, &e), ERR_FATAL_MODEL);
    s = good, s.router.scale = 0;
    ck_assert_int_eq(spec_check(&s, &e), ERR_FATAL_MODEL);
    s = good, s.ffn[0] = FFN_DENSE;
    s.inner_dense = 0;
    ck_assert_int_eq(spec_check(&s, &e), ERR_FATAL_MODEL);
    s = good, s.router.top_k = 17;
    ck_assert_int_eq(spec_check(&s, &e), ERR_FATAL_MODEL);
    ck_assert_int_eq(spec_check(&good, &e), 0);
}
END_TEST

// A file that says only its model type: enough to find the family.
static const struct family *family_of_type(const char *type) {
    char config[128];
    struct model_spec spec;
    struct err_text e = {""};
    snprintf(config, sizeof config, "{\"model_type\": \"%s\"}", type);
    struct spec_source source = {.config = config, .config_bytes = strlen(config)};
    ck_assert_int_eq(spec_parse(&spec, &source, &e), ERR_FATAL_MODEL);
    ck_assert_msg(strstr(e.text, "not supported") == NULL, "%s: %s", type, e.text);
    const struct family *const *f = family_table;
    for (; *f != NULL; f++)
        for (const struct model_name *n = (*f)->names; n->type != NULL; n++)
            if (strcmp(n->type, type) == 0) return *f;
    return NULL;
}

START_TEST(family_names_lists_every_model_type) {
    char names[512];
    snprintf(names, sizeof names, "%s", family_names());
    int n = 0, n_table = 0;
    char *rest = names;
    for (char *type = strtok_r(rest, ", ", &rest); type != NULL;
         type = strtok_r(NULL, ", ", &rest), n++) {
        const struct family *f = family_of_type(type);
        ck_assert_msg(f != NULL, "%s", type);
        char tensor[TENSOR_NAME_MAX];
        struct model_spec s = {0};
        for (int k = 0; k < TENSOR_KIND_COUNT; k++)
            (void)f->tensor_name(&s, &(struct tensor_ref){k, 3, 5}, tensor, sizeof tensor);
        ck_assert(f->tensor_name(&s, &(struct tensor_ref){TENSOR_O, 3, 5}, tensor, sizeof tensor));
        ck_assert(!f->tensor_name(&s, &(struct tensor_ref){TENSOR_O, 3, 5}, tensor, 8));
    }
    for (const struct family *const *f = family_table; *f != NULL; f++)
        for (const struct model_name *name = (*f)->names; name->type != NULL; name++) {
            // A type may stand behind two architectures.
            n_table += name == (*f)->names || strcmp(name[-1].type, name->type) != 0;
            ck_assert_ptr_nonnull(strstr(family_names(), name->type));
            ck_assert_ptr_nonnull(family_find(name->architecture));
        }
    ck_assert_int_eq(n, n_table);
    ck_assert_ptr_null(family_find("SwitchTransformersForConditionalGeneration"));
}
END_TEST

START_TEST(spec_segments_is_the_largest_power_of_two_up_to_eight) {
    ck_assert_uint_eq(spec_segments(1), 1);
    ck_assert_uint_eq(spec_segments(6), 2);
    ck_assert_uint_eq(spec_segments(32), 8);
    ck_assert_uint_eq(spec_inner_segments(160), 2);
    ck_assert_uint_eq(spec_inner_segments(128), 8);
    ck_assert_uint_eq(spec_inner_segments(100), 1);
    struct model_spec s = accept_patched(qwen_base, "{}");
    ck_assert_uint_eq(spec_attn_segments(&s), 8);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_BF16), 4 * 2 * 2 * 32 * 2);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_E4M3), 4 * 2 * 2 * 32);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_I8), 4 * 2 * 2 * (32 + 4));
}
END_TEST

// Two layers, four heads of 8 + 8 and 12 dimensions, latents of 16.
START_TEST(pages_of_latent_attention_hold_one_row_or_all_heads) {
    struct model_spec s;
    struct err_text e = {""};
    ck_assert_int_eq(spec_load(&s, TEST_DATA "/models/deepseek-v3", &e), 0);
    ck_assert(spec_has_latents(&s));
    ck_assert_uint_eq(spec_kv_heads(&s), 1);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_BF16), 2 * (16 + 8) * 2);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_I8), 2 * (16 + 8 + 8));
    ck_assert_int_eq(spec_take_mla_form(&s, MLA_EXPANDED, &e), 0);
    ck_assert(!spec_has_latents(&s));
    ck_assert_uint_eq(spec_kv_heads(&s), 4);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_BF16), 2 * 4 * (16 + 12) * 2);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_I8), 2 * 4 * (16 + 4 + 12 + 4));
    s = accept_patched(qwen_base, "{}");
    ck_assert_int_eq(spec_take_mla_form(&s, MLA_EXPANDED, &e), 0);
    ck_assert(!s.mla.expanded);
}
END_TEST

START_TEST(spec_load_reads_seedling) {
    struct model_spec s;
    struct err_text e = {""};
    ck_assert_msg(spec_load(&s, SOURCE_ROOT "/models/seedling", &e) == 0, "%s", e.text);
    ck_assert_uint_eq(s.n_stop_ids, 2);
    ck_assert_uint_eq(s.stop_ids[0], 2047);
    ck_assert_uint_eq(s.vocab, 2048);
    ck_assert_int_eq(spec_load(&s, SOURCE_ROOT "/models/none", &e), ERR_FATAL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "config.json"));
}
END_TEST

START_TEST(spec_load_survives_every_failed_allocation) {
    struct model_spec s;
    struct err_text e;
    int rc = ERR_FATAL_NOMEM;
    for (long n = 1; n < 200 && rc != 0; n++) {
        mem_fail_after(n);
        rc = spec_load(&s, SOURCE_ROOT "/models/seedling", &e);
        mem_fail_after(0);
        ck_assert(rc == 0 || rc == ERR_FATAL_NOMEM);
    }
    ck_assert_int_eq(rc, 0);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("spec");
    tcase_add_test(c, spec_reads_every_field_of_qwen3_moe);
    tcase_add_test(c, spec_reads_every_field_of_mixtral);
    tcase_add_test(c, spec_places_dense_layers_by_step_and_list);
    tcase_add_test(c, spec_takes_a_model_that_is_dense_throughout);
    tcase_add_test(c, spec_understands_newer_keys);
    tcase_add_test(c, spec_takes_released_models);
    tcase_add_loop_test(c, spec_refuses_by_name, 0, (int)(sizeof refused / sizeof *refused));
    tcase_add_test(c, spec_refuses_a_bad_mixtral_window);
    tcase_add_test(c, spec_prefers_stop_ids_of_the_generation_config);
    tcase_add_loop_test(c, spec_refuses_broken_json, 0, (int)(sizeof broken / sizeof *broken));
    tcase_add_test(c, spec_refuses_deep_nesting);
    tcase_add_test(c, spec_check_stands_alone);
    tcase_add_test(c, family_names_lists_every_model_type);
    tcase_add_test(c, spec_segments_is_the_largest_power_of_two_up_to_eight);
    tcase_add_test(c, pages_of_latent_attention_hold_one_row_or_all_heads);
    tcase_add_test(c, spec_load_reads_seedling);
    tcase_add_test(c, spec_load_survives_every_failed_allocation);
    Suite *s = suite_create("model_spec");
    suite_add_tcase(s, c);
    return suite_run(s);
}
