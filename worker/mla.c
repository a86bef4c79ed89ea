// mla.c: see mla.h.
#include "worker/mla.h"

#include <string.h>

#include "common/base/check.h"
#include "worker/forward.h"
#include "worker/linear.h"

static uint32_t query_dim(const struct model_spec *spec) {
    return spec->mla.nope_dim + spec->rope.dim;
}

static uint32_t latent_dim(const struct model_spec *spec) {
    return spec->mla.kv_rank + spec->rope.dim;
}

// What a head's keys and values take of a latent.
static uint32_t expanded_dim(const struct model_spec *spec) {
    return spec->mla.nope_dim + spec->mla.value_dim;
}

static bool gathers(const struct model_spec *spec, uint32_t tp) {
    return tp > 1 && spec->mla.kv_rank != 0 && spec->mla.q_rank != 0;
}

void mla_lay(struct forward *f, struct scratch *s) {
    const struct model_spec *spec = f->spec;
    struct mla *m = &f->mla;
    size_t rows = f->config.rows_max;
    if (spec->mla.kv_rank == 0) return;
    m->q_a = scratch_take(s, rows * spec->mla.q_rank, sizeof(float));
    m->q = scratch_take(s, rows * f->slice.n_heads * query_dim(spec), sizeof(float));
    m->latent = scratch_take(s, rows * latent_dim(spec), sizeof(float));
    if (gathers(spec, f->config.layout->tp))
        m->sent = scratch_take(s, 1, mla_bytes_max(spec, f->own_max));
    if (spec->mla.expanded)
        m->kv = scratch_take(s, rows * f->slice.n_heads * expanded_dim(spec), sizeof(float));
    else
        m->out = scratch_take(s, rows * f->slice.n_heads * spec->mla.value_dim, sizeof(float));
}

bool mla_gathers(const struct forward *f) {
    return gathers(f->spec, f->tp.n);
}

size_t mla_bytes_max(const struct model_spec *spec, uint32_t own_max) {
    const struct indexer_spec *x = &spec->indexer;
    if (spec->mla.kv_rank == 0) return 0;
    size_t index = x->top_k != 0 ? (size_t)x->dim + x->n_heads : 0;
    return own_max * (spec->mla.q_rank + latent_dim(spec) + index) * sizeof(float);
}

struct mla_layer {
    struct forward *f;
    const struct layer_weights *w;
    uint32_t layer;
    struct row_range rows; // that are worked on
};

// --- compression, row by row

static void finish_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct mla_layer *ml = context;
    struct forward *f = ml->f;
    const struct mla_spec *mla = &f->spec->mla;
    for (uint32_t row = ml->rows.first + row_begin; row < ml->rows.first + row_end; row++) {
        float *q = f->mla.q_a + (size_t)row * mla->q_rank;
        float *latent = f->mla.latent + (size_t)row * latent_dim(f->spec);
        if (mla->q_rank != 0)
            f->ops->rms_norm(q, q, ml->w->mla.q_a_norm, mla->q_rank, mla->norm_eps);
        f->ops->rms_norm(latent, latent, ml->w->mla.kv_a_norm, mla->kv_rank, mla->norm_eps);
        rotary_turn(&f->attn.rope, latent + mla->kv_rank, row);
    }
}

static void compress_rows(struct mla_layer *ml) {
    struct forward *f = ml->f;
    const struct mla_weights *w = &ml->w->mla;
    size_t cost = (size_t)f->spec->mla.q_rank + latent_dim(f->spec);
    if (f->spec->mla.q_rank != 0) forward_project(f, &w->q_a, ml->rows, f->all_normed, f->mla.q_a);
    forward_project(f, &w->kv_a, ml->rows, f->all_normed, f->mla.latent);
    pool_run_rows(f->pool, ml->rows.n, cost, finish_rows, ml);
    indexer_compress(f, ml->layer, ml->rows.first, ml->rows.n);
}

// What is gathered of each row: so many floats out of each of these.
#define GATHERED_MAX 4
struct gathered {
    float *rows;
    size_t floats;
};

