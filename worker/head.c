// head.c: see head.h.
#include "worker/head.h"

#include <string.h>

#include "worker/forward.h"
#include "worker/linear.h"

// Logits are the widest rows of all; a tile of them bounds the memory, and is large enough to read
// the head's weights seldom.
#define TILE_ROWS 32

static uint32_t tile_rows(uint32_t rows_max) {
    return rows_max < TILE_ROWS ? rows_max : TILE_ROWS;
}

size_t head_bytes_max(const struct model_spec *spec, const struct layout *l, uint32_t rows_max) {
    size_t rows = tile_rows(rows_max), most = 0;
    for (uint32_t i = 1; i < l->tp; i++) {
        size_t n = slice_token_first(spec, l->tp, i + 1) - slice_token_first(spec, l->tp, i);
        most = n > most ? n : most;
    }
    return rows * most * sizeof(float);
}

static void lay_sampling(struct forward *f, struct scratch *s) {
    struct head *h = &f->head;
    h->threads = scratch_take(s, f->n_threads, sizeof *h->threads);
    h->steer = scratch_take(s, f->n_threads, sizeof *h->steer);
    for (uint32_t t = 0; t < f->n_threads; t++) {
        struct sample_scratch sample;
        struct steer_scratch steer;
        sample_lay(&sample, f->spec->vocab, s);
        steer_scratch_lay(&steer, f->spec->vocab, s);
        if (h->threads == NULL) continue;
        h->threads[t] = sample;
        h->steer[t] = steer;
    }
}

void head_lay(struct forward *f, struct scratch *s) {
    struct head *h = &f->head;
    bool samples = f->place.tp == 0;
    h->tile_rows = tile_rows(f->config.rows_max);
    h->rows = scratch_take(s, f->config.rows_max, sizeof *h->rows);
    h->first = scratch_take(s, (size_t)f->tp.n + 1, sizeof *h->first);
    h->logits = scratch_take(
        s, (size_t)h->tile_rows * (samples ? f->spec->vocab : f->slice.n_tokens), sizeof(float));
    h->tokens = scratch_take(s, (size_t)h->tile_rows + 1, sizeof *h->tokens);
    h->results = scratch_take(s, f->config.n_slots, sizeof *h->results);
    score_lay(&h->score, f->config.rows_max, s);
    if (samples) lay_sampling(f, s);
}

// Where a row's logits are kept it is listed already.
static struct head_row *list_row(struct head *h, uint32_t row) {
    struct head_row *listed = &h->rows[h->keep ? row : h->n_rows++];
    *listed = (struct head_row){row, HEAD_NONE, HEAD_NONE};
    return listed;
}

static void list_rows(struct forward *f) {
    struct head *h = &f->head;
    const struct batch *b = &f->batch;
    h->n_rows = h->keep ? b->n_rows : 0;
    for (uint32_t row = 0; h->keep && row < b->n_rows; row++)
        list_row(h, row);
    score_begin(&h->score);
    for (uint32_t i = 0; i < b->n_answered; i++) {
        const struct batch_seq *seq = &b->seqs[b->answered_seq[i]];
        struct seq_result *result = &h->results[i];
        *result = (struct seq_result){.slot = seq->slot};
        uint32_t score = h->score.n_rows;
        if (seq->scoring != NULL) score_add(&h->score, b, seq, &result->scores);
        for (uint32_t k = 0; k < result->scores.n_rows; k++)
            list_row(h, seq->row_begin + k)->score = score + k;
        if (seq->sampling != NULL) list_row(h, seq->row_begin + seq->n_rows - 1)->result = i;
    }
}

// The list has the batch's order, so that each rank's rows stand together in it.
static void divide_rows(struct forward *f) {
    struct head *h = &f->head;
    uint32_t i = 0;
    for (uint32_t rank = 0; rank <= f->tp.n; rank++) {
        while (i < h->n_rows && h->rows[i].row < f->tp.row_first[rank])
            i++;
        h->first[rank] = i;
    }
}

static void norm_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    struct forward *f = context;
    const struct norm_weights norm = {f->config.weights->final_norm,
                                      f->config.weights->final_norm_bias};
    size_t hidden = f->spec->hidden;
    uint32_t first = f->head.first[f->tp.index];
    for (uint32_t i = first + row_begin; i < first + row_end; i++) {
        float *y = f->all_normed + i * hidden;
        uint32_t own_row = f->head.rows[i].row - f->own_first;
        const float *x = f->x + own_row * hidden;
        if (f->spec->hyper.n != 0) {
            hyper_end(f, y, own_row, thread);
            x = y;
        }
        forward_norm_row(f, y, x, &norm);
    }
}

