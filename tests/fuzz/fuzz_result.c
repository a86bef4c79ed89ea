// fuzz_result.c: StepResult bytes of a rank against a plan with three runs, two of them sampled and
// the last one scored as well.
#include <math.h>
#include <stdint.h>

#include "common/base/check.h"
#include "leader/wire.h"

#define VOCAB 50

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct sched_config shape = {
        .n_ranks = 2, .max_num_seqs = 4, .max_num_batched_tokens = 16, .vocab = VOCAB};
    struct planned seqs[] = {
        {.slot = 3, .n_tokens = 1, .sample = true, .sampling = {.n_logprobs = 2}},
        {.slot = 1, .n_tokens = 3},
        {.slot = 0, .n_tokens = 3, .sample = true, .n_scored = 2, .n_score_top = 1}};
    struct rank_plan plan = {.n_seqs = 3, .n_answered = 2, .seqs = seqs};
    struct wire *wire;
    struct wire_result out;
    struct err_text e;
    if (wire_create(&wire, &shape) != 0) return 0;
    struct wire_answer answer = {
        .data = data, .bytes = size, .epoch = 7, .step = 12, .rank = 1, .plan = &plan};
    if (wire_decode(wire, &answer, &out, &e) == 0) {
        for (int i = 0; i < 2; i++)
            check(out.results[i].nonfinite ||
                  (out.results[i].token < VOCAB && isfinite(out.results[i].logprob)));
        check(out.results[0].n_top <= 2 && out.results[1].n_top == 0);
        const struct prompt_scores *s = &out.results[1].scores;
        for (uint32_t i = 0; i < s->n_tokens; i++)
            check(isfinite(s->logprobs[i]) && s->ranks[i] - 1 < VOCAB && s->top_ids[i] < VOCAB &&
                  isfinite(s->top_logprobs[i]));
    }
    wire_destroy(wire);
    return 0;
}
