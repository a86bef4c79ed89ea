// model_checkpoint.c: what is wrong with a checkpoint is said, all of it; and what published models
// have in parameters.
#include "common/model/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/model/tensors.h"
#include "tests/harness/folder_copy.h"
#include "tests/harness/suite.h"

#define ONE_FILE TEST_DATA "/models/tiny-mixtral"
#define SHARDS TEST_DATA "/models/tiny-qwen3-moe"
#define STACKED TEST_DATA "/models/gpt-oss"

struct heard {
    struct buf lines;
    int n;
};

static void hear(void *context, const char *text) {
    struct heard *h = context;
    buf_format(&h->lines, "%s\n", text);
    h->n++;
}

// The problems of a folder, as lines; how many there are.
static int problems_of(const char *folder, bool values, struct heard *h) {
    struct err_text e;
    struct model_spec spec;
    struct safetensors *st;
    const struct problems problems = {hear, h};
    *h = (struct heard){0};
    ck_assert_int_eq(spec_load(&spec, folder, &e), 0);
    if (safetensors_open_saying(&st, folder, &problems, &e) != 0) return h->n;
    ck_assert_int_eq(checkpoint_check(&spec, st, &problems, &e), 0);
    if (values) ck_assert_int_eq(checkpoint_check_values(&spec, st, &problems, &e), 0);
    safetensors_close(st);
    return h->n;
}

static void expect_line(struct heard *h, const char *part) {
    ck_assert(h->lines.data != NULL && !h->lines.failed);
    ck_assert_msg(memmem(h->lines.data, h->lines.bytes, part, strlen(part)) != NULL,
                  "\"%s\" not in:\n%.*s", part, (int)h->lines.bytes, h->lines.data);
}

