// ref.c: docs/arithmetic.md as C: one element at a time, in the order of the page.
//
// The oracle of every other back end and what runs where none of them can. It shares nothing with
// them but the scalar elementary functions, and it is never made faster at the price of looking
// less like the page.
#include <math.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "kernels/ops.h"

#define LANES 16

static float element(const void *base, enum dtype dtype, size_t index) {
    const unsigned char *p = (const unsigned char *)base + index * dtype_bytes(dtype);
    uint16_t half;
    float single;
    if (dtype == DTYPE_F32) {
        memcpy(&single, p, sizeof single);
        return single;
    }
    if (dtype == DTYPE_E4M3) return e4m3_to_f32(*p);
    if (dtype == DTYPE_I8) return (float)(*p < 128 ? *p : *p - 256);
    memcpy(&half, p, sizeof half);
    return dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static float larger(float a, float b) {
    return a > b ? a : b;
}

static float lane_tree_sum(float *a) {
    for (uint32_t d = LANES / 2; d >= 1; d /= 2)
        for (uint32_t j = 0; j < d; j++)
            a[j] = a[j] + a[j + d];
    return a[0];
}

static float lane_max(const float *x, uint32_t n) {
    float a[LANES];
    for (uint32_t j = 0; j < LANES; j++)
        a[j] = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        a[i % LANES] = larger(a[i % LANES], x[i]);
    for (uint32_t d = LANES / 2; d >= 1; d /= 2)
        for (uint32_t j = 0; j < d; j++)
            a[j] = larger(a[j], a[j + d]);
    return a[0];
}

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
    for (uint32_t i = 0; i < job->n_q; i++)
        attend_query(job, i);
}

// --- attention over latents: the same steps, where a row is key and value, some rows may be left
// out, and there may be rows of several kinds

// Of one partition, or of all so far.
struct latent_sum {
    float max, l, *acc; // acc [value_dim]
    bool some;
};

// Rows of one kind.
struct latent_rows {
    const struct latent_job *job;
    const struct latent_keys *keys;
};

static const unsigned char *latent_page(const struct latent_rows *r, uint32_t key) {
    const unsigned char *pages = r->keys->pages;
    uint32_t block = latent_block(key, r->keys->rate);
    return pages + r->job->block_table[block] * r->keys->block_stride;
}

static float latent_element(const struct latent_rows *r, uint32_t key, uint32_t d) {
    uint32_t row = key % latent_page_rows(r->keys->rate);
    return element(latent_page(r, key), r->job->kv_dtype, (size_t)row * r->job->key_dim + d);
}

static float latent_scale(const struct latent_rows *r, uint32_t key, bool rest) {
    if (r->job->kv_dtype != DTYPE_I8) return 1.0f;
    uint32_t rows = latent_page_rows(r->keys->rate);
    const unsigned char *scales = latent_page(r, key) + (size_t)r->job->key_dim * rows;
    return element(scales, DTYPE_F32, 2 * (key % rows) + rest);
}

static float latent_score(const struct latent_rows *r, const float *q, uint32_t key) {
    const struct latent_job *job = r->job;
    float s = 0.0f;
    for (uint32_t d = 0; d < job->key_dim; d++)
        s = fmaf(latent_element(r, key, d) * latent_scale(r, key, d >= job->value_dim), q[d], s);
    return s * job->scale;
}

// The n rows of one partition, ascending.
static void latent_partition(const struct latent_rows *r, const float *q, const uint32_t *keys,
                             uint32_t n, struct latent_sum *sum) {
    float m[LANES], l[LANES] = {0}, p[ATTN_PARTITION_TOKENS];
    for (uint32_t j = 0; j < LANES; j++)
        m[j] = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        p[i] = latent_score(r, q, keys[i]);
        m[keys[i] % LANES] = larger(m[keys[i] % LANES], p[i]);
    }
    sum->max = lane_max(m, LANES);
    for (uint32_t d = 0; d < r->job->value_dim; d++)
        sum->acc[d] = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        float weight = elementary_exp(p[i] - sum->max);
        l[keys[i] % LANES] = l[keys[i] % LANES] + weight;
        weight = weight * latent_scale(r, keys[i], false);
        for (uint32_t d = 0; d < r->job->value_dim; d++)
            sum->acc[d] = fmaf(weight, latent_element(r, keys[i], d), sum->acc[d]);
    }
    sum->l = lane_tree_sum(l);
}

static void latent_merge(const struct latent_job *job, struct latent_sum *all,
                         const struct latent_sum *part) {
    float top = larger(all->max, part->max), c = elementary_exp(all->max - top),
          c2 = elementary_exp(part->max - top);
    all->l = all->l * c + part->l * c2;
    all->max = top;
    for (uint32_t d = 0; d < job->value_dim; d++)
        all->acc[d] = all->acc[d] * c + part->acc[d] * c2;
}

