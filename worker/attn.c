// attn.c: see attn.h.
#include "worker/attn.h"

#include <string.h>

#include "worker/forward.h"
#include "worker/indexer.h"
#include "worker/linear.h"
#include "worker/mla.h"

static void lay_threads(struct forward *f, struct scratch *s) {
    struct attn *a = &f->attn;
    uint32_t dim = spec_value_dim(f->spec);
    size_t n_scratch = spec_has_rows(f->spec)
                           ? attend_latent_scratch_floats(spec_key_dim(f->spec), dim)
                           : attend_scratch_floats(a->queries_max, spec_key_dim(f->spec), dim);
    a->threads = scratch_take(s, f->n_threads, sizeof *a->threads);
    for (uint32_t t = 0; t < f->n_threads; t++) {
        struct attn_thread mine = {
            .out = scratch_take(s, (size_t)a->queries_max * dim, sizeof(float)),
            .scratch = scratch_take(s, n_scratch, sizeof(float)),
            .sinks = scratch_take(s, a->queries_max, sizeof(float)),
            .factors = scratch_take(s, a->queries_max, sizeof(float)),
            .first_key = scratch_take(s, a->queries_max, sizeof(uint32_t)),
            .n_keys = scratch_take(s, a->queries_max, sizeof(uint32_t)),
            .n_entries = scratch_take(s, a->queries_max, sizeof(uint32_t)),
            .tables = scratch_take(s, a->queries_max, sizeof(uint32_t *)),
        };
        if (a->threads != NULL) a->threads[t] = mine;
    }
}

// Whether norms look at heads that are spread over a TP group.
static bool is_wide(const struct forward *f) {
    return f->spec->qk_norm == QK_NORM_WIDE && f->config.layout->tp > 1;
}

// What a rank sends of a row then: its query heads, and the key heads that no rank before it has.
static size_t wide_floats(const struct forward *f, uint32_t index) {
    const struct slice *s = &f->slice;
    bool first_copy = index % s->kv_copies == 0;
    return ((size_t)s->n_heads + (first_copy ? s->n_kv_heads : 0)) * f->spec->head_dim;
}

size_t attn_heads_bytes_max(const struct model_spec *spec, const struct layout *l,
                            uint32_t rows_max) {
    struct slice s = slice_of(spec, l, 0);
    if (spec->qk_norm != QK_NORM_WIDE || l->tp == 1) return 0;
    return (size_t)rows_max * (s.n_heads + s.n_kv_heads) * spec->head_dim * sizeof(float);
}

static void lay_rotary(struct forward *f, struct scratch *s) {
    struct rotary_config config = {f->ops, &f->spec->rope, f->config.rows_max,
                                   f->config.max_model_len};
    rotary_lay(&f->attn.rope, &config, s);
    config.rope = &f->spec->compress.rope;
    if (f->spec->compress.csa_rate != 0) rotary_lay(&f->attn.compress_rope, &config, s);
}

void attn_lay(struct forward *f, struct scratch *s) {
    struct attn *a = &f->attn;
    const struct model_spec *spec = f->spec;
    size_t rows = f->config.rows_max;
    const struct slice *slice = &f->slice;
    a->group = slice->n_heads / slice->n_kv_heads;
    a->queries_max = a->group > ATTN_ITEM_QUERIES ? a->group : ATTN_ITEM_QUERIES;
    a->qkv_dim = slice->n_heads * spec_query_dim(spec) + 2 * slice->n_kv_heads * spec->head_dim;
    lay_rotary(f, s);
    a->ones = scratch_take(s, spec->head_dim, sizeof(float));
    if (spec->mla.kv_rank == 0 && spec->joint.q_rank == 0)
        a->qkv = scratch_take(s, rows * a->qkv_dim, sizeof(float));
    a->q = scratch_take(s, rows * slice->n_heads * spec_key_dim(spec), sizeof(float));
    a->out = scratch_take(s, rows * slice->n_heads * spec_value_dim(spec), sizeof(float));
    if (is_wide(f)) {
        size_t all = spec->n_heads * spec->head_dim;
        a->wide = scratch_take(s, f->n_threads * all, sizeof(float));
        a->wide_sent = scratch_take(s, rows * wide_floats(f, f->place.tp), sizeof(float));
    }
    tiles_lay(f, s);
    lay_threads(f, s);
    mla_lay(f, s);
    compress_lay(f, s);
    indexer_lay(f, s);
    for (uint32_t d = 0; a->ones != NULL && d < spec->head_dim; d++)
        a->ones[d] = 1.0f;
}

