// model_released.c: config.json of released models, whole: their sizes, and what follows from them.
#include <string.h>

#include "common/model/layout_table.h"
#include "common/model/legal.h"
#include "common/model/rope.h"
#include "common/model/tensors.h"
#include "tests/harness/suite.h"

// What DeepSeek-V3's relatives have in common.
#define MLA_SIZES                                                                                  \
    "\"architectures\": [\"DeepseekV3ForCausalLM\"], \"attention_bias\": false, \"hidden_act\": "  \
    "\"silu\", \"hidden_size\": 7168, \"intermediate_size\": 18432, \"kv_lora_rank\": 512, "       \
    "\"moe_intermediate_size\": 2048, \"moe_layer_freq\": 1, \"n_shared_experts\": 1, "            \
    "\"norm_topk_prob\": true, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 61, "            \
    "\"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, "                 \
    "\"rms_norm_eps\": 1e-06, \"scoring_func\": \"sigmoid\", \"tie_word_embeddings\": false, "     \
    "\"topk_method\": \"noaux_tc\", \"torch_dtype\": \"bfloat16\", \"v_head_dim\": 128, "

static const char r1[] =
    "{" MLA_SIZES "\"model_type\": \"deepseek_v3\", \"bos_token_id\": 0, \"eos_token_id\": 1, "
    "\"first_k_dense_replace\": 3, \"max_position_embeddings\": 163840, \"n_group\": 8, "
    "\"n_routed_experts\": 256, \"num_attention_heads\": 128, \"num_key_value_heads\": 128, "
    "\"num_nextn_predict_layers\": 1, \"rope_theta\": 10000, \"routed_scaling_factor\": 2.5, "
    "\"topk_group\": 4, \"vocab_size\": 129280, \"rope_scaling\": {\"beta_fast\": 32, "
    "\"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "
    "\"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}}";

#define K2_SIZES                                                                                   \
    "\"bos_token_id\": 163584, \"eos_token_id\": 163585, \"first_k_dense_replace\": 1, "           \
    "\"max_position_embeddings\": 131072, \"n_group\": 1, \"n_routed_experts\": 384, "             \
    "\"num_attention_heads\": 64, \"num_key_value_heads\": 64, \"num_nextn_predict_layers\": 0, "  \
    "\"rope_theta\": 50000.0, \"routed_scaling_factor\": 2.827, \"topk_group\": 1, "               \
    "\"vocab_size\": 163840, \"rope_scaling\": {\"beta_fast\": 1.0, \"beta_slow\": 1.0, "          \
    "\"factor\": 32.0, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "                                 \
    "\"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}}"

static const char k2[] = "{" MLA_SIZES "\"model_type\": \"kimi_k2\", " K2_SIZES;
static const char k2_as_v3[] = "{" MLA_SIZES "\"model_type\": \"deepseek_v3\", " K2_SIZES;

static const char glm45_air[] =
    "{\"architectures\": [\"Glm4MoeForCausalLM\"], \"model_type\": \"glm4_moe\", "
    "\"attention_bias\": true, \"eos_token_id\": [151329, 151336, 151338], "
    "\"first_k_dense_replace\": 1, \"head_dim\": 128, \"hidden_act\": \"silu\", "
    "\"hidden_size\": 4096, \"intermediate_size\": 10944, \"max_position_embeddings\": 131072, "
    "\"moe_intermediate_size\": 1408, \"n_group\": 1, \"n_routed_experts\": 128, "
    "\"n_shared_experts\": 1, \"norm_topk_prob\": true, \"num_attention_heads\": 96, "
    "\"num_experts_per_tok\": 8, \"num_hidden_layers\": 46, \"num_key_value_heads\": 8, "
    "\"num_nextn_predict_layers\": 1, \"partial_rotary_factor\": 0.5, \"rms_norm_eps\": 1e-05, "
    "\"rope_scaling\": null, \"rope_theta\": 1000000, \"routed_scaling_factor\": 1.0, "
    "\"tie_word_embeddings\": false, \"topk_group\": 1, \"torch_dtype\": \"bfloat16\", "
    "\"use_qk_norm\": false, \"vocab_size\": 151552}";