static void latent_kind(const struct latent_rows *r, uint32_t i, struct latent_sum *all) {
    const struct latent_keys *k = r->keys;
    uint32_t keys[ATTN_PARTITION_TOKENS], first = k->first != NULL ? k->first[i] : 0;
    uint32_t total = k->chosen != NULL ? k->n_chosen : k->n[i] > first ? k->n[i] - first : 0;
    for (uint32_t at = 0, n; at < total; at += n) {
        for (n = 0; n < ATTN_PARTITION_TOKENS && at + n < total; n++) {
            keys[n] = k->chosen != NULL ? k->chosen[at + n] : first + at + n;
            if (keys[n] / ATTN_PARTITION_TOKENS != keys[0] / ATTN_PARTITION_TOKENS) break;
        }
        check(keys[0] >= first && keys[n - 1] < k->n[i]);
        struct latent_sum part = {.acc = r->job->scratch + r->job->value_dim};
        latent_partition(r, r->job->q + i * r->job->q_stride, keys, n, all->some ? &part : all);
        if (all->some) latent_merge(r->job, all, &part);
        all->some = true;
    }
}

static void latent_query(const struct latent_job *job, uint32_t i) {
    struct latent_sum all = {.acc = job->scratch};
    for (uint32_t kind = 0; kind < job->n_kinds; kind++)
        latent_kind(&(struct latent_rows){job, &job->kinds[kind]}, i, &all);
    check(all.some);
    float keep = 1.0f;
    if (job->sinks != NULL) {
        float top = larger(all.max, job->sinks[i]);
        keep = elementary_exp(all.max - top);
        all.l = all.l * keep + elementary_exp(job->sinks[i] - top);
    }
    for (uint32_t d = 0; d < job->value_dim; d++)
        job->out[i * job->out_stride + d] = all.acc[d] * keep / all.l;
}

static void ref_attend_latent(const struct latent_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    for (uint32_t i = 0; i < job->n_q; i++)
        latent_query(job, i);
}

static float index_score(const struct index_job *job, const unsigned char *page, uint32_t lane) {
    float sum = 0.0f, key_scale = 1.0f;
    if (job->kv_dtype == DTYPE_I8)
        key_scale = element(page + (size_t)job->dim * KV_BLOCK_TOKENS, DTYPE_F32, lane);
    for (uint32_t h = 0; h < job->n_heads; h++) {
        float s = 0.0f;
        for (uint32_t d = 0; d < job->dim; d++)
            s = fmaf(element(page, job->kv_dtype, (size_t)d * KV_BLOCK_TOKENS + lane),
                     job->q[(size_t)h * job->dim + d], s);
        sum = fmaf(job->weights[h], larger(0.0f, s * key_scale * job->scale), sum);
    }
    return sum;
}

static void ref_index_scores(const struct index_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    for (uint32_t b = 0; b < job->n_blocks; b++) {
        const unsigned char *page = job->pages;
        page += job->block_table[job->first_block + b] * job->block_stride;
        for (uint32_t lane = 0; lane < KV_BLOCK_TOKENS; lane++)
            job->out[b * KV_BLOCK_TOKENS + lane] = index_score(job, page, lane);
    }
}

static float entry_score(const struct entry_job *job, uint32_t key) {
    const struct latent_job rows = {.key_dim = job->dim,
                                    .value_dim = job->dim,
                                    .block_table = job->block_table,
                                    .kv_dtype = job->kv_dtype,
                                    .scale = job->scale};
    const struct latent_keys keys = {
        .pages = job->pages, .block_stride = job->block_stride, .rate = job->rate};
    float sum = 0.0f;
    for (uint32_t h = 0; h < job->n_heads; h++) {
        const struct latent_rows r = {&rows, &keys};
        float s = latent_score(&r, job->q + (size_t)h * job->dim, key);
        sum = fmaf(job->weights[h], larger(0.0f, s), sum);
    }
    return sum;
}

static void ref_entry_scores(const struct entry_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    for (uint32_t i = 0; i < job->n; i++)
        job->out[i] = entry_score(job, job->first + i);
}

static void ref_window_sum(float *y, const struct window *w, uint32_t n) {
    check(w->n_rows > 0);
    for (uint32_t c = 0; c < n; c++) {
        float m = -INFINITY, l = 0.0f, acc = 0.0f;
        for (uint32_t t = 0; t < w->n_rows; t++)
            m = larger(m, w->gate[t][c] + w->place[t][c]);
        for (uint32_t t = 0; t < w->n_rows; t++) {
            float p = elementary_exp((w->gate[t][c] + w->place[t][c]) - m);
            l = l + p;
            acc = fmaf(p, w->x[t][c], acc);
        }
        y[c] = acc / l;
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
    .layer_norm = ref_layer_norm,
    .rope = ref_rope,
    .silu_mul = ref_silu_mul,
    .clamped_glu = ref_clamped_glu,
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
