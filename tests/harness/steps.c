// steps.c: one rank with its weights, and the plan of its next step.
#include "tests/harness/steps.h"

#include <check.h>
#include <string.h>

void steps_open(struct steps *s, const struct steps_config *config) {
    memset(s, 0, sizeof *s);
    ck_assert_msg(spec_load(&s->spec, config->folder, &s->error) == 0, "%s", s->error.text);
    ck_assert_int_eq(layout_make(&s->layout, 1, &s->error), 0);
    struct weights_config of_weights = {.folder = config->folder,
                                        .spec = &s->spec,
                                        .layout = &s->layout,
                                        .dtype = s->spec.dtype,
                                        .n_threads = 1};
    ck_assert_msg(weights_load(&s->weights, &of_weights, &s->error) == 0, "%s", s->error.text);
    const struct weights *weights = s->weights;
    s->slot_blocks = config->positions / KV_BLOCK_TOKENS;
    s->ranks = ranks_create(&(struct ranks_config){.weights = &weights,
                                                   .layout = &s->layout,
                                                   .n_threads = 2,
                                                   .n_slots = STEPS_SLOTS,
                                                   .rows_max = config->rows_max,
                                                   .max_model_len = config->positions,
                                                   .kv_blocks = STEPS_SLOTS * s->slot_blocks,
                                                   .n_snapshots = config->n_snapshots,
                                                   .kv_dtype = config->kv_dtype});
    moesaic__step__v1__step_plan__init(&s->plan);
    s->plan.seqs = s->pointers;
}

void steps_close(struct steps *s) {
    ranks_destroy(s->ranks);
    weights_destroy(s->weights);
}

void steps_add(struct steps *s, uint32_t slot, uint32_t text, uint32_t position, uint32_t n) {
    size_t i = s->plan.n_seqs++;
    Moesaic__Step__V1__PlanSeq *seq = s->pointers[i] = &s->seqs[i];
    moesaic__step__v1__plan_seq__init(seq);
    seq->slot = slot;
    seq->position = position;
    seq->tokens = s->tokens[i];
    seq->n_tokens = n;
    seq->blocks = s->blocks[i];
    seq->n_blocks = s->slot_blocks;
    for (uint32_t t = 0; t < n; t++)
        s->tokens[i][t] = ((position + t) * 11 + text * 37) % s->spec.vocab;
    for (uint32_t b = 0; b < s->slot_blocks; b++)
        s->blocks[i][b] = slot * s->slot_blocks + b;
    moesaic__step__v1__sampling__init(&s->sampling[i]);
    s->sampling[i].top_p = 1.0f;
    seq->sampling = &s->sampling[i];
}

int steps_run(struct steps *s) {
    int rc = model_step(ranks_model(s->ranks, 0), &s->plan, &s->output, &s->error);
    s->plan.n_seqs = 0;
    return rc;
}

uint64_t steps_digest(struct steps *s, uint32_t slot, uint32_t text, uint32_t position,
                      uint32_t n) {
    steps_add(s, slot, text, position, n);
    ck_assert_msg(steps_run(s) == 0, "%s", s->error.text);
    return s->output.seqs[0].digest;
}

void steps_refused(struct steps *s, const char *words) {
    ck_assert_int_eq(steps_run(s), ERR_PEER_PROTOCOL);
    ck_assert_msg(strstr(s->error.text, words) != NULL, "'%s' does not say %s", s->error.text,
                  words);
}
