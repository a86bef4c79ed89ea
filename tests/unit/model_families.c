// model_families.c: what each family makes of keys that are absent, odd or hostile, and which
// tensors it leaves out. Starts from the config.json of a small checkpoint.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/spec.h"
#include "tests/harness/suite.h"

// The config.json of a checkpoint with the keys of patch in place of its own, one level deep in
// objects that both have; "absent" takes a key out.
static json_t *patched(const char *model, const char *patch) {
    char path[256];
    snprintf(path, sizeof path, TEST_DATA "/models/%s/config.json", model);
    json_t *config = json_load_file(path, 0, NULL), *changes = json_loads(patch, 0, NULL);
    ck_assert_msg(config != NULL && changes != NULL, "%s: %s", model, patch);
    json_object_update_recursive(config, changes);
    const char *key;
    json_t *value;
    json_object_foreach(changes, key, value) {
        const char *text = json_string_value(value);
        if (text != NULL && strcmp(text, "absent") == 0) json_object_del(config, key);
    }
    json_decref(changes);
    return config;
}

static int parse(struct model_spec *out, const char *model, const char *patch, struct err_text *e) {
    json_t *config = patched(model, patch);
    char *text = json_dumps(config, 0);
    int rc =
        spec_parse(out, &(struct spec_source){.config = text, .config_bytes = strlen(text)}, e);
    free(text);
    json_decref(config);
    return rc;
}

static struct model_spec accept(const char *model, const char *patch) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = parse(&spec, model, patch, &e);
    ck_assert_msg(rc == 0, "%s with %s refused: %s", model, patch, e.text);
    return spec;
}

static void refuse(const char *model, const char *patch, const char *word) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = parse(&spec, model, patch, &e);
    ck_assert_msg(rc == ERR_FATAL_MODEL && strstr(e.text, word) != NULL, "%s with %s: %d \"%s\"",
                  model, patch, rc, e.text);
}

START_TEST(dbrx_refuses_heads_of_no_size_before_it_reads_their_factors) {
    const char *word = "gives no head size";
    refuse("dbrx", "{\"d_model\": 1026, \"n_heads\": 2}", word);
    refuse("dbrx", "{\"d_model\": 4, \"n_heads\": 8}", word);
    refuse("dbrx",
           "{\"d_model\": 1024, \"n_heads\": 1, \"rope_scaling\": {\"type\": \"longrope\"}}", word);
    ck_assert_uint_eq(accept("dbrx", "{\"d_model\": 1024, \"n_heads\": 2}").head_dim, 512);
}
END_TEST

START_TEST(dbrx_divides_weights_by_the_norm_that_it_names) {
    static const struct {
        const char *p;
        enum router_renorm renorm;
    } norms[] = {{"1.0", RENORM_L1}, {"2.0", RENORM_L2}, {"null", RENORM_NONE}};
    char patch[128];
    for (int i = 0; i < 3; i++) {
        snprintf(patch, sizeof patch, "{\"ffn_config\": {\"moe_normalize_expert_weights\": %s}}",
                 norms[i].p);
        ck_assert_int_eq(accept("dbrx", patch).router.renorm, norms[i].renorm);
    }
    refuse("dbrx", "{\"ffn_config\": {\"moe_normalize_expert_weights\": 3.0}}",
           "moe_normalize_expert_weights");
}
END_TEST

// What the released text model says of its context.
START_TEST(llama4_takes_the_longest_context_as_far_as_positions_go) {
    struct model_spec s = accept(
        "llama4", "{\"max_position_embeddings\": 10485760, \"rope_scaling\": {\"factor\": 16.0, "
                  "\"high_freq_factor\": 1.0, \"low_freq_factor\": 1.0, "
                  "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}}");
    ck_assert_uint_eq(s.max_position, POSITIONS_MAX);
    ck_assert(s.rope.low == 1.0f && s.rope.high == 1.0f && s.rope.kind == ROPE_LLAMA3);
    refuse("llama", "{\"max_position_embeddings\": 10485760}", "max_position_embeddings");
}
END_TEST