static void rope_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    struct forward *f = context;
    for (uint32_t row = row_begin; row < row_end; row++) {
        rotary_fill(&f->attn.rope, row, f->batch.position[row]);
        if (f->spec->compress.csa_rate != 0)
            rotary_fill(&f->attn.compress_rope, row, f->batch.position[row]);
    }
}

void attn_begin(struct forward *f) {
    if (f->batch.n_rows == 0) return;
    // A sine costs about as much as a hundred elementwise operations.
    pool_run_rows(f->pool, f->batch.n_rows, (size_t)f->spec->rope.dim * 50, rope_rows, f);
    compress_begin(f);
    indexer_begin(f);
    tiles_plan(f);
}

struct attn_layer {
    struct forward *f;
    const struct layer_weights *w;
    uint32_t layer;
};

float *attn_query(const struct forward *f, uint32_t kv_head, uint32_t row) {
    size_t index = (size_t)kv_head * f->batch.n_rows + f->attn.tiles.place[row];
    return f->attn.q + index * f->attn.group * spec_key_dim(f->spec);
}

const struct rotary *attn_rotary(const struct forward *f, uint32_t layer) {
    return spec_layer_compressed(f->spec, layer) ? &f->attn.compress_rope : &f->attn.rope;
}

static void norm_and_rotate(const struct attn_layer *al, float *y, const float *x,
                            const float *norm, uint32_t row) {
    const struct forward *f = al->f;
    const struct model_spec *spec = f->spec;
    if (spec->qk_norm == QK_NORM_HEAD)
        f->ops->rms_norm(y, x, norm, spec->head_dim, spec->norm_eps);
    else if (y != x)
        memcpy(y, x, spec->head_dim * sizeof *y);
    if (spec->layer_flags[al->layer] & LAYER_NO_ROPE) return;
    rotary_turn(&f->attn.rope, y, row);
    if (spec->qk_norm == QK_NORM_AFTER_ROPE)
        f->ops->rms_norm(y, y, f->attn.ones, spec->head_dim, spec->norm_eps);
}

// Far positions of layers without rotary embedding look at fewer keys.
static void sharpen(const struct attn_layer *al, float *q, uint32_t row) {
    const struct temperature_spec *t = &al->f->spec->temperature;
    if (t->floor == 0 || !(al->f->spec->layer_flags[al->layer] & LAYER_NO_ROPE)) return;
    uint32_t steps = (al->f->batch.position[row] + 1) / t->floor;
    float factor = elementary_log((float)(steps + 1)) * t->scale + 1.0f;
    al->f->ops->scale(q, q, factor, al->f->spec->head_dim);
}

// One row's queries go to where attention reads them, its keys and values into the page.
static void spread_row(const struct attn_layer *al, uint32_t row, uint32_t kv_head) {
    struct forward *f = al->f;
    const struct model_spec *spec = f->spec;
    uint32_t hd = spec->head_dim, group = f->attn.group;
    float *qkv = f->attn.qkv + (size_t)row * f->attn.qkv_dim;
    float *q = attn_query(f, kv_head, row);
    for (uint32_t h = 0; h < group; h++, q += hd) {
        const float *from = qkv + ((size_t)kv_head * group + h) * spec_query_dim(spec);
        norm_and_rotate(al, q, from, al->w->q_norm, row);
        sharpen(al, q, row);
    }
    float *key = qkv + (size_t)f->slice.n_heads * spec_query_dim(spec) + (size_t)kv_head * hd;
    const float *value = key + (size_t)f->slice.n_kv_heads * hd;
    norm_and_rotate(al, key, key, al->w->k_norm, row);
    struct kv_place at = {al->layer, kv_head, f->batch.slot[row], f->batch.position[row]};
    kv_write(&f->kv, f->ops, &at, key, value);
}

