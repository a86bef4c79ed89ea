// compress.c: see compress.h.
#include "worker/compress.h"

#include <string.h>

#include "common/base/check.h"
#include "worker/forward.h"
#include "worker/linear.h"

#define WINDOW_ROWS_MAX (2 * COMPRESS_RATE_MAX)

static void lay_windows(struct forward *f, struct compress_windows *w, uint32_t rate,
                        struct scratch *s) {
    const struct rotary_config config = {f->ops, &f->spec->compress.rope, f->config.rows_max,
                                         f->config.max_model_len};
    w->rate = rate;
    w->list = scratch_take(s, f->config.rows_max, sizeof *w->list);
    rotary_lay(&w->rope, &config, s);
}

static void lay_states(struct forward *f) {
    struct compress *c = &f->compress;
    for (uint32_t i = 0; i < f->n_layers; i++) {
        uint32_t layer = f->first_layer + i;
        if (!spec_layer_compressed(f->spec, layer)) continue;
        size_t bytes = spec_layer_state_bytes(f->spec, layer, f->tp.n);
        c->state_floats[layer] = bytes / sizeof(float);
        c->states[layer] = state_take(&f->state, 1, bytes);
    }
}

// What a token gives and its gates, of two series.
static size_t row_floats(uint32_t dim) {
    return (size_t)4 * dim;
}

void compress_lay(struct forward *f, struct scratch *s) {
    struct compress *c = &f->compress;
    const struct compress_spec *spec = &f->spec->compress;
    if (spec->csa_rate == 0) return;
    c->rows = scratch_take(s, f->config.rows_max, row_floats(f->spec->head_dim) * sizeof(float));
    c->index_rows = scratch_take(s, f->config.rows_max, row_floats(spec->dim) * sizeof(float));
    lay_windows(f, &c->csa, spec->csa_rate, s);
    lay_windows(f, &c->hca, spec->hca_rate, s);
    lay_states(f);
}

// --- the windows of a step

static void list_windows(struct forward *f, struct compress_windows *w) {
    w->n = 0;
    for (uint32_t i = 0; i < f->batch.n_seqs; i++) {
        const struct batch_seq *seq = &f->batch.seqs[i];
        uint32_t first = f->batch.position[seq->row_begin], end = first + seq->n_rows;
        for (uint32_t number = first / w->rate; number < end / w->rate; number++)
            w->list[w->n++] = (struct compress_window){i, number};
    }
    check(w->n <= f->config.rows_max);
}

static void fill_tables(void *context, uint32_t begin, uint32_t end, uint32_t thread) {
    (void)thread;
    const struct compress_windows *w = context;
    for (uint32_t i = begin; i < end; i++)
        rotary_fill(&w->rope, i, w->list[i].number * w->rate);
}

void compress_begin(struct forward *f) {
    struct compress *c = &f->compress;
    struct compress_windows *rates[] = {&c->csa, &c->hca};
    if (f->spec->compress.csa_rate == 0) return;
    for (int i = 0; i < 2; i++) {
        list_windows(f, rates[i]);
        pool_run_rows(f->pool, rates[i]->n, (size_t)f->spec->rope.dim * 50, fill_tables, rates[i]);
    }
}

// --- a layer

// How one kind of entries is made.
struct maker {
    const struct entry_weights *w;
    uint32_t dim, series;
    size_t floats; // of a token: what it gives of each series, then the gates
    float *rows;   // of the step, that many apart
    float *kept;   // of slot 0, likewise: position p at p mod n_kept
    bool index;
};

struct compress_layer {
    struct forward *f;
    uint32_t layer, rate, n_kept;
    const struct compress_windows *windows;
    struct maker makers[2];
    uint32_t n_makers;
};

static struct compress_layer layer_of(struct forward *f, uint32_t layer) {
    struct compress *c = &f->compress;
    const struct layer_weights *w = forward_layer(f, layer);
    bool csa = (f->spec->layer_flags[layer] & LAYER_CSA) != 0;
    uint32_t dim = f->spec->head_dim, series = spec_compress_series(f->spec, layer);
    struct compress_layer cl = {.f = f,
                                .layer = layer,
                                .rate = spec_compress_rate(f->spec, layer),
                                .n_kept = spec_compress_kept(f->spec, layer),
                                .windows = csa ? &c->csa : &c->hca,
                                .n_makers = csa ? 2 : 1};
    cl.makers[0] = (struct maker){.w = &w->compress.entry,
                                  .dim = dim,
                                  .series = series,
                                  .floats = (size_t)2 * series * dim,
                                  .rows = c->rows,
                                  .kept = c->states[layer]};
    cl.makers[1] = (struct maker){.w = &w->compress.index,
                                  .dim = f->spec->compress.dim,
                                  .series = series,
                                  .floats = (size_t)2 * series * f->spec->compress.dim,
                                  .rows = c->index_rows,
                                  .kept = cl.makers[0].kept + cl.n_kept * cl.makers[0].floats,
                                  .index = true};
    return cl;
}

