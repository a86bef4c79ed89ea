// worker_weights.c: every element of the loaded weights against the files, for any number of ranks
// and threads.
#include "worker/weights.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/model/folder.h"
#include "common/model/safetensors.h"
#include "tests/harness/suite.h"

static const char *const models[] = {
    TEST_DATA "/models/tiny-qwen3-moe", TEST_DATA "/models/tiny-mixtral",
    TEST_DATA "/models/awkward",        SOURCE_ROOT "/models/seedling",
    TEST_DATA "/models/qwen2-moe",      TEST_DATA "/models/granitemoeshared",
    TEST_DATA "/models/gpt-oss",        TEST_DATA "/models/dbrx",
    TEST_DATA "/models/deepseek-v3"};

struct loaded {
    struct model_spec spec;
    struct layout layout;
    struct weights_progress progress;
    struct weights *w;
};

static int try_load(struct loaded *l, const char *folder, struct weights_config *c,
                    struct err_text *e) {
    int rc = spec_load(&l->spec, folder, e);
    if (rc != 0) return rc;
    ck_assert_int_eq(layout_make(&l->layout, l->layout.n_ranks, e), 0);
    l->w = NULL;
    c->folder = folder;
    c->spec = &l->spec;
    c->layout = &l->layout;
    c->progress = &l->progress;
    if (c->n_threads == 0) c->n_threads = 1;
    return weights_load(&l->w, c, e);
}

static void load(struct loaded *l, const char *folder, uint32_t n_ranks, uint32_t rank,
                 enum dtype dtype) {
    struct err_text e = {""};
    struct weights_config c = {.rank = rank, .dtype = dtype, .n_threads = 1 + rank % 3};
    l->layout.n_ranks = n_ranks;
    int rc = try_load(l, folder, &c, &e);
    ck_assert_msg(rc == 0, "%s: %s", folder, e.text);
}

struct compare {
    const struct safetensors *st;
    const struct model_spec *spec;
};

static void widen(float *out, const void *p, enum dtype t, size_t n) {
    kernel_ops_ref()->unpack(out, p, t, (uint32_t)n);
}

// A matrix [rows, cols] of the file (a vector has one column), widened to float32 and rounded to
// dtype, element by element from its place.
static float *file_view(const struct compare *c, struct tensor_ref ref, const size_t shape[2],
                        enum dtype dtype) {
    char name[TENSOR_NAME_MAX];
    struct err_text e;
    enum dtype src;
    const struct family *family = family_find(c->spec->architecture);
    ck_assert(family->tensor_name(c->spec, &ref, name, sizeof name));
    const struct safetensors_tensor *t = safetensors_find(c->st, name);
    ck_assert_msg(t != NULL, "%s", name);
    ck_assert(safetensors_dtype(t, &src));
    char *raw = mem_alloc(t->bytes);
    ck_assert_int_eq(safetensors_read(c->st, t, (struct safetensors_range){0, t->bytes}, raw, &e),
                     0);
    struct tensor_place place = {
        .dims = {shape[0], shape[1]}, .n_dims = 2, .row_stride = shape[1], .column_stride = 1};
    if (family->tensor_place != NULL) family->tensor_place(c->spec, &ref, &place);
    size_t n_all = t->bytes / dtype_bytes(src), n = shape[0] * shape[1];
    float *all = mem_alloc(n_all * sizeof(float)), *out = mem_alloc(n * sizeof(float));
    void *held = mem_alloc(n_all * sizeof(float));
    widen(all, raw, src, n_all);
    kernel_ops_ref()->pack(held, all, dtype, (uint32_t)n_all);
    widen(all, held, dtype, n_all);
    for (size_t r = 0; r < shape[0]; r++) {
        for (size_t i = 0; i < shape[1]; i++) {
            size_t at = place.offset + r * place.row_stride + i * place.column_stride;
            if (at >= n_all) ck_abort_msg("%s: outside", name);
            out[r * shape[1] + i] = all[at];
        }
    }
    mem_free(held);
    mem_free(all);
    mem_free(raw);
    return out;
}