static uint32_t find_gathered(const struct mla_layer *ml, struct gathered out[GATHERED_MAX]) {
    const struct forward *f = ml->f;
    const struct indexer_spec *x = &f->spec->indexer;
    out[0] = (struct gathered){f->mla.q_a, f->spec->mla.q_rank};
    out[1] = (struct gathered){f->mla.latent, latent_dim(f->spec)};
    if (!spec_layer_chooses(f->spec, ml->layer)) return 2;
    out[2] = (struct gathered){f->indexer.k, x->dim};
    out[3] = (struct gathered){f->indexer.weights, x->n_heads};
    return f->indexer.n_rows > 0 ? 4 : 3; // as every rank knows from the plan
}

// A message: the rows' compressed queries, then their latents, then what the index wants.
static int gather_rows(const struct mla_layer *own, struct err_text *e) {
    struct forward *f = own->f;
    struct tp *t = &f->tp;
    struct gathered parts[GATHERED_MAX];
    uint32_t n_parts = find_gathered(own, parts);
    size_t row_floats = 0;
    float *to = f->mla.sent;
    for (uint32_t p = 0; p < n_parts; p++) {
        size_t n = parts[p].floats;
        memcpy(to, parts[p].rows + own->rows.first * n, own->rows.n * n * sizeof *to);
        to += own->rows.n * n;
        row_floats += n;
    }
    tp_exchange_begin(f);
    for (uint32_t i = 0; i < t->n; i++) {
        t->out[i].data = f->mla.sent;
        t->out[i].data_bytes = own->rows.n * row_floats * sizeof(float);
        t->wanted[i] = (t->row_first[i + 1] - t->row_first[i]) * row_floats * sizeof(float);
    }
    int rc = tp_exchange(f, FABRIC_GATHER, tp_block(own->layer, TP_ATTN), e);
    if (rc != 0) return rc;
    for (uint32_t i = 0; i < t->n; i++) {
        size_t first = t->row_first[i], n = t->row_first[i + 1] - first;
        const float *from = (const float *)t->in[i].data;
        if (i == t->index || n == 0) continue;
        for (uint32_t p = 0; p < n_parts; from += n * parts[p].floats, p++)
            memcpy(parts[p].rows + first * parts[p].floats, from,
                   n * parts[p].floats * sizeof *from);
    }
    tp_release(f);
    return 0;
}

// --- this rank's heads, for all rows

// One head's queries of a tile of rows: into the latent space, and the rotated part behind it.
static void absorb_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct mla_layer *ml = context;
    struct forward *f = ml->f;
    const struct model_spec *spec = f->spec;
    uint32_t n_heads = f->slice.n_heads, head = i % n_heads, row = i / n_heads * ROW_TILE;
    uint32_t dim = query_dim(spec);
    uint32_t left = f->batch.n_rows - row, n = left < ROW_TILE ? left : ROW_TILE;
    size_t ldx = (size_t)n_heads * dim, ldy = (size_t)n_heads * spec_key_dim(spec);
    const float *x = f->mla.q + row * ldx + (size_t)head * dim;
    float *y = attn_query(f, 0, row) + (size_t)head * spec_key_dim(spec);
    const struct matrix *w = &ml->w->mla.uk[head];
    f->ops->matmul(y, ldy, x, ldx, n, w, 0, matrix_panels(w));
    for (uint32_t r = 0; r < n; r++) {
        float *rotated = y + r * ldy + spec->mla.kv_rank;
        memcpy(rotated, x + r * ldx + spec->mla.nope_dim, spec->rope.dim * sizeof *rotated);
        rotary_turn(&f->attn.rope, rotated, row + r);
    }
}

static void write_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct mla_layer *ml = context;
    struct forward *f = ml->f;
    for (uint32_t row = row_begin; row < row_end; row++) {
        const float *latent = f->mla.latent + (size_t)row * latent_dim(f->spec);
        struct kv_place at = {ml->layer, 0, f->batch.slot[row], f->batch.position[row]};
        kv_write_latent(&f->kv, f->ops, &at, latent);
    }
}

static uint32_t n_head_tiles(const struct forward *f) {
    return (f->batch.n_rows + ROW_TILE - 1) / ROW_TILE * f->slice.n_heads;
}

static void spread_absorbed(struct mla_layer *ml) {
    struct forward *f = ml->f;
    pool_run(f->pool, n_head_tiles(f), absorb_item, ml);
    pool_run_rows(f->pool, f->batch.n_rows, latent_dim(f->spec), write_rows, ml);
}