int head_begin(struct forward *f, struct err_text *e) {
    const struct head *h = &f->head;
    list_rows(f);
    divide_rows(f);
    uint32_t n_own = h->first[f->tp.index + 1] - h->first[f->tp.index];
    pool_run_rows(f->pool, n_own, f->spec->hidden, norm_rows, f);
    return tp_gather(f, tp_block(f->spec->n_layers, 0), h->first, e);
}

// --- logits

// Rows [first, first + n) of the list.
struct head_tile {
    struct forward *f;
    uint32_t first, n;
    float *logits; // [n, stride]
    size_t stride;
};

static struct head_tile tile_at(struct forward *f, uint32_t first) {
    const struct head *h = &f->head;
    uint32_t left = h->n_rows - first, vocab = f->spec->vocab;
    struct head_tile tile = {f, first, left < h->tile_rows ? left : h->tile_rows, h->logits,
                             f->slice.n_tokens};
    if (f->place.tp != 0) return tile;
    tile.stride = vocab;
    if (h->kept != NULL) tile.logits = h->kept + (size_t)first * vocab;
    return tile;
}

static uint32_t tile_number(const struct head_tile *tile) {
    return tile->first / tile->f->head.tile_rows;
}

static void scale_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct head_tile *tile = context;
    struct forward *f = tile->f;
    for (uint32_t i = row_begin; i < row_end; i++) {
        float *logits = tile->logits + i * tile->stride;
        const struct scale_spec *s = &f->spec->scale;
        if (s->logits != 0) f->ops->scale(logits, logits, s->logits, f->slice.n_tokens);
        if (s->logits_cap != 0) f->ops->softcap(logits, s->logits_cap, f->slice.n_tokens);
    }
}

// This rank's columns.
static void compute_logits(struct head_tile *tile) {
    struct forward *f = tile->f;
    if (f->slice.n_tokens == 0) return;
    struct linear logits = {
        .ops = f->ops,
        .w = &f->config.weights->head,
        .x = f->all_normed + (size_t)tile->first * f->spec->hidden,
        .ldx = f->spec->hidden,
        .y = tile->logits,
        .ldy = tile->stride,
        .n_rows = tile->n,
        .bias = f->config.weights->head_bias,
    };
    linear_run(f->pool, &logits);
    if (f->spec->scale.logits != 0 || f->spec->scale.logits_cap != 0)
        pool_run_rows(f->pool, tile->n, f->slice.n_tokens, scale_rows, tile);
}

static void place_columns(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct head_tile *tile = context;
    const struct tp *t = &tile->f->tp;
    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t first = slice_token_first(tile->f->spec, t->n, i);
        size_t n = slice_token_first(tile->f->spec, t->n, i + 1) - first;
        for (uint32_t row = row_begin; n > 0 && row < row_end; row++)
            memcpy(tile->logits + row * tile->stride + first,
                   (const float *)t->in[i].data + row * n, n * sizeof(float));
    }
}

static int collect_logits(struct head_tile *tile, struct err_text *e) {
    struct forward *f = tile->f;
    struct tp *t = &f->tp;
    tp_exchange_begin(f);
    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t n = slice_token_first(f->spec, t->n, i + 1) - slice_token_first(f->spec, t->n, i);
        t->wanted[i] = (size_t)tile->n * n * sizeof(float);
    }
    int rc = tp_exchange(f, FABRIC_LOGITS, tile_number(tile), e);
    if (rc != 0) return rc;
    pool_run_rows(f->pool, tile->n, f->spec->vocab, place_columns, tile);
    tp_release(f);
    return 0;
}

static int send_logits(struct head_tile *tile, struct err_text *e) {
    struct forward *f = tile->f;
    tp_exchange_begin(f);
    f->tp.out[0].data = tile->logits;
    f->tp.out[0].data_bytes = (size_t)tile->n * f->slice.n_tokens * sizeof(float);
    return tp_exchange(f, FABRIC_LOGITS, tile_number(tile), e);
}

static int hear_tokens(struct forward *f, uint32_t first, struct err_text *e);

int head_logits(struct forward *f, uint32_t first, struct err_text *e) {
    struct head_tile tile = tile_at(f, first);
    compute_logits(&tile);
    if (f->tp.n == 1) return 0;
    if (f->place.tp == 0) return collect_logits(&tile, e);
    int rc = first > 0 ? hear_tokens(f, first - f->head.tile_rows, e) : 0;
    return rc == 0 ? send_logits(&tile, e) : rc;
}

// --- tokens

// What the row's token is chosen by.
static const float *steered(const struct forward *f, const struct sample_row *row, uint32_t slot,
                            uint32_t thread) {
    if (!row->params->steered) return row->logits;
    struct steer_row steer = {row->logits, row->vocab, slot, row->position};
    return steer_row(&f->batch.slots[slot].steering, &f->kv, &steer, &f->head.steer[thread]);
}

