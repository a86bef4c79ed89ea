// tiny.c: see tiny.h.
#include "tests/harness/tiny.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/slice.h"

struct piece {
    struct piece *next;
    void *data;
    size_t bytes;
};

struct tiny {
    struct model_spec spec;
    struct layout layout;
    enum dtype dtype;
    uint64_t seed;
    struct weights *ranks; // [n_ranks]
    struct piece *pieces;  // owns all memory below
};

void tiny_spec(struct model_spec *spec) {
    *spec = (struct model_spec){
        .family = "qwen3_moe",
        .architecture = "Qwen3MoeForCausalLM",
        .n_layers = 3,
        .hidden = 64,
        .vocab = 97,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 16,
        .max_position = 2048,
        .rope = {.dim = 16, .theta = 10000.0f},
        .norm_eps = 1e-6f,
        .attn_scale = 0.25f,
        .qk_norm = QK_NORM_HEAD,
        .tied_embeddings = true,
        .inner_dense = 80,
        .inner_expert = 48,
        .router = {.n_experts = 6,
                   .top_k = 3,
                   .score = ROUTER_SOFTMAX,
                   .renorm = RENORM_L1,
                   .scale = 1.0f},
        .dtype = DTYPE_F32,
        .ffn = {FFN_MOE, FFN_DENSE, FFN_MOE},
        .bos_id = UINT32_MAX,
    };
}

void tiny_spec_odd(struct model_spec *spec) {
    *spec = (struct model_spec){
        .family = "odd",
        .architecture = "OddForCausalLM",
        .n_layers = 3,
        .hidden = 72,
        .vocab = 131,
        .n_heads = 6,
        .n_kv_heads = 6,
        .head_dim = 24,
        .max_position = 4096,
        .sliding_window = 21,
        .rope = {.dim = 16, .theta = 500.0f, .interleaved = true, .attention = 1.1f},
        .norm_eps = 1e-5f,
        .attn_scale = 0.2f,
        .attn_bias = true,
        .attn_out_bias = true,
        .inner_dense = 56,
        .inner_expert = 40,
        .router = {.n_experts = 5,
                   .top_k = 2,
                   .score = ROUTER_SIGMOID,
                   .selection_bias = true,
                   .renorm = RENORM_NONE,
                   .scale = 1.7f},
        .shared = {.inner = 32, .gated = true},
        .scale = {.embedding = 1.3f, .residual = 0.8f, .logits = 0.9f},
        .clip_qkv = 2.0f,
        .sinks = true,
        .dtype = DTYPE_F32,
        .ffn = {FFN_DENSE, FFN_MOE, FFN_MOE},
        .bos_id = UINT32_MAX,
    };
}

void tiny_spec_split(struct model_spec *spec) {
    tiny_spec(spec);
    spec->n_layers = 4;
    spec->inner_dense = 128;
    spec->inner_expert = 64;
    spec->activation = ACT_CLAMPED;
    spec->act_alpha = 1.7f;
    spec->act_limit = 7.0f;
    spec->expert_bias = true;
    spec->router.n_experts = 5;
    spec->shared = (struct shared_spec){.inner = 48, .gated = true};
    for (uint32_t layer = 0; layer < spec->n_layers; layer++)
        spec->ffn[layer] = layer == 1 ? FFN_DENSE : FFN_MOE;
}

void tiny_spec_hybrid(struct model_spec *spec) {
    tiny_spec_split(spec);
    spec->n_heads = 8;
    spec->delta =
        (struct delta_spec){.kernel = 3, .n_k_heads = 8, .n_v_heads = 16, .k_dim = 6, .v_dim = 5};
    spec->layer_flags[0] = spec->layer_flags[2] = LAYER_RECURRENT;
}

static void *take(struct tiny *t, size_t bytes) {
    struct piece *piece = mem_zalloc(sizeof *piece);
    check(piece != NULL);
    piece->data = mem_pages(bytes, 64);
    check(piece->data != NULL);
    piece->bytes = bytes;
    piece->next = t->pieces;
    t->pieces = piece;
    return piece->data;
}