// One row's query of a head to where attention reads it, its key and value into the pages.
static void spread_head(const struct mla_layer *ml, uint32_t row, uint32_t head) {
    const struct forward *f = ml->f;
    const struct model_spec *spec = f->spec;
    uint32_t nope = spec->mla.nope_dim, rotated = spec->rope.dim;
    const float *x = f->mla.q + ((size_t)row * f->slice.n_heads + head) * query_dim(spec);
    float *q = attn_query(f, head, row), key[HEAD_DIM_MAX];
    memcpy(q, x, query_dim(spec) * sizeof *q);
    rotary_turn(&f->attn.rope, q + nope, row);
    const float *kv = f->mla.kv + ((size_t)row * f->slice.n_heads + head) * expanded_dim(spec);
    memcpy(key, kv, nope * sizeof *key);
    memcpy(key + nope, f->mla.latent + (size_t)row * latent_dim(spec) + spec->mla.kv_rank,
           rotated * sizeof *key);
    struct kv_place at = {ml->layer, head, f->batch.slot[row], f->batch.position[row]};
    kv_write(&f->kv, f->ops, &at, key, kv + nope);
}

static void spread_heads(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct mla_layer *ml = context;
    for (uint32_t row = row_begin; row < row_end; row++)
        for (uint32_t head = 0; head < ml->f->slice.n_heads; head++)
            spread_head(ml, row, head);
}

static void spread_expanded(struct mla_layer *ml) {
    struct forward *f = ml->f;
    const struct model_spec *spec = f->spec;
    struct linear kv_b = {.ops = f->ops,
                          .w = &ml->w->mla.kv_b,
                          .x = f->mla.latent, // of which it takes what is compressed, not the keys
                          .y = f->mla.kv,
                          .ldx = latent_dim(spec),
                          .ldy = ml->w->mla.kv_b.n_out,
                          .n_rows = f->batch.n_rows};
    linear_run(f->pool, &kv_b);
    size_t cost = (size_t)f->slice.n_heads * (spec->head_dim + expanded_dim(spec)) * 2;
    pool_run_rows(f->pool, f->batch.n_rows, cost, spread_heads, ml);
}

int mla_spread(struct forward *f, uint32_t layer, struct err_text *e) {
    struct mla_layer ml = {f, forward_layer(f, layer), layer, {0, f->batch.n_rows}}, own = ml;
    bool alone = !mla_gathers(f);
    own.rows = (struct row_range){f->own_first, f->n_own};
    compress_rows(alone ? &ml : &own);
    int rc = alone ? 0 : gather_rows(&own, e);
    if (rc != 0) return rc;
    const float *q_in = f->spec->mla.q_rank != 0 ? f->mla.q_a : f->all_normed;
    forward_project(f, &ml.w->mla.q, ml.rows, q_in, f->mla.q);
    if (f->spec->mla.expanded)
        spread_expanded(&ml);
    else
        spread_absorbed(&ml);
    return 0;
}

static void output_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct mla_layer *ml = context;
    struct forward *f = ml->f;
    const struct mla_spec *mla = &f->spec->mla;
    uint32_t n_heads = f->slice.n_heads, head = i % n_heads, row = i / n_heads * ROW_TILE;
    uint32_t left = f->batch.n_rows - row, n = left < ROW_TILE ? left : ROW_TILE;
    size_t ldx = (size_t)n_heads * mla->kv_rank, ldy = (size_t)n_heads * mla->value_dim;
    const struct matrix *w = &ml->w->mla.uv[head];
    f->ops->matmul(f->mla.out + row * ldy + (size_t)head * mla->value_dim, ldy,
                   f->attn.out + row * ldx + (size_t)head * mla->kv_rank, ldx, n, w, 0,
                   matrix_panels(w));
}

const float *mla_outputs(struct forward *f, uint32_t layer) {
    check(!f->spec->mla.expanded);
    struct mla_layer ml = {.f = f, .w = forward_layer(f, layer), .layer = layer};
    pool_run(f->pool, n_head_tiles(f), output_item, &ml);
    return f->mla.out;
}
