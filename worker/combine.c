// combine.c: see combine.h. Twin of dispatch.c.
#include "worker/combine.h"

#include <string.h>

#include "worker/forward.h"

size_t combine_bytes_max(const struct model_spec *spec, uint32_t rows_max) {
    return sizeof(struct rows_head) +
           (size_t)rows_max * spec->router.top_k * spec->hidden * sizeof(float);
}

void combine_lay(struct forward *f, struct scratch *s) {
    struct combine *c = &f->combine;
    size_t row_bytes = f->spec->hidden * sizeof(float);
    c->heads = scratch_take(s, f->stage_ranks, sizeof *c->heads);
    c->out = scratch_take(s, f->stage_ranks * dispatch_pairs_max(f), row_bytes);
    c->parts = scratch_take(s, f->stage_ranks, sizeof *c->parts);
    c->in = scratch_take(s, f->stage_ranks, sizeof *c->in);
    uint32_t etp = f->config.layout->etp;
    c->rows = scratch_take(s, (size_t)f->own_max * f->spec->router.top_k * etp, sizeof *c->rows);
    c->row_begin = scratch_take(s, f->stage_ranks, sizeof *c->row_begin);
    c->sum = scratch_take(s, f->n_threads, row_bytes);
    if (etp > 1) c->tree = scratch_take(s, (size_t)f->n_threads * etp, row_bytes);
}

static int exchange_results(struct forward *f, uint32_t layer, struct err_text *e) {
    struct combine *c = &f->combine;
    const uint32_t *begin = f->dispatch.pair_begin;
    size_t hidden = f->spec->hidden;
    for (uint32_t r = 0; r < f->stage_ranks; r++) {
        c->parts[r] = (struct fabric_part){0};
        if (r == f->self) continue;
        uint32_t n_pairs = begin[r + 1] - begin[r];
        c->heads[r] = (struct rows_head){.n_rows = n_pairs, .hidden = f->spec->hidden};
        c->parts[r] = (struct fabric_part){.head = &c->heads[r],
                                           .head_bytes = sizeof c->heads[r],
                                           .data = c->out + begin[r] * hidden,
                                           .data_bytes = n_pairs * hidden * sizeof(float),
                                           .unit_bytes = hidden * sizeof(float)};
    }
    int64_t deadline = env_now_ns(f->config.env) + f->config.exchange_timeout_ns;
    struct fabric_exchange x = {fabric_tag(FABRIC_COMBINE, f->step, layer), f->stage_first,
                                f->stage_ranks, c->parts, c->in};
    int rc = fabric_exchange(f->config.fabric, &x, deadline);
    if (rc != 0) return err_set(e, rc, "combine of layer %u: %s", layer, err_name(rc));
    c->holding = true;
    return 0;
}

// Where this rank's own answers lie.
static void find_own(struct forward *f, const float **rows, uint32_t n_pairs) {
    const float *out = f->combine.out + (size_t)f->dispatch.pair_begin[f->self] * f->spec->hidden;
    for (uint32_t i = 0; i < n_pairs; i++)
        rows[i] = out + (size_t)i * f->spec->hidden;
}

static int find_answers(struct forward *f, uint32_t from, uint32_t n_pairs, struct err_text *e) {
    struct combine *c = &f->combine;
    struct fabric_piece first = fabric_pieces(&c->in[from]);
    struct rows_shape shape;
    int rc = rows_parse(&shape, &first, &(struct rows_rules){n_pairs, f->spec->hidden}, e);
    if (rc == 0) rows_find(c->rows + c->row_begin[from], &first, &shape);
    return rc;
}

static int find_rows(struct forward *f, uint32_t layer, struct err_text *e) {
    struct combine *c = &f->combine;
    uint32_t begin = 0;
    for (uint32_t r = 0; r < f->stage_ranks; r++) {
        uint32_t n_pairs = f->dispatch.places[r / f->config.layout->etp].n_pairs;
        struct err_text why;
        c->row_begin[r] = begin;
        if (r == f->self)
            find_own(f, c->rows + begin, n_pairs);
        else if (find_answers(f, r, n_pairs, &why) != 0)
            return err_set(e, ERR_PEER_PROTOCOL, "combine of layer %u from rank %u: %s", layer,
                           f->stage_first + r, why.text);
        begin += n_pairs;
    }
    return 0;
}