// Rows [first, first + n_rows) of a packed matrix are the file's; returns the row behind them.
static size_t same_rows(const struct compare *c, const struct matrix *m, const size_t rows[2],
                        struct tensor_ref ref) {
    size_t n = rows[1] * m->n_in, n_different = 0;
    size_t n_packed = matrix_bytes(m) / dtype_bytes(m->dtype);
    float *want = file_view(c, ref, (size_t[]){rows[1], m->n_in}, m->dtype);
    float *packed = mem_alloc(n_packed * sizeof(float));
    widen(packed, m->data, m->dtype, n_packed);
    ck_assert_uint_eq((uintptr_t)m->data % 64, 0);
    for (size_t i = 0; i < n; i++) {
        size_t row = rows[0] + i / m->n_in, col = i % m->n_in;
        float got = packed[(row / PANEL_COLS * m->n_in + col) * PANEL_COLS + row % PANEL_COLS];
        n_different += f32_to_bits(got) != f32_to_bits(want[i]);
    }
    ck_assert_msg(n_different == 0, "kind %d layer %u: %zu of %zu elements differ", ref.kind,
                  ref.layer, n_different, n);
    mem_free(packed);
    mem_free(want);
    return rows[0] + rows[1];
}

static void same_matrix(const struct compare *c, const struct matrix *m, struct tensor_ref ref) {
    same_rows(c, m, (size_t[]){0, m->n_out}, ref);
}

static void same_vector(const struct compare *c, const float *v, size_t n, struct tensor_ref ref) {
    float *want = file_view(c, ref, (size_t[]){n, 1}, DTYPE_F32);
    ck_assert_ptr_nonnull(v);
    ck_assert_mem_eq(v, want, n * sizeof(float));
    mem_free(want);
}

static void same_ffn(const struct compare *c, const struct expert_weights *x, enum tensor_kind gate,
                     uint32_t layer, uint32_t expert) {
    ck_assert_uint_eq((uintptr_t)x->gate.data % EXPERT_ALIGN, 0);
    same_matrix(c, &x->gate, (struct tensor_ref){gate, layer, expert});
    same_matrix(c, &x->up, (struct tensor_ref){gate + 1, layer, expert});
    same_matrix(c, &x->down, (struct tensor_ref){gate + 2, layer, expert});
    ck_assert_uint_eq(x->down.n_segments, spec_inner_segments(x->down.n_in));
    ck_assert_int_eq(x->gate_bias != NULL, gate == TENSOR_EXPERT_GATE && c->spec->expert_bias);
    if (x->gate_bias == NULL) return;
    const struct tensor_ref bias = {TENSOR_EXPERT_GATE_BIAS, layer, expert};
    same_vector(c, x->gate_bias, x->gate.n_out, bias);
    same_vector(c, x->up_bias, x->up.n_out, (struct tensor_ref){bias.kind + 1, layer, expert});
    same_vector(c, x->down_bias, x->down.n_out, (struct tensor_ref){bias.kind + 2, layer, expert});
}

static void same_latents(const struct compare *c, const struct mla_weights *w, uint32_t i) {
    const struct mla_spec *mla = &c->spec->mla;
    same_matrix(c, &w->q, (struct tensor_ref){TENSOR_Q, i, 0});
    same_matrix(c, &w->q_a, (struct tensor_ref){TENSOR_Q_A, i, 0});
    same_matrix(c, &w->kv_a, (struct tensor_ref){TENSOR_KV_A, i, 0});
    same_vector(c, w->q_a_norm, mla->q_rank, (struct tensor_ref){TENSOR_Q_A_NORM, i, 0});
    same_vector(c, w->kv_a_norm, mla->kv_rank, (struct tensor_ref){TENSOR_KV_A_NORM, i, 0});
    for (uint32_t h = 0; h < c->spec->n_heads; h++) {
        same_matrix(c, &w->uk[h], (struct tensor_ref){TENSOR_UK, i, h});
        same_matrix(c, &w->uv[h], (struct tensor_ref){TENSOR_UV, i, h});
    }
}

static void same_heads(const struct compare *c, const struct layer_weights *l, uint32_t i) {
    size_t hd = c->spec->head_dim, q = c->spec->n_heads * hd, kv = c->spec->n_kv_heads * hd;
    size_t row = same_rows(c, &l->qkv, (size_t[]){0, q}, (struct tensor_ref){TENSOR_Q, i, 0});
    row = same_rows(c, &l->qkv, (size_t[]){row, kv}, (struct tensor_ref){TENSOR_K, i, 0});
    row = same_rows(c, &l->qkv, (size_t[]){row, kv}, (struct tensor_ref){TENSOR_V, i, 0});
    ck_assert_uint_eq(row, l->qkv.n_out);
}

