// worker_weights.c: every element of the loaded weights against the files, for any number of ranks
// and threads.
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/model/safetensors.h"
#include "tests/harness/folder_copy.h"
#include "tests/harness/loaded.h"
#include "tests/harness/suite.h"

static const char *const models[] = {
    TEST_DATA "/models/tiny-qwen3-moe", TEST_DATA "/models/tiny-mixtral",
    TEST_DATA "/models/awkward",        SOURCE_ROOT "/models/seedling",
    TEST_DATA "/models/qwen2-moe",      TEST_DATA "/models/granitemoeshared",
    TEST_DATA "/models/gpt-oss",        TEST_DATA "/models/dbrx",
    TEST_DATA "/models/deepseek-v3",    TEST_DATA "/models/grok-2",
    TEST_DATA "/models/glm5",           TEST_DATA "/models/deepseek-v4"};

static void load(struct loaded *l, const char *folder, uint32_t n_ranks, uint32_t rank,
                 enum dtype dtype) {
    struct err_text e = {""};
    struct weights_config c = {.rank = rank, .dtype = dtype, .n_threads = 1 + rank % 3};
    l->layout.n_ranks = n_ranks;
    int rc = loaded_try(l, folder, &c, &e);
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
    const struct family *family = spec_family(c->spec);
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

static void same_indexer(const struct compare *c, const struct index_weights *w, uint32_t i) {
    if (c->spec->indexer.top_k == 0 || (c->spec->layer_flags[i] & LAYER_SAME_KEYS)) return;
    uint32_t dim = c->spec->indexer.dim;
    same_matrix(c, &w->q, (struct tensor_ref){TENSOR_INDEX_Q, i, 0});
    same_matrix(c, &w->k, (struct tensor_ref){TENSOR_INDEX_K, i, 0});
    same_matrix(c, &w->weights, (struct tensor_ref){TENSOR_INDEX_WEIGHTS, i, 0});
    same_vector(c, w->k_norm, dim, (struct tensor_ref){TENSOR_INDEX_K_NORM, i, 0});
    same_vector(c, w->k_norm_bias, dim, (struct tensor_ref){TENSOR_INDEX_K_NORM_BIAS, i, 0});
}

static void same_entries(const struct compare *c, const struct entry_weights *w,
                         struct tensor_ref kv, uint32_t rate) {
    struct tensor_ref other = kv;
    same_matrix(c, &w->kv, kv);
    other.kind = kv.kind + 1;
    same_matrix(c, &w->gate, other);
    other.kind = kv.kind + 2;
    same_vector(c, w->bias, (size_t)rate * w->kv.n_out, other);
}

static void same_joint(const struct compare *c, const struct layer_weights *l, uint32_t i) {
    const struct model_spec *s = c->spec;
    const struct joint_weights *w = &l->joint;
    uint32_t rate = spec_compress_rate(s, i);
    same_matrix(c, &w->q_a, (struct tensor_ref){TENSOR_Q_A, i, 0});
    same_matrix(c, &w->q, (struct tensor_ref){TENSOR_Q, i, 0});
    same_matrix(c, &w->kv, (struct tensor_ref){TENSOR_KV_A, i, 0});
    same_vector(c, w->q_a_norm, s->joint.q_rank, (struct tensor_ref){TENSOR_Q_A_NORM, i, 0});
    same_vector(c, w->kv_norm, s->head_dim, (struct tensor_ref){TENSOR_KV_A_NORM, i, 0});
    for (uint32_t g = 0; g < s->joint.o_groups; g++)
        same_matrix(c, &w->o_a[g], (struct tensor_ref){TENSOR_O_A, i, g});
    if (rate == 0) return;
    same_entries(c, &l->compress.entry, (struct tensor_ref){TENSOR_ENTRY_KV, i, 0}, rate);
    if (!(s->layer_flags[i] & LAYER_CSA)) return;
    same_entries(c, &l->compress.index, (struct tensor_ref){TENSOR_INDEX_ENTRY_KV, i, 0}, rate);
    same_matrix(c, &l->compress.index_q, (struct tensor_ref){TENSOR_INDEX_Q, i, 0});
    same_matrix(c, &l->compress.index_weights, (struct tensor_ref){TENSOR_INDEX_WEIGHTS, i, 0});
}

static void same_connection(const struct compare *c, const struct hyper_weights *w,
                            struct tensor_ref mix) {
    struct tensor_ref base = mix;
    same_matrix(c, &w->mix, mix);
    base.kind = mix.kind + 1;
    same_vector(c, w->base, w->mix.n_out, base);
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
    else if (s->joint.q_rank != 0)
        same_joint(c, l, i);
    else
        same_heads(c, l, i);
    if (s->hyper.n != 0) {
        same_connection(c, &l->attn_hyper, (struct tensor_ref){TENSOR_HYPER_ATTN_MIX, i, 0});
        same_connection(c, &l->ffn_hyper, (struct tensor_ref){TENSOR_HYPER_FFN_MIX, i, 0});
    }
    same_indexer(c, &l->index, i);
    if (s->sinks) same_vector(c, l->sinks, s->n_heads, (struct tensor_ref){TENSOR_SINKS, i, 0});
    same_matrix(c, &l->o, (struct tensor_ref){TENSOR_O, i, 0});
    ck_assert_uint_eq(l->o.n_segments, spec_attn_segments(s));
    same_vector(c, l->attn_norm, s->hidden, (struct tensor_ref){TENSOR_ATTN_NORM, i, 0});
    same_vector(c, l->ffn_norm, s->hidden, (struct tensor_ref){TENSOR_FFN_NORM, i, 0});
    if (s->post_norms) {
        same_vector(c, l->attn_post_norm, s->hidden,
                    (struct tensor_ref){TENSOR_ATTN_POST_NORM, i, 0});
        same_vector(c, l->ffn_post_norm, s->hidden,
                    (struct tensor_ref){TENSOR_FFN_POST_NORM, i, 0});
    }
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
    if (s->hyper.n != 0)
        same_connection(&c, &w->head_hyper, (struct tensor_ref){.kind = TENSOR_HYPER_HEAD_MIX});
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

START_TEST(weights_beyond_the_workers_memory_are_refused_before_they_are_read) {
    struct loaded l = {.layout.n_ranks = 1};
    struct err_text e = {""};
    char bytes[32];
    load(&l, models[3], 1, 0, DTYPE_F32);
    uint64_t needed = l.w->bytes;
    weights_destroy(l.w);
    struct weights_config c = {.dtype = DTYPE_F32, .memory_bytes = needed - 1};
    l.progress = (struct weights_progress){0};
    ck_assert_int_eq(loaded_try(&l, models[3], &c, &e), ERR_FATAL_CONFIG);
    ck_assert_ptr_null(l.w);
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)needed);
    ck_assert_msg(strstr(e.text, bytes) != NULL && strstr(e.text, "memory") != NULL, "%s", e.text);
    ck_assert_uint_eq(atomic_load(&l.progress.bytes_total), 0);
    c.memory_bytes = needed;
    ck_assert_int_eq(loaded_try(&l, models[3], &c, &e), 0);
    weights_destroy(l.w);
}
END_TEST