// A row's values that a rank of the group has computed, queries before keys.
static const float *wide_part(const struct forward *f, uint32_t index, uint32_t row) {
    if (index == f->place.tp) return f->attn.qkv + (size_t)row * f->attn.qkv_dim;
    return (const float *)f->tp.in[index].data + row * wide_floats(f, index);
}

// The norm is over all heads of the model, as on one rank; this rank's are kept.
static void norm_spread_heads(const struct attn_layer *al, uint32_t row, float *wide) {
    struct forward *f = al->f;
    const struct slice *s = &f->slice;
    size_t hd = f->spec->head_dim, q = s->n_heads * hd, k = s->n_kv_heads * hd;
    uint32_t n_q = f->spec->n_heads * f->spec->head_dim,
             n_k = f->spec->n_kv_heads * f->spec->head_dim;
    float *own = f->attn.qkv + (size_t)row * f->attn.qkv_dim;
    for (uint32_t i = 0; i < f->tp.n; i++)
        memcpy(wide + i * q, wide_part(f, i, row), q * sizeof *wide);
    f->ops->rms_norm(wide, wide, al->w->q_norm, n_q, f->spec->norm_eps);
    memcpy(own, wide + s->first_head * hd, q * sizeof *own);
    for (uint32_t i = 0; i < f->tp.n; i += s->kv_copies) // its own keys are not normed yet
        memcpy(wide + i / s->kv_copies * k, wide_part(f, i, row) + q, k * sizeof *wide);
    f->ops->rms_norm(wide, wide, al->w->k_norm, n_k, f->spec->norm_eps);
    memcpy(own + q, wide + s->first_kv_head * hd, k * sizeof *own);
}

// Norms over all heads of a row and limits on its values come before the heads part.
static void prepare_row(const struct attn_layer *al, uint32_t row, uint32_t thread) {
    struct forward *f = al->f;
    const struct model_spec *spec = f->spec;
    uint32_t n_q = spec->n_heads * spec->head_dim, n_k = spec->n_kv_heads * spec->head_dim;
    float *q = f->attn.qkv + (size_t)row * f->attn.qkv_dim, *k = q + n_q;
    if (is_wide(f)) {
        norm_spread_heads(al, row, f->attn.wide + (size_t)thread * n_q);
    } else if (spec->qk_norm == QK_NORM_WIDE) {
        f->ops->rms_norm(q, q, al->w->q_norm, n_q, spec->norm_eps);
        f->ops->rms_norm(k, k, al->w->k_norm, n_k, spec->norm_eps);
    }
    if (spec->clip_qkv != 0) f->ops->clamp(q, spec->clip_qkv, f->attn.qkv_dim);
}

static void spread_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    const struct attn_layer *al = context;
    for (uint32_t row = row_begin; row < row_end; row++) {
        prepare_row(al, row, thread);
        for (uint32_t kv_head = 0; kv_head < al->f->slice.n_kv_heads; kv_head++)
            spread_row(al, row, kv_head);
    }
}

static void copy_wide_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    struct forward *f = context;
    size_t n = wide_floats(f, f->place.tp);
    for (uint32_t row = row_begin; row < row_end; row++)
        memcpy(f->attn.wide_sent + row * n, f->attn.qkv + (size_t)row * f->attn.qkv_dim,
               n * sizeof(float));
}