static void same_attention(const struct compare *c, const struct layer_weights *l, uint32_t i) {
    const struct model_spec *s = c->spec;
    size_t hd = s->head_dim, q = s->n_heads * hd, kv = s->n_kv_heads * hd;
    if (s->mla.kv_rank != 0)
        same_latents(c, &l->mla, i);
    else
        same_heads(c, l, i);
    if (s->sinks) same_vector(c, l->sinks, s->n_heads, (struct tensor_ref){TENSOR_SINKS, i, 0});
    same_matrix(c, &l->o, (struct tensor_ref){TENSOR_O, i, 0});
    ck_assert_uint_eq(l->o.n_segments, spec_attn_segments(s));
    same_vector(c, l->attn_norm, s->hidden, (struct tensor_ref){TENSOR_ATTN_NORM, i, 0});
    same_vector(c, l->ffn_norm, s->hidden, (struct tensor_ref){TENSOR_FFN_NORM, i, 0});
    ck_assert_int_eq(l->q_norm != NULL && l->k_norm != NULL, s->qk_norm != QK_NORM_NONE);
    ck_assert_int_eq(l->qkv_bias != NULL, s->attn_bias);
    ck_assert_int_eq(l->o_bias != NULL, s->attn_out_bias);
    if (s->qk_norm == QK_NORM_HEAD) {
        same_vector(c, l->q_norm, hd, (struct tensor_ref){TENSOR_Q_NORM, i, 0});
        same_vector(c, l->k_norm, hd, (struct tensor_ref){TENSOR_K_NORM, i, 0});
    }
    if (s->attn_bias) {
        same_vector(c, l->qkv_bias, q, (struct tensor_ref){TENSOR_Q_BIAS, i, 0});
        same_vector(c, l->qkv_bias + q, kv, (struct tensor_ref){TENSOR_K_BIAS, i, 0});
        same_vector(c, l->qkv_bias + q + kv, kv, (struct tensor_ref){TENSOR_V_BIAS, i, 0});
    }
    if (s->attn_out_bias)
        same_vector(c, l->o_bias, s->hidden, (struct tensor_ref){TENSOR_O_BIAS, i, 0});
}

static void same_moe(const struct compare *c, const struct weights *w, uint32_t i) {
    const struct layer_weights *l = &w->layers[i];
    same_matrix(c, &l->router, (struct tensor_ref){TENSOR_ROUTER, i, 0});
    for (uint32_t x = 0; x < w->n_local_experts; x++)
        same_ffn(c, &l->experts[x], TENSOR_EXPERT_GATE, i, w->first_expert + x);
    if (c->spec->shared.inner == 0) return;
    same_ffn(c, &l->shared, TENSOR_SHARED_GATE, i, 0);
    if (c->spec->shared.gated)
        same_matrix(c, &l->shared_weight, (struct tensor_ref){TENSOR_SHARED_WEIGHT, i, 0});
}

static void same_weights(const char *folder, const struct loaded *l) {
    const struct weights *w = l->w;
    const struct model_spec *s = &l->spec;
    struct safetensors *st;
    struct err_text e;
    ck_assert_int_eq(safetensors_open(&st, folder, &e), 0);
    const struct compare c = {st, s};
    size_t n = (size_t)s->vocab * s->hidden;
    float *want = file_view(&c, (struct tensor_ref){.kind = TENSOR_EMBED},
                            (size_t[]){s->vocab, s->hidden}, w->dtype);
    float *got = mem_alloc(n * sizeof(float));
    widen(got, w->embed, w->dtype, n);
    ck_assert_mem_eq(got, want, n * sizeof(float));
    mem_free(got);
    mem_free(want);
    same_matrix(&c, &w->head,
                (struct tensor_ref){.kind = s->tied_embeddings ? TENSOR_EMBED : TENSOR_HEAD});
    same_vector(&c, w->final_norm, s->hidden, (struct tensor_ref){.kind = TENSOR_FINAL_NORM});
    for (uint32_t i = 0; i < s->n_layers; i++) {
        same_attention(&c, &w->layers[i], i);
        if (s->ffn[i] == FFN_DENSE)
            same_ffn(&c, &w->layers[i].dense, TENSOR_GATE, i, 0);
        else
            same_moe(&c, w, i);
    }
    safetensors_close(st);
}

START_TEST(weights_hold_every_element_of_the_files) {
    const char *folder = models[_i / DTYPE_COUNT];
    struct loaded l = {0};
    load(&l, folder, 2, 1, (enum dtype)(_i % DTYPE_COUNT));
    same_weights(folder, &l);
    weights_destroy(l.w);
}
END_TEST

