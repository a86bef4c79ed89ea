// head.c: see head.h.
#include "worker/head.h"

#include "worker/forward.h"
#include "worker/linear.h"

// Logits are the widest rows of all; a tile of them bounds the memory, and is large enough to read
// the head's weights seldom.
#define TILE_ROWS 32

void head_lay(struct forward *f, struct scratch *s) {
    struct head *h = &f->head;
    h->tile_rows = f->config.rows_max < TILE_ROWS ? f->config.rows_max : TILE_ROWS;
    h->rows = scratch_take(s, f->config.rows_max, sizeof *h->rows);
    h->normed = scratch_take(s, (size_t)h->tile_rows * f->spec->hidden, sizeof(float));
    h->logits = scratch_take(s, (size_t)h->tile_rows * f->spec->vocab, sizeof(float));
    h->results = scratch_take(s, f->config.n_slots, sizeof *h->results);
    score_lay(&h->score, f->config.rows_max, s);
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

// Where a row's logits are kept it is listed already.
static struct head_row *list_row(struct head *h, uint32_t row) {
    struct head_row *listed = &h->rows[h->kept != NULL ? row : h->n_rows++];
    *listed = (struct head_row){row, HEAD_NONE, HEAD_NONE};
    return listed;
}

void head_begin(struct forward *f) {
    struct head *h = &f->head;
    const struct batch *b = &f->batch;
    h->n_rows = h->kept != NULL ? b->n_rows : 0;
    for (uint32_t row = 0; h->kept != NULL && row < b->n_rows; row++)
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

static float *tile_logits(const struct forward *f, uint32_t first) {
    return f->head.kept != NULL ? f->head.kept + (size_t)first * f->spec->vocab : f->head.logits;
}

struct head_tile {
    struct forward *f;
    uint32_t first;
};

static void norm_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct head_tile *tile = context;
    struct forward *f = tile->f;
    const struct norm_weights norm = {f->config.weights->final_norm,
                                      f->config.weights->final_norm_bias};
    size_t hidden = f->spec->hidden;
    for (uint32_t i = row_begin; i < row_end; i++)
        forward_norm_row(f, f->head.normed + i * hidden,
                         f->x + f->head.rows[tile->first + i].row * hidden, &norm);
}

static void scale_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    const struct head_tile *tile = context;
    struct forward *f = tile->f;
    for (uint32_t i = row_begin; i < row_end; i++) {
        float *logits = tile_logits(f, tile->first) + (size_t)i * f->spec->vocab;
        const struct scale_spec *s = &f->spec->scale;
        if (s->logits != 0) f->ops->scale(logits, logits, s->logits, f->spec->vocab);
        if (s->logits_cap != 0) f->ops->softcap(logits, s->logits_cap, f->spec->vocab);
    }
}

uint32_t head_logits(struct forward *f, uint32_t first) {
    struct head *h = &f->head;
    struct head_tile tile = {f, first};
    uint32_t n = h->n_rows - first < h->tile_rows ? h->n_rows - first : h->tile_rows;
    pool_run_rows(f->pool, n, f->spec->hidden, norm_rows, &tile);
    struct linear logits = {
        .ops = f->ops,
        .w = &f->config.weights->head,
        .x = h->normed,
        .ldx = f->spec->hidden,
        .y = tile_logits(f, first),
        .ldy = f->spec->vocab,
        .n_rows = n,
        .bias = f->config.weights->head_bias,
    };
    linear_run(f->pool, &logits);
    if (f->spec->scale.logits != 0 || f->spec->scale.logits_cap != 0)
        pool_run_rows(f->pool, n, f->spec->vocab, scale_rows, &tile);
    return n;
}

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
    const float *logits = tile_logits(f, tile->first) + (size_t)i * f->spec->vocab;
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

// After a row that was not finite the slot remembers token 0: a step may already be planned on it,
// and must run for the others.
void head_sample(struct forward *f, uint32_t first, uint32_t n) {
    struct head_tile tile = {f, first};
    pool_run(f->pool, n, sample_rows, &tile);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t result = f->head.rows[first + i].result;
        if (result == HEAD_NONE) continue;
        batch_remember(&f->batch, f->head.results[result].slot, f->head.results[result].token);
    }
}

void head_end(struct forward *f) {
    for (uint32_t i = 0; i < f->batch.n_answered; i++) {
        struct seq_result *result = &f->head.results[i];
        if (!score_finite(&result->scores)) result->nonfinite = true;
    }
}