START_TEST(special_ids_of_a_nested_model_may_stand_beside_its_sizes) {
    struct model_spec s = accept(
        "llama4-nested", "{\"text_config\": {\"eos_token_id\": [3, 4], \"bos_token_id\": 5}}");
    ck_assert_uint_eq(s.n_stop_ids, 2);
    ck_assert_uint_eq(s.stop_ids[1], 4);
    ck_assert_uint_eq(s.bos_id, 5);
    s = accept("llama4-nested", "{\"eos_token_id\": 9, \"text_config\": {\"eos_token_id\": [3]}}");
    ck_assert_uint_eq(s.n_stop_ids, 1);
    ck_assert_uint_eq(s.stop_ids[0], 9);
    refuse("llama4-nested", "{\"text_config\": {\"eos_token_id\": -1}}",
           "text_config: eos_token_id -1");
}
END_TEST

START_TEST(rope_scaling_counts_alone_where_there_are_two_objects) {
    struct model_spec s =
        accept("mistral", "{\"rope_theta\": 5000.0, \"rope_scaling\": {\"type\": \"linear\", "
                          "\"factor\": 2}, \"rope_parameters\": {\"rope_type\": \"yarn\", "
                          "\"factor\": 4, \"rope_theta\": 7000.0}}");
    ck_assert(s.rope.kind == ROPE_LINEAR && s.rope.factor == 2.0f && s.rope.theta == 5000.0f);
    ck_assert(s.rope.attention == 0);
    // An empty one does not.
    s = accept("mistral", "{\"rope_theta\": \"absent\", \"rope_scaling\": {}, "
                          "\"rope_parameters\": {\"rope_type\": \"default\", "
                          "\"rope_theta\": 7000.0}}");
    ck_assert(s.rope.kind == ROPE_PLAIN && s.rope.theta == 7000.0f);
}
END_TEST

// The scale of queries, from the factor that the two lengths make.
START_TEST(yarn_scales_queries_by_a_factor_that_is_not_written) {
    const char *written =
        "{\"max_position_embeddings\": 1024, \"rope_scaling\": {\"factor\": 8, \"mscale\": 1.0, "
        "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 128, \"type\": \"yarn\"}}";
    const char *derived =
        "{\"max_position_embeddings\": 1024, \"rope_scaling\": {\"factor\": null, \"mscale\": 1.0, "
        "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 128, \"type\": \"yarn\"}}";
    struct model_spec a = accept("deepseek-v3", written), b = accept("deepseek-v3", derived);
    struct model_spec plain = accept("deepseek-v3", "{\"rope_scaling\": \"absent\"}");
    ck_assert(a.attn_scale == b.attn_scale && a.attn_scale > 1.4f * plain.attn_scale);
    // Of two objects the same one counts.
    a = accept("deepseek-v3", "{\"rope_parameters\": {\"rope_type\": \"default\"}}");
    b = accept("deepseek-v3", "{}");
    ck_assert(a.rope.kind == ROPE_YARN && a.attn_scale == b.attn_scale);
}
END_TEST

#define NO_GROUPS                                                                                  \
    "\"n_group\": \"absent\", \"topk_group\": \"absent\", \"routed_scaling_factor\": \"absent\""

START_TEST(absent_keys_of_the_sigmoid_router_are_what_the_class_says) {
    struct model_spec s = accept("deepseek-v3", "{\"n_routed_experts\": 16, " NO_GROUPS "}");
    ck_assert_int_eq(s.router.groups, GROUPS_TOP2);
    ck_assert_uint_eq(s.router.n_groups, 8);
    ck_assert_uint_eq(s.router.groups_kept, 4);
    ck_assert(s.router.scale == 2.5f);
    s = accept("glm4-moe", "{" NO_GROUPS "}");
    ck_assert_int_eq(s.router.groups, GROUPS_NONE);
    ck_assert_uint_eq(s.router.n_groups, 1);
    ck_assert_uint_eq(s.router.groups_kept, 1);
    ck_assert(s.router.scale == 1.0f);
}
END_TEST

static bool leaves_out(const struct model_spec *s, const char *name) {
    return family_find(s->architecture)->leaves_out(s, name);
}