// Every rank gets all heads of all rows, because a norm's sum runs through them in one order.
static int exchange_heads(struct forward *f, uint32_t layer, struct err_text *e) {
    struct tp *t = &f->tp;
    size_t row_bytes = f->batch.n_rows * sizeof(float);
    pool_run_rows(f->pool, f->batch.n_rows, wide_floats(f, t->index), copy_wide_rows, f);
    tp_exchange_begin(f);
    for (uint32_t i = 0; i < t->n; i++) {
        t->out[i].data = f->attn.wide_sent;
        t->out[i].data_bytes = wide_floats(f, t->index) * row_bytes;
        t->wanted[i] = wide_floats(f, i) * row_bytes;
    }
    return tp_exchange(f, FABRIC_HEADS, tp_block(layer, TP_ATTN), e);
}

// From qkv to queries, and to keys and values in the pages.
static int spread(struct attn_layer *al, struct err_text *e) {
    struct forward *f = al->f;
    int rc = is_wide(f) ? exchange_heads(f, al->layer, e) : 0;
    if (rc != 0) return rc;
    pool_run_rows(f->pool, f->batch.n_rows, (size_t)f->attn.qkv_dim * 2, spread_rows, al);
    if (is_wide(f)) tp_release(f);
    return 0;
}

// The first key that a query at this position sees.
static uint32_t first_key(const struct attn_layer *al, uint32_t position) {
    const struct model_spec *spec = al->f->spec;
    if (spec->layer_flags[al->layer] & LAYER_FULL) return 0;
    if (spec->attn_chunk != 0) return position / spec->attn_chunk * spec->attn_chunk;
    uint32_t window = spec->sliding_window;
    return window != 0 && position >= window ? position + 1 - window : 0;
}

// What scores of a query at this position are multiplied by: far ones look at fewer keys.
static float score_factor(uint32_t length, uint32_t position) {
    if (length == 0 || position <= length) return 1.0f;
    return elementary_log((float)position) / elementary_log((float)length);
}

// Query i of the tile is (row i / heads, head first_head + i % heads).
static void fill_ranges(const struct attn_layer *al, const struct attn_tile *tile,
                        uint32_t first_head, const struct attn_thread *mine) {
    const struct batch *b = &al->f->batch;
    const struct tiles *tiles = &al->f->attn.tiles;
    uint32_t heads = tiles->heads_per_item;
    for (uint32_t i = 0; i < tile->n_rows * heads; i++) {
        uint32_t row = tiles->order[tile->begin + i / heads], position = b->position[row];
        uint32_t rate = spec_compress_rate(al->f->spec, al->layer);
        mine->tables[i] = al->f->kv.tables[b->slot[row]].blocks;
        mine->n_keys[i] = position + 1;
        mine->n_entries[i] = rate != 0 ? (position + 1) / rate : 0;
        mine->first_key[i] = first_key(al, position);
        mine->factors[i] = score_factor(al->f->spec->temperature.length, position);
        if (al->w->sinks != NULL) mine->sinks[i] = al->w->sinks[first_head + i % heads];
    }
}

// An output's gate stands behind its head's query.
static void gate_heads(const struct forward *f, float *out, uint32_t row, uint32_t first_head) {
    uint32_t hd = f->spec->head_dim;
    const float *heads = f->attn.qkv + (size_t)row * f->attn.qkv_dim;
    for (uint32_t h = 0; h < f->attn.tiles.heads_per_item; h++, out += hd)
        f->ops->sigmoid_mul(out, heads + (size_t)(first_head + h) * 2 * hd + hd, hd);
}

static void keep_out(const struct forward *f, const struct attn_tile *tile, uint32_t first_head,
                     const struct attn_thread *mine) {
    size_t dim = spec_value_dim(f->spec), n = f->attn.tiles.heads_per_item * dim;
    for (uint32_t i = 0; i < tile->n_rows; i++) {
        uint32_t row = f->attn.tiles.order[tile->begin + i];
        float *out = f->attn.out + (size_t)row * f->slice.n_heads * dim;
        memcpy(out + first_head * dim, mine->out + i * n, n * sizeof(float));
        if (f->spec->attn_gate) gate_heads(f, out + first_head * dim, row, first_head);
    }
}

