// ref.c: docs/arithmetic.md as C: one element at a time, in the order of the page.
//
// The oracle of every other back end and what runs where none of them can. It shares nothing with
// them but the scalar elementary functions, and it is never made faster at the price of looking
// less like the page.
#include "kernels/ref.h"

static float lane_sum(const float *x, uint32_t n) {
    float a[LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        a[i % LANES] = a[i % LANES] + x[i];
    return lane_tree_sum(a);
}

// Column c of one row: the segments' sums, then the balanced tree of neighbours.
static float dot_column(const struct matrix *w, uint32_t c, const float *x) {
    float p[SEGMENTS_MAX];
    uint32_t length = w->n_in / w->n_segments;
    size_t panel = (size_t)(c / PANEL_COLS) * w->n_in * PANEL_COLS;
    for (uint32_t s = 0; s < w->n_segments; s++) {
        float acc = 0.0f;
        for (uint32_t k = s * length; k < (s + 1) * length; k++)
            acc = fmaf(element(w->data, w->dtype, panel + (size_t)k * PANEL_COLS + c % PANEL_COLS),
                       x[k], acc);
        p[s] = acc;
    }
    for (uint32_t count = w->n_segments; count > 1; count /= 2)
        for (uint32_t s = 0; s < count / 2; s++)
            p[s] = p[2 * s] + p[2 * s + 1];
    return p[0];
}

static void ref_matmul(float *y, size_t ldy, const float *x, size_t ldx, uint32_t n_rows,
                       const struct matrix *w, uint32_t panel_begin, uint32_t panel_end) {
    check(panel_begin <= panel_end && panel_end <= matrix_panels(w));
    check(w->n_segments >= 1 && w->n_segments <= SEGMENTS_MAX && w->n_in % w->n_segments == 0);
    uint32_t end = panel_end * PANEL_COLS < w->n_out ? panel_end * PANEL_COLS : w->n_out;
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t c = panel_begin * PANEL_COLS; c < end; c++)
            y[r * ldy + c] = dot_column(w, c, x + r * ldx);
}

// One query and the keys [begin, end) of one partition.
struct part {
    const struct attend_job *job;
    const float *q;
    float factor;
    uint32_t begin, end;
};

static float key_value(const struct attend_job *job, const void *base, uint32_t key, size_t index) {
    const unsigned char *page = base;
    page += job->block_table[key / KV_BLOCK_TOKENS] * job->block_stride;
    return element(page, job->kv_dtype, index);
}

// What the elements of a key or value of so many are multiples of.
static float key_scale(const void *base, const struct attend_job *job, uint32_t key, uint32_t dim) {
    if (job->kv_dtype != DTYPE_I8) return 1.0f;
    const unsigned char *page = base;
    page += job->block_table[key / KV_BLOCK_TOKENS] * job->block_stride;
    return element(page + (size_t)dim * KV_BLOCK_TOKENS, DTYPE_F32, key % KV_BLOCK_TOKENS);
}

static float capped(float x, float cap) {
    return cap * elementary_tanh(x / cap);
}

static float score(const struct part *part, uint32_t key) {
    const struct attend_job *job = part->job;
    float s = 0.0f;
    for (uint32_t d = 0; d < job->head_dim; d++) {
        size_t index = (size_t)d * KV_BLOCK_TOKENS + key % KV_BLOCK_TOKENS;
        s = fmaf(key_value(job, job->k_base, key, index), part->q[d], s);
    }
    s = s * key_scale(job->k_base, job, key, job->head_dim) * job->scale;
    if (job->softcap != 0) s = capped(s, job->softcap);
    return s * part->factor;
}