START_TEST(only_as_many_later_layers_as_the_file_says_are_left_out) {
    static const char *const models[] = {"deepseek-v3", "glm4-moe", "ernie4-5-moe", "minimax-m2"};
    static const char *const keys[] = {"num_nextn_predict_layers", "num_nextn_predict_layers",
                                       "num_nextn_predict_layers", "num_mtp_modules"};
    static const char *const values[] = {"\"absent\"", "0", "3"};
    static const uint32_t want[] = {1, 0, 3};
    char patch[128], name[64];
    for (int k = 0; k < 3; k++) {
        snprintf(patch, sizeof patch, "{\"%s\": %s}", keys[_i], values[k]);
        struct model_spec s = accept(models[_i], patch);
        for (uint32_t layer = 0; layer < s.n_layers + 5; layer++) {
            snprintf(name, sizeof name, "model.layers.%u.mlp.gate.weight", layer);
            bool later = layer >= s.n_layers && layer < s.n_layers + want[k];
            ck_assert_msg(leaves_out(&s, name) == later, "%s %s %s", models[_i], patch, name);
        }
    }
}
END_TEST

START_TEST(ernie_leaves_out_what_predicts_further_tokens) {
    struct model_spec s = accept("ernie4-5-moe", "{}");
    ck_assert(leaves_out(&s, "model.mtp_block.0.self_attn.q_proj.weight"));
    ck_assert(leaves_out(&s, "model.mtp_linear_proj.0.weight"));
    ck_assert(!leaves_out(&s, "model.norm.bias") && !leaves_out(&s, "mtp_norm.weight"));
}
END_TEST

START_TEST(kimi_k25_is_its_text_model_without_the_vision_tower) {
    struct model_spec s =
        accept("kimi-k25", "{\"text_config\": {\"num_nextn_predict_layers\": 1}}");
    ck_assert(leaves_out(&s, "vision_tower.encoder.blocks.0.wqkv.weight"));
    ck_assert(leaves_out(&s, "mm_projector.pre_norm.weight"));
    ck_assert(leaves_out(&s, "language_model.model.layers.2.mlp.gate.weight"));
    ck_assert(!leaves_out(&s, "language_model.model.layers.3.mlp.gate.weight"));
    ck_assert(!leaves_out(&s, "model.layers.2.mlp.gate.weight"));
    // The outer object says whether the head is the embedding.
    ck_assert(accept("kimi-k25", "{\"tie_word_embeddings\": true}").tied_embeddings);
    const char *inner = "{\"tie_word_embeddings\": \"absent\", \"text_config\": "
                        "{\"tie_word_embeddings\": true}}";
    ck_assert(accept("kimi-k25", inner).tied_embeddings);
    refuse("kimi-k25", "{\"text_config\": {\"num_attention_heads\": 0}}",
           "config.json: text_config: num_attention_heads is 0");
    refuse("kimi-k25", "{\"text_config\": \"absent\"}", "text_config must be an object");
    refuse("kimi-k25",
           "{\"text_config\": {\"quantization_config\": {\"quant_method\": "
           "\"compressed-tensors\"}}}",
           "quant_method \"compressed-tensors\"");
}
END_TEST

// What the two released files say.
#define GROK_1                                                                                     \
    "{\"vocab_size\": 131072, \"hidden_size\": 6144, \"intermediate_size\": 32768, "               \
    "\"num_hidden_layers\": 64, \"num_attention_heads\": 48, \"num_key_value_heads\": 8, "         \
    "\"attn_output_multiplier\": 0.08838834764831845, "                                            \
    "\"embedding_multiplier_scale\": 78.38367176906169, "                                          \
    "\"output_multiplier_scale\": 0.5773502691896257, \"max_attn_value\": 30.0, "                  \
    "\"max_position_embeddings\": 8192, \"num_experts\": 8, \"output_router_logits\": false}"
#define GROK_2                                                                                     \
    "{\"embedding_multiplier_scale\": 90.50966799187809, \"output_multiplier_scale\": 0.5, "       \
    "\"vocab_size\": 131072, \"hidden_size\": 8192, \"intermediate_size\": 32768, "                \
    "\"moe_intermediate_size\": 16384, \"max_position_embeddings\": 131072, "                      \
    "\"num_local_experts\": 8, \"num_attention_heads\": 64, \"num_key_value_heads\": 8, "          \
    "\"num_hidden_layers\": 64, \"head_dim\": 128, \"final_logit_softcapping\": 50, "              \
    "\"attn_logit_softcapping\": 30.0, \"router_logit_softcapping\": 30.0, "                       \
    "\"attn_temperature_len\": 1024, \"original_max_position_embeddings\": 8192}"

