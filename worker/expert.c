// expert.c: see expert.h. Between dispatch.c and combine.c in the walk.
#include "worker/expert.h"

#include <string.h>

#include "worker/forward.h"
#include "worker/linear.h"

// Rows that are computed together. More would leave the caches, fewer would read an expert's
// weights more often.
#define GROUP_ROWS 1024
// Several items a thread; none so small that handing it out shows.
#define ITEMS_PER_THREAD 4
#define ITEM_PRODUCTS_MIN 16384
// Reading a panel of weights costs about as much as multiplying it with this many rows.
#define READ_ROWS 4

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t inner_max(const struct forward *f) {
    const struct model_spec *spec = f->spec;
    uint32_t max = spec->shared.inner, expert = spec->inner_expert / f->config.layout->etp;
    for (uint32_t layer = 0; layer < spec->n_layers; layer++) {
        uint32_t inner = spec->ffn[layer] == FFN_MOE ? expert : f->slice.n_inner;
        if (inner > max) max = inner;
    }
    return max;
}

void expert_lay(struct forward *f, struct scratch *s) {
    struct expert *x = &f->expert;
    const struct model_spec *spec = f->spec;
    size_t pairs = f->stage_ranks * dispatch_pairs_max(f);
    size_t rows = pairs > f->config.rows_max ? pairs : f->config.rows_max;
    uint32_t n_local = f->config.weights->n_local_experts;
    x->group_rows = rows < GROUP_ROWS ? (uint32_t)rows : GROUP_ROWS;
    x->inner_max = inner_max(f);
    x->x = scratch_take(s, (size_t)x->group_rows * spec->hidden, sizeof(float));
    x->gate = scratch_take(s, (size_t)x->group_rows * x->inner_max, sizeof(float));
    x->up = scratch_take(s, (size_t)x->group_rows * x->inner_max, sizeof(float));
    x->y = scratch_take(s, (size_t)x->group_rows * spec->hidden, sizeof(float));
    if (spec->shared.inner != 0) {
        x->shared = scratch_take(s, f->own_max * (size_t)spec->hidden, sizeof(float));
        x->shared_weights = scratch_take(s, f->own_max, sizeof(float));
    }
    x->order = scratch_take(s, pairs, sizeof *x->order);
    x->begin = scratch_take(s, (size_t)n_local + 1, sizeof *x->begin);
    x->segments = scratch_take(s, x->group_rows, sizeof *x->segments);
    x->item_begin = scratch_take(s, (size_t)x->group_rows + 1, sizeof *x->item_begin);
    x->tokens = scratch_take(s, (size_t)f->n_layers * n_local, sizeof *x->tokens);
}

// --- one group: rows in segments, each with its own weights

struct ffn_group {
    struct forward *f;
    const float *x; // [rows of the group, hidden]
    float *y;       // the same
};

// Rows of one FFN, in tiles.
static void add_segments(struct expert *x, const struct expert_weights *w, uint32_t row_begin,
                         uint32_t n_rows) {
    for (uint32_t row = 0; row < n_rows; row += ROW_TILE) {
        x->segments[x->n_segments++] =
            (struct ffn_segment){.weights = w,
                                 .row_begin = row_begin + row,
                                 .n_rows = smaller(n_rows - row, ROW_TILE),
                                 .inner_panels = matrix_panels(&w->gate),
                                 .out_panels = matrix_panels(&w->down)};
    }
}

static uint64_t panel_cost(const struct ffn_segment *segment, const struct matrix *w) {
    uint64_t rows = segment->n_rows > READ_ROWS ? segment->n_rows : READ_ROWS;
    return rows * w->n_in * PANEL_COLS;
}

static uint32_t panels_for(uint64_t target, uint64_t cost, uint32_t panels) {
    uint64_t n = target / cost;
    return n == 0 ? 1 : n < panels ? (uint32_t)n : panels;
}

static void size_items(struct forward *f) {
    struct expert *x = &f->expert;
    uint64_t inner = 0, out = 0, n_items = (uint64_t)f->n_threads * ITEMS_PER_THREAD;
    for (uint32_t i = 0; i < x->n_segments; i++) {
        const struct ffn_segment *s = &x->segments[i];
        inner += 2 * panel_cost(s, &s->weights->gate) * s->inner_panels;
        out += panel_cost(s, &s->weights->down) * s->out_panels;
    }
    inner = inner / n_items > ITEM_PRODUCTS_MIN ? inner / n_items : ITEM_PRODUCTS_MIN;
    out = out / n_items > ITEM_PRODUCTS_MIN ? out / n_items : ITEM_PRODUCTS_MIN;
    for (uint32_t i = 0; i < x->n_segments; i++) {
        struct ffn_segment *s = &x->segments[i];
        s->inner_item = panels_for(inner, 2 * panel_cost(s, &s->weights->gate), s->inner_panels);
        s->out_item = panels_for(out, panel_cost(s, &s->weights->down), s->out_panels);
    }
}

