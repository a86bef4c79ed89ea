// joint.c: see joint.h.
#include "worker/joint.h"

#include <string.h>

#include "worker/forward.h"
#include "worker/linear.h"

static uint32_t n_groups(const struct forward *f) {
    return f->slice.n_heads / (f->spec->n_heads / f->spec->joint.o_groups);
}

void joint_lay(struct forward *f, struct scratch *s) {
    const struct model_spec *spec = f->spec;
    const struct joint_spec *js = &spec->joint;
    struct joint *j = &f->joint;
    size_t rows = f->config.rows_max;
    if (js->q_rank == 0) return;
    j->q_a = scratch_take(s, rows * js->q_rank, sizeof(float));
    j->q = scratch_take(s, rows * f->slice.n_heads * spec->head_dim, sizeof(float));
    j->kv = scratch_take(s, rows * spec->head_dim, sizeof(float));
    j->out = scratch_take(s, rows * n_groups(f) * js->o_rank, sizeof(float));
}

struct joint_layer {
    struct forward *f;
    const struct layer_weights *w;
    const struct rotary *rotary;
    uint32_t layer;
};

static struct joint_layer layer_of(struct forward *f, uint32_t layer) {
    return (struct joint_layer){f, forward_layer(f, layer), attn_rotary(f, layer), layer};
}

static void norm_queries(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct joint_layer *jl = context;
    const struct forward *f = jl->f;
    uint32_t n = f->spec->joint.q_rank;
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *q_a = f->joint.q_a + (size_t)row * n;
        f->ops->rms_norm(q_a, q_a, jl->w->joint.q_a_norm, n, f->spec->norm_eps);
    }
}

// Queries of all heads to where attention reads them, the row that is key and value to the page.
static void spread_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct joint_layer *jl = context;
    struct forward *f = jl->f;
    const struct model_spec *spec = f->spec;
    uint32_t hd = spec->head_dim, rotated = hd - spec->rope.dim;
    for (uint32_t row = row_begin; row < row_end; row++) {
        const float *from = f->joint.q + (size_t)row * f->slice.n_heads * hd;
        float *q = attn_query(f, 0, row), *kv = f->joint.kv + (size_t)row * hd;
        for (uint32_t h = 0; h < f->slice.n_heads; h++, from += hd, q += hd) {
            f->ops->rms_norm(q, from, f->attn.ones, hd, spec->norm_eps);
            rotary_turn(jl->rotary, q + rotated, row);
        }
        f->ops->rms_norm(kv, kv, jl->w->joint.kv_norm, hd, spec->norm_eps);
        rotary_turn(jl->rotary, kv + rotated, row);
        struct kv_place at = {jl->layer, 0, f->batch.slot[row], f->batch.position[row]};
        kv_write_latent(&f->kv, f->ops, &at, kv);
    }
}

void joint_spread(struct forward *f, uint32_t layer) {
    struct joint_layer jl = layer_of(f, layer);
    const struct joint_weights *w = &jl.w->joint;
    struct row_range all = {0, f->batch.n_rows};
    forward_project(f, &w->q_a, all, f->all_normed, f->joint.q_a);
    forward_project(f, &w->kv, all, f->all_normed, f->joint.kv);
    pool_run_rows(f->pool, all.n, f->spec->joint.q_rank, norm_queries, &jl);
    forward_project(f, &w->q, all, f->joint.q_a, f->joint.q);
    size_t cost = ((size_t)f->slice.n_heads + 1) * f->spec->head_dim * 2;
    pool_run_rows(f->pool, all.n, cost, spread_rows, &jl);
}

// Values were rotated because they are keys: the outputs are rotated back, so that what a key gives
// depends on its distance alone.
static void turn_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct joint_layer *jl = context;
    const struct forward *f = jl->f;
    uint32_t hd = f->spec->head_dim, n_heads = f->slice.n_heads;
    for (uint32_t row = row_begin; row < row_end; row++) {
        float *out = f->attn.out + (size_t)row * n_heads * hd + hd - f->spec->rope.dim;
        for (uint32_t h = 0; h < n_heads; h++, out += hd)
            rotary_turn_back(jl->rotary, out, row);
    }
}

// Item i: a tile of rows and a group of heads.
static void group_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct joint_layer *jl = context;
    struct forward *f = jl->f;
    uint32_t groups = n_groups(f), group = i % groups, row = i / groups * ROW_TILE;
    uint32_t left = f->batch.n_rows - row, n = left < ROW_TILE ? left : ROW_TILE;
    const struct matrix *w = &jl->w->joint.o_a[group];
    size_t ldx = (size_t)groups * w->n_in, ldy = (size_t)groups * w->n_out;
    f->ops->matmul(f->joint.out + row * ldy + (size_t)group * w->n_out, ldy,
                   f->attn.out + row * ldx + (size_t)group * w->n_in, ldx, n, w, 0,
                   matrix_panels(w));
}

const float *joint_outputs(struct forward *f, uint32_t layer) {
    struct joint_layer jl = layer_of(f, layer);
    uint32_t n_rows = f->batch.n_rows;
    pool_run_rows(f->pool, n_rows, (size_t)f->slice.n_heads * f->spec->rope.dim, turn_rows, &jl);
    pool_run(f->pool, (n_rows + ROW_TILE - 1) / ROW_TILE * n_groups(f), group_item, &jl);
    return f->joint.out;
}
