// model_hybrid.c: what the families with recurrent layers read and refuse, by name. Starts from the
// config.json of a small checkpoint.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/legal.h"
#include "common/model/spec.h"
#include "tests/harness/suite.h"

static json_t *config_of(const char *model) {
    char path[256];
    snprintf(path, sizeof path, TEST_DATA "/models/%s/config.json", model);
    json_t *config = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(config);
    return config;
}

// One key is set or (NULL) taken out.
static void put(json_t *object, const char *key, const char *value) {
    if (value == NULL)
        json_object_del(object, key);
    else
        json_object_set_new(object, key, json_loads(value, JSON_DECODE_ANY, NULL));
}

// Of the text model.
static json_t *sizes_of(json_t *config) {
    json_t *text = json_object_get(config, "text_config");
    return text != NULL ? text : config;
}

static int parse_config(struct model_spec *out, json_t *config, struct err_text *e) {
    char *bytes = json_dumps(config, 0);
    int rc =
        spec_parse(out, &(struct spec_source){.config = bytes, .config_bytes = strlen(bytes)}, e);
    free(bytes);
    json_decref(config);
    return rc;
}

// The config.json of a checkpoint with one key of the text model changed.
static int parse(struct model_spec *out, const char *model, const char *key, const char *value,
                 struct err_text *e) {
    json_t *config = config_of(model);
    put(sizes_of(config), key, value);
    return parse_config(out, config, e);
}

static struct model_spec accept(const char *model, const char *key, const char *value) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = parse(&spec, model, key, value, &e);
    ck_assert_msg(rc == 0, "%s with %s refused: %s", model, key, e.text);
    return spec;
}

static void refuse(const char *model, const char *key, const char *value, const char *words) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = parse(&spec, model, key, value, &e);
    ck_assert_msg(rc == ERR_FATAL_MODEL && strstr(e.text, words) != NULL, "%s with %s: %d \"%s\"",
                  model, key, rc, e.text);
}

static const char *const models[] = {"qwen3-next", "qwen3-5-moe", "qwen3-5-moe-text", "qwen3-5"};

START_TEST(every_size_of_recurrent_layers_is_bounded_by_name) {
    static const char *const keys[] = {"linear_conv_kernel_dim",
                                       "linear_num_key_heads",
                                       "linear_num_value_heads",
                                       "linear_key_head_dim",
                                       "linear_value_head_dim",
                                       "num_key_value_heads",
                                       "head_dim"};
    static const char *const values[] = {NULL, "0", "-1", "1048577", "4294967297", "\"4\"", "1.5"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++)
                refuse(models[m], keys[k], values[v], keys[k]);
    refuse("qwen3-next", "linear_conv_kernel_dim", "1", "linear_conv_kernel_dim is 1");
    refuse("qwen3-next", "linear_conv_kernel_dim", "17", "linear_conv_kernel_dim");
    refuse("qwen3-next", "linear_num_value_heads", "7",
           "linear_num_value_heads 7 is not a multiple of linear_num_key_heads 2");
}
END_TEST

START_TEST(kinds_of_layers_come_from_the_list_or_the_interval) {
    struct model_spec s = accept("qwen3-next", "full_attention_interval", "4");
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(spec_layer_recurrent(&s, i) == (i != 3));
    s = accept(
        "qwen3-next", "layer_types",
        "[\"full_attention\", \"linear_attention\", \"full_attention\", \"full_attention\"]");
    ck_assert_uint_eq(spec_recurrent_layers(&s), 1);
    ck_assert(spec_layer_recurrent(&s, 1));
    // One interval for all, and no list at all.
    s = accept("qwen3-5", "layer_types", "[\"full_attention\", \"full_attention\"]");
    ck_assert_uint_eq(spec_recurrent_layers(&s), 0);
    ck_assert_uint_eq(spec_state_bytes(&s), 0);
    refuse("qwen3-5", "layer_types", "[\"full_attention\"]", "layer_types must be a list of 2");
    refuse("qwen3-5", "layer_types", "{}", "layer_types must be a list");
    refuse("qwen3-5", "layer_types", "[\"full_attention\", 1]", "layer_types[1]");
    refuse("qwen3-5", "layer_types", "[\"sliding_attention\", \"full_attention\"]",
           "layer_types[0]");
    refuse("qwen3-5", "layer_types", "[\"linear_attention\", \"linear_attention\"]",
           "layer_types or full_attention_interval leaves no layer with full_attention");
    refuse("qwen3-next", "full_attention_interval", "0", "full_attention_interval");
}
END_TEST

