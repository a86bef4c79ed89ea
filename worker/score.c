// score.c: see score.h.
#include "worker/score.h"

#include "worker/sample.h"

uint32_t score_items_max(uint32_t rows_max) {
    uint64_t all = (uint64_t)rows_max * (TOP_LOGPROBS_MAX + 1);
    return all < SCORES_STEP_ITEMS_MAX ? (uint32_t)all : SCORES_STEP_ITEMS_MAX;
}

void score_lay(struct score *s, uint32_t rows_max, struct scratch *memory) {
    uint32_t items = score_items_max(rows_max);
    s->rows = scratch_take(memory, rows_max, sizeof *s->rows);
    s->logprobs = scratch_take(memory, rows_max, sizeof *s->logprobs);
    s->ranks = scratch_take(memory, rows_max, sizeof *s->ranks);
    s->top_ids = scratch_take(memory, items, sizeof *s->top_ids);
    s->top_logprobs = scratch_take(memory, items, sizeof *s->top_logprobs);
}

void score_begin(struct score *s) {
    s->n_rows = s->n_tops = 0;
}

void score_add(struct score *s, const struct batch *b, const struct batch_seq *seq,
               struct seq_scores *out) {
    const Moesaic__Step__V1__Scoring *asked = seq->scoring;
    uint32_t n_top = asked->n_top < b->vocab ? asked->n_top : b->vocab;
    *out = (struct seq_scores){.n_rows = asked->n_rows,
                               .n_top = n_top,
                               .logprobs = s->logprobs + s->n_rows,
                               .ranks = s->ranks + s->n_rows,
                               .top_ids = s->top_ids + s->n_tops,
                               .top_logprobs = s->top_logprobs + s->n_tops};
    for (uint32_t i = 0; i < asked->n_rows; i++) {
        bool inside = i + 1 < seq->n_rows;
        uint32_t token = inside ? b->token[seq->row_begin + i + 1] : asked->next_token;
        s->ranks[s->n_rows] = 0;
        s->rows[s->n_rows++] = (struct score_row){token, n_top, s->n_tops};
        s->n_tops += n_top;
    }
}

static uint32_t count_at_least(const float *x, uint32_t n, float value) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += x[i] >= value;
    return count;
}

void score_row(struct score *s, const struct kernel_ops *ops, const float *logits, uint32_t vocab,
               uint32_t index) {
    const struct score_row *row = &s->rows[index];
    struct sample_top top = {row->n_top, s->top_ids + row->first_top,
                             s->top_logprobs + row->first_top};
    float max, lse;
    if (!ops->log_sum_exp(logits, vocab, &max, &lse)) return;
    s->logprobs[index] = logits[row->token] - lse;
    sample_top(logits, vocab, lse, &top);
    s->ranks[index] = count_at_least(logits, vocab, logits[row->token]);
}

bool score_finite(const struct seq_scores *scores) {
    for (uint32_t i = 0; i < scores->n_rows; i++) {
        if (scores->ranks[i] == 0) return false;
    }
    return true;
}