static uint32_t count_items(struct expert *x, bool down) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_segments; i++) {
        const struct ffn_segment *s = &x->segments[i];
        uint32_t panels = down ? s->out_panels : s->inner_panels,
                 item = down ? s->out_item : s->inner_item;
        x->item_begin[i] = n;
        n += (panels + item - 1) / item;
    }
    x->item_begin[x->n_segments] = n;
    return n;
}

static const struct ffn_segment *segment_of(const struct expert *x, uint32_t item, uint32_t *part) {
    uint32_t low = 0, high = x->n_segments;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (x->item_begin[middle] <= item)
            low = middle;
        else
            high = middle;
    }
    *part = item - x->item_begin[low];
    return &x->segments[low];
}

// y, the gate's output, becomes the input of down.
static void activate(const struct forward *f, float *y, const float *up, uint32_t n) {
    const struct clamped_glu clamped = {f->spec->act_alpha, f->spec->act_limit};
    switch (f->spec->activation) {
    case ACT_SWIGLU: f->ops->silu_mul(y, y, up, n); break;
    case ACT_GEGLU: f->ops->gelu_mul(y, y, up, n); break;
    case ACT_CLAMPED: f->ops->clamped_glu(y, up, &clamped, n); break;
    case ACT_LIMITED: f->ops->limited_glu(y, up, clamped.limit, n); break;
    }
}

static void gate_up_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct ffn_group *g = context;
    struct forward *f = g->f;
    uint32_t part, hidden = f->spec->hidden, ld = f->expert.inner_max;
    const struct ffn_segment *s = segment_of(&f->expert, i, &part);
    uint32_t begin = part * s->inner_item, end = smaller(begin + s->inner_item, s->inner_panels);
    const float *x = g->x + (size_t)s->row_begin * hidden;
    float *gate = f->expert.gate + (size_t)s->row_begin * ld,
          *up = f->expert.up + (size_t)s->row_begin * ld;
    f->ops->matmul(gate, ld, x, hidden, s->n_rows, &s->weights->gate, begin, end);
    f->ops->matmul(up, ld, x, hidden, s->n_rows, &s->weights->up, begin, end);
    uint32_t col = begin * PANEL_COLS, n = smaller(end * PANEL_COLS, s->weights->gate.n_out) - col;
    const struct expert_weights *w = s->weights;
    for (uint32_t row = 0; row < s->n_rows; row++) {
        float *y = gate + (size_t)row * ld + col, *u = up + (size_t)row * ld + col;
        if (w->gate_bias != NULL) f->ops->add(y, w->gate_bias + col, n);
        if (w->up_bias != NULL) f->ops->add(u, w->up_bias + col, n);
        activate(f, y, u, n);
    }
}

static void down_item(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const struct ffn_group *g = context;
    struct forward *f = g->f;
    uint32_t part, hidden = f->spec->hidden, ld = f->expert.inner_max;
    const struct ffn_segment *s = segment_of(&f->expert, i, &part);
    uint32_t begin = part * s->out_item, end = smaller(begin + s->out_item, s->out_panels);
    const struct expert_weights *w = s->weights;
    float *y = g->y + (size_t)s->row_begin * hidden;
    f->ops->matmul(y, hidden, f->expert.gate + (size_t)s->row_begin * ld, ld, s->n_rows, &w->down,
                   begin, end);
    if (w->down_bias == NULL) return;
    uint32_t col = begin * PANEL_COLS, n = smaller(end * PANEL_COLS, hidden) - col;
    for (uint32_t row = 0; row < s->n_rows; row++)
        f->ops->add(y + (size_t)row * hidden + col, w->down_bias + col, n);
}

// g->y = FFN of g->x for the segments that were added.
static void run_group(struct ffn_group *g) {
    struct forward *f = g->f;
    size_items(f);
    pool_run(f->pool, count_items(&f->expert, false), gate_up_item, g);
    pool_run(f->pool, count_items(&f->expert, true), down_item, g);
}

// --- experts: rows are gathered from where dispatch left them, results go to where combine sends
// from

static void sort_pairs(struct forward *f) {
    struct expert *x = &f->expert;
    const struct pair *pairs = f->dispatch.pairs;
    uint32_t n_local = f->config.weights->n_local_experts,
             n = f->dispatch.pair_begin[f->stage_ranks];
    memset(x->begin, 0, (n_local + 1) * sizeof *x->begin);
    for (uint32_t p = 0; p < n; p++)
        x->begin[pairs[p].expert + 1]++;
    for (uint32_t e = 0; e < n_local; e++)
        x->begin[e + 1] += x->begin[e];
    // begin[e] moves to the end of e while e's pairs are placed, which is where e + 1 began; then
    // all move back by one.
    for (uint32_t p = 0; p < n; p++)
        x->order[x->begin[pairs[p].expert]++] = p;
    memmove(x->begin + 1, x->begin, n_local * sizeof *x->begin);
    x->begin[0] = 0;
}