// The shared expert comes behind the chosen ones.
static void add_shared(const struct forward *f, float *sum, uint32_t row) {
    uint32_t hidden = f->spec->hidden;
    const float *shared = f->expert.shared + (size_t)row * hidden;
    if (f->spec->shared.gated)
        f->ops->axpy(sum, shared, f->expert.shared_weights[row], hidden);
    else
        f->ops->add(sum, shared, hidden);
    if (f->spec->shared.sum != 0) f->ops->scale(sum, sum, f->spec->shared.sum, hidden);
}

struct combine_layer {
    struct forward *f;
    const struct layer_weights *w;
};

// One expert's row of one pair: as it came, or the sum of what the ranks of its place have of it:
// neighbours first, so that the tree is the one of down's segments (docs/arithmetic.md).
static const float *pair_row(const struct combine_layer *cl, size_t pair, uint32_t thread) {
    const struct forward *f = cl->f;
    uint32_t hidden = f->spec->hidden, etp = f->config.layout->etp;
    uint32_t expert = f->route.experts[pair];
    const uint32_t *begin = f->combine.row_begin + f->dispatch.owner[expert] * etp;
    const float **rows = f->combine.rows + f->dispatch.pair_index[pair];
    if (etp == 1) return rows[*begin];
    float *tree = f->combine.tree + (size_t)thread * etp * hidden;
    for (uint32_t i = 0; i < etp; i++)
        memcpy(tree + (size_t)i * hidden, rows[begin[i]], hidden * sizeof *tree);
    for (uint32_t step = 1; step < etp; step *= 2) {
        for (uint32_t i = 0; i < etp; i += 2 * step)
            f->ops->add(tree + (size_t)i * hidden, tree + (size_t)(i + step) * hidden, hidden);
    }
    if (cl->w->down_biases != NULL)
        f->ops->add(tree, cl->w->down_biases + (size_t)expert * hidden, hidden);
    return tree;
}

// From +0 in the router's order, then the residual: the same order wherever the experts ran.
static void add_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    const struct combine_layer *cl = context;
    struct forward *f = cl->f;
    uint32_t top_k = f->spec->router.top_k, hidden = f->spec->hidden;
    float *sum = f->combine.sum + (size_t)thread * hidden;
    for (uint32_t row = row_begin; row < row_end; row++) {
        memset(sum, 0, hidden * sizeof *sum);
        for (uint32_t j = 0; j < top_k; j++) {
            size_t pair = (size_t)row * top_k + j;
            f->ops->axpy(sum, pair_row(cl, pair, thread), f->route.weights[pair], hidden);
        }
        if (f->spec->shared.inner != 0) add_shared(f, sum, row);
        forward_return(f, row, sum, cl->w->ffn_post_norm);
    }
}

int combine_rows(struct forward *f, uint32_t layer, struct err_text *e) {
    // The experts are done with the peers' rows. Later they would lie beside the next layer's.
    dispatch_release(f);
    int rc = f->stage_ranks > 1 ? exchange_results(f, layer, e) : 0;
    if (rc == 0) rc = find_rows(f, layer, e);
    if (rc == 0)
        pool_run_rows(f->pool, f->n_own, (size_t)f->spec->hidden * f->spec->router.top_k, add_rows,
                      &(struct combine_layer){f, forward_layer(f, layer)});
    combine_release(f);
    return rc;
}

void combine_release(struct forward *f) {
    struct combine *c = &f->combine;
    if (!c->holding) return;
    for (uint32_t r = 0; r < f->stage_ranks; r++) {
        if (r != f->self) fabric_release(f->config.fabric, &c->in[r]);
    }
    c->holding = false;
}