// splitmix64 over a name, so that each tensor's numbers depend on nothing but what it is.
static uint64_t mix(uint64_t z) {
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

struct tensor_name {
    enum tensor_kind kind;
    uint32_t layer, expert;
};

// Uniform in middle - width .. middle + width.
static float *numbers(struct tiny *t, struct tensor_name name, size_t n, float middle,
                      float width) {
    float *x = take(t, n * sizeof *x);
    uint64_t state = mix(mix(mix(t->seed ^ name.kind) ^ name.layer) ^ name.expert);
    for (size_t i = 0; i < n; i++) {
        state = mix(state);
        x[i] = middle + width * ((float)(state >> 40) * 0x1p-23f - 1.0f);
    }
    return x;
}

// The first n_out rows and n_in columns behind rows, which lie stride apart.
static struct matrix pack(struct tiny *t, const float *rows, size_t stride,
                          const struct matrix *shape) {
    struct matrix w = *shape;
    w.dtype = t->dtype;
    if (w.n_out == 0) return w;
    void *data = take(t, matrix_bytes(&w));
    w.data = data;
    matrix_pack(&w, data, rows, DTYPE_F32, stride);
    return w;
}

// A whole matrix [n_out, n_in] as float32.
static const float *random_rows(struct tiny *t, struct tensor_name name, uint32_t n_out,
                                uint32_t n_in) {
    return numbers(t, name, (size_t)n_out * n_in, 0.0f, 1.7f / sqrtf((float)n_in));
}

static struct matrix random_matrix(struct tiny *t, struct tensor_name name, uint32_t n_out,
                                   uint32_t n_in) {
    return pack(t, random_rows(t, name, n_out, n_in), n_in,
                &(struct matrix){.n_out = n_out, .n_in = n_in, .n_segments = 1});
}

// Inner columns [first, first + n) of a feed-forward network, which are so many of its segments.
struct inner_part {
    uint32_t inner, first, n, segments;
};

static struct inner_part whole_inner(uint32_t inner) {
    return (struct inner_part){inner, 0, inner, spec_inner_segments(inner)};
}

static struct expert_weights random_ffn(struct tiny *t, const enum tensor_kind kinds[3],
                                        struct tensor_name at, struct inner_part part) {
    uint32_t hidden = t->spec.hidden;
    const struct matrix in = {.n_out = part.n, .n_in = hidden, .n_segments = 1},
                        out = {.n_out = hidden, .n_in = part.n, .n_segments = part.segments};
    const struct tensor_name gate = {kinds[0], at.layer, at.expert},
                             up = {kinds[1], at.layer, at.expert},
                             down = {kinds[2], at.layer, at.expert};
    size_t first = (size_t)part.first * hidden;
    return (struct expert_weights){
        .gate = pack(t, random_rows(t, gate, part.inner, hidden) + first, hidden, &in),
        .up = pack(t, random_rows(t, up, part.inner, hidden) + first, hidden, &in),
        .down = pack(t, random_rows(t, down, hidden, part.inner) + part.first, part.inner, &out),
    };
}

// A slice's rows of q, k and v out of all of them, each of width floats.
static float *slice_qkv(struct tiny *t, const struct slice *slice, const float *all, size_t width) {
    const struct model_spec *s = &t->spec;
    size_t head = s->head_dim * width, q = slice->n_heads * head, kv = slice->n_kv_heads * head;
    const float *k = all + s->n_heads * head + slice->first_kv_head * head,
                *v = k + s->n_kv_heads * head;
    float *out = take(t, (q + 2 * kv) * sizeof *out);
    memcpy(out, all + slice->first_head * head, q * sizeof *out);
    memcpy(out + q, k, kv * sizeof *out);
    memcpy(out + q + kv, v, kv * sizeof *out);
    return out;
}

static void fill_attention(struct tiny *t, struct layer_weights *w, uint32_t layer,
                           const struct slice *slice) {
    const struct model_spec *s = &t->spec;
    uint32_t q = s->n_heads * s->head_dim, qkv = q + 2 * s->n_kv_heads * s->head_dim;
    uint32_t own_q = slice->n_heads * s->head_dim, first_q = slice->first_head * s->head_dim;
    const struct tensor_name in = {TENSOR_Q, layer, 0}, out = {TENSOR_O, layer, 0};
    w->qkv = pack(t, slice_qkv(t, slice, random_rows(t, in, qkv, s->hidden), s->hidden), s->hidden,
                  &(struct matrix){.n_out = own_q + 2 * slice->n_kv_heads * s->head_dim,
                                   .n_in = s->hidden,
                                   .n_segments = 1});
    w->o = pack(
        t, random_rows(t, out, s->hidden, q) + first_q, q,
        &(struct matrix){.n_out = s->hidden, .n_in = own_q, .n_segments = slice->attn_segments});
    if (s->attn_bias)
        w->qkv_bias = slice_qkv(
            t, slice, numbers(t, (struct tensor_name){TENSOR_Q_BIAS, layer, 0}, qkv, 0.0f, 0.3f),
            1);
    if (s->attn_out_bias)
        w->o_bias =
            numbers(t, (struct tensor_name){TENSOR_O_BIAS, layer, 0}, s->hidden, 0.0f, 0.3f);
    if (s->sinks)
        w->sinks =
            numbers(t, (struct tensor_name){TENSOR_SINKS, layer, 0}, s->n_heads, 0.5f, 1.0f) +
            slice->first_head;
    if (s->qk_norm == QK_NORM_NONE) return;
    bool wide = s->qk_norm == QK_NORM_WIDE;
    uint32_t n_q = wide ? q : s->head_dim, n_k = wide ? s->n_kv_heads * s->head_dim : s->head_dim;
    w->q_norm = numbers(t, (struct tensor_name){TENSOR_Q_NORM, layer, 0}, n_q, 1.0f, 0.3f);
    w->k_norm = numbers(t, (struct tensor_name){TENSOR_K_NORM, layer, 0}, n_k, 1.0f, 0.3f);
}

struct run {
    uint32_t first, n;
};

// Runs of rows, each of width floats, behind each other.
static float *join_runs(struct tiny *t, const float *all, size_t width, const struct run *runs,
                        uint32_t n_runs) {
    size_t n = 0;
    for (uint32_t i = 0; i < n_runs; i++)
        n += runs[i].n * width;
    float *out = take(t, n * sizeof *out), *at = out;
    for (uint32_t i = 0; i < n_runs; at += runs[i].n * width, i++)
        memcpy(at, all + runs[i].first * width, runs[i].n * width * sizeof *out);
    return out;
}

static struct matrix pack_runs(struct tiny *t, struct tensor_name name, uint32_t n_rows,
                               const struct run *runs, uint32_t n_runs) {
    uint32_t hidden = t->spec.hidden, n_out = 0;
    for (uint32_t i = 0; i < n_runs; i++)
        n_out += runs[i].n;
    return pack(t, join_runs(t, random_rows(t, name, n_rows, hidden), hidden, runs, n_runs), hidden,
                &(struct matrix){.n_out = n_out, .n_in = hidden, .n_segments = 1});
}

// Rows of all heads' queries, keys, values and gates of the output, in this order.
static void fill_delta(struct tiny *t, struct layer_weights *w, uint32_t layer,
                       const struct slice *slice) {
    const struct model_spec *s = &t->spec;
    const struct delta_spec *d = &s->delta;
    uint32_t keys = spec_delta_keys(s), values = spec_delta_values(s), n = d->n_v_heads;
    uint32_t first_k = slice->first_k_head * d->k_dim, n_k = slice->n_k_heads * d->k_dim;
    uint32_t first_v = slice->first_v_head * d->v_dim, n_v = slice->n_v_heads * d->v_dim;
    const struct run in[] = {{first_k, n_k},
                             {keys + first_k, n_k},
                             {2 * keys + first_v, n_v},
                             {2 * keys + values + first_v, n_v}},
                     heads[] = {{slice->first_v_head, slice->n_v_heads},
                                {n + slice->first_v_head, slice->n_v_heads}};
    const struct tensor_name a_log = {TENSOR_DELTA_A_LOG, layer, 0},
                             dt_bias = {TENSOR_DELTA_DT_BIAS, layer, 0},
                             norm = {TENSOR_DELTA_NORM, layer, 0},
                             out = {TENSOR_DELTA_OUT, layer, 0};
    uint32_t channels = 2 * keys + values, own = 2 * n_k + n_v;
    w->delta.in =
        pack_runs(t, (struct tensor_name){TENSOR_DELTA_QKV, layer, 0}, channels + values, in, 4);
    w->delta.gates = pack_runs(t, (struct tensor_name){TENSOR_DELTA_B, layer, 0}, 2 * n, heads, 2);
    w->delta.conv = take(t, (size_t)d->kernel * own * sizeof(float));
    for (uint32_t tap = 0; tap < d->kernel; tap++) {
        const struct tensor_name conv = {TENSOR_DELTA_CONV, layer, tap};
        memcpy(w->delta.conv + (size_t)tap * own,
               join_runs(t, numbers(t, conv, channels, 0.1f, 0.5f), 1, in, 3), own * sizeof(float));
    }
    w->delta.a_log = numbers(t, a_log, n, 0.0f, 1.0f) + slice->first_v_head;
    w->delta.dt_bias = numbers(t, dt_bias, n, 0.0f, 1.0f) + slice->first_v_head;
    w->delta.norm = numbers(t, norm, d->v_dim, 1.0f, 0.3f);
    w->o = pack(
        t, random_rows(t, out, s->hidden, values) + first_v, values,
        &(struct matrix){.n_out = s->hidden, .n_in = n_v, .n_segments = slice->delta_segments});
}

// Experts of a layer, or the rank's part of each.
static void fill_experts(struct tiny *t, const struct weights *weights, struct layer_weights *w,
                         uint32_t layer) {
    static const enum tensor_kind expert[] = {TENSOR_EXPERT_GATE, TENSOR_EXPERT_UP,
                                              TENSOR_EXPERT_DOWN};
    const struct model_spec *s = &t->spec;
    uint32_t etp = t->layout.etp, n = s->inner_expert / etp;
    uint32_t first = layout_place(&t->layout, weights->rank).etp * n;
    const struct inner_part part = {s->inner_expert, first, n,
                                    spec_inner_segments(s->inner_expert) / etp};
    w->experts = take(t, (weights->n_local_experts + 1) * sizeof *w->experts);
    for (uint32_t i = 0; i < weights->n_local_experts; i++) {
        const struct tensor_name at = {0, layer, weights->first_expert + i};
        struct expert_weights *x = &w->experts[i];
        *x = random_ffn(t, expert, at, part);
        if (!s->expert_bias) continue;
        const struct tensor_name gate = {TENSOR_EXPERT_GATE_BIAS, at.layer, at.expert},
                                 up = {TENSOR_EXPERT_UP_BIAS, at.layer, at.expert},
                                 down = {TENSOR_EXPERT_DOWN_BIAS, at.layer, at.expert};
        x->gate_bias = numbers(t, gate, part.inner, 0.0f, 0.3f) + first;
        x->up_bias = numbers(t, up, part.inner, 0.0f, 0.3f) + first;
        if (etp == 1) x->down_bias = numbers(t, down, s->hidden, 0.0f, 0.3f);
    }
    if (!s->expert_bias || etp == 1) return;
    w->down_biases = take(t, s->router.n_experts * s->hidden * sizeof *w->down_biases);
    for (uint32_t x = 0; x < s->router.n_experts; x++)
        memcpy(w->down_biases + (size_t)x * s->hidden,
               numbers(t, (struct tensor_name){TENSOR_EXPERT_DOWN_BIAS, layer, x}, s->hidden, 0.0f,
                       0.3f),
               s->hidden * sizeof *w->down_biases);
}

static void fill_layer(struct tiny *t, struct weights *weights, uint32_t layer,
                       const struct slice *slice) {
    static const enum tensor_kind dense[] = {TENSOR_GATE, TENSOR_UP, TENSOR_DOWN};
    static const enum tensor_kind shared[] = {TENSOR_SHARED_GATE, TENSOR_SHARED_UP,
                                              TENSOR_SHARED_DOWN};
    const struct model_spec *s = &t->spec;
    struct layer_weights *w = &weights->layers[layer];
    w->attn_norm =
        numbers(t, (struct tensor_name){TENSOR_ATTN_NORM, layer, 0}, s->hidden, 1.0f, 0.3f);
    w->ffn_norm =
        numbers(t, (struct tensor_name){TENSOR_FFN_NORM, layer, 0}, s->hidden, 1.0f, 0.3f);
    if (spec_layer_recurrent(s, layer))
        fill_delta(t, w, layer, slice);
    else
        fill_attention(t, w, layer, slice);
    if (s->ffn[layer] == FFN_DENSE) {
        w->dense = random_ffn(t, dense, (struct tensor_name){0, layer, 0},
                              (struct inner_part){s->inner_dense, slice->first_inner,
                                                  slice->n_inner, slice->inner_segments});
        return;
    }
    w->router = random_matrix(t, (struct tensor_name){TENSOR_ROUTER, layer, 0}, s->router.n_experts,
                              s->hidden);
    if (s->router.selection_bias)
        w->selection_bias = numbers(t, (struct tensor_name){TENSOR_SELECTION_BIAS, layer, 0},
                                    s->router.n_experts, 0.0f, 0.3f);
    if (s->shared.inner != 0) {
        w->shared =
            random_ffn(t, shared, (struct tensor_name){0, layer, 0}, whole_inner(s->shared.inner));
        w->shared_weight =
            random_matrix(t, (struct tensor_name){TENSOR_SHARED_WEIGHT, layer, 0}, 1, s->hidden);
    }
    fill_experts(t, weights, w, layer);
}

static float *embedding_rows(struct tiny *t) {
    size_t n = (size_t)t->spec.vocab * t->spec.hidden;
    return numbers(t, (struct tensor_name){TENSOR_EMBED, 0, 0}, n, 0.0f, 1.0f);
}

static void fill_embedding(struct tiny *t, struct weights *w) {
    size_t n = (size_t)t->spec.vocab * t->spec.hidden;
    w->embed = take(t, n * dtype_bytes(t->dtype));
    kernel_ops_ref()->pack(w->embed, embedding_rows(t), t->dtype, (uint32_t)n);
}

static void fill_head(struct tiny *t, struct weights *w, const struct slice *slice) {
    const struct model_spec *s = &t->spec;
    size_t n = (size_t)s->vocab * s->hidden;
    const float *head = s->tied_embeddings
                            ? embedding_rows(t)
                            : numbers(t, (struct tensor_name){TENSOR_HEAD, 0, 0}, n, 0.0f, 0.5f);
    w->head = pack(t, head + (size_t)slice->first_token * s->hidden, s->hidden,
                   &(struct matrix){.n_out = slice->n_tokens, .n_in = s->hidden, .n_segments = 1});
    w->final_norm =
        numbers(t, (struct tensor_name){TENSOR_FINAL_NORM, 0, 0}, s->hidden, 1.0f, 0.3f);
}

static void fill_rank(struct tiny *t, uint32_t rank) {
    const struct model_spec *s = &t->spec;
    struct weights *w = &t->ranks[rank];
    w->spec = s;
    w->rank = rank;
    w->first_expert = layout_expert_first(&t->layout, s->router.n_experts, rank);
    w->n_local_experts = layout_expert_count(&t->layout, s->router.n_experts, rank);
    w->dtype = t->dtype;
    w->layers = take(t, s->n_layers * sizeof *w->layers);
    const struct slice slice = slice_of(s, &t->layout, rank);
    uint32_t stage = layout_place(&t->layout, rank).stage;
    uint32_t first = layout_layer_first(&t->layout, s->n_layers, stage);
    if (stage == 0) fill_embedding(t, w);
    if (stage + 1 == t->layout.pp) fill_head(t, w, &slice);
    for (uint32_t i = 0; i < layout_layer_count(&t->layout, s->n_layers, stage); i++)
        fill_layer(t, w, first + i, &slice);
}

struct tiny *tiny_create(const struct model_spec *spec, uint32_t n_ranks, enum dtype dtype,
                         uint64_t seed) {
    struct layout layout;
    check(layout_make(&layout, n_ranks, NULL) == 0);
    return tiny_create_in(spec, &layout, dtype, seed);
}

struct tiny *tiny_create_in(const struct model_spec *spec, const struct layout *layout,
                            enum dtype dtype, uint64_t seed) {
    struct tiny *t = mem_zalloc(sizeof *t);
    check(t != NULL);
    t->layout = *layout;
    t->spec = *spec;
    t->dtype = dtype;
    t->seed = seed;
    t->ranks = take(t, layout->n_ranks * sizeof *t->ranks);
    for (uint32_t rank = 0; rank < layout->n_ranks; rank++)
        fill_rank(t, rank);
    return t;
}

void tiny_destroy(struct tiny *t) {
    if (t == NULL) return;
    while (t->pieces != NULL) {
        struct piece *piece = t->pieces;
        t->pieces = piece->next;
        mem_pages_free(piece->data, piece->bytes);
        mem_free(piece);
    }
    mem_free(t);
}

const struct weights *tiny_weights(const struct tiny *t, uint32_t rank) {
    return &t->ranks[rank];
}
const struct layout *tiny_layout(const struct tiny *t) {
    return &t->layout;
}
