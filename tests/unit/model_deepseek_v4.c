// model_deepseek_v4.c: what DeepSeek-V4's config.json says in the released spelling and in that of
// transformers, what is refused by name, and the three forms of its checkpoints.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/checkpoint.h"
#include "common/model/legal.h"
#include "tests/harness/folder_copy.h"
#include "tests/harness/suite.h"

#define MODELS TEST_DATA "/models/"

// The released file of DeepSeek-V4-Flash, of a conversion to BF16.
static const char flash[] =
    "{\"architectures\": [\"DeepseekV4ForCausalLM\"], \"model_type\": \"deepseek_v4\", "
    "\"attention_bias\": false, \"bos_token_id\": 0, \"eos_token_id\": 1, \"hc_eps\": 1e-06, "
    "\"hc_mult\": 4, \"hc_sinkhorn_iters\": 20, \"head_dim\": 512, \"hidden_act\": \"silu\", "
    "\"hidden_size\": 4096, \"index_head_dim\": 128, \"index_n_heads\": 64, \"index_topk\": 512, "
    "\"max_position_embeddings\": 1048576, \"moe_intermediate_size\": 2048, "
    "\"n_routed_experts\": 256, \"n_shared_experts\": 1, \"norm_topk_prob\": true, "
    "\"num_attention_heads\": 64, \"num_experts_per_tok\": 6, \"num_hidden_layers\": 43, "
    "\"num_hash_layers\": 3, \"num_key_value_heads\": 1, \"num_nextn_predict_layers\": 1, "
    "\"o_groups\": 8, \"o_lora_rank\": 1024, \"q_lora_rank\": 1024, \"qk_rope_head_dim\": 64, "
    "\"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"beta_fast\": 32, \"beta_slow\": 1, "
    "\"factor\": 16, \"original_max_position_embeddings\": 65536, \"type\": \"yarn\"}, "
    "\"rope_theta\": 10000, \"routed_scaling_factor\": 1.5, \"scoring_func\": \"sqrtsoftplus\", "
    "\"sliding_window\": 128, \"swiglu_limit\": 10.0, \"tie_word_embeddings\": false, "
    "\"topk_method\": \"noaux_tc\", \"torch_dtype\": \"bfloat16\", \"vocab_size\": 129280, "
    "\"compress_rope_theta\": 160000, \"compress_ratios\": [0, 0, 4, 128, 4, 128, 4, 128, 4, 128, "
    "4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, "
    "128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 0]}";

static int parse(struct model_spec *out, json_t *config, struct err_text *e) {
    char *bytes = json_dumps(config, 0);
    int rc =
        spec_parse(out, &(struct spec_source){.config = bytes, .config_bytes = strlen(bytes)}, e);
    free(bytes);
    json_decref(config);
    return rc;
}

// Keys of patch in place of the file's own; null takes a key out.
static json_t *patched(const char *patch) {
    json_t *config = json_loads(flash, 0, NULL), *changes = json_loads(patch, 0, NULL), *value;
    const char *key;
    ck_assert(config != NULL);
    ck_assert_msg(changes != NULL, "%s", patch);
    json_object_foreach(changes, key, value) {
        if (json_is_null(value))
            json_object_del(config, key);
        else
            json_object_set(config, key, value);
    }
    json_decref(changes);
    return config;
}

static struct model_spec accept(const char *patch) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = parse(&spec, patched(patch), &e);
    ck_assert_msg(rc == 0, "%s refused: %s", patch, e.text);
    return spec;
}

static void refuse(const char *patch, const char *words) {
    struct model_spec spec;
    struct err_text e = {""};
    int rc = parse(&spec, patched(patch), &e);
    ck_assert_msg(rc == ERR_FATAL_MODEL && strstr(e.text, words) != NULL, "%s: %d \"%s\"", patch,
                  rc, e.text);
}

START_TEST(the_released_file_says_what_each_layer_is) {
    struct model_spec s = accept("{}");
    for (uint32_t i = 0; i < 43; i++) {
        uint8_t kind = i < 2 ? 0 : i % 2 == 0 ? LAYER_CSA : LAYER_HCA;
        ck_assert_uint_eq(s.layer_flags[i], kind | (i < 3 ? LAYER_HASH : 0));
        ck_assert_uint_eq(s.ffn[i], FFN_MOE);
    }
    ck_assert(s.rope.dim == 64 && s.rope.kind == ROPE_PLAIN && s.rope.theta == 10000.0f);
    ck_assert(s.compress.rope.dim == 64 && s.compress.rope.kind == ROPE_YARN);
    ck_assert(s.compress.rope.theta == 160000.0f && s.compress.rope.factor == 16.0f);
    ck_assert(s.compress.rope.attention == 0 && s.compress.rope.original_position == 65536);
    ck_assert(s.compress.csa_rate == 4 && s.compress.hca_rate == 128 && s.compress.top_k == 512);
    ck_assert(s.hyper.n == 4 && s.hyper.rounds == 20 && s.act_limit == 10.0f && s.sinks);
    ck_assert(s.joint.q_rank == 1024 && s.joint.o_groups == 8 && s.joint.o_rank == 1024);
}
END_TEST