static uint64_t left_bytes;
static uint64_t left(void) {
    return left_bytes;
}

// Which is no matter of options: the next start may find more.
START_TEST(weights_beyond_what_is_left_are_refused_before_they_are_read) {
    struct loaded l = {.layout.n_ranks = 1};
    struct err_text e = {""};
    load(&l, models[3], 1, 0, DTYPE_F32);
    uint64_t needed = l.w->bytes;
    weights_destroy(l.w);
    struct weights_config c = {.dtype = DTYPE_F32, .left = left};
    left_bytes = needed - 1;
    l.progress = (struct weights_progress){0};
    ck_assert_int_eq(loaded_try(&l, models[3], &c, &e), ERR_FATAL_NOMEM);
    ck_assert_ptr_null(l.w);
    ck_assert_msg(strstr(e.text, "are left") != NULL, "%s", e.text);
    ck_assert_uint_eq(atomic_load(&l.progress.bytes_total), 0);
    c.memory_bytes = needed; // what was given is not asked of the machine
    ck_assert_int_eq(loaded_try(&l, models[3], &c, &e), 0);
    weights_destroy(l.w);
    c.memory_bytes = 0;
    left_bytes = needed;
    ck_assert_int_eq(loaded_try(&l, models[3], &c, &e), 0);
    weights_destroy(l.w);
}
END_TEST