START_TEST(every_tensor_that_is_wrong_is_named) {
    struct folder_copy c;
    struct heard h;
    folder_copy_make(&c, ONE_FILE);
    folder_copy_edit(&c, "config.json", "\"vocab_size\": 300", "\"vocab_size\": 301");
    folder_copy_edit(&c, "model.safetensors", "model.norm.weight", "model.form.weight");
    folder_copy_edit(&c, "model.safetensors", "layers.1.self_attn.k_proj",
                     "layers.1.self_attn.x_proj");
    ck_assert_int_eq(problems_of(c.folder, false, &h), 6);
    expect_line(&h, "tensor model.embed_tokens.weight: config.json asks for shape [301, 64]");
    expect_line(&h, "tensor lm_head.weight: config.json asks for shape [301, 64]");
    expect_line(&h, "tensor model.norm.weight is missing");
    expect_line(&h, "tensor model.form.weight has no place in MixtralForCausalLM");
    expect_line(&h, "tensor model.layers.1.self_attn.k_proj.weight is missing");
    expect_line(&h, "tensor model.layers.1.self_attn.x_proj.weight has no place");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(a_type_that_weights_may_not_have_is_named) {
    struct folder_copy c;
    struct heard h;
    folder_copy_make(&c, ONE_FILE);
    folder_copy_edit(&c, "model.safetensors", "\"dtype\":\"F32\"", "\"dtype\":\"I32\"");
    ck_assert_int_eq(problems_of(c.folder, false, &h), 1);
    expect_line(&h, "has type I32; only F32, F16 and BF16");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
}
END_TEST

// What stands before it in the walk is a norm, which may have another type.
START_TEST(a_tensor_behind_a_missing_one_is_not_held_against_another_matrix) {
    const char *norm = "layers.0.post_attention_layernorm.weight";
    struct folder_copy c;
    struct heard h;
    char from[128], to[128];
    folder_copy_make(&c, STACKED);
    snprintf(from, sizeof from, "%s\":{\"dtype\":\"BF16\"", norm);
    snprintf(to, sizeof to, "%s\":{\"dtype\": \"F16\"", norm);
    folder_copy_edit(&c, "model.safetensors", from, to);
    ck_assert_int_eq(problems_of(c.folder, false, &h), 0);
    folder_copy_edit(&c, "model.safetensors", "layers.0.self_attn.q_proj.weight",
                     "layers.0.self_attn.x_proj.weight");
    ck_assert_int_eq(problems_of(c.folder, false, &h), 2);
    expect_line(&h, "q_proj.weight is missing");
    expect_line(&h, "x_proj.weight has no place");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
}
END_TEST

// All experts of a layer are one tensor, with gates and ups: it is said once.
START_TEST(a_tensor_of_many_matrices_is_named_once) {
    struct folder_copy c;
    struct heard h;
    folder_copy_make(&c, STACKED);
    folder_copy_edit(&c, "model.safetensors", "layers.1.mlp.experts.gate_up_proj\"",
                     "layers.1.mlp.experts.gate_xx_proj\"");
    ck_assert_int_eq(problems_of(c.folder, false, &h), 2);
    expect_line(&h, "tensor model.layers.1.mlp.experts.gate_up_proj is missing");
    expect_line(&h, "gate_xx_proj has no place");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(every_shard_that_is_wrong_is_named) {
    struct folder_copy c;
    struct heard h;
    char path[FOLDER_PATH_MAX];
    folder_copy_make(&c, SHARDS);
    folder_copy_path(&c, "model-00001-of-00002.safetensors", path);
    ck_assert_int_eq(unlink(path), 0);
    folder_copy_path(&c, "model-00002-of-00002.safetensors", path);
    ck_assert_int_eq(truncate(path, 1000), 0);
    ck_assert_int_eq(problems_of(c.folder, false, &h), 2);
    expect_line(&h, "model-00001-of-00002.safetensors");
    expect_line(&h, "model-00002-of-00002.safetensors");
    buf_finish(&h.lines);
    folder_copy_path(&c, "model.safetensors.index.json", path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(problems_of(c.folder, false, &h), 1);
    expect_line(&h, "has neither model.safetensors nor model.safetensors.index.json");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(tensors_that_an_index_gets_wrong_are_all_named) {
    struct folder_copy c;
    struct heard h;
    folder_copy_make(&c, SHARDS);
    folder_copy_edit(&c, "model.safetensors.index.json", "\"model.norm.weight\"",
                     "\"model.form.weight\"");
    ck_assert_int_eq(problems_of(c.folder, false, &h), 2);
    expect_line(&h, "tensor model.form.weight is not in");
    expect_line(&h, "tensor model.norm.weight of model-00002-of-00002.safetensors is not listed");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(numbers_that_are_not_finite_are_counted) {
    struct folder_copy c;
    struct heard h;
    folder_copy_make(&c, ONE_FILE); // float32
    folder_copy_poke(&c, "model.norm.weight", 3, 0x7fc00000u);
    folder_copy_poke(&c, "model.norm.weight", 4, 0xff800000u);
    folder_copy_poke(&c, "lm_head.weight", 0, 0x7f800000u);
    ck_assert_int_eq(problems_of(c.folder, false, &h), 0);
    ck_assert_int_eq(problems_of(c.folder, true, &h), 2);
    expect_line(&h, "tensor lm_head.weight: 1 of its numbers");
    expect_line(&h, "tensor model.norm.weight: 2 of its numbers are infinite or none");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
    folder_copy_make(&c, STACKED); // bfloat16
    folder_copy_poke(&c, "model.layers.0.mlp.experts.down_proj", 77, 0x7f80);
    ck_assert_int_eq(problems_of(c.folder, true, &h), 1);
    buf_finish(&h.lines);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(numbers_beyond_the_range_of_the_held_type_are_counted) {
    struct folder_copy c;
    struct heard h;
    const char *router = "model.layers.0.block_sparse_moe.gate.weight";
    folder_copy_make(&c, ONE_FILE);                         // float32
    folder_copy_poke(&c, "lm_head.weight", 3, 0x477ff000u); // 65,520
    folder_copy_poke(&c, "lm_head.weight", 4, 0x477fefffu);
    folder_copy_poke(&c, "model.norm.weight", 4, 0x477ff000u); // held as float32, and so is
    folder_copy_poke(&c, router, 5, 0xff7fffffu);              // this
    ck_assert_int_eq(problems_of(c.folder, true, &h), 0);
    folder_copy_edit(&c, "config.json", "\"float32\"", "\"float16\"");
    ck_assert_int_eq(problems_of(c.folder, true, &h), 1);
    expect_line(&h, "lm_head.weight: 1 of its numbers are beyond the range of float16");
    buf_finish(&h.lines);
    folder_copy_poke(&c, "lm_head.weight", 5, 0xff7fffffu); // of bfloat16, too
    folder_copy_poke(&c, "lm_head.weight", 6, 0x7f7f7fffu);
    folder_copy_poke(&c, "lm_head.weight", 7, 0x7f800000u);
    folder_copy_edit(&c, "config.json", ": \"float16\"", ":\"bfloat16\"");
    ck_assert_int_eq(problems_of(c.folder, true, &h), 2);
    expect_line(&h, "lm_head.weight: 1 of its numbers are beyond the range of bfloat16");
    expect_line(&h, "lm_head.weight: 1 of its numbers are infinite");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
    folder_copy_make(&c, STACKED);                                            // bfloat16
    folder_copy_poke(&c, "model.layers.0.mlp.experts.down_proj", 77, 0xc780); // -65,536
    ck_assert_int_eq(problems_of(c.folder, true, &h), 0);
    folder_copy_edit(&c, "config.json", "\"bfloat16\"", "\"float16\" ");
    ck_assert_int_eq(problems_of(c.folder, true, &h), 1);
    expect_line(&h, "down_proj: 1 of its numbers are beyond the range of float16");
    buf_finish(&h.lines);
    folder_copy_remove(&c);
}
END_TEST

// Billions of parameters, all and those of one token, as counted elsewhere.
static const struct {
    const char *config;
    double all, active;
} published[] = {
    {"{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"kimi_k2\", "
     "\"first_k_dense_replace\": 1, \"hidden_size\": 7168, \"intermediate_size\": 18432, "
     "\"kv_lora_rank\": 512, \"max_position_embeddings\": 131072, \"moe_intermediate_size\": 2048, "
     "\"n_group\": 1, \"n_routed_experts\": 384, \"n_shared_experts\": 1, "
     "\"num_attention_heads\": 64, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 61, "
     "\"num_key_value_heads\": 64, \"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, "
     "\"qk_rope_head_dim\": 64, \"topk_group\": 1, \"v_head_dim\": 128, \"vocab_size\": 163840, "
     "\"rope_theta\": 50000.0, \"torch_dtype\": \"bfloat16\"}",
     1026.41, 32.86},
    {"{\"architectures\": [\"Grok1ModelForCausalLM\"], \"vocab_size\": 131072, "
     "\"hidden_size\": 6144, \"intermediate_size\": 32768, \"num_hidden_layers\": 64, "
     "\"num_attention_heads\": 48, \"num_key_value_heads\": 8, \"num_experts\": 8, "
     "\"num_experts_per_tok\": 2, \"attn_output_multiplier\": 0.088, "
     "\"embedding_multiplier_scale\": 78.4, \"output_multiplier_scale\": 0.577}",
     315.69, 83.76}, // its tied head counted once
    {"{\"architectures\": [\"DeepseekV4ForCausalLM\"], \"num_hidden_layers\": 43, "
     "\"hidden_size\": 4096, \"vocab_size\": 129280, \"num_attention_heads\": 64, "
     "\"qk_rope_head_dim\": 64, \"num_hash_layers\": 3, \"compress_ratios\": [0, 0, 4, 128, 4, "
     "128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, "
     "4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4, 0]}",
     284.33, 13.80},
};

// What verify takes the held type for is what a load plans by.
START_TEST(a_router_stays_float32_where_the_checkpoint_means_it_so) {
    struct model_spec spec = {.dtype = DTYPE_BF16};
    const struct tensor_want router = {{TENSOR_ROUTER, 0, 0}, 8, 32},
                             other = {{TENSOR_O, 0, 0}, 8, 32},
                             vector = {{TENSOR_ROUTER_BIAS, 0, 0}, 8, 0};
    ck_assert_int_eq(tensor_held_dtype(&spec, &router, DTYPE_F32, DTYPE_BF16), DTYPE_F32);
    ck_assert_int_eq(tensor_held_dtype(&spec, &router, DTYPE_BF16, DTYPE_F16), DTYPE_F16);
    ck_assert_int_eq(tensor_held_dtype(&spec, &other, DTYPE_F32, DTYPE_BF16), DTYPE_BF16);
    ck_assert_int_eq(tensor_held_dtype(&spec, &vector, DTYPE_BF16, DTYPE_BF16), DTYPE_F32);
    spec.dtype = DTYPE_F32; // all of it is, so the router's type says nothing
    ck_assert_int_eq(tensor_held_dtype(&spec, &router, DTYPE_F32, DTYPE_BF16), DTYPE_BF16);
}
END_TEST

START_TEST(published_models_have_their_parameters) {
    struct err_text e;
    struct model_spec spec;
    struct checkpoint_sizes sizes;
    const struct spec_source source = {.config = published[_i].config,
                                       .config_bytes = strlen(published[_i].config)};
    int rc = spec_parse(&spec, &source, &e);
    ck_assert_msg(rc == 0, "%s", e.text);
    checkpoint_sizes(&sizes, &spec);
    ck_assert_double_eq_tol((double)sizes.parameters / 1e9, published[_i].all, 0.02);
    ck_assert_double_eq_tol((double)sizes.active / 1e9, published[_i].active, 0.02);
}
END_TEST

// The bytes of one tensor over those of another.
static void write_over(const char *folder, const char *from, const char *to) {
    struct err_text e;
    struct safetensors *st;
    ck_assert_msg(safetensors_open(&st, folder, &e) == 0, "%s", e.text);
    const struct safetensors_tensor *f = safetensors_find(st, from), *t = safetensors_find(st, to);
    ck_assert(f != NULL && t != NULL && f->bytes == t->bytes);
    char *bytes = malloc(f->bytes), path[FOLDER_PATH_MAX];
    struct safetensors_range all = {0, f->bytes};
    ck_assert_int_eq(safetensors_read(st, f, all, bytes, &e), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *file = fopen(path, "r+b");
    ck_assert(file != NULL && fseek(file, (long)t->offset, SEEK_SET) == 0);
    ck_assert_uint_eq(fwrite(bytes, 1, f->bytes, file), f->bytes);
    ck_assert_int_eq(fclose(file), 0);
    free(bytes);
    safetensors_close(st);
}

START_TEST(a_head_that_differs_from_the_embedding_is_used_although_the_config_ties_them) {
    struct folder_copy c;
    struct model_spec spec;
    struct err_text e;
    folder_copy_make(&c, ONE_FILE);
    folder_copy_edit(&c, "config.json", "\"tie_word_embeddings\": false",
                     "\"tie_word_embeddings\": true ");
    ck_assert_msg(spec_load(&spec, c.folder, &e) == 0, "%s", e.text);
    ck_assert(!spec.tied_embeddings);
    write_over(c.folder, "model.embed_tokens.weight", "lm_head.weight");
    ck_assert_int_eq(spec_load(&spec, c.folder, &e), 0);
    ck_assert(spec.tied_embeddings);
    folder_copy_remove(&c);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("checkpoint");
    tcase_add_test(c, a_head_that_differs_from_the_embedding_is_used_although_the_config_ties_them);
    tcase_add_test(c, every_tensor_that_is_wrong_is_named);
    tcase_add_test(c, a_type_that_weights_may_not_have_is_named);
    tcase_add_test(c, a_tensor_of_many_matrices_is_named_once);
    tcase_add_test(c, a_tensor_behind_a_missing_one_is_not_held_against_another_matrix);
    tcase_add_test(c, every_shard_that_is_wrong_is_named);
    tcase_add_test(c, tensors_that_an_index_gets_wrong_are_all_named);
    tcase_add_test(c, numbers_that_are_not_finite_are_counted);
    tcase_add_test(c, numbers_beyond_the_range_of_the_held_type_are_counted);
    tcase_add_test(c, a_router_stays_float32_where_the_checkpoint_means_it_so);
    tcase_add_loop_test(c, published_models_have_their_parameters, 0,
                        (int)(sizeof published / sizeof *published));
    Suite *s = suite_create("model_checkpoint");
    suite_add_tcase(s, c);
    return suite_run(s);
}