START_TEST(keys_that_would_change_the_answer_are_refused) {
    refuse("qwen3-5-moe", "attn_output_gate", "false", "attn_output_gate");
    refuse("qwen3-5-moe", "output_gate_type", "\"sigmoid\"", "output_gate_type \"sigmoid\"");
    accept("qwen3-5-moe", "output_gate_type", "\"swish\"");
    accept("qwen3-next", "output_gate_type", "\"silu\"");
    refuse("qwen3-next", "hidden_act", "\"gelu\"", "hidden_act");
    refuse("qwen3-5-moe", "tie_word_embeddings", "true", "tie_word_embeddings");
    refuse("qwen3-next", "rope_scaling",
           "{\"rope_type\": \"default\", \"mrope_section\": [1, 1, 1]}", "mrope_section");
    refuse("qwen3-5-moe", "rope_parameters", "{\"rope_type\": \"default\", \"other\": 1}", "other");
    refuse("qwen3-next", "quantization_config", "{\"quant_method\": \"fp8\"}", "fp8");
}
END_TEST

// Whether the embedding is tied, when the whole model and its text model say so of it; -1 when that
// is refused.
static int tied(const char *whole, const char *text) {
    struct model_spec spec;
    struct err_text e = {""};
    json_t *config = config_of("qwen3-5-moe");
    put(config, "tie_word_embeddings", whole);
    put(sizes_of(config), "tie_word_embeddings", text);
    if (parse_config(&spec, config, &e) == 0) return spec.tied_embeddings;
    ck_assert_msg(strstr(e.text, "tie_word_embeddings") != NULL, "%s", e.text);
    return -1;
}

START_TEST(the_whole_model_says_whether_its_embedding_is_tied) {
    ck_assert_int_eq(tied("true", "true"), 1);
    ck_assert_int_eq(tied("true", NULL), 1);
    ck_assert_int_eq(tied("true", "false"), -1);
    ck_assert_int_eq(tied("false", "true"), -1);
    ck_assert_int_eq(tied("\"yes\"", NULL), -1);
    ck_assert_int_eq(tied(NULL, "true"), 0);
    ck_assert_int_eq(tied("null", "true"), 0);
    ck_assert_int_eq(tied(NULL, NULL), 0);
}
END_TEST

// The released files say it beside the sizes of the text model only.
START_TEST(the_type_of_weights_may_stand_beside_the_sizes) {
    ck_assert_int_eq(accept("qwen3-5-moe", "torch_dtype", NULL).dtype, DTYPE_F32);
    ck_assert_int_eq(accept("qwen3-5-moe", "torch_dtype", "\"float16\"").dtype, DTYPE_F16);
    ck_assert_int_eq(accept("qwen3-5-moe", "dtype", "\"float16\"").dtype, DTYPE_F16);
    refuse("qwen3-5-moe", "dtype", "\"int8\"", "text_config: dtype \"int8\" is not supported");
    // What the whole model says counts.
    ck_assert_int_eq(accept("kimi-k25", "torch_dtype", "\"float16\"").dtype, DTYPE_BF16);
}
END_TEST

START_TEST(absent_keys_are_what_the_class_says) {
    ck_assert_int_eq(accept("qwen3-next", "norm_topk_prob", NULL).router.renorm, RENORM_L1);
    ck_assert_int_eq(accept("qwen3-next", "norm_topk_prob", "false").router.renorm, RENORM_NONE);
    ck_assert_uint_eq(accept("qwen3-next", "partial_rotary_factor", NULL).rope.dim, 4);
    ck_assert_uint_eq(accept("qwen3-5-moe-text", "rope_parameters", NULL).rope.dim, 4);
}
END_TEST

START_TEST(what_predicts_further_tokens_and_sees_is_left_out) {
    struct model_spec s = accept("qwen3-next", "bos_token_id", "1");
    const struct family *f = family_find(s.architecture);
    ck_assert(f->leaves_out(&s, "mtp.layers.0.self_attn.q_proj.weight"));
    ck_assert(!f->leaves_out(&s, "model.mtp.fc.weight") && !f->leaves_out(&s, "mtpx.weight"));
    s = accept("qwen3-5-moe", "bos_token_id", "1");
    f = family_find(s.architecture);
    ck_assert(f->leaves_out(&s, "mtp.fc.weight"));
    ck_assert(f->leaves_out(&s, "model.visual.blocks.0.attn.qkv.weight"));
    ck_assert(!f->leaves_out(&s, "model.language_model.layers.9.mlp.gate.weight"));
}
END_TEST