// What transformers makes of the released file when it writes it again.
START_TEST(both_spellings_say_the_same) {
    struct model_spec released = accept("{}");
    json_t *config = patched(
        "{\"rope_scaling\": null, \"qk_rope_head_dim\": 64, \"num_hash_layers\": null, "
        "\"compress_ratios\": null, \"partial_rotary_factor\": 0.125, \"compress_rates\": "
        "{\"compressed_sparse_attention\": 4, \"heavily_compressed_attention\": 128}, "
        "\"rope_parameters\": {\"main\": {\"rope_type\": \"default\", \"rope_theta\": 10000, "
        "\"partial_rotary_factor\": 0.125}, \"compress\": {\"rope_type\": \"yarn\", "
        "\"rope_theta\": 160000, \"partial_rotary_factor\": 0.125, \"factor\": 16, "
        "\"beta_fast\": 32, \"beta_slow\": 1, \"original_max_position_embeddings\": 65536, "
        "\"attention_factor\": 1.0}}}");
    json_t *types = json_array(), *networks = json_array();
    for (uint32_t i = 0; i < 43; i++) {
        json_array_append_new(types, json_string(i < 2        ? "sliding_attention"
                                                 : i % 2 == 0 ? "compressed_sparse_attention"
                                                              : "heavily_compressed_attention"));
        json_array_append_new(networks, json_string(i < 3 ? "hash_moe" : "moe"));
    }
    json_object_set_new(config, "layer_types", types);
    json_object_set_new(config, "mlp_layer_types", networks);
    struct model_spec written;
    struct err_text e = {""};
    ck_assert_msg(parse(&written, config, &e) == 0, "%s", e.text);
    written.compress.rope.attention = 0; // a factor of 1 is none
    ck_assert_mem_eq(&written.compress.rope, &released.compress.rope, sizeof released.rope);
    ck_assert_mem_eq(&written.rope, &released.rope, sizeof released.rope);
    ck_assert_mem_eq(written.layer_flags, released.layer_flags, sizeof released.layer_flags);
    ck_assert_uint_eq(written.compress.hca_rate, released.compress.hca_rate);
}
END_TEST

START_TEST(absent_lists_are_what_the_class_says) {
    struct model_spec s = accept("{\"compress_ratios\": null, \"num_hash_layers\": null}");
    ck_assert_uint_eq(s.layer_flags[0], LAYER_HCA | LAYER_HASH);
    ck_assert_uint_eq(s.layer_flags[1], LAYER_HCA | LAYER_HASH);
    ck_assert_uint_eq(s.layer_flags[2], LAYER_HCA | LAYER_HASH);
    ck_assert_uint_eq(s.layer_flags[3], LAYER_CSA);
    ck_assert_uint_eq(s.layer_flags[4], LAYER_HCA);
    ck_assert_uint_eq(accept("{\"compress_rate_hca\": 64}").compress.hca_rate, 64);
}
END_TEST