START_TEST(weights_do_not_depend_on_threads) {
    struct loaded a = {.layout.n_ranks = 1}, b = {.layout.n_ranks = 1};
    struct err_text e;
    struct weights_config c = {.dtype = DTYPE_BF16, .n_threads = 1};
    ck_assert_int_eq(loaded_try(&a, models[3], &c, &e), 0);
    c.n_threads = 7;
    ck_assert_int_eq(loaded_try(&b, models[3], &c, &e), 0);
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

// A table of I64 whose bytes become twice as many I32, for as many experts a token, of which
// every other token has one only; or with an expert that is not there.
static int load_table(uint16_t wrong, struct loaded *l, struct err_text *e) {
    static const char *const tables[] = {"layers.0.ffn.gate.tid2eid", "layers.1.ffn.gate.tid2eid"};
    struct folder_copy c;
    struct safetensors *st;
    struct weights_config config = {.dtype = DTYPE_BF16};
    char path[FOLDER_PATH_MAX];
    folder_copy_make(&c, TEST_DATA "/models/deepseek-v4-sliding");
    folder_copy_edit(&c, "config.json", "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 6");
    folder_copy_path(&c, "model.safetensors", path);
    for (int i = 0; i < 2; i++) {
        folder_copy_edit(&c, "model.safetensors", "\"I64\",\"shape\":[128,3]",
                         "\"I32\",\"shape\":[128,6]");
        ck_assert_int_eq(safetensors_open(&st, c.folder, e), 0);
        FILE *f = fopen(path, "r+b");
        ck_assert(f != NULL && fseek(f, (long)safetensors_find(st, tables[i])->offset, 0) == 0);
        for (int32_t id = 0; id < 128 * 6; id++) {
            int32_t expert = id == 128 * 6 - 1 ? wrong : id % 12 < 6 ? id % 6 : 4;
            ck_assert_uint_eq(fwrite(&expert, sizeof expert, 1, f), 1);
        }
        fclose(f);
        safetensors_close(st);
    }
    int rc = loaded_try(l, c.folder, &config, e);
    folder_copy_remove(&c);
    return rc;
}

START_TEST(a_table_of_experts_may_be_of_32_bits_and_has_no_expert_beyond_the_last) {
    struct loaded l = {.layout.n_ranks = 1};
    struct err_text e;
    ck_assert_msg(load_table(5, &l, &e) == 0, "%s", e.text);
    for (uint32_t i = 0; i < 128 * 6; i++)
        ck_assert_uint_eq(l.w->layers[1].experts_of[i], i == 128 * 6 - 1 ? 5
                                                        : i % 12 < 6     ? i % 6
                                                                         : 4);
    ck_assert_ptr_null(l.w->layers[2].experts_of);
    weights_destroy(l.w);
    l = (struct loaded){.layout.n_ranks = 1};
    ck_assert_int_eq(load_table(6, &l, &e), ERR_FATAL_MODEL);
    ck_assert_msg(strstr(e.text, "tid2eid gives token 127 the expert 6; there are 6"), "%s",
                  e.text);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("weights");
    int n_models = (int)(sizeof models / sizeof *models);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, a_table_of_experts_may_be_of_32_bits_and_has_no_expert_beyond_the_last);
    tcase_add_loop_test(c, weights_hold_every_element_of_the_files, 0, n_models * DTYPE_COUNT);
    tcase_add_loop_test(c, weights_are_the_same_bytes_for_any_number_of_ranks, 0, n_models);
    tcase_add_test(c, weights_beyond_the_workers_memory_are_refused_before_they_are_read);
    tcase_add_test(c, weights_beyond_what_is_left_are_refused_before_they_are_read);
    tcase_add_test(c, weights_do_not_depend_on_threads);
    tcase_add_test(c, weights_lay_experts_as_contiguous_records);
    Suite *s = suite_create("worker_weights");
    suite_add_tcase(s, c);
    return suite_run(s);
}
