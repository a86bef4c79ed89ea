// combine.c: see combine.h. Twin of dispatch.c.
#include "worker/combine.h"

#include <string.h>

#include "common/base/check.h"
#include "worker/forward.h"

size_t combine_bytes_max(const struct model_spec *spec, uint32_t rows_max) {
    return sizeof(struct combine_head) +
           (size_t)rows_max * spec->router.top_k * spec->hidden * sizeof(float);
}

void combine_lay(struct forward *f, struct scratch *s) {
    struct combine *c = &f->combine;
    size_t row_bytes = f->spec->hidden * sizeof(float);
    c->heads = scratch_take(s, f->stage_ranks, sizeof *c->heads);
    c->out = scratch_take(s, f->stage_ranks * dispatch_pairs_max(f), row_bytes);
    c->parts = scratch_take(s, f->stage_ranks, sizeof *c->parts);
    c->in = scratch_take(s, f->stage_ranks, sizeof *c->in);
    c->rows = scratch_take(s, f->stage_ranks, sizeof *c->rows);
    c->sum = scratch_take(s, f->n_threads, row_bytes);
    uint32_t etp = f->config.layout->etp;
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
        c->heads[r] = (struct combine_head){.n_pairs = n_pairs, .hidden = f->spec->hidden};
        c->parts[r] = (struct fabric_part){.head = &c->heads[r],
                                           .head_bytes = sizeof c->heads[r],
                                           .data = c->out + begin[r] * hidden,
                                           .data_bytes = n_pairs * hidden * sizeof(float)};
    }
    int64_t deadline = env_now_ns(f->config.env) + f->config.exchange_timeout_ns;
    struct fabric_exchange x = {fabric_tag(FABRIC_COMBINE, f->step, layer), f->stage_first,
                                f->stage_ranks, c->parts, c->in};
    int rc = fabric_exchange(f->config.fabric, &x, deadline);
    if (rc != 0) return err_set(e, rc, "combine of layer %u: %s", layer, err_name(rc));
    c->holding = true;
    return 0;
}

int combine_parse(const float **rows, const struct combine_rules *rules, const uint8_t *data,
                  size_t bytes, struct err_text *e) {
    struct combine_head head;
    if (bytes < sizeof head)
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes are less than a head", bytes);
    check((uintptr_t)data % WIRE_ALIGN == 0); // the fabric's promise
    memcpy(&head, data, sizeof head);
    if (head.hidden != rules->hidden || head.n_pairs != rules->n_pairs)
        return err_set(e, ERR_PEER_PROTOCOL, "hidden %u and n_pairs %u instead of %u and %u",
                       head.hidden, head.n_pairs, rules->hidden, rules->n_pairs);
    uint64_t expected = sizeof head + (uint64_t)head.n_pairs * head.hidden * sizeof(float);
    if (bytes != expected)
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes instead of %llu", bytes,
                       (unsigned long long)expected);
    *rows = (const float *)(data + sizeof head);
    return 0;
}

static int find_rows(struct forward *f, uint32_t layer, struct err_text *e) {
    struct combine *c = &f->combine;
    for (uint32_t r = 0; r < f->stage_ranks; r++) {
        const struct dispatch_place *place = &f->dispatch.places[r / f->config.layout->etp];
        struct combine_rules rules = {f->spec->hidden, place->n_pairs};
        struct err_text why;
        if (r == f->self)
            c->rows[r] = c->out + (size_t)f->dispatch.pair_begin[r] * f->spec->hidden;
        else if (combine_parse(&c->rows[r], &rules, c->in[r].data, c->in[r].bytes, &why) != 0)
            return err_set(e, ERR_PEER_PROTOCOL, "combine of layer %u from rank %u: %s", layer,
                           f->stage_first + r, why.text);
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
    const float **rows = f->combine.rows + f->dispatch.owner[expert] * etp;
    size_t at = (size_t)f->dispatch.pair_index[pair] * hidden;
    if (etp == 1) return rows[0] + at;
    float *tree = f->combine.tree + (size_t)thread * etp * hidden;
    for (uint32_t i = 0; i < etp; i++)
        memcpy(tree + (size_t)i * hidden, rows[i] + at, hidden * sizeof *tree);
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
    int rc = f->stage_ranks > 1 ? exchange_results(f, layer, e) : 0;
    dispatch_release(f); // the experts are done with the peers' rows
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
