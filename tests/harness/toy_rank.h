// toy_rank.h: a rank without a model: it keeps tokens in its pages and samples a hash of the
// history that it reads back through the slot's block table. A wrong position, page, slot or order
// of steps gives another token; an unlawful plan aborts the test. A stateful one also keeps a hash
// of its sequence in each slot, and aborts the test where that is not of what stands in the pages.
#ifndef MOESAIC_TESTS_HARNESS_TOY_RANK_H
#define MOESAIC_TESTS_HARNESS_TOY_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "leader/request.h"

struct toy_config {
    uint32_t rank, n_slots, rows_max, kv_blocks, max_model_len, vocab;
    bool stateful;
    uint32_t snapshots;       // of the slots' states
    uint32_t nonfinite_token; // a row that reads this token is not finite; UINT32_MAX = none
};

struct toy_rank;

struct toy_rank *toy_create(const struct toy_config *config);
void toy_destroy(struct toy_rank *t);

// One step: plan bytes (proto/step.proto) in, result bytes out (malloc'd, the caller frees).
uint8_t *toy_step(struct toy_rank *t, const uint8_t *plan, size_t plan_bytes, size_t *result_bytes);
uint64_t toy_steps(const struct toy_rank *t);      // run so far
uint64_t toy_idle_steps(const struct toy_rank *t); // of them empty

// What a request must answer: fills tokens (at most max_tokens), returns how many, the finish and
// the rolling digest.
struct toy_answer {
    uint32_t n_tokens, *tokens;
    enum finish finish;
    uint64_t digest;
};
void toy_answer(const struct request *r, uint32_t vocab, struct toy_answer *out); // tokens malloc'd

// How likely the toy finds the token behind the first n of a prompt, and the rank that it gives it;
// alternative k is toy_alternative, with the log-probability -k - 1.
struct toy_score {
    float logprob;
    uint32_t rank;
};
struct toy_score toy_score(const uint32_t *prompt, uint32_t n, uint32_t next, uint32_t vocab);
uint32_t toy_alternative(const uint32_t *prompt, uint32_t n, uint32_t k, uint32_t vocab);

#endif