START_TEST(released_grok_files_are_read_whole) {
    struct model_spec s = accept("grok-1", GROK_1);
    ck_assert_str_eq(s.family, "grok-1");
    ck_assert(s.post_norms && s.activation == ACT_GEGLU && s.tied_embeddings);
    ck_assert(s.attn_cap == 30 && s.attn_scale == 0.08838834764831845f && s.head_dim == 128);
    ck_assert(s.scale.embedding == 78.38367176906169f && s.scale.logits == 0.5773502691896257f);
    ck_assert(s.router.logit_cap == 0 && s.shared.inner == 0 && s.scale.logits_cap == 0);
    s = accept("grok-2", GROK_2);
    ck_assert_str_eq(s.family, "grok-2");
    ck_assert(s.rope.kind == ROPE_PLAIN && s.rope.theta == 208533496.0f && !s.tied_embeddings);
    ck_assert(s.attn_cap == 30 && s.router.logit_cap == 30 && s.scale.logits_cap == 50);
    ck_assert(s.temperature.length == 1024 && s.temperature.floor == 0);
    ck_assert(s.shared.inner == 32768 && s.inner_expert == 16384 && s.shared.sum == sqrtf(0.5f));
    s = accept("grok-2", "{\"residual_moe\": false, \"attn_temperature_len\": -1}");
    ck_assert(s.shared.inner == 0 && s.shared.sum == 0 && s.temperature.length == 0);
}
END_TEST

START_TEST(grok_refuses_what_programs_read_differently) {
    refuse("grok-1", "{\"attn_output_multiplier\": \"absent\"}",
           "attn_output_multiplier is missing");
    refuse("grok-1", "{\"max_attn_value\": -1}", "max_attn_value");
    refuse("grok-2", "{\"rope_type\": \"yarn\"}", "rope_type \"yarn\"");
    refuse("grok-2", "{\"sliding_window_size\": 4096}", "sliding_window_size");
    refuse("grok-2", "{\"global_attn_every_n\": 2}", "global_attn_every_n");
    refuse("grok-2", "{\"attn_output_multiplier\": 0.1}", "attn_output_multiplier");
    refuse("grok-2", "{\"attn_temperature_len\": 1}", "attn_temperature_len is 1");
    refuse("grok-2", "{\"rope_rotate_half_dims\": true}", "rope_rotate_half_dims");
}
END_TEST

START_TEST(grok_takes_gelu_and_no_other_activation) {
    static const char *const models[] = {"grok-1", "grok-2"};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(accept(models[i], "{\"hidden_act\": \"gelu\"}").activation, ACT_GEGLU);
        accept(models[i], "{\"hidden_act\": \"gelu_pytorch_tanh\"}");
        accept(models[i], "{\"hidden_act\": \"gelu_new\"}");
        accept(models[i], "{\"hidden_act\": null}");
        refuse(models[i], "{\"hidden_act\": \"silu\"}", "hidden_act \"silu\"");
        refuse(models[i], "{\"hidden_act\": 3}", "hidden_act");
    }
    refuse("tiny-mixtral", "{\"hidden_act\": \"gelu\"}", "hidden_act \"gelu\"");
}
END_TEST

START_TEST(an_absent_window_is_the_default_and_null_is_none) {
    ck_assert_uint_eq(accept("mistral", "{\"sliding_window\": \"absent\"}").sliding_window, 4096);
    ck_assert_uint_eq(accept("mistral", "{\"sliding_window\": null}").sliding_window, 0);
    ck_assert_uint_eq(accept("mistral", "{\"sliding_window\": 24}").sliding_window, 24);
    ck_assert_uint_eq(accept("tiny-mixtral", "{\"sliding_window\": \"absent\"}").sliding_window, 0);
    const char *absent = "{\"use_sliding_window\": true, \"max_position_embeddings\": 8192, "
                         "\"sliding_window\": \"absent\"}";
    refuse("qwen2", absent, "sliding_window 4096");
    accept("qwen2", "{\"use_sliding_window\": true, \"sliding_window\": null}");
}
END_TEST

