// mla.c: see mla.h.
#include "worker/mla.h"

#include <string.h>

#include "worker/forward.h"
#include "worker/linear.h"

static uint32_t query_dim(const struct model_spec *spec) {
    return spec->mla.nope_dim + spec->rope.dim;
}

void mla_lay(struct forward *f, struct scratch *s) {
    const struct model_spec *spec = f->spec;
    struct mla *m = &f->mla;
    size_t rows = f->config.rows_max;
    if (spec->mla.kv_rank == 0) return;
    m->q_a = scratch_take(s, rows * spec->mla.q_rank, sizeof(float));
    m->q = scratch_take(s, rows * f->slice.n_heads * query_dim(spec), sizeof(float));
    m->latent = scratch_take(s, rows * spec_key_dim(spec), sizeof(float));
    m->out = scratch_take(s, rows * f->slice.n_heads * spec->mla.value_dim, sizeof(float));
}

struct mla_layer {
    struct forward *f;
    const struct layer_weights *w;
    uint32_t layer;
};

static void project(struct forward *f, const struct matrix *w, const float *x, float *y) {
    struct linear l = {.ops = f->ops,
                       .w = w,
                       .x = x,
                       .y = y,
                       .ldx = w->n_in,
                       .ldy = w->n_out,
                       .n_rows = f->batch.n_rows};
    linear_run(f->pool, &l);
}

static void norm_query_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct mla_layer *ml = context;
    const struct mla_spec *mla = &ml->f->spec->mla;
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *q = ml->f->mla.q_a + (size_t)row * mla->q_rank;
        ml->f->ops->rms_norm(q, q, ml->w->mla.q_a_norm, mla->q_rank, mla->norm_eps);
    }
}

static void project_queries(const struct mla_layer *ml) {
    struct forward *f = ml->f;
    const struct mla_weights *w = &ml->w->mla;
    const float *x = f->all_normed;
    if (f->spec->mla.q_rank != 0) {
        project(f, &w->q_a, x, f->mla.q_a);
        pool_run_rows(f->pool, f->batch.n_rows, f->spec->mla.q_rank, norm_query_rows, (void *)ml);
        x = f->mla.q_a;
    }
    project(f, &w->q, x, f->mla.q);
}

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
        attn_rotate(f, rotated, row + r);
    }
}

static void write_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct mla_layer *ml = context;
    struct forward *f = ml->f;
    const struct mla_spec *mla = &f->spec->mla;
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *latent = f->mla.latent + (size_t)row * spec_key_dim(f->spec);
        f->ops->rms_norm(latent, latent, ml->w->mla.kv_a_norm, mla->kv_rank, mla->norm_eps);
        attn_rotate(f, latent + mla->kv_rank, row);
        struct kv_place at = {ml->layer, 0, f->batch.slot[row], f->batch.position[row]};
        kv_write(&f->kv, f->ops, &at, latent, latent);
    }
}

static uint32_t n_head_tiles(const struct forward *f) {
    return (f->batch.n_rows + ROW_TILE - 1) / ROW_TILE * f->slice.n_heads;
}

void mla_spread(struct forward *f, uint32_t layer) {
    struct mla_layer ml = {f, forward_layer(f, layer), layer};
    project_queries(&ml);
    pool_run(f->pool, n_head_tiles(f), absorb_item, &ml);
    project(f, &ml.w->mla.kv_a, f->all_normed, f->mla.latent);
    pool_run_rows(f->pool, f->batch.n_rows, (size_t)spec_key_dim(f->spec) * 2, write_rows, &ml);
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
    struct mla_layer ml = {f, forward_layer(f, layer), layer};
    pool_run(f->pool, n_head_tiles(f), output_item, &ml);
    return f->mla.out;
}
