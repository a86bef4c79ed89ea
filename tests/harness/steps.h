// steps.h: a model on one rank that a test runs step by step: which tokens a text has, which pages
// a slot has and what a step of just one run answers, for tests of what a slot keeps between steps.
#ifndef MOESAIC_TESTS_STEPS_H
#define MOESAIC_TESTS_STEPS_H

#include "tests/harness/serve.h"
#include "worker/kv.h"

#define STEPS_SLOTS 3
#define STEPS_POSITIONS 128

struct steps_config {
    const char *folder;
    uint32_t rows_max, positions; // of a step and of a slot: at most STEPS_POSITIONS each
    uint32_t n_snapshots;
    enum dtype kv_dtype;
};

struct steps {
    struct model_spec spec;
    struct layout layout;
    struct weights *weights;
    struct ranks *ranks;
    struct err_text error;     // of the last step that was refused
    struct step_output output; // of the last step that was not
    uint32_t slot_blocks;
    // The step to come: tests may change what was added.
    Moesaic__Step__V1__StepPlan plan;
    Moesaic__Step__V1__PlanSeq seqs[STEPS_SLOTS], *pointers[STEPS_SLOTS];
    Moesaic__Step__V1__Sampling sampling[STEPS_SLOTS];
    uint32_t tokens[STEPS_SLOTS][STEPS_POSITIONS];
    uint32_t blocks[STEPS_SLOTS][STEPS_POSITIONS / KV_BLOCK_TOKENS];
};

void steps_open(struct steps *s, const struct steps_config *config);
void steps_close(struct steps *s);

// Adds tokens [position, position + n) of one of many texts, in the slot and its pages.
void steps_add(struct steps *s, uint32_t slot, uint32_t text, uint32_t position, uint32_t n);
// Runs the step of all that was added since the last one; 0 or negative enum err.
int steps_run(struct steps *s);
// The digest of the last row of a step with just this run.
uint64_t steps_digest(struct steps *s, uint32_t slot, uint32_t text, uint32_t position, uint32_t n);
// Checks that the step is refused as a peer's mistake, with these words.
void steps_refused(struct steps *s, const char *words);

#endif
