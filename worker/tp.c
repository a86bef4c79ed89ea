// tp.c: see tp.h.
#include "worker/tp.h"

#include <stdio.h>
#include <string.h>

#include "worker/forward.h"

// Sums that wait for their neighbours while eight parts are added.
#define LEVELS 3
static_assert(SEGMENTS_MAX == 1 << LEVELS, "a tree of segments");
#define BLOCK_NAME_MAX 40

size_t tp_bytes_max(uint32_t hidden, uint32_t own_max) {
    return (size_t)own_max * hidden * sizeof(float);
}

void tp_lay(struct forward *f, struct scratch *s) {
    struct tp *t = &f->tp;
    t->n = f->config.layout->tp;
    t->index = f->place.tp;
    t->first_rank = f->rank - t->index;
    t->row_first = scratch_take(s, (size_t)t->n + 1, sizeof *t->row_first);
    if (t->n == 1) return;
    t->out = scratch_take(s, t->n, sizeof *t->out);
    t->wanted = scratch_take(s, t->n, sizeof *t->wanted);
    t->in = scratch_take(s, t->n, sizeof *t->in);
    t->parts = scratch_take(s, (size_t)t->n * f->own_max, sizeof *t->parts);
    t->sums = scratch_take(s, (size_t)f->n_threads * LEVELS, f->spec->hidden * sizeof(float));
}

void tp_begin(struct forward *f) {
    struct tp *t = &f->tp;
    for (uint32_t i = 0; i <= t->n; i++)
        t->row_first[i] = layout_row_first(f->config.layout, f->batch.n_rows, i);
}

// --- one exchange

void tp_exchange_begin(struct forward *f) {
    struct tp *t = &f->tp;
    memset(t->out, 0, t->n * sizeof *t->out);
    memset(t->wanted, 0, t->n * sizeof *t->wanted);
    t->unit_bytes = 0;
}

void tp_release(struct forward *f) {
    struct tp *t = &f->tp;
    for (uint32_t i = 0; i < t->n; i++)
        fabric_release(f->config.fabric, &t->in[i]);
}

// Everybody starts with its right neighbour.
static int post(struct forward *f, uint64_t tag) {
    struct tp *t = &f->tp;
    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t peer = (t->index + i) % t->n;
        struct fabric_part *part = &t->out[peer];
        if (part->data_bytes == 0) continue;
        part->unit_bytes = t->unit_bytes;
        int rc = fabric_send(f->config.fabric, t->first_rank + peer, tag, part);
        if (rc != 0) return rc;
    }
    return 0;
}

// The rows that come from one rank.
static struct rows_shape shape_from(const struct tp *t, uint32_t i) {
    return (struct rows_shape){0, t->unit_bytes, (uint32_t)(t->wanted[i] / t->unit_bytes)};
}

static int check_message(const struct tp *t, uint32_t i, struct err_text *e) {
    struct fabric_piece first = fabric_pieces(&t->in[i]);
    if (t->unit_bytes == 0 && first.bytes != t->wanted[i])
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes instead of %zu", first.bytes, t->wanted[i]);
    if (t->unit_bytes == 0) return 0;
    struct rows_shape shape = shape_from(t, i);
    return rows_check(&first, &shape, e);
}

static int take(struct forward *f, const struct fabric_want *want, int64_t deadline,
                struct err_text *e) {
    struct tp *t = &f->tp;
    uint32_t i = want->peer - t->first_rank;
    int rc = fabric_recv(f->config.fabric, want, deadline, &t->in[i]);
    if (rc != 0) return err_set(e, rc, ", from rank %u: %s", want->peer, err_name(rc));
    struct err_text why;
    if (check_message(t, i, &why) == 0) return 0;
    return err_set(e, ERR_PEER_PROTOCOL, ", from rank %u: %s", want->peer, why.text);
}

static const char *kind_name(enum fabric_message kind) {
    switch (kind) {
    case FABRIC_GATHER: return "gather";
    case FABRIC_REDUCE: return "reduce";
    case FABRIC_HEADS: return "heads";
    case FABRIC_LOGITS: return "logits";
    default: return "tokens";
    }
}

// As people know a block: the part of a layer that is split, the head, or a tile of its rows.
static void name_block(const struct forward *f, enum fabric_message kind, uint32_t block,
                       char text[BLOCK_NAME_MAX]) {
    if (kind == FABRIC_LOGITS || kind == FABRIC_TOKENS)
        snprintf(text, BLOCK_NAME_MAX, "tile %u", block);
    else if (block >= tp_block(f->spec->n_layers, TP_ATTN))
        snprintf(text, BLOCK_NAME_MAX, "head");
    else
        snprintf(text, BLOCK_NAME_MAX, "layer %u, %s", tp_block_layer(block),
                 tp_block_part(block) == TP_ATTN ? "attention" : "dense");
}

// Errors say what was wrong, behind the exchange's name.
static int run_exchange(struct forward *f, enum fabric_message kind, uint32_t block,
                        struct err_text *e) {
    struct tp *t = &f->tp;
    int64_t deadline = env_now_ns(f->config.env) + f->config.exchange_timeout_ns;
    struct fabric_want want = {.kind = kind, .step = f->step, .layer = block};
    int rc = post(f, fabric_tag(kind, f->step, block));
    if (rc != 0) err_set(e, rc, ": %s", err_name(rc));
    for (uint32_t i = 1; rc == 0 && i < t->n; i++) {
        uint32_t peer = (t->index + t->n - i) % t->n; // whose right neighbours come first
        want.peer = t->first_rank + peer;
        if (t->wanted[peer] != 0) rc = take(f, &want, deadline, e);
    }
    if (rc != 0 || fabric_flushed(f->config.fabric)) return rc;
    rc = fabric_flush(f->config.fabric, deadline);
    return rc == 0 ? 0 : err_set(e, rc, ": %s", err_name(rc));
}