static const char qwen15_moe[] =
    "{\"architectures\": [\"Qwen2MoeForCausalLM\"], \"model_type\": \"qwen2_moe\", "
    "\"bos_token_id\": 151643, \"eos_token_id\": 151643, \"decoder_sparse_step\": 1, "
    "\"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": 5632, "
    "\"max_position_embeddings\": 8192, \"max_window_layers\": 21, "
    "\"moe_intermediate_size\": 1408, \"norm_topk_prob\": false, \"num_attention_heads\": 16, "
    "\"num_experts\": 60, \"num_experts_per_tok\": 4, \"num_hidden_layers\": 24, "
    "\"num_key_value_heads\": 16, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, "
    "\"shared_expert_intermediate_size\": 5632, \"sliding_window\": 32768, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"use_sliding_window\": "
    "false, \"vocab_size\": 151936}";

static int parse(struct model_spec *out, const char *config, struct err_text *e) {
    return spec_parse(out, &(struct spec_source){.config = config, .config_bytes = strlen(config)},
                      e);
}

static struct model_spec accept(const char *config) {
    struct model_spec spec;
    struct err_text e = {""};
    ck_assert_msg(parse(&spec, config, &e) == 0, "%s", e.text);
    return spec;
}

struct counts {
    uint64_t numbers, of_kind[TENSOR_KIND_COUNT];
};

static bool count(void *context, const struct tensor_want *want) {
    struct counts *c = context;
    c->numbers += (uint64_t)want->rows * (want->cols == 0 ? 1 : want->cols);
    c->of_kind[want->ref.kind]++;
    return true;
}

// In billions, as the models' own pages count them.
static struct counts expect_billions(const struct model_spec *spec, double billions) {
    struct counts c = {0};
    ck_assert(tensors_each(spec, count, &c));
    double got = (double)c.numbers / 1e9;
    ck_assert_msg(got > billions * 0.999 && got < billions * 1.001, "%.3f billion, not %.3f", got,
                  billions);
    return c;
}

// --- DeepSeek-R1 on 16 workers

static const struct layout r1_layout = {16, 1, 8, 2, 8, 2};

START_TEST(r1_may_have_eight_groups_of_two_and_each_expert_on_two_of_sixteen_workers) {
    struct model_spec s = accept(r1);
    struct err_text e = {""};
    ck_assert_msg(legal_check(&s, &r1_layout, &e) == 0, "%s", e.text);
    expect_billions(&s, 671.03);
    // Four of the sizes say it, and so do three.
    static struct footprint_model model;
    const struct footprint_types types = footprint_types_of(&s, "auto", "auto");
    footprint_measure(&model, &s, &types);
    const struct layout_wish wishes[] = {
        {.n_ranks = 16, .dp = 8, .tp = 2, .ep = 8, .etp = 2},
        {.n_ranks = 16, .tp = 2, .ep = 8},
        {.n_ranks = 16, .tp = 2, .etp = 2},
    };
    for (int i = 0; i < 3; i++) {
        const struct layout_need need = {.model = &model, .n_tokens = 4096};
        struct layout l;
        ck_assert_msg(layout_choose(&l, &wishes[i], &need, &e) == 0, "%s", e.text);
        ck_assert(layout_equal(&l, &r1_layout));
    }
}
END_TEST

// Numbers of a rank: what is whole, a half of its heads, and a half of 32 experts in 58 layers.
static double r1_rank_numbers(void) {
    double expert = 3.0 * 7168 * 2048, dense = 3.0 * 7168 * 18432;
    double heads = 128.0 * (1536 * 192 + 512 * 256 + 128 * 7168);
    double whole = 7168.0 * (1536 + 576);
    double moe = 32 * expert / 2 + expert + 256 * 7168.0;
    return 61 * (whole + heads / 2) + 3 * dense / 2 + 58 * moe + 129280 * 7168.0 * 1.5;
}

