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

void head_begin(struct forward *f) {
    struct head *h = &f->head;
    const struct batch *b = &f->batch;
    h->n_rows = 0;
    for (uint32_t row = 0; h->kept != NULL && row < b->n_rows; row++)
        h->rows[h->n_rows++] = (struct head_row){row, NOT_SAMPLED};
    for (uint32_t i = 0; i < b->n_sampled; i++) {
        const struct batch_seq *seq = &b->seqs[b->sampled_seq[i]];
        uint32_t row = seq->row_begin + seq->n_rows - 1;
        h->results[i] = (struct seq_result){.slot = seq->slot};
        if (h->kept != NULL)
            h->rows[row].result = i;
        else
            h->rows[h->n_rows++] = (struct head_row){row, i};
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
    size_t hidden = f->spec->hidden;
    for (uint32_t i = row_begin; i < row_end; i++)
        f->ops->rms_norm(f->head.normed + i * hidden,
                         f->x + f->head.rows[tile->first + i].row * hidden,
                         f->config.weights->final_norm, f->spec->hidden, f->spec->norm_eps);
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
    };
    linear_run(f->pool, &logits);
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
    if (row.result == NOT_SAMPLED) return;
    struct sample_row sample = {
        .logits = tile_logits(f, tile->first) + (size_t)i * f->spec->vocab,
        .vocab = f->spec->vocab,
        .position = f->batch.position[row.row],
        .params = f->batch.seqs[f->batch.sampled_seq[row.result]].sampling,
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
        if (result == NOT_SAMPLED) continue;
        batch_remember(&f->batch, f->head.results[result].slot, f->head.results[result].token);
    }
}