int tp_exchange(struct forward *f, enum fabric_message kind, uint32_t block, struct err_text *e) {
    int64_t began_ns = env_now_ns(f->config.env);
    struct err_text why = {""};
    memset(f->tp.in, 0, f->tp.n * sizeof *f->tp.in);
    int rc = run_exchange(f, kind, block, &why);
    f->tp.wait_ns += (uint64_t)(env_now_ns(f->config.env) - began_ns);
    if (rc == 0) return 0;
    tp_release(f);
    char name[BLOCK_NAME_MAX];
    name_block(f, kind, block, name);
    return err_set(e, rc, "%s of %s%s", kind_name(kind), name, why.text);
}

// --- rows to everybody

int tp_gather(struct forward *f, uint32_t block, const uint32_t *first, struct err_text *e) {
    struct tp *t = &f->tp;
    size_t row_bytes = f->spec->hidden * sizeof(float);
    if (t->n == 1) return 0;
    uint32_t own = first[t->index], n_own = first[t->index + 1] - own;
    tp_exchange_begin(f);
    for (uint32_t i = 0; i < t->n; i++) {
        t->out[i].data = f->all_normed + (size_t)own * f->spec->hidden;
        t->out[i].data_bytes = n_own * row_bytes;
        t->wanted[i] = (first[i + 1] - first[i]) * row_bytes;
    }
    t->unit_bytes = row_bytes;
    int rc = tp_exchange(f, FABRIC_GATHER, block, e);
    if (rc != 0) return rc;
    for (uint32_t i = 0; i < t->n; i++) {
        if (i == t->index || t->wanted[i] == 0) continue;
        struct fabric_piece piece = fabric_pieces(&t->in[i]);
        struct rows_shape shape = shape_from(t, i);
        rows_copy(f->all_normed + (size_t)first[i] * f->spec->hidden, &piece, &shape);
    }
    tp_release(f);
    return 0;
}

// --- sums to each row's owner

// One row of all parts into the first of the levels: neighbours are added as soon as both are
// there.
static void add_tree(const struct forward *f, uint32_t row, float *levels) {
    uint32_t hidden = f->spec->hidden, depth = 0;
    const float **parts = f->tp.parts + row;
    for (uint32_t i = 0; i < f->tp.n; i += 2) {
        float *sum = levels + (size_t)depth++ * hidden;
        memcpy(sum, parts[(size_t)i * f->own_max], hidden * sizeof *sum);
        f->ops->add(sum, parts[(size_t)(i + 1) * f->own_max], hidden);
        for (uint32_t pairs = i / 2 + 1; pairs % 2 == 0; pairs /= 2) {
            depth--;
            f->ops->add(levels + (size_t)(depth - 1) * hidden, levels + (size_t)depth * hidden,
                        hidden);
        }
    }
}

struct reduction {
    struct forward *f;
    const struct tp_after *after;
};

static void reduce_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    const struct reduction *r = context;
    struct forward *f = r->f;
    uint32_t hidden = f->spec->hidden;
    float *levels = f->tp.sums + (size_t)thread * LEVELS * hidden;
    for (uint32_t row = row_begin; row < row_end; row++) {
        add_tree(f, row, levels);
        if (r->after->bias != NULL) f->ops->add(levels, r->after->bias, hidden);
        forward_return(f, row, levels, r->after->post_norm);
    }
}

static void find_parts(struct forward *f) {
    struct tp *t = &f->tp;
    size_t hidden = f->spec->hidden;
    for (uint32_t i = 0; i < t->n; i++) {
        const float **parts = t->parts + (size_t)i * f->own_max;
        struct fabric_piece first = fabric_pieces(&t->in[i]);
        if (i == t->index)
            first = (struct fabric_piece){(const uint8_t *)(f->partial + f->own_first * hidden),
                                          t->wanted[i], NULL};
        struct rows_shape shape = {0, t->unit_bytes, f->n_own};
        rows_find(parts, &first, &shape);
    }
}

int tp_reduce(struct forward *f, uint32_t block, const struct tp_after *after, struct err_text *e) {
    struct tp *t = &f->tp;
    size_t hidden = f->spec->hidden;
    tp_exchange_begin(f);
    for (uint32_t i = 0; i < t->n; i++) {
        t->out[i].data = f->partial + t->row_first[i] * hidden;
        t->out[i].data_bytes = (t->row_first[i + 1] - t->row_first[i]) * hidden * sizeof(float);
        t->wanted[i] = f->n_own * hidden * sizeof(float);
    }
    t->unit_bytes = hidden * sizeof(float);
    int rc = tp_exchange(f, FABRIC_REDUCE, block, e);
    if (rc != 0) return rc;
    find_parts(f);
    pool_run_rows(f->pool, f->n_own, hidden * t->n, reduce_rows, &(struct reduction){f, after});
    tp_release(f);
    return 0;
}