// Rows of tokens: of the query's range, or those chosen of it.
static struct latent_keys token_rows(const struct attn_layer *al, const struct attn_tile *tile,
                                     const struct attn_thread *mine) {
    const struct forward *f = al->f;
    bool all = f->spec->indexer.top_k == 0;
    return (struct latent_keys){
        .pages = kv_keys(&f->kv, al->layer, 0),
        .block_stride = f->kv.layers[al->layer].stride,
        .rate = 1,
        .first = mine->first_key,
        .n = mine->n_keys,
        .chosen = all ? NULL : indexer_chosen(f, f->attn.tiles.order[tile->begin]),
        .n_chosen = f->spec->indexer.top_k,
    };
}

// Compressed entries: all whose windows the query has seen the end of, or those chosen of them.
static struct latent_keys entry_rows(const struct attn_layer *al, const struct attn_tile *tile,
                                     const struct attn_thread *mine) {
    const struct forward *f = al->f;
    bool choose = (f->spec->layer_flags[al->layer] & LAYER_CSA) != 0;
    return (struct latent_keys){
        .pages = kv_entries(&f->kv, al->layer, false),
        .block_stride = f->kv.layers[al->layer].stride,
        .rate = spec_compress_rate(f->spec, al->layer),
        .n = mine->n_entries,
        .chosen = choose ? indexer_chosen(f, f->attn.tiles.order[tile->begin]) : NULL,
        .n_chosen = f->spec->compress.top_k,
    };
}

// The same over pages of rows that are key and value, where there is one KV head.
static void attend_rows(const struct attn_layer *al, const struct attn_tile *tile,
                        uint32_t first_head, const struct attn_thread *mine) {
    struct forward *f = al->f;
    uint32_t key_dim = spec_key_dim(f->spec), value_dim = spec_value_dim(f->spec);
    uint32_t row = f->attn.tiles.order[tile->begin];
    struct latent_keys kinds[2];
    uint32_t n_kinds = 0;
    if (spec_layer_compressed(f->spec, al->layer)) kinds[n_kinds++] = entry_rows(al, tile, mine);
    kinds[n_kinds++] = token_rows(al, tile, mine);
    struct latent_job job = {
        .q = attn_query(f, 0, row) + (size_t)first_head * key_dim,
        .out = mine->out,
        .q_stride = key_dim,
        .out_stride = value_dim,
        .n_q = tile->n_rows * f->attn.tiles.heads_per_item,
        .key_dim = key_dim,
        .value_dim = value_dim,
        .kinds = kinds,
        .n_kinds = n_kinds,
        .block_table = mine->tables[0],
        .kv_dtype = f->kv.dtype,
        .scale = f->spec->attn_scale,
        .sinks = al->w->sinks != NULL ? mine->sinks : NULL,
        .scratch = mine->scratch,
    };
    f->ops->attend_latent(&job);
}

// Item i: a tile, a KV head, and a part of that head's query heads.
static void attend_item(void *context, uint32_t i, uint32_t thread) {
    const struct attn_layer *al = context;
    struct forward *f = al->f;
    struct attn *a = &f->attn;
    const struct attn_thread *mine = &a->threads[thread];
    uint32_t heads = a->tiles.heads_per_item, parts = a->group / heads;
    const struct attn_tile *tile = &a->tiles.tiles[i / parts / f->slice.n_kv_heads];
    uint32_t kv_head = i / parts % f->slice.n_kv_heads, head = i % parts * heads;
    uint32_t key_dim = spec_key_dim(f->spec), value_dim = spec_value_dim(f->spec);
    fill_ranges(al, tile, kv_head * a->group + head, mine);
    if (f->kv.latents) {
        attend_rows(al, tile, head, mine);
        keep_out(f, tile, head, mine);
        return;
    }
    struct attend_job job = {
        .q = attn_query(f, kv_head, a->tiles.order[tile->begin]) + (size_t)head * key_dim,
        .out = mine->out,
        .q_stride = key_dim,
        .out_stride = value_dim,
        .n_q = tile->n_rows * heads,
        .head_dim = key_dim,
        .value_dim = value_dim,
        .first_key = mine->first_key,
        .n_keys = mine->n_keys,
        .block_table = mine->tables[0],
        .tables = tile->n_shared > 0 ? mine->tables : NULL,
        .n_shared = tile->n_shared,
        .k_base = kv_keys(&f->kv, al->layer, kv_head),
        .v_base = kv_values(&f->kv, al->layer, kv_head),
        .block_stride = f->kv.layers[al->layer].stride,
        .kv_dtype = f->kv.dtype,
        .scale = f->spec->attn_scale,
        .softcap = f->spec->attn_cap,
        .factors = f->spec->temperature.length != 0 ? mine->factors : NULL,
        .sinks = al->w->sinks != NULL ? mine->sinks : NULL,
        .scratch = mine->scratch,
    };
    f->ops->attend(&job);
    keep_out(f, tile, kv_head * a->group + head, mine);
}