// Bytes of the checkpoint, and of its experts alone (from tensor names, not from the loader).
static uint64_t file_bytes(const char *folder, bool experts) {
    struct safetensors *st;
    struct err_text e;
    uint64_t n = 0;
    ck_assert_int_eq(safetensors_open(&st, folder, &e), 0);
    for (size_t i = 0; i < safetensors_count(st); i++) {
        const struct safetensors_tensor *t = safetensors_at(st, i);
        bool routed = strstr(t->name, ".experts.") != NULL ||
                      strstr(t->name, ".block_sparse_moe.input_linear") != NULL ||
                      strstr(t->name, ".block_sparse_moe.output_linear") != NULL;
        if (!experts || routed) n += t->bytes;
    }
    safetensors_close(st);
    return n;
}

// Digests are sums over pieces, so those of all ranks' experts add up to those of one rank that
// holds all.
START_TEST(weights_are_the_same_bytes_for_any_number_of_ranks) {
    static const uint32_t ranks[] = {2, 3, 4, 16};
    struct loaded one = {0};
    load(&one, models[_i], 1, 0, DTYPE_BF16);
    uint64_t whole = file_bytes(models[_i], false), experts = file_bytes(models[_i], true);
    ck_assert_uint_eq(one.progress.bytes_total, whole);
    ck_assert_uint_eq(one.progress.bytes_done, whole);
    for (int k = 0; k < 4; k++) {
        uint64_t sum = 0, read = 0;
        for (uint32_t r = 0; r < ranks[k]; r++) {
            struct loaded l = {0};
            load(&l, models[_i], ranks[k], r, DTYPE_BF16);
            ck_assert_uint_eq(l.w->shared_digest, one.w->shared_digest);
            ck_assert_uint_eq(l.progress.bytes_done, l.progress.bytes_total);
            // Exactly its share: the shared tensors and its own experts, which are all of one size.
            uint64_t own = experts / one.spec.router.n_experts * l.w->n_local_experts;
            ck_assert_uint_eq(l.progress.bytes_done, whole - experts + own);
            sum += l.w->experts_digest;
            read += own;
            weights_destroy(l.w);
        }
        ck_assert_uint_eq(sum, one.w->experts_digest);
        ck_assert_uint_eq(read, experts);
    }
    weights_destroy(one.w);
}
END_TEST

START_TEST(weights_do_not_depend_on_threads) {
    struct loaded a = {.layout.n_ranks = 1}, b = {.layout.n_ranks = 1};
    struct err_text e;
    struct weights_config c = {.dtype = DTYPE_BF16, .n_threads = 1};
    ck_assert_int_eq(try_load(&a, models[3], &c, &e), 0);
    c.n_threads = 7;
    ck_assert_int_eq(try_load(&b, models[3], &c, &e), 0);
    ck_assert_uint_eq(a.w->shared_digest, b.w->shared_digest);
    ck_assert_uint_eq(a.w->experts_digest, b.w->experts_digest);
    const struct matrix *x = &a.w->layers[3].experts[15].down,
                        *y = &b.w->layers[3].experts[15].down;
    ck_assert_mem_eq(x->data, y->data, matrix_bytes(x));
    ck_assert_mem_eq(a.w->head.data, b.w->head.data, matrix_bytes(&a.w->head));
    weights_destroy(a.w);
    weights_destroy(b.w);
}
END_TEST

// A record's three matrices lie behind each other, records behind each other: what a disk or a peer
// would send as one block.
START_TEST(weights_lay_experts_as_contiguous_records) {
    struct loaded l = {0};
    load(&l, models[2], 2, 1, DTYPE_BF16);
    ck_assert_uint_eq(l.w->n_local_experts, 4);
    const struct expert_weights *x = l.w->layers[1].experts;
    size_t part = matrix_bytes(&x[0].gate);
    ck_assert_uint_eq(part % 64, 0);
    for (uint32_t i = 0; i < 4; i++) {
        const char *record = x[i].gate.data;
        ck_assert_ptr_eq((const char *)x[i].up.data, record + part);
        ck_assert_ptr_eq((const char *)x[i].down.data, record + 2 * part);
        if (i > 0)
            ck_assert_ptr_eq(record,
                             (const char *)x[i - 1].gate.data + (3 * part + 4095) / 4096 * 4096);
    }
    ck_assert_uint_gt(l.w->bytes, 0);
    weights_destroy(l.w);
}
END_TEST

