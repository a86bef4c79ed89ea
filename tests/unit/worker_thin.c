// worker_thin.c: a checkpoint written here: experts one wide, stored transposed, so that strides
// are as large as rows; and a router of another type than the other weights.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/suite.h"
#include "worker/weights.h"

static const struct {
    const char *name;
    uint32_t rows, cols; // cols 0: a vector
} thin[] = {
    {"transformer.wte.weight", 4, 2},
    {"transformer.norm_f.weight", 2, 0},
    {"transformer.blocks.0.norm_attn_norm.norm_1.weight", 2, 0},
    {"transformer.blocks.0.norm_attn_norm.norm_2.weight", 2, 0},
    {"transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight", 6, 2},
    {"transformer.blocks.0.norm_attn_norm.attn.out_proj.weight", 2, 2},
    {"transformer.blocks.0.ffn.router.layer.weight", 3, 2},
    {"transformer.blocks.0.ffn.experts.mlp.w1", 3, 2},
    {"transformer.blocks.0.ffn.experts.mlp.v1", 3, 2},
    {"transformer.blocks.0.ffn.experts.mlp.w2", 3, 2},
    {"lm_head.weight", 4, 2},
};
#define N_THIN (sizeof thin / sizeof *thin)

// Of an element of the file; bfloat16 would round most of them.
static float value_of(uint32_t element) {
    return 1.0f + (float)element / 4096;
}

// A DBRX whose experts are one wide, with another value in each place.
static void write_thin(const char *folder, const char *dtype) {
    static const char config[] =
        "{\"architectures\": [\"DbrxForCausalLM\"], \"d_model\": 2, \"n_heads\": 1, "
        "\"n_layers\": 1, \"vocab_size\": 4, \"attn_config\": {}, \"ffn_config\": "
        "{\"ffn_hidden_size\": 1, \"moe_num_experts\": 3, \"moe_top_k\": 1}, "
        "\"torch_dtype\": \"%s\"}";
    char header[4096], path[512];
    size_t n = 0, elements = 0;
    for (size_t i = 0; i < N_THIN; i++) {
        size_t first = elements;
        elements += thin[i].rows * (thin[i].cols == 0 ? 1 : thin[i].cols);
        n += (size_t)snprintf(header + n, sizeof header - n, "%s\"%s\":{\"dtype\":\"F32\",",
                              i == 0 ? "{" : ",", thin[i].name);
        char columns[16] = "";
        if (thin[i].cols != 0) snprintf(columns, sizeof columns, ",%u", thin[i].cols);
        n += (size_t)snprintf(header + n, sizeof header - n, "\"shape\":[%u%s],", thin[i].rows,
                              columns);
        n += (size_t)snprintf(header + n, sizeof header - n, "\"data_offsets\":[%zu,%zu]}%s",
                              4 * first, 4 * elements, i + 1 == N_THIN ? "}" : "");
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_gt(fprintf(f, config, dtype), 0);
    ck_assert_int_eq(fclose(f), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    uint64_t bytes = n;
    ck_assert_uint_eq(fwrite(&bytes, sizeof bytes, 1, f), 1);
    ck_assert_uint_eq(fwrite(header, 1, n, f), n);
    for (size_t i = 0; i < elements; i++) {
        float value = value_of((uint32_t)i);
        ck_assert_uint_eq(fwrite(&value, sizeof value, 1, f), 1);
    }
    ck_assert_int_eq(fclose(f), 0);
}

// Element (row, column) of a packed matrix of float32.
static float element(const struct matrix *m, uint32_t row, uint32_t column) {
    const float *packed = m->data;
    return packed[(row / PANEL_COLS * m->n_in + column) * PANEL_COLS + row % PANEL_COLS];
}

static void remove_thin(const char *folder) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    char path[512];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

struct thin_model {
    char folder[256];
    struct model_spec spec;
    struct layout layout;
    struct weights_progress progress;
    struct weights *w;
};

static void load_thin(struct thin_model *t, const char *dtype) {
    const char *parent = getenv("TMPDIR");
    struct err_text e = {""};
    *t = (struct thin_model){.layout.n_ranks = 1};
    snprintf(t->folder, sizeof t->folder, "%s/thin-XXXXXX", parent == NULL ? "/tmp" : parent);
    ck_assert_ptr_nonnull(mkdtemp(t->folder));
    write_thin(t->folder, dtype);
    ck_assert_msg(spec_load(&t->spec, t->folder, &e) == 0, "%s", e.text);
    ck_assert_int_eq(layout_make(&t->layout, 1, &e), 0);
    const struct weights_config config = {.folder = t->folder,
                                          .spec = &t->spec,
                                          .layout = &t->layout,
                                          .progress = &t->progress,
                                          .dtype = t->spec.dtype,
                                          .n_threads = 1};
    ck_assert_msg(weights_load(&t->w, &config, &e) == 0, "%s", e.text);
}

static void finish_thin(struct thin_model *t) {
    weights_destroy(t->w);
    remove_thin(t->folder);
}

START_TEST(experts_one_wide_hold_what_the_file_has) {
    struct thin_model t;
    load_thin(&t, "float32");
    for (uint32_t x = 0; x < 3; x++) {
        const struct expert_weights *expert = &t.w->layers[0].experts[x];
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t at = 36 + 2 * x + i; // elements stand before the tensor of gates
            ck_assert_float_eq(element(&expert->gate, 0, i), value_of(at));
            ck_assert_float_eq(element(&expert->up, 0, i), value_of(at + 6));
            ck_assert_float_eq(element(&expert->down, i, 0), value_of(at + 12));
        }
    }
    finish_thin(&t);
}
END_TEST

START_TEST(a_router_of_float32_stays_so_beside_weights_of_two_bytes) {
    struct thin_model t;
    load_thin(&t, "bfloat16");
    const struct layer_weights *l = &t.w->layers[0];
    ck_assert_int_eq(l->experts[0].gate.dtype, DTYPE_BF16);
    ck_assert_int_eq(l->router.dtype, DTYPE_F32);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_float_eq(element(&l->router, i / 2, i % 2), value_of(30 + i));
    finish_thin(&t);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("thin");
    tcase_add_test(c, experts_one_wide_hold_what_the_file_has);
    tcase_add_test(c, a_router_of_float32_stays_so_beside_weights_of_two_bytes);
    Suite *s = suite_create("worker_thin");
    suite_add_tcase(s, c);
    return suite_run(s);
}