// Steps 1 to 3 of the page. p [n keys], acc [head_dim]; the maximum and the sum are returned.
static void attend_partition(const struct part *part, float *p, float *acc, float *max,
                             float *sum) {
    const struct attend_job *job = part->job;
    float m[LANES], l[LANES] = {0};
    for (uint32_t j = 0; j < LANES; j++)
        m[j] = -INFINITY;
    for (uint32_t key = part->begin; key < part->end; key++) {
        p[key - part->begin] = score(part, key);
        m[key % LANES] = larger(m[key % LANES], p[key - part->begin]);
    }
    *max = lane_max(m, LANES);
    for (uint32_t d = 0; d < job->value_dim; d++)
        acc[d] = 0.0f;
    for (uint32_t key = part->begin; key < part->end; key++) {
        float weight = elementary_exp(p[key - part->begin] - *max);
        l[key % LANES] = l[key % LANES] + weight;
        weight = weight * key_scale(job->v_base, job, key, job->value_dim);
        for (uint32_t d = 0; d < job->value_dim; d++) {
            size_t index = (size_t)(key % KV_BLOCK_TOKENS) * job->value_dim + d;
            acc[d] = fmaf(weight, key_value(job, job->v_base, key, index), acc[d]);
        }
    }
    *sum = lane_tree_sum(l);
}

static void attend_query(const struct attend_job *job, uint32_t i) {
    uint32_t first = job->first_key[i], n = job->n_keys[i];
    check(first < n);
    float *p = job->scratch, *acc = p + ATTN_PARTITION_TOKENS, *acc2 = acc + job->value_dim;
    float m = 0.0f, l = 0.0f;
    for (uint32_t begin = first; begin < n;) {
        uint32_t end = (begin / ATTN_PARTITION_TOKENS + 1) * ATTN_PARTITION_TOKENS;
        if (end > n) end = n;
        struct part part = {.job = job,
                            .q = job->q + i * job->q_stride,
                            .factor = job->factors != NULL ? job->factors[i] : 1.0f,
                            .begin = begin,
                            .end = end};
        float m2, l2;
        if (begin == first) {
            attend_partition(&part, p, acc, &m, &l);
        } else {
            attend_partition(&part, p, acc2, &m2, &l2);
            float top = larger(m, m2), c = elementary_exp(m - top), c2 = elementary_exp(m2 - top);
            l = l * c + l2 * c2;
            for (uint32_t d = 0; d < job->value_dim; d++)
                acc[d] = acc[d] * c + acc2[d] * c2;
            m = top;
        }
        begin = end;
    }
    float keep = 1.0f;
    if (job->sinks != NULL) {
        float top = larger(m, job->sinks[i]);
        keep = elementary_exp(m - top);
        l = l * keep + elementary_exp(job->sinks[i] - top);
    }
    for (uint32_t d = 0; d < job->value_dim; d++)
        job->out[i * job->out_stride + d] = acc[d] * keep / l;
}

static void ref_attend(const struct attend_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    struct attend_job own = *job;
    for (uint32_t i = 0; i < job->n_q; i++) {
        if (job->tables != NULL) own.block_table = job->tables[i];
        attend_query(&own, i);
    }
}

