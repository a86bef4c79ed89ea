// worker_weights_wrong.c: checkpoints that are refused, and loads that end early: a copy of a
// model's folder in a temporary one, changed.
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/model/folder.h"
#include "common/model/safetensors.h"
#include "tests/harness/folder_copy.h"
#include "tests/harness/loaded.h"
#include "tests/harness/suite.h"

#define MODEL TEST_DATA "/models/tiny-mixtral"
#define MODEL_TWO_SHARDS TEST_DATA "/models/tiny-qwen3-moe"

static void expect_refusal(const struct folder_copy *c, uint32_t rank, enum dtype dtype,
                           const char *word) {
    struct loaded l = {.layout.n_ranks = 2};
    struct err_text e = {""};
    struct weights_config config = {.rank = rank, .dtype = dtype, .n_threads = 3};
    int rc = loaded_try(&l, c->folder, &config, &e);
    ck_assert_msg(rc == ERR_FATAL_MODEL, "%d %s", rc, e.text);
    ck_assert_msg(strstr(e.text, word) != NULL, "\"%s\" lacks \"%s\"", e.text, word);
    ck_assert_ptr_null(l.w);
}

static const struct {
    const char *from, *to, *word;
} wrong[] = {
    {"\"vocab_size\": 300", "\"vocab_size\": 301",
     "tensor model.embed_tokens.weight: config.json asks for shape [301, 64], the file has [300, "
     "64]"},
    {"\"hidden_size\": 64", "\"hidden_size\": 72", "[300, 72], the file has [300, 64]"},
    {"\"intermediate_size\": 80", "\"intermediate_size\": 96",
     "experts.0.w1.weight: config.json asks for shape [96, 64]"},
    {"\"num_local_experts\": 4", "\"num_local_experts\": 5", "block_sparse_moe.gate.weight"},
    {"\"num_local_experts\": 4", "\"num_local_experts\": 3", "block_sparse_moe.gate.weight"},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
     "tensor model.layers.2.input_layernorm.weight is missing"},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "tensor model.layers.1."},
    {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1", "k_proj.weight"},
};

START_TEST(weights_refuse_a_config_that_does_not_fit) {
    struct folder_copy c;
    folder_copy_make(&c, MODEL);
    folder_copy_edit(&c, "config.json", wrong[_i].from, wrong[_i].to);
    expect_refusal(&c, 0, DTYPE_F32, wrong[_i].word);
    expect_refusal(&c, 1, DTYPE_F32, wrong[_i].word);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_a_type_that_weights_may_not_have) {
    struct folder_copy c;
    folder_copy_make(&c, MODEL);
    folder_copy_edit(&c, "model.safetensors", "\"dtype\":\"F32\"", "\"dtype\":\"I32\"");
    expect_refusal(&c, 0, DTYPE_F32, "has type I32; only F32, F16 and BF16");
    folder_copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_tensors_without_a_place) {
    struct folder_copy c;
    folder_copy_make(&c, MODEL);
    folder_copy_edit(&c, "config.json", "\"tie_word_embeddings\": false",
                     "\"tie_word_embeddings\": true ");
    struct loaded l = {.layout.n_ranks = 2};
    struct err_text e = {""};
    struct weights_config config = {.dtype = DTYPE_F32};
    // A head beside a tied embedding is let through.
    ck_assert_msg(loaded_try(&l, c.folder, &config, &e) == 0, "%s", e.text);
    weights_destroy(l.w);
    folder_copy_edit(&c, "model.safetensors", "lm_head.weight", "lm_hexd.weight");
    expect_refusal(&c, 0, DTYPE_F32, "tensor lm_hexd.weight has no place in MixtralForCausalLM");
    folder_copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_values_that_are_not_finite) {
    static const uint32_t bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u};
    static const char *const tensors[] = {
        "model.embed_tokens.weight", "model.layers.1.self_attn.v_proj.weight", "model.norm.weight",
        "model.layers.0.block_sparse_moe.experts.3.w2.weight"};
    struct folder_copy c;
    folder_copy_make(&c, MODEL);
    folder_copy_poke(&c, tensors[_i], 37, bad[_i]);
    expect_refusal(&c, 1, DTYPE_BF16, tensors[_i]);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_values_that_the_held_type_cannot_hold) {
    const char *tensor = "model.layers.0.self_attn.o_proj.weight";
    struct folder_copy c;
    folder_copy_make(&c, MODEL);
    folder_copy_poke(&c, tensor, 5, 0x477ff000u); // 65520
    expect_refusal(&c, 0, DTYPE_F16, "o_proj.weight has a value beyond the range of float16");
    struct loaded l = {.layout.n_ranks = 2};
    struct err_text e;
    struct weights_config config = {.dtype = DTYPE_BF16};
    ck_assert_int_eq(loaded_try(&l, c.folder, &config, &e), 0);
    weights_destroy(l.w);
    folder_copy_poke(&c, tensor, 5, 0xff7fffffu); // the largest float32, negative
    expect_refusal(&c, 0, DTYPE_BF16, "beyond the range of bfloat16");
    folder_copy_remove(&c);
}
END_TEST