static void sample_rows(void *context, uint32_t i, uint32_t thread) {
    const struct head_tile *tile = context;
    struct forward *f = tile->f;
    struct head_row row = f->head.rows[tile->first + i];
    const float *logits = tile->logits + i * tile->stride;
    if (row.score != HEAD_NONE)
        score_row(&f->head.score, f->ops, logits, f->spec->vocab, row.score);
    if (row.result == HEAD_NONE) return;
    struct sample_row sample = {
        .logits = logits,
        .vocab = f->spec->vocab,
        .position = f->batch.position[row.row],
        .params = f->batch.seqs[f->batch.answered_seq[row.result]].sampling,
    };
    struct seq_result *result = &f->head.results[row.result];
    sample.chosen_by = steered(f, &sample, result->slot, thread);
    sample_row(f->ops, &sample, &f->head.threads[thread], result);
    if (f->config.digest) result->digest = model_digest_row(sample.logits, sample.vocab);
}

// Counts the tile's tokens in tokens[0].
static void list_tokens(struct head_tile *tile) {
    struct head *h = &tile->f->head;
    h->tokens[0] = 0;
    for (uint32_t i = 0; i < tile->n; i++) {
        uint32_t result = h->rows[tile->first + i].result;
        if (result != HEAD_NONE) h->tokens[++h->tokens[0]] = h->results[result].token;
    }
}

// After a row that was not finite the slot remembers token 0: a step may already be planned on it,
// and must run for the others.
static void remember_tokens(const struct head_tile *tile, const uint32_t *tokens) {
    struct forward *f = tile->f;
    for (uint32_t i = 0; i < tile->n; i++) {
        uint32_t result = f->head.rows[tile->first + i].result;
        if (result != HEAD_NONE) batch_remember(&f->batch, f->head.results[result].slot, *tokens++);
    }
}

// Peers wait for the tokens of a tile, and before they go on with another one.
static bool are_tokens_told(const struct head_tile *tile) {
    const struct head *h = &tile->f->head;
    return tile->f->tp.n > 1 && (h->tokens[0] > 0 || tile->first + tile->n < h->n_rows);
}

static int tell_tokens(struct head_tile *tile, struct err_text *e) {
    struct forward *f = tile->f;
    tp_exchange_begin(f);
    for (uint32_t i = 1; i < f->tp.n; i++) {
        f->tp.out[i].data = f->head.tokens;
        f->tp.out[i].data_bytes = (f->head.tokens[0] + 1) * sizeof *f->head.tokens;
    }
    return tp_exchange(f, FABRIC_TOKENS, tile_number(tile), e);
}

static int check_tokens(const struct forward *f, const uint32_t *message, struct err_text *e) {
    uint32_t n = f->head.tokens[0];
    if (message[0] != n)
        return err_set(e, ERR_PEER_PROTOCOL, "tokens from rank %u: %u instead of %u",
                       f->tp.first_rank, message[0], n);
    for (uint32_t i = 1; i <= n; i++) {
        if (message[i] >= f->spec->vocab)
            return err_set(e, ERR_PEER_PROTOCOL, "tokens from rank %u: %u is not below %u",
                           f->tp.first_rank, message[i], f->spec->vocab);
    }
    return 0;
}

static int hear_tokens(struct forward *f, uint32_t first, struct err_text *e) {
    struct head_tile tile = tile_at(f, first);
    list_tokens(&tile); // how many there are
    if (!are_tokens_told(&tile)) return 0;
    tp_exchange_begin(f);
    f->tp.wanted[0] = (f->head.tokens[0] + 1) * sizeof *f->head.tokens;
    int rc = tp_exchange(f, FABRIC_TOKENS, tile_number(&tile), e);
    if (rc != 0) return rc;
    const uint32_t *message = (const uint32_t *)f->tp.in[0].data;
    rc = check_tokens(f, message, e);
    if (rc == 0) remember_tokens(&tile, message + 1);
    tp_release(f);
    return rc;
}

int head_sample(struct forward *f, uint32_t first, struct err_text *e) {
    struct head_tile tile = tile_at(f, first);
    if (f->place.tp != 0) return 0;
    pool_run(f->pool, tile.n, sample_rows, &tile);
    list_tokens(&tile);
    remember_tokens(&tile, f->head.tokens + 1);
    return are_tokens_told(&tile) ? tell_tokens(&tile, e) : 0;
}

int head_end(struct forward *f, struct err_text *e) {
    struct head *h = &f->head;
    if (f->place.tp != 0)
        return h->n_rows == 0 ? 0
                              : hear_tokens(f, (h->n_rows - 1) / h->tile_rows * h->tile_rows, e);
    for (uint32_t i = 0; i < f->batch.n_answered; i++) {
        struct seq_result *result = &h->results[i];
        if (!score_finite(&result->scores)) result->nonfinite = true;
    }
    return 0;
}