START_TEST(a_shared_expert_without_layers_for_it_has_a_width_that_is_bounded) {
    refuse("deepseek-moe",
           "{\"first_k_dense_replace\": 2, \"n_shared_experts\": 4, "
           "\"moe_intermediate_size\": 1000000}",
           "the shared expert's width is 4000000");
}
END_TEST

START_TEST(sizes_of_sparse_attention_that_do_not_fit_are_refused_by_name) {
    refuse("deepseek-v32", "{\"index_topk\": 0}", "index_topk is 0");
    refuse("deepseek-v32", "{\"index_head_dim\": 5}", "index_head_dim is 5, not within 6");
    refuse("deepseek-v32", "{\"index_head_dim\": 100000}", "index_head_dim");
    refuse("deepseek-v32", "{\"index_n_heads\": 100000}", "index_n_heads");
    refuse("deepseek-v32", "{\"index_n_heads\": \"four\"}", "index_n_heads");
    refuse("deepseek-v32", "{\"index_topk\": 4000000000}", "index_topk");
    refuse("deepseek-v32", "{\"q_lora_rank\": null}", "q_lora_rank");
    refuse("deepseek-v32", "{\"indexer_rope_interleave\": true}", "must be false");
    refuse("glm5", "{\"indexer_rope_interleave\": false}", "must be true");
    struct model_spec s =
        accept("deepseek-v32", "{\"index_topk\": \"absent\", \"index_n_heads\": \"absent\", "
                               "\"index_head_dim\": \"absent\"}");
    ck_assert_uint_eq(s.indexer.top_k, 2048);
    ck_assert_uint_eq(s.indexer.n_heads, 64);
    ck_assert_uint_eq(s.indexer.dim, 128);
    ck_assert(!s.indexer.interleaved && accept("glm5", "{}").indexer.interleaved);
    ck_assert_uint_eq(accept("deepseek-v3", "{\"index_topk\": 5}").indexer.top_k, 0);
}
END_TEST

static void expect_shared(const char *patch, const char *want) {
    struct model_spec s = accept("glm5", patch);
    for (uint32_t i = 0; i < s.n_layers; i++)
        ck_assert_msg(((s.layer_flags[i] & LAYER_SAME_KEYS) != 0) == (want[i] == 'S'), "%s: %u",
                      patch, i);
}

START_TEST(layers_that_share_chosen_keys_are_named_in_four_ways) {
    expect_shared("{\"index_topk_freq\": \"absent\"}", "FFFF");
    expect_shared("{\"index_topk_freq\": 2}", "FFSF");
    expect_shared("{\"index_topk_freq\": 4, \"index_skip_topk_offset\": 1}", "FSSS");
    expect_shared("{\"index_topk_pattern\": \"FSSF\"}", "FSSF");
    expect_shared("{\"indexer_types\": [\"full\", \"full\", \"full\", \"shared\"]}", "FFFS");
    expect_shared("{\"index_topk_pattern\": [\"full\", \"shared\", \"full\", \"shared\"]}", "FSFS");
    expect_shared("{\"index_topk_freq\": 1, \"index_skip_topk_offset\": 0}", "FFFF");
    expect_shared("{\"index_topk_freq\": 0}", "FFFF");
    refuse("glm5", "{\"index_topk_freq\": 2, \"index_skip_topk_offset\": 0}",
           "the first layer has none before it");
    refuse("glm5", "{\"index_topk_pattern\": [\"full\", \"S\", \"full\", \"full\"]}",
           "index_topk_pattern has an entry");
    refuse("glm5", "{\"index_topk_pattern\": [\"full\"]}", "index_topk_pattern must be a list");
    refuse("glm5", "{\"index_topk_pattern\": 4}", "index_topk_pattern must be a list");
    refuse("glm5", "{\"index_skip_topk_offset\": -1}", "index_skip_topk_offset");
    refuse("glm5", "{\"index_topk_pattern\": \"SFFF\"}", "the first layer has none before it");
    refuse("glm5", "{\"index_topk_pattern\": \"FFF\"}", "index_topk_pattern");
    refuse("glm5", "{\"index_topk_pattern\": \"FFFX\"}", "index_topk_pattern");
    refuse("glm5", "{\"indexer_types\": [\"full\"]}", "indexer_types");
    refuse("glm5", "{\"indexer_types\": [\"full\", 3, \"full\", \"full\"]}", "indexer_types");
    refuse("glm5", "{\"indexer_types\": [\"full\", \"half\", \"full\", \"full\"]}", "neither");
}
END_TEST