static void ref_rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
    float a[LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        a[i % LANES] = fmaf(x[i], x[i], a[i % LANES]);
    float r = 1.0f / sqrtf(lane_tree_sum(a) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (x[i] * r) * w[i];
}

static float ref_inverse_rms(const float *x, uint32_t n, float eps) {
    float a[LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        a[i % LANES] = fmaf(x[i], x[i], a[i % LANES]);
    return 1.0f / sqrtf(lane_tree_sum(a) / (float)n + eps);
}

static void ref_collapse(float *y, const float *x, const float *weights, uint32_t n, uint32_t dim) {
    for (uint32_t d = 0; d < dim; d++) {
        y[d] = 0.0f;
        for (uint32_t i = 0; i < n; i++)
            y[d] = fmaf(weights[i], x[(size_t)i * dim + d], y[d]);
    }
}

static void ref_expand(float *x, const float *y, const struct stream_mix *mix, uint32_t dim) {
    float old[HYPER_STREAMS_MAX];
    check(mix->n <= HYPER_STREAMS_MAX);
    for (uint32_t d = 0; d < dim; d++) {
        for (uint32_t j = 0; j < mix->n; j++)
            old[j] = x[(size_t)j * dim + d];
        for (uint32_t k = 0; k < mix->n; k++) {
            float sum = 0.0f;
            for (uint32_t j = 0; j < mix->n; j++)
                sum = fmaf(mix->comb[j * mix->n + k], old[j], sum);
            x[(size_t)k * dim + d] = fmaf(mix->post[k], y[d], sum);
        }
    }
}

static void ref_layer_norm(float *y, const float *x, const struct norm_weights *w, uint32_t n,
                           float eps) {
    float mean = lane_sum(x, n) / (float)n, a[LANES] = {0};
    for (uint32_t i = 0; i < n; i++)
        a[i % LANES] = fmaf(x[i] - mean, x[i] - mean, a[i % LANES]);
    float r = 1.0f / sqrtf(lane_tree_sum(a) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) {
        y[i] = ((x[i] - mean) * r) * w->w[i];
        if (w->b != NULL) y[i] = y[i] + w->b[i];
    }
}

static void ref_rope(float *x, const float *cos, const float *sin, uint32_t rotary_dim) {
    uint32_t half = rotary_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

static void ref_silu_mul(float *y, const float *gate, const float *up, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = elementary_silu(gate[i]) * up[i];
}

static void ref_gelu_mul(float *y, const float *gate, const float *up, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = elementary_gelu(gate[i]) * up[i];
}

static void ref_softcap(float *x, float cap, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] = capped(x[i], cap) + x[i] * 0.0f;
}

static void ref_clamped_glu(float *y, const float *up, const struct clamped_glu *act, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float g = y[i] > act->limit ? act->limit : y[i], u = up[i];
        if (u > act->limit) u = act->limit;
        if (u < -act->limit) u = -act->limit;
        y[i] = (u + 1.0f) * (g / (1.0f + elementary_exp(-(act->alpha * g))));
    }
}

static void ref_limited_glu(float *y, const float *up, float limit, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float g = y[i] > limit ? limit : y[i], u = up[i];
        if (u > limit) u = limit;
        if (u < -limit) u = -limit;
        y[i] = elementary_silu(g) * u;
    }
}

static void ref_sigmoid_mul(float *y, const float *gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = y[i] * elementary_sigmoid(gate[i]);
}

static void ref_conv_silu(float *y, const struct conv_taps *taps, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float acc = 0.0f;
        for (uint32_t t = 0; t < taps->n_taps; t++)
            acc = fmaf(taps->w[t * taps->w_stride + i], taps->x[t][i], acc);
        y[i] = elementary_silu(acc);
    }
}

// Column j of the state, and of one token.
static void delta_column(const struct delta_job *job, uint32_t t, uint32_t j) {
    const float *q = job->q + t * job->qkv_stride, *k = job->k + t * job->qkv_stride;
    float *s = job->state + j, memory = 0.0f, out = 0.0f;
    for (uint32_t i = 0; i < job->k_dim; i++) {
        s[(size_t)i * job->v_dim] = s[(size_t)i * job->v_dim] * job->decay[t * job->gate_stride];
        memory = fmaf(s[(size_t)i * job->v_dim], k[i], memory);
    }
    float d = (job->v[t * job->qkv_stride + j] - memory) * job->beta[t * job->gate_stride];
    for (uint32_t i = 0; i < job->k_dim; i++) {
        s[(size_t)i * job->v_dim] = fmaf(k[i], d, s[(size_t)i * job->v_dim]);
        out = fmaf(s[(size_t)i * job->v_dim], q[i], out);
    }
    job->out[t * job->out_stride + j] = out;
}

static void ref_delta_rule(const struct delta_job *job) {
    for (uint32_t t = 0; t < job->n_tokens; t++)
        for (uint32_t j = 0; j < job->v_dim; j++)
            delta_column(job, t, j);
}

static void ref_add(float *y, const float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = y[i] + x[i];
}

