// scores.h: how likely a run of a prompt's tokens was, on its way from a rank's result to the
// client: prompt_logprobs and echo with logprobs.
//
// The scheduler copies each result's into a block of its own and hands it over with an event; who
// gets the event frees it (mem_free).
#ifndef MOESAIC_LEADER_SCORES_H
#define MOESAIC_LEADER_SCORES_H

#include <stdint.h>

// Tokens of a prompt in order, from its second on: nothing comes before the first. Natural
// logarithms, of the raw logits.
struct prompt_scores {
    uint32_t n_tokens, n_top;  // n_top: alternatives of each
    const uint32_t *tokens;    // [n_tokens] the prompt's
    const float *logprobs;     // [n_tokens]
    const uint32_t *ranks;     // [n_tokens] ids that are at least as likely, so 1 is the best
    const uint32_t *top_ids;   // [n_tokens, n_top] the most likely first
    const float *top_logprobs; // [n_tokens, n_top]
};

// One block with copies of all lists. NULL when memory is out.
struct prompt_scores *scores_copy(const struct prompt_scores *from);

#endif