START_TEST(each_of_them_holds_half_of_32_experts_and_all_latents) {
    struct model_spec s = accept(r1);
    static struct footprint_model model;
    const struct footprint_types types = footprint_types_of(&s, "auto", "auto");
    footprint_measure(&model, &s, &types);
    for (uint32_t rank = 0; rank < 16; rank++) {
        struct footprint f;
        footprint_of(&f, &model, &r1_layout, rank);
        ck_assert_uint_eq(f.n_layers, 61);
        ck_assert_uint_eq(f.n_experts, 32);
        ck_assert_uint_eq(f.first_expert, rank / 2 * 32);
        ck_assert_uint_eq(f.kv_token_bytes, 61 * (512 + 64) * 2);
        double share = (double)f.weight_bytes / (2 * r1_rank_numbers());
        ck_assert_msg(share > 0.9995 && share < 1.0005, "rank %u: %f", rank, share);
    }
}
END_TEST

START_TEST(its_table_says_so) {
    struct model_spec s = accept(r1);
    static struct footprint_model model;
    const struct footprint_types types = footprint_types_of(&s, "auto", "auto");
    footprint_measure(&model, &s, &types);
    const struct layout_table table = {.model = &model, .layout = &r1_layout};
    static const char *const lines[] = {
        "layout of 16 workers: pp 1 dp 8 tp 2 ep 8 etp 2\n",
        "\n   0  -      cpu        0     0    0  0-60    0-31 1/2       96.3 GiB   68.6 KiB\n",
        "\n   1  -      cpu        0     0    1  0-60    0-31 2/2       96.3 GiB   68.6 KiB\n",
        "\n  15  -      cpu        0     7    1  0-60    224-255 2/2    96.3 GiB   68.6 KiB\n",
    };
    struct buf out;
    buf_init(&out, 0);
    layout_table_write(&out, &table);
    buf_add(&out, "", 1);
    ck_assert(!out.failed);
    for (int i = 0; i < 4; i++)
        ck_assert_msg(strstr(out.data, lines[i]) != NULL, "no \"%s\" in\n%s", lines[i], out.data);
    buf_finish(&out);
}
END_TEST

// --- others

static void expect_same_mla(const struct model_spec *a, const struct model_spec *b) {
    ck_assert_str_eq(a->architecture, b->architecture);
    ck_assert_uint_eq(a->mla.q_rank, b->mla.q_rank);
    ck_assert_uint_eq(a->mla.kv_rank, b->mla.kv_rank);
    ck_assert_uint_eq(a->mla.nope_dim, b->mla.nope_dim);
    ck_assert_uint_eq(a->mla.value_dim, b->mla.value_dim);
    ck_assert_uint_eq(a->inner_dense, b->inner_dense);
    ck_assert_uint_eq(a->inner_expert, b->inner_expert);
    ck_assert_uint_eq(a->shared.inner, b->shared.inner);
    ck_assert_int_eq(a->router.score, b->router.score);
    ck_assert_int_eq(a->router.groups, b->router.groups);
    ck_assert_int_eq(a->router.renorm, b->router.renorm);
    ck_assert(a->router.selection_bias == b->router.selection_bias);
    ck_assert(a->rope.kind == b->rope.kind && a->rope.interleaved == b->rope.interleaved);
}

START_TEST(kimi_k2_is_deepseek_v3_in_other_sizes) {
    struct model_spec s = accept(k2), same = accept(k2_as_v3), v3 = accept(r1);
    expect_same_mla(&s, &same);
    ck_assert_uint_eq(s.hidden, v3.hidden);
    ck_assert_uint_eq(s.inner_expert, v3.inner_expert);
    ck_assert_uint_eq(s.n_heads, 64);
    ck_assert_uint_eq(s.vocab, 163840);
    ck_assert_uint_eq(s.router.n_experts, 384);
    ck_assert_uint_eq(s.router.n_groups, 1);
    ck_assert(s.router.scale == 2.827f && s.attn_scale == same.attn_scale);
    ck_assert(s.ffn[0] == FFN_DENSE && s.ffn[1] == FFN_MOE && v3.ffn[2] == FFN_DENSE);
    expect_billions(&s, 1026.41);
    char name[TENSOR_NAME_MAX];
    const struct tensor_ref last = {TENSOR_EXPERT_DOWN, 60, 383};
    ck_assert(spec_family(&s)->tensor_name(&s, &last, name, sizeof name));
    ck_assert_str_eq(name, "model.layers.60.mlp.experts.383.down_proj.weight");
    // Its fast and slow rotations are equal numbers.
    float frequencies[32];
    rope_frequencies(frequencies, &s.rope, s.max_position);
    for (int i = 1; i < 32; i++)
        ck_assert(frequencies[i] > 0 && frequencies[i] < frequencies[i - 1]);
}
END_TEST