START_TEST(what_would_change_the_answer_is_refused_by_name) {
    static const char *const cases[][2] = {
        {"{\"quantization_config\": {\"quant_method\": \"fp8\"}}", "\"fp8\" is not supported"},
        {"{\"compress_ratios\": [0, 4]}", "compress_ratios must be a list of num_hidden_layers 43"},
        {"{\"num_hidden_layers\": 2, \"compress_ratios\": [0, 8]}", "compress_ratios[1]"},
        {"{\"num_hidden_layers\": 1, \"layer_types\": [\"full_attention\"]}", "layer_types[0]"},
        {"{\"num_hidden_layers\": 1, \"mlp_layer_types\": [\"dense\"]}", "mlp_layer_types[0]"},
        {"{\"compress_rates\": [4]}", "compress_rates must be an object"},
        {"{\"compress_rates\": {}}", "compressed_sparse_attention is missing"},
        {"{\"compress_rate_csa\": 3}", "(compress_rate_csa) 3 must divide 16"},
        {"{\"num_key_value_heads\": 2}", "num_key_value_heads must be 1"},
        {"{\"n_shared_experts\": 2}", "n_shared_experts"},
        {"{\"norm_topk_prob\": false}", "norm_topk_prob"},
        {"{\"scoring_func\": \"softmax\"}", "scoring_func"},
        {"{\"swiglu_limit\": 0}", "swiglu_limit"},
        {"{\"o_groups\": 7}", "o_groups 7"},
        {"{\"hc_mult\": 9}", "hc_mult"},
        {"{\"hc_eps\": -1}", "hc_eps"},
        {"{\"hc_sinkhorn_iters\": 0}", "hc_sinkhorn_iters"},
        {"{\"index_head_dim\": 32}", "index_head_dim is 32"},
        {"{\"attention_bias\": true}", "attention_bias"},
        {"{\"mlp_bias\": true}", "mlp_bias"},
        {"{\"original_max_position_embeddings\": 4096}", "original_max_position_embeddings"},
        {"{\"compress_rope_theta\": 0}",
         "compress_rope_theta (or rope_parameters.compress.rope_theta)"},
        {"{\"partial_rotary_factor\": 0.25}", "qk_rope_head_dim 64"},
        {"{\"rope_scaling\": null, \"rope_parameters\": {\"main\": {}, \"compress\": {}}}",
         "main.partial_rotary_factor is missing"},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 16, \"mode\": 1}}", "mode"},
        {"{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 16, \"truncate\": false}}",
         "truncate"},
        {"{\"rope_scaling\": null, \"rope_parameters\": {\"main\": {\"partial_rotary_factor\": "
         "0.125}, "
         "\"compress\": {\"partial_rotary_factor\": 0.125, \"rope_type\": \"yarn\", \"factor\": "
         "16, "
         "\"truncate\": false}}}",
         "truncate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i][0], cases[i][1]);
}
END_TEST

// YaRN alone leaves cosines and sines as they are where nothing says otherwise.
START_TEST(each_kind_of_rotary_embedding_has_its_own_factor) {
    struct model_spec s = accept("{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 16}}");
    ck_assert(s.compress.rope.attention == 0);
    s = accept("{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 16, \"truncate\": true, "
               "\"attention_factor\": 1.5}}");
    ck_assert(s.compress.rope.attention == 1.5f);
    s = accept(
        "{\"head_dim\": 16, \"qk_rope_head_dim\": 4, \"index_head_dim\": 8, \"rope_scaling\": "
        "{\"type\": \"longrope\", \"factor\": 16, \"short_factor\": [1, 1], "
        "\"long_factor\": [2, 2], \"original_max_position_embeddings\": 65536}}");
    ck_assert(fabsf(s.compress.rope.attention - 1.118034f) < 1e-6f); // sqrt(1 + ln 16 / ln 65536)
    ck_assert(s.compress.rope.attention == s.compress.rope.long_attention);
}
END_TEST

// The file's number is a double: 0.2916666666666667 of 96 are 28, and so are 0.30208333, whose
// product with 96 is 29 in float32.
START_TEST(the_rotated_part_of_a_head_is_reckoned_in_double) {
    static const struct {
        const char *part;
        uint32_t dim;
    } rows[] = {{"0.2916666666666667", 28}, {"0.3125", 30}, {"0.30208333", 28}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char patch[128];
        snprintf(patch, sizeof patch,
                 "{\"head_dim\": 96, \"qk_rope_head_dim\": null, \"partial_rotary_factor\": %s}",
                 rows[i].part);
        struct model_spec s = accept(patch);
        ck_assert_uint_eq(s.rope.dim, rows[i].dim);
    }
}
END_TEST

// Groups of heads are split, never a group.
START_TEST(a_layout_splits_whole_groups_of_heads) {
    struct model_spec s = accept("{}");
    ck_assert_uint_eq(legal_tp_max(&s), 8);
    s = accept("{\"o_groups\": 2}");
    ck_assert_uint_eq(legal_tp_max(&s), 2);
    const struct layout layout = {4, 1, 1, 4, 4, 1};
    struct err_text e;
    ck_assert_int_eq(legal_check(&s, &layout, &e), ERR_FATAL_CONFIG);
    ck_assert_msg(strstr(e.text, "the 2 segments in which the output of the model's 2 groups of "
                                 "heads is summed") != NULL,
                  "%s", e.text);
}
END_TEST

START_TEST(a_checkpoints_form_is_found_by_its_first_expert) {
    static const struct {
        const char *folder, *kv_norm;
        uint32_t form;
    } forms[] = {{MODELS "deepseek-v4-sliding", "layers.0.attn.kv_norm.weight", 0},
                 {MODELS "deepseek-v4", "model.layers.0.attn.norm.weight", 1},
                 {MODELS "deepseek-v4-128", "model.layers.0.self_attn.kv_norm.weight", 2}};
    for (int i = 0; i < 3; i++) {
        struct model_spec spec;
        struct err_text e = {""};
        char name[TENSOR_NAME_MAX];
        ck_assert_msg(spec_load(&spec, forms[i].folder, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(spec.form, forms[i].form);
        const struct tensor_ref ref = {.kind = TENSOR_KV_A_NORM};
        ck_assert(spec_family(&spec)->tensor_name(&spec, &ref, name, sizeof name));
        ck_assert_str_eq(name, forms[i].kv_norm);
        ck_assert(spec_family(&spec)->leaves_out(&spec, "mtp.0.attn.wkv.weight"));
        ck_assert(!spec_family(&spec)->leaves_out(&spec, "layers.0.mtp.weight"));
    }
}
END_TEST

static void hear(void *context, const char *text) {
    snprintf(context, ERR_TEXT_MAX, "%s", text);
}

// An id of the table in a copy of the checkpoint changed, or of another type: whether these words
// are said, or nothing.
static bool table_is_called(int64_t id, const char *type, const char *words) {
    struct folder_copy c;
    struct safetensors *st;
    struct model_spec spec;
    struct err_text e = {""};
    char said[ERR_TEXT_MAX] = "";
    const struct problems problems = {hear, said};
    folder_copy_make(&c, MODELS "deepseek-v4-sliding");
    ck_assert_int_eq(safetensors_open(&st, c.folder, &e), 0);
    const struct safetensors_tensor *t = safetensors_find(st, "layers.1.ffn.gate.tid2eid");
    ck_assert_ptr_nonnull(t);
    char path[FOLDER_PATH_MAX];
    folder_copy_path(&c, "model.safetensors", path);
    FILE *f = fopen(path, "r+b");
    ck_assert(f != NULL && fseek(f, (long)t->offset + 8, SEEK_SET) == 0);
    ck_assert_uint_eq(fwrite(&id, sizeof id, 1, f), 1);
    fclose(f);
    safetensors_close(st);
    if (type != NULL) folder_copy_edit(&c, "model.safetensors", "\"I64\"", type);
    ck_assert_int_eq(spec_load(&spec, c.folder, &e), 0);
    ck_assert_int_eq(safetensors_open(&st, c.folder, &e), 0);
    ck_assert_int_eq(checkpoint_check(&spec, st, &problems, &e), 0);
    safetensors_close(st);
    folder_copy_remove(&c);
    return words == NULL ? said[0] == '\0' : strstr(said, words) != NULL;
}

START_TEST(a_table_of_experts_is_verified) {
    ck_assert(table_is_called(
        6, NULL, "tensor layers.1.ffn.gate.tid2eid gives token 0 the expert 6; there are 6"));
    ck_assert(table_is_called(-1, NULL, "gives token 0 the expert -1;"));
    ck_assert(table_is_called(INT64_C(1) << 32, NULL, "the expert 4294967296;"));
    ck_assert(table_is_called(0, "\"U64\"", "has type U64; only I32 and I64 are ids"));
    for (int id = 0; id < 6; id++) // of which the token has two already
        ck_assert(table_is_called(id, NULL, NULL));
}
END_TEST

int main(void) {
    TCase *c = tcase_create("deepseek_v4");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, the_released_file_says_what_each_layer_is);
    tcase_add_test(c, both_spellings_say_the_same);
    tcase_add_test(c, absent_lists_are_what_the_class_says);
    tcase_add_test(c, what_would_change_the_answer_is_refused_by_name);
    tcase_add_test(c, each_kind_of_rotary_embedding_has_its_own_factor);
    tcase_add_test(c, the_rotated_part_of_a_head_is_reckoned_in_double);
    tcase_add_test(c, a_layout_splits_whole_groups_of_heads);
    tcase_add_test(c, a_checkpoints_form_is_found_by_its_first_expert);
    tcase_add_test(c, a_table_of_experts_is_verified);
    Suite *s = suite_create("model_deepseek_v4");
    suite_add_tcase(s, c);
    return suite_run(s);
}