// --- wrong checkpoints: a copy of a model's folder in a temporary one, changed

struct copy {
    char folder[256];
};

static void copy_file(const char *from, const char *to) {
    static char buf[1 << 16];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert(in != NULL && out != NULL);
    for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;)
        ck_assert_uint_eq(fwrite(buf, 1, n, out), n);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}

static void copy_make(struct copy *c, const char *folder) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    char from[512], to[512];
    snprintf(c->folder, sizeof c->folder, "%s/weights-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(c->folder));
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/%s", folder, files[i]);
        snprintf(to, sizeof to, "%s/%s", c->folder, files[i]);
        copy_file(from, to);
    }
}

static void copy_path(const struct copy *c, const char *file, char path[512]) {
    snprintf(path, 512, "%s/%s", c->folder, file);
}

static void copy_remove(const struct copy *c) {
    char path[512];
    copy_path(c, "config.json", path);
    unlink(path);
    copy_path(c, "model.safetensors", path);
    unlink(path);
    rmdir(c->folder);
}

// Replaces the first occurrence of a text of the same length.
static void edit(const struct copy *c, const char *file, const char *from, const char *to) {
    char path[512];
    copy_path(c, file, path);
    ck_assert_uint_eq(strlen(from), strlen(to));
    int fd = open(path, O_RDWR);
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    char *text = mem_alloc((size_t)st.st_size);
    ck_assert_int_eq(pread(fd, text, (size_t)st.st_size, 0), st.st_size);
    char *at = memmem(text, (size_t)st.st_size, from, strlen(from));
    ck_assert_msg(at != NULL, "%s lacks %s", file, from);
    ck_assert_int_eq(pwrite(fd, to, strlen(to), at - text), (ssize_t)strlen(to));
    mem_free(text);
    close(fd);
}

// Overwrites one float32 element of a tensor.
static void poke(const struct copy *c, const char *tensor, uint64_t element, uint32_t bits) {
    struct safetensors *st;
    struct err_text e;
    char path[512];
    ck_assert_int_eq(safetensors_open(&st, c->folder, &e), 0);
    const struct safetensors_tensor *t = safetensors_find(st, tensor);
    ck_assert_ptr_nonnull(t);
    copy_path(c, "model.safetensors", path);
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, &bits, 4, (off_t)(t->offset + 4 * element)), 4);
    close(fd);
    safetensors_close(st);
}

static void expect_refusal(const struct copy *c, uint32_t rank, enum dtype dtype,
                           const char *word) {
    struct loaded l = {.layout.n_ranks = 2};
    struct err_text e = {""};
    struct weights_config config = {.rank = rank, .dtype = dtype, .n_threads = 3};
    int rc = try_load(&l, c->folder, &config, &e);
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
    struct copy c;
    copy_make(&c, models[1]);
    edit(&c, "config.json", wrong[_i].from, wrong[_i].to);
    expect_refusal(&c, 0, DTYPE_F32, wrong[_i].word);
    expect_refusal(&c, 1, DTYPE_F32, wrong[_i].word);
    copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_a_type_that_weights_may_not_have) {
    struct copy c;
    copy_make(&c, models[1]);
    edit(&c, "model.safetensors", "\"dtype\":\"F32\"", "\"dtype\":\"I32\"");
    expect_refusal(&c, 0, DTYPE_F32, "has type I32; only F32, F16 and BF16");
    copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_tensors_without_a_place) {
    struct copy c;
    copy_make(&c, models[1]);
    edit(&c, "config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true ");
    struct loaded l = {.layout.n_ranks = 2};
    struct err_text e = {""};
    struct weights_config config = {.dtype = DTYPE_F32};
    // A head beside a tied embedding is let through.
    ck_assert_msg(try_load(&l, c.folder, &config, &e) == 0, "%s", e.text);
    weights_destroy(l.w);
    edit(&c, "model.safetensors", "lm_head.weight", "lm_hexd.weight");
    expect_refusal(&c, 0, DTYPE_F32, "tensor lm_hexd.weight has no place in MixtralForCausalLM");
    copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_values_that_are_not_finite) {
    static const uint32_t bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u};
    static const char *const tensors[] = {
        "model.embed_tokens.weight", "model.layers.1.self_attn.v_proj.weight", "model.norm.weight",
        "model.layers.0.block_sparse_moe.experts.3.w2.weight"};
    struct copy c;
    copy_make(&c, models[1]);
    poke(&c, tensors[_i], 37, bad[_i]);
    expect_refusal(&c, 1, DTYPE_BF16, tensors[_i]);
    copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_values_that_the_held_type_cannot_hold) {
    const char *tensor = "model.layers.0.self_attn.o_proj.weight";
    struct copy c;
    copy_make(&c, models[1]);
    poke(&c, tensor, 5, 0x477ff000u); // 65520
    expect_refusal(&c, 0, DTYPE_F16, "o_proj.weight has a value beyond the range of float16");
    struct loaded l = {.layout.n_ranks = 2};
    struct err_text e;
    struct weights_config config = {.dtype = DTYPE_BF16};
    ck_assert_int_eq(try_load(&l, c.folder, &config, &e), 0);
    weights_destroy(l.w);
    poke(&c, tensor, 5, 0xff7fffffu); // the largest float32, negative
    expect_refusal(&c, 0, DTYPE_BF16, "beyond the range of bfloat16");
    copy_remove(&c);
}
END_TEST

