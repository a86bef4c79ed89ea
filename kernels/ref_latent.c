// ref_latent.c: the oracle of attention over rows that are key and value at once, of the scores
// that choose among them, and of windows of tokens that become one row.
#include "kernels/ref.h"

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

void ref_attend_latent(const struct latent_job *job) {
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

void ref_index_scores(const struct index_job *job) {
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

void ref_entry_scores(const struct entry_job *job) {
    check(dtype_is_kv(job->kv_dtype));
    for (uint32_t i = 0; i < job->n; i++)
        job->out[i] = entry_score(job, job->first + i);
}

void ref_window_sum(float *y, const struct window *w, uint32_t n) {
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