static void project_qkv(struct attn_layer *al) {
    struct forward *f = al->f;
    struct linear qkv = {
        .ops = f->ops,
        .w = &al->w->qkv,
        .x = f->all_normed,
        .ldx = f->spec->hidden,
        .y = f->attn.qkv,
        .ldy = f->attn.qkv_dim,
        .n_rows = f->batch.n_rows,
        .bias = al->w->qkv_bias,
    };
    linear_run(f->pool, &qkv);
}

// What the output projection reads.
static const float *outputs(const struct attn_layer *al) {
    struct forward *f = al->f;
    if (spec_has_latents(f->spec)) return mla_outputs(f, al->layer);
    if (f->spec->joint.q_rank != 0) return joint_outputs(f, al->layer);
    return f->attn.out;
}

static int project_out(struct attn_layer *al, struct err_text *e) {
    struct forward *f = al->f;
    const float *post_norm = al->w->attn_post_norm;
    bool alone = f->tp.n == 1, simple = post_norm == NULL && f->spec->hyper.n == 0;
    struct linear out = {
        .ops = f->ops,
        .w = &al->w->o,
        .x = outputs(al),
        .ldx = al->w->o.n_in,
        .y = f->partial,
        .ldy = f->spec->hidden,
        .n_rows = f->batch.n_rows,
        .bias = alone ? al->w->o_bias : NULL,
        .residual = alone && simple ? f->x : NULL,
        .residual_scale = f->spec->scale.residual,
    };
    linear_run(f->pool, &out);
    if (!alone)
        return tp_reduce(f, tp_block(al->layer, TP_ATTN),
                         &(struct tp_after){al->w->o_bias, post_norm}, e);
    if (!simple) forward_return_rows(f, post_norm);
    return 0;
}

int attn_forward(struct forward *f, uint32_t layer, struct err_text *e) {
    if (f->batch.n_rows == 0) return 0;
    struct attn_layer al = {f, forward_layer(f, layer), layer};
    forward_norm(f, layer, BLOCK_ATTN);
    int rc = mla_gathers(f) ? 0 : tp_gather(f, tp_block(layer, TP_ATTN), f->tp.row_first, e);
    if (rc != 0) return rc;
    if (f->spec->mla.kv_rank != 0) {
        rc = mla_spread(f, layer, e);
        if (rc == 0) indexer_choose(f, layer);
    } else if (f->spec->joint.q_rank != 0) {
        joint_spread(f, layer);
        compress_forward(f, layer);
        if (f->spec->layer_flags[layer] & LAYER_CSA) indexer_choose_entries(f, layer, f->joint.q_a);
    } else {
        project_qkv(&al);
        rc = spread(&al, e);
    }
    if (rc != 0) return rc;
    const struct tiles *tiles = &f->attn.tiles;
    uint32_t parts = f->attn.group / tiles->heads_per_item;
    pool_run(f->pool, tiles->n * f->slice.n_kv_heads * parts, attend_item, &al);
    return project_out(&al, e);
}