// The ranks that share an expert compute the same rows of it: the first one counts them.
static void count_tokens(struct forward *f, uint32_t layer) {
    uint32_t n_local = f->config.weights->n_local_experts;
    _Atomic uint64_t *tokens = f->expert.tokens + (size_t)(layer - f->first_layer) * n_local;
    if (f->place.etp != 0) return;
    for (uint32_t e = 0; e < n_local; e++)
        atomic_fetch_add_explicit(&tokens[e], f->expert.begin[e + 1] - f->expert.begin[e],
                                  memory_order_relaxed);
}

struct expert_rows {
    struct forward *f;
    const uint32_t *order; // of the group's first row
};

static void gather_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct expert_rows *g = context;
    size_t hidden = g->f->spec->hidden;
    for (uint32_t i = row_begin; i < row_end; i++)
        memcpy(g->f->expert.x + i * hidden, g->f->dispatch.pairs[g->order[i]].x,
               hidden * sizeof(float));
}

static void scatter_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct expert_rows *g = context;
    size_t hidden = g->f->spec->hidden;
    for (uint32_t i = row_begin; i < row_end; i++)
        memcpy(g->f->combine.out + g->order[i] * hidden, g->f->expert.y + i * hidden,
               hidden * sizeof(float));
}

// Segments of the sorted pairs [first, first + n). *expert is where the last group ended.
static void cut_group(struct forward *f, const struct layer_weights *w, uint32_t first, uint32_t n,
                      uint32_t *expert) {
    struct expert *x = &f->expert;
    x->n_segments = 0;
    for (uint32_t at = first; at < first + n;) {
        while (x->begin[*expert + 1] <= at)
            ++*expert;
        uint32_t end = smaller(x->begin[*expert + 1], first + n);
        add_segments(x, &w->experts[*expert], at - first, end - at);
        at = end;
    }
}

void expert_run(struct forward *f, uint32_t layer) {
    sort_pairs(f);
    count_tokens(f, layer);
    uint32_t n_pairs = f->dispatch.pair_begin[f->stage_ranks], expert = 0;
    for (uint32_t first = 0; first < n_pairs; first += f->expert.group_rows) {
        uint32_t n = smaller(n_pairs - first, f->expert.group_rows);
        struct expert_rows rows = {f, f->expert.order + first};
        cut_group(f, forward_layer(f, layer), first, n, &expert);
        pool_run_rows(f->pool, n, f->spec->hidden, gather_rows, &rows);
        run_group(&(struct ffn_group){f, f->expert.x, f->expert.y});
        pool_run_rows(f->pool, n, f->spec->hidden, scatter_rows, &rows);
    }
}

// --- dense layers and shared experts: the same, with many rows and one set of weights

struct ffn_rows {
    const struct expert_weights *weights;
    uint32_t n;
    const float *x; // [n, hidden]
    float *y;       // the same
};

static void run_rows(struct forward *f, const struct ffn_rows *rows) {
    for (uint32_t first = 0; first < rows->n; first += f->expert.group_rows) {
        uint32_t n = smaller(rows->n - first, f->expert.group_rows);
        size_t at = (size_t)first * f->spec->hidden;
        f->expert.n_segments = 0;
        add_segments(&f->expert, rows->weights, 0, n);
        run_group(&(struct ffn_group){f, rows->x + at, rows->y + at});
    }
}

int dense_forward(struct forward *f, uint32_t layer, struct err_text *e) {
    const struct layer_weights *w = forward_layer(f, layer);
    uint32_t block = tp_block(layer, TP_DENSE);
    if (f->slice.dense_tp == 1) {
        float *own = f->partial + (size_t)f->own_first * f->spec->hidden;
        run_rows(f, &(struct ffn_rows){&w->dense, f->n_own, f->normed, own});
        forward_return_rows(f, w->ffn_post_norm);
        return 0;
    }
    int rc = tp_gather(f, block, f->tp.row_first, e);
    if (rc != 0) return rc;
    run_rows(f, &(struct ffn_rows){&w->dense, f->batch.n_rows, f->all_normed, f->partial});
    return tp_reduce(f, block, &(struct tp_after){NULL, w->ffn_post_norm}, e);
}

void shared_forward(struct forward *f, uint32_t layer) {
    const struct layer_weights *w = forward_layer(f, layer);
    if (f->spec->shared.inner == 0) return;
    run_rows(f, &(struct ffn_rows){&w->shared, f->n_own, f->normed, f->expert.shared});
    if (!f->spec->shared.gated) return;
    struct row_range own = {0, f->n_own};
    forward_project(f, &w->shared_weight, own, f->normed, f->expert.shared_weights);
    f->ops->sigmoid(f->expert.shared_weights, f->n_own);
}