START_TEST(glm_45_air_has_no_norm_on_heads) {
    struct model_spec s = accept(glm45_air);
    ck_assert_int_eq(s.qk_norm, QK_NORM_NONE);
    ck_assert(s.attn_bias && !s.attn_out_bias && s.rope.dim == 64);
    struct counts c = expect_billions(&s, 106.85);
    ck_assert_uint_eq(c.of_kind[TENSOR_Q_NORM] + c.of_kind[TENSOR_K_NORM], 0);
    ck_assert_uint_eq(c.of_kind[TENSOR_Q_BIAS], 46);
    ck_assert_uint_eq(c.of_kind[TENSOR_SELECTION_BIAS], 45);
}
END_TEST

START_TEST(qwen_15_moe_is_read_as_qwen2_moe) {
    struct model_spec s = accept(qwen15_moe);
    ck_assert_str_eq(s.family, "qwen2_moe");
    ck_assert_uint_eq(s.router.n_experts, 60);
    ck_assert_uint_eq(s.router.top_k, 4);
    ck_assert_int_eq(s.router.renorm, RENORM_NONE);
    ck_assert(s.shared.inner == 5632 && s.shared.gated && s.attn_bias);
    ck_assert_uint_eq(s.sliding_window, 0);
    expect_billions(&s, 14.316);
}
END_TEST

#define DENSE                                                                                      \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64, " \
    "\"intermediate_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 1, "            \
    "\"num_key_value_heads\": 1, \"vocab_size\": 64, \"rms_norm_eps\": 1e-06, \"torch_dtype\": "   \
    "\"bfloat16\", \"max_position_embeddings\": 8192, \"rope_theta\": 10000.0, "

// Its base grows with the sequence, from max_position_embeddings on, which is all that is served.
START_TEST(a_dynamic_rope_is_a_plain_one_within_the_models_context) {
    struct model_spec plain = accept(DENSE "\"rope_scaling\": null}");
    struct model_spec dynamic =
        accept(DENSE "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4.0}}");
    ck_assert_uint_eq(dynamic.max_position, 8192);
    const uint32_t lengths[] = {1, 2048, 8191, 8192};
    for (int i = 0; i < 4; i++) {
        float want[32], got[32];
        float factor = rope_frequencies(want, &plain.rope, lengths[i]);
        ck_assert(rope_frequencies(got, &dynamic.rope, lengths[i]) == factor);
        ck_assert(memcmp(got, want, sizeof got) == 0);
    }
    ck_assert(plain.attn_scale == dynamic.attn_scale);
}
END_TEST

// Routers that look at the whole batch come with classes of their own.
START_TEST(an_architecture_that_is_not_known_is_refused_by_its_name) {
    struct model_spec spec;
    struct err_text e = {""};
    const char *config = "{\"architectures\": [\"ExpertChoiceForCausalLM\"]}";
    ck_assert_int_eq(parse(&spec, config, &e), ERR_FATAL_MODEL);
    ck_assert_msg(strstr(e.text, "architecture \"ExpertChoiceForCausalLM\" is not supported"), "%s",
                  e.text);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("released");
    tcase_add_test(t, r1_may_have_eight_groups_of_two_and_each_expert_on_two_of_sixteen_workers);
    tcase_add_test(t, each_of_them_holds_half_of_32_experts_and_all_latents);
    tcase_add_test(t, its_table_says_so);
    tcase_add_test(t, kimi_k2_is_deepseek_v3_in_other_sizes);
    tcase_add_test(t, glm_45_air_has_no_norm_on_heads);
    tcase_add_test(t, qwen_15_moe_is_read_as_qwen2_moe);
    tcase_add_test(t, a_dynamic_rope_is_a_plain_one_within_the_models_context);
    tcase_add_test(t, an_architecture_that_is_not_known_is_refused_by_its_name);
    Suite *s = suite_create("model_released");
    suite_add_tcase(s, t);
    return suite_run(s);
}