// A rank reads only its own slices, so damage in another rank's experts does not reach it.
START_TEST(weights_of_other_ranks_are_not_read) {
    struct copy c;
    copy_make(&c, models[1]);
    poke(&c, "model.layers.0.block_sparse_moe.experts.3.w2.weight", 0, 0x7fc00000u);
    struct loaded l = {0};
    load(&l, c.folder, 2, 0, DTYPE_F32);
    weights_destroy(l.w);
    expect_refusal(&c, 1, DTYPE_F32, "experts.3.w2.weight");
    copy_remove(&c);
}
END_TEST

START_TEST(weights_refuse_a_file_that_was_cut_short) {
    struct copy c;
    char path[512];
    struct stat st;
    copy_make(&c, models[1]);
    copy_path(&c, "model.safetensors", path);
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
    copy_remove(&c);
}
END_TEST

START_TEST(weights_loading_can_be_cancelled) {
    struct loaded l = {.layout.n_ranks = 1};
    struct err_text e;
    const _Atomic bool cancel = true;
    struct weights_config c = {.dtype = DTYPE_F32, .n_threads = 2, .cancel = &cancel};
    ck_assert_int_eq(try_load(&l, models[0], &c, &e), ERR_FATAL_STOPPED);
    ck_assert_ptr_null(l.w);
    ck_assert_uint_gt(l.progress.bytes_total, 0);
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
        rc = try_load(&l, models[0], &c, &e);
        mem_fail_after(0);
        ck_assert_msg(rc == 0 || rc == ERR_FATAL_NOMEM, "allocation %ld: %d %s", n, rc, e.text);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_gt(n, 50);
    weights_destroy(l.w);
}
END_TEST

START_TEST(folder_digest_sees_config_and_layout_but_no_weights) {
    struct copy c;
    uint64_t original, copied, other;
    struct err_text e;
    ck_assert_int_eq(model_folder_digest(&original, models[1], &e), 0);
    copy_make(&c, models[1]);
    ck_assert_int_eq(model_folder_digest(&copied, c.folder, &e), 0);
    ck_assert_uint_eq(copied, original);
    poke(&c, "model.norm.weight", 0, 0x3f800000u);
    ck_assert_int_eq(model_folder_digest(&copied, c.folder, &e), 0);
    ck_assert_uint_eq(copied, original);
    edit(&c, "model.safetensors", "lm_head.weight", "lm_hexd.weight");
    ck_assert_int_eq(model_folder_digest(&other, c.folder, &e), 0);
    ck_assert_uint_ne(other, original);
    edit(&c, "model.safetensors", "lm_hexd.weight", "lm_head.weight");
    edit(&c, "config.json", "\"sliding_window\": 24", "\"sliding_window\": 25");
    ck_assert_int_eq(model_folder_digest(&other, c.folder, &e), 0);
    ck_assert_uint_ne(other, original);
    copy_remove(&c);
    ck_assert_int_eq(model_folder_digest(&other, c.folder, &e), ERR_FATAL_IO);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("weights");
    int n_models = (int)(sizeof models / sizeof *models);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, weights_hold_every_element_of_the_files, 0, n_models * DTYPE_COUNT);
    tcase_add_loop_test(c, weights_are_the_same_bytes_for_any_number_of_ranks, 0, n_models);
    tcase_add_test(c, weights_do_not_depend_on_threads);
    tcase_add_test(c, weights_lay_experts_as_contiguous_records);
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
    Suite *s = suite_create("worker_weights");
    suite_add_tcase(s, c);
    return suite_run(s);
}