// What each token gives stands before its gates.
static void project(const struct compress_layer *cl, const struct maker *m) {
    struct forward *f = cl->f;
    const struct matrix *parts[] = {&m->w->kv, &m->w->gate};
    for (int i = 0; i < 2; i++) {
        struct linear l = {.ops = f->ops,
                           .w = parts[i],
                           .x = f->all_normed,
                           .y = m->rows + (size_t)i * m->series * m->dim,
                           .ldx = parts[i]->n_in,
                           .ldy = m->floats,
                           .n_rows = f->batch.n_rows};
        linear_run(f->pool, &l);
    }
}

static float *kept_row(const struct compress_layer *cl, const struct maker *m, uint32_t slot,
                       uint32_t position) {
    size_t slot_floats = cl->f->compress.state_floats[cl->layer];
    return m->kept + slot * slot_floats + position % cl->n_kept * m->floats;
}

// A token of this step, or one that was kept.
static const float *token_row(const struct compress_layer *cl, const struct maker *m,
                              const struct batch_seq *seq, uint32_t position) {
    uint32_t first = cl->f->batch.position[seq->row_begin];
    if (position < first) return kept_row(cl, m, seq->slot, position);
    return m->rows + (size_t)(seq->row_begin + position - first) * m->floats;
}

// A window's rows, as the kernel takes them.
struct window_rows {
    const float *x[WINDOW_ROWS_MAX], *gate[WINDOW_ROWS_MAX], *place[WINDOW_ROWS_MAX];
    uint32_t n;
};

// One series of the tokens of a window.
static void add_tokens(struct window_rows *rows, const struct compress_layer *cl,
                       const struct maker *m, const struct compress_window *window,
                       uint32_t series) {
    const struct batch_seq *seq = &cl->f->batch.seqs[window->seq];
    size_t at = (size_t)series * m->dim, all = (size_t)m->series * m->dim;
    for (uint32_t t = 0; t < cl->rate; t++, rows->n++) {
        const float *row = token_row(cl, m, seq, window->number * cl->rate + t);
        rows->x[rows->n] = row + at;
        rows->gate[rows->n] = row + all + at;
        rows->place[rows->n] = m->w->bias + t * all + at;
    }
}

// Item i: a window, and one kind of its entries.
static void close_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct compress_layer *cl = context;
    struct forward *f = cl->f;
    const struct maker *m = &cl->makers[i % cl->n_makers];
    uint32_t at = i / cl->n_makers;
    const struct compress_window *window = &cl->windows->list[at];
    struct compress_window before = {window->seq, window->number - 1};
    struct window_rows rows = {.n = 0};
    float entry[HEAD_DIM_MAX];
    if (m->series == 2 && window->number > 0) add_tokens(&rows, cl, m, &before, 0);
    add_tokens(&rows, cl, m, window, m->series - 1);
    f->ops->window_sum(entry, &(struct window){rows.x, rows.gate, rows.place, rows.n}, m->dim);
    f->ops->rms_norm(entry, entry, m->w->norm, m->dim, f->spec->norm_eps);
    rotary_turn(&cl->windows->rope, entry + m->dim - f->spec->rope.dim, at);
    const struct kv_entry place = {cl->layer, f->batch.seqs[window->seq].slot, window->number,
                                   m->index};
    kv_write_entry(&f->kv, f->ops, &place, entry);
}

// Item i: a sequence, and one kind of its entries. Only the last tokens of a run are kept.
static void keep_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct compress_layer *cl = context;
    const struct maker *m = &cl->makers[i % cl->n_makers];
    const struct batch_seq *seq = &cl->f->batch.seqs[i / cl->n_makers];
    uint32_t first = cl->f->batch.position[seq->row_begin], end = first + seq->n_rows;
    uint32_t n = seq->n_rows < cl->n_kept ? seq->n_rows : cl->n_kept;
    for (uint32_t position = end - n; position < end; position++)
        memcpy(kept_row(cl, m, seq->slot, position),
               m->rows + (size_t)(seq->row_begin + position - first) * m->floats,
               m->floats * sizeof(float));
}

void compress_forward(struct forward *f, uint32_t layer) {
    if (!spec_layer_compressed(f->spec, layer)) return;
    struct compress_layer cl = layer_of(f, layer);
    for (uint32_t i = 0; i < cl.n_makers; i++)
        project(&cl, &cl.makers[i]);
    pool_run(f->pool, cl.windows->n * cl.n_makers, close_item, &cl);
    pool_run(f->pool, f->batch.n_seqs * cl.n_makers, keep_item, &cl);
}