static void ref_scale(float *y, const float *x, float a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = a * x[i];
}

static void ref_axpy(float *y, const float *x, float a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = fmaf(a, x[i], y[i]);
}

static void ref_clamp(float *x, float limit, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (x[i] > limit) x[i] = limit;
        if (x[i] < -limit) x[i] = -limit;
    }
}

static void ref_softmax(float *x, uint32_t n) {
    float m = lane_max(x, n);
    for (uint32_t i = 0; i < n; i++)
        x[i] = elementary_exp(x[i] - m);
    float sum = lane_sum(x, n);
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] / sum;
}

static void ref_sigmoid(float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] = elementary_sigmoid(x[i]);
}

static void ref_exp(float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        x[i] = elementary_exp(x[i]);
}

#define LSE_BLOCK 512

static bool ref_log_sum_exp(const float *x, uint32_t n, float *max, float *lse) {
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    float m = lane_max(x, n), sum = 0.0f;
    for (uint32_t begin = 0; begin < n; begin += LSE_BLOCK) {
        float a[LANES] = {0};
        for (uint32_t i = begin; i < n && i < begin + LSE_BLOCK; i++)
            a[i % LANES] = a[i % LANES] + elementary_exp(x[i] - m);
        sum = sum + lane_tree_sum(a);
    }
    *max = m;
    *lse = m + elementary_log(sum);
    return true;
}

static void ref_unpack(float *y, const void *x, enum dtype dtype, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = element(x, dtype, i);
}

static void ref_pack(void *y, const float *x, enum dtype dtype, uint32_t n) {
    unsigned char *out = y;
    check(dtype != DTYPE_I8);
    for (uint32_t i = 0; i < n; i++) {
        if (dtype == DTYPE_E4M3) {
            out[i] = f32_to_e4m3(x[i]);
            continue;
        }
        uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
        if (dtype == DTYPE_F32)
            memcpy(out + i * sizeof *x, &x[i], sizeof *x);
        else
            memcpy(out + i * sizeof half, &half, sizeof half);
    }
}

static float ref_pack_int8(int8_t *codes, const float *x, uint32_t n) {
    float largest = 0.0f;
    bool finite = true;
    for (uint32_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
    }
    float scale = finite ? largest / 127.0f : NAN;
    for (uint32_t i = 0; i < n; i++) {
        float code = scale > 0.0f ? rintf(x[i] / scale) : 0.0f;
        codes[i] = (int8_t)(code > 127.0f ? 127.0f : code < -127.0f ? -127.0f : code);
    }
    return scale;
}

static const struct kernel_ops ops = {
    .name = "ref",
    .matmul = ref_matmul,
    .attend = ref_attend,
    .attend_latent = ref_attend_latent,
    .index_scores = ref_index_scores,
    .entry_scores = ref_entry_scores,
    .window_sum = ref_window_sum,
    .rms_norm = ref_rms_norm,
    .inverse_rms = ref_inverse_rms,
    .collapse = ref_collapse,
    .expand = ref_expand,
    .layer_norm = ref_layer_norm,
    .rope = ref_rope,
    .silu_mul = ref_silu_mul,
    .clamped_glu = ref_clamped_glu,
    .limited_glu = ref_limited_glu,
    .gelu_mul = ref_gelu_mul,
    .softcap = ref_softcap,
    .sigmoid_mul = ref_sigmoid_mul,
    .conv_silu = ref_conv_silu,
    .delta_rule = ref_delta_rule,
    .add = ref_add,
    .scale = ref_scale,
    .axpy = ref_axpy,
    .clamp = ref_clamp,
    .softmax = ref_softmax,
    .sigmoid = ref_sigmoid,
    .exp = ref_exp,
    .log_sum_exp = ref_log_sum_exp,
    .unpack = ref_unpack,
    .pack = ref_pack,
    .pack_int8 = ref_pack_int8,
};

const struct kernel_ops *kernel_ops_ref(void) {
    return &ops;
}