static void refuse_layout(const struct model_spec *s, struct layout l, const char *words) {
    struct err_text e = {""};
    ck_assert_int_eq(legal_check(s, &l, &e), ERR_FATAL_CONFIG);
    ck_assert_msg(strstr(e.text, words) != NULL, "\"%s\" does not say %s", e.text, words);
}

START_TEST(layouts_that_would_cut_key_heads_or_leave_a_stage_without_pages_are_refused) {
    struct err_text e = {""};
    struct model_spec s = accept("qwen3-next", "bos_token_id", "1"); // every second layer attends
    const struct layout stages = {.n_ranks = 2, .pp = 2, .dp = 1, .tp = 1, .ep = 1, .etp = 1},
                        heads = {.n_ranks = 2, .pp = 1, .dp = 1, .tp = 2, .ep = 2, .etp = 1},
                        four = {.n_ranks = 4, .pp = 1, .dp = 1, .tp = 4, .ep = 4, .etp = 1};
    ck_assert_int_eq(legal_check(&s, &stages, &e), 0);
    ck_assert_int_eq(legal_check(&s, &heads, &e), 0);
    ck_assert_uint_eq(legal_tp_max(&s), 2);
    refuse_layout(&s, four,
                  "tensor parallel 4 does not divide the 2 key heads of the model's recurrent "
                  "layers; the nearest layouts are pp 1 dp 2 tp 2 ep 4 etp 1 with 4 workers, and ");
    refuse_layout(&s, (struct layout){.n_ranks = 4, .pp = 4, .dp = 1, .tp = 1, .ep = 1, .etp = 1},
                  "stage 0 would have recurrent layers only");
    s.delta.n_k_heads = 4;
    s.delta.n_v_heads = 12;
    ck_assert_int_eq(legal_check(&s, &four, &e), 0);
    ck_assert_uint_eq(legal_tp_max(&s), 4);
    s = accept("qwen3-5-moe", "bos_token_id", "1"); // three key heads
    ck_assert_uint_eq(legal_tp_max(&s), 1);
    refuse_layout(&s, heads, "tensor parallel 2 does not divide the 3 key heads");
    // The numbers of recurrent layers count where there are some.
    s = accept("qwen3-5", "layer_types", "[\"full_attention\", \"full_attention\"]");
    s.delta.n_k_heads = 3;
    ck_assert_int_eq(legal_check(&s, &heads, &e), 0);
    ck_assert_uint_eq(legal_tp_max(&s), 4);
}
END_TEST

START_TEST(recurrent_layers_go_with_no_hyper_connections) {
    struct model_spec spec = accept("qwen3-next", "hidden_act", "\"silu\"");
    struct err_text e = {""};
    ck_assert_int_eq(spec_check(&spec, &e), 0);
    spec.hyper = (struct hyper_spec){.n = 2, .rounds = 1, .eps = 1e-6f};
    ck_assert_int_eq(spec_check(&spec, &e), ERR_FATAL_MODEL);
    ck_assert_msg(strstr(e.text, "hc_mult 2") != NULL, "%s", e.text);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("hybrid");
    tcase_add_test(c, layouts_that_would_cut_key_heads_or_leave_a_stage_without_pages_are_refused);
    tcase_add_test(c, every_size_of_recurrent_layers_is_bounded_by_name);
    tcase_add_test(c, kinds_of_layers_come_from_the_list_or_the_interval);
    tcase_add_test(c, keys_that_would_change_the_answer_are_refused);
    tcase_add_test(c, the_whole_model_says_whether_its_embedding_is_tied);
    tcase_add_test(c, the_type_of_weights_may_stand_beside_the_sizes);
    tcase_add_test(c, absent_keys_are_what_the_class_says);
    tcase_add_test(c, recurrent_layers_go_with_no_hyper_connections);
    tcase_add_test(c, what_predicts_further_tokens_and_sees_is_left_out);
    Suite *s = suite_create("model_hybrid");
    suite_add_tcase(s, c);
    return suite_run(s);
}