START_TEST(layers_with_experts_may_be_named_one_by_one) {
    struct model_spec s =
        accept("glm5", "{\"mlp_layer_types\": [\"sparse\", \"dense\", \"sparse\", \"dense\"]}");
    ck_assert(s.ffn[0] == FFN_MOE && s.ffn[1] == FFN_DENSE && s.ffn[2] == FFN_MOE);
    refuse("glm5", "{\"mlp_layer_types\": [\"sparse\"]}", "mlp_layer_types");
    refuse("glm5", "{\"mlp_layer_types\": [\"sparse\", \"odd\", \"sparse\", \"dense\"]}",
           "neither");
}
END_TEST

START_TEST(sparse_attention_runs_absorbed_only) {
    struct model_spec s = accept("deepseek-v32", "{}");
    struct err_text e = {""};
    ck_assert_int_eq(spec_take_mla_form(&s, MLA_EXPANDED, &e), ERR_FATAL_CONFIG);
    ck_assert(strstr(e.text, "mla-form expanded") && strstr(e.text, "DeepseekV32ForCausalLM"));
    ck_assert_int_eq(spec_take_mla_form(&s, MLA_ABSORBED, &e), 0);
    // Two layers of 20 + 6, and 14 of the index.
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_BF16), 2 * (26 + 14) * 2);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_I8), 2 * (26 + 8 + 14 + 4));
}
END_TEST

START_TEST(layers_that_share_a_choice_have_no_index_keys) {
    struct model_spec s = accept("glm5", "{}");
    uint32_t n = 0;
    for (uint32_t i = 0; i < s.n_layers; i++)
        n += spec_layer_chooses(&s, i) ? 1 : 0;
    ck_assert(n > 0 && n < s.n_layers);
    ck_assert_uint_eq(spec_kv_token_bytes(&s, DTYPE_BF16),
                      (s.n_layers * (s.mla.kv_rank + s.rope.dim) + n * s.indexer.dim) * 2);
    s = accept("deepseek-v3", "{}");
    ck_assert(!spec_layer_chooses(&s, 0));
    ck_assert_uint_eq(spec_index_row_bytes(&s, 0, DTYPE_BF16), 0);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("families");
    tcase_add_test(c, dbrx_divides_weights_by_the_norm_that_it_names);
    tcase_add_test(c, dbrx_refuses_heads_of_no_size_before_it_reads_their_factors);
    tcase_add_test(c, llama4_takes_the_longest_context_as_far_as_positions_go);
    tcase_add_test(c, special_ids_of_a_nested_model_may_stand_beside_its_sizes);
    tcase_add_test(c, rope_scaling_counts_alone_where_there_are_two_objects);
    tcase_add_test(c, yarn_scales_queries_by_a_factor_that_is_not_written);
    tcase_add_test(c, absent_keys_of_the_sigmoid_router_are_what_the_class_says);
    tcase_add_loop_test(c, only_as_many_later_layers_as_the_file_says_are_left_out, 0, 4);
    tcase_add_test(c, ernie_leaves_out_what_predicts_further_tokens);
    tcase_add_test(c, kimi_k25_is_its_text_model_without_the_vision_tower);
    tcase_add_test(c, released_grok_files_are_read_whole);
    tcase_add_test(c, grok_refuses_what_programs_read_differently);
    tcase_add_test(c, grok_takes_gelu_and_no_other_activation);
    tcase_add_test(c, an_absent_window_is_the_default_and_null_is_none);
    tcase_add_test(c, a_shared_expert_without_layers_for_it_has_a_width_that_is_bounded);
    tcase_add_test(c, sizes_of_sparse_attention_that_do_not_fit_are_refused_by_name);
    tcase_add_test(c, layers_that_share_chosen_keys_are_named_in_four_ways);
    tcase_add_test(c, layers_with_experts_may_be_named_one_by_one);
    tcase_add_test(c, sparse_attention_runs_absorbed_only);
    tcase_add_test(c, layers_that_share_a_choice_have_no_index_keys);
    Suite *s = suite_create("model_families");
    suite_add_tcase(s, c);
    return suite_run(s);
}