// A rank reads only its own slices, so damage in another rank's experts does not reach it.
START_TEST(weights_of_other_ranks_are_not_read) {
    struct folder_copy c;
    folder_copy_make(&c, MODEL);
    folder_copy_poke(&c, "model.layers.0.block_sparse_moe.experts.3.w2.weight", 0, 0x7fc00000u);
    struct loaded l = {.layout.n_ranks = 2};
    struct err_text e = {""};
    struct weights_config config = {.dtype = DTYPE_F32};
    ck_assert_msg(loaded_try(&l, c.folder, &config, &e) == 0, "%s", e.text);
    weights_destroy(l.w);
    expect_refusal(&c, 1, DTYPE_F32, "experts.3.w2.weight");
    folder_copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_a_file_that_was_cut_short) {
    struct folder_copy c;
    char path[FOLDER_PATH_MAX];
    struct stat st;
    folder_copy_make(&c, MODEL);
    folder_copy_path(&c, "model.safetensors", path);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(truncate(path, st.st_size - 100), 0);
    expect_refusal(&c, 0, DTYPE_F32, "reach past the end of the file");
    // Cut after it was opened: the read itself notices.
    ck_assert_int_eq(truncate(path, st.st_size), 0);
    struct safetensors *s;
    struct err_text e;
    ck_assert_int_eq(safetensors_open(&s, c.folder, &e), 0);
    ck_assert_int_eq(truncate(path, st.st_size - 100), 0);
    const struct safetensors_tensor *last = safetensors_at(s, 0);
    for (size_t i = 0; i < safetensors_count(s); i++)
        if (safetensors_at(s, i)->offset > last->offset) last = safetensors_at(s, i);
    char *buf = mem_alloc(last->bytes);
    ck_assert_int_eq(safetensors_read(s, last, (struct safetensors_range){0, last->bytes}, buf, &e),
                     ERR_FATAL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "model.safetensors ends at byte"));
    mem_free(buf);
    safetensors_close(s);
    folder_copy_remove(&c);
}
END_TEST

START_TEST(weights_loading_can_be_cancelled) {
    struct loaded l = {.layout.n_ranks = 1};
    struct err_text e;
    const _Atomic bool cancel = true;
    struct weights_config c = {.dtype = DTYPE_F32, .n_threads = 2, .cancel = &cancel};
    ck_assert_int_eq(loaded_try(&l, MODEL_TWO_SHARDS, &c, &e), ERR_FATAL_STOPPED);
    ck_assert_ptr_null(l.w);
    ck_assert_uint_eq(l.progress.bytes_done, 0);
}
END_TEST

START_TEST(weights_survive_every_failed_allocation) {
    struct loaded l = {.layout.n_ranks = 2};
    struct err_text e;
    int rc = ERR_FATAL_NOMEM;
    long n = 1;
    for (; n < 2000 && rc != 0; n++) {
        struct weights_config c = {.dtype = DTYPE_F32, .n_threads = 2};
        mem_fail_after(n);
        rc = loaded_try(&l, MODEL_TWO_SHARDS, &c, &e);
        mem_fail_after(0);
        ck_assert_msg(rc == 0 || rc == ERR_FATAL_NOMEM, "allocation %ld: %d %s", n, rc, e.text);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_gt(n, 50);
    weights_destroy(l.w);
}
END_TEST

START_TEST(folder_digest_sees_config_and_layout_but_no_weights) {
    struct folder_copy c;
    uint64_t original, copied, other;
    struct err_text e;
    ck_assert_int_eq(model_folder_digest(&original, MODEL, &e), 0);
    folder_copy_make(&c, MODEL);
    ck_assert_int_eq(model_folder_digest(&copied, c.folder, &e), 0);
    ck_assert_uint_eq(copied, original);
    folder_copy_poke(&c, "model.norm.weight", 0, 0x3f800000u);
    ck_assert_int_eq(model_folder_digest(&copied, c.folder, &e), 0);
    ck_assert_uint_eq(copied, original);
    folder_copy_edit(&c, "model.safetensors", "lm_head.weight", "lm_hexd.weight");
    ck_assert_int_eq(model_folder_digest(&other, c.folder, &e), 0);
    ck_assert_uint_ne(other, original);
    folder_copy_edit(&c, "model.safetensors", "lm_hexd.weight", "lm_head.weight");
    folder_copy_edit(&c, "config.json", "\"sliding_window\": 24", "\"sliding_window\": 25");
    ck_assert_int_eq(model_folder_digest(&other, c.folder, &e), 0);
    ck_assert_uint_ne(other, original);
    folder_copy_remove(&c);
    ck_assert_int_eq(model_folder_digest(&other, c.folder, &e), ERR_FATAL_IO);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("weights_wrong");
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, weights_refuse_a_config_that_does_not_fit, 0,
                        (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(c, weights_refuse_a_type_that_weights_may_not_have);
    tcase_add_test(c, weights_refuse_tensors_without_a_place);
    tcase_add_loop_test(c, weights_refuse_values_that_are_not_finite, 0, 4);
    tcase_add_test(c, weights_refuse_values_that_the_held_type_cannot_hold);
    tcase_add_test(c, weights_of_other_ranks_are_not_read);
    tcase_add_test(c, weights_refuse_a_file_that_was_cut_short);
    tcase_add_test(c, weights_loading_can_be_cancelled);
    tcase_add_test(c, weights_survive_every_failed_allocation);
    tcase_add_test(c, folder_digest_sees_config_and_layout_but_no_weights);
    Suite *s = suite_create("worker_weights_wrong");
    suite_add_tcase(s, c);
    return suite_run(s);
}
