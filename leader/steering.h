// steering.h: what one request asks of its logits: penalties, biases, bans (docs/arithmetic.md,
// Sampling). Made by an API thread with its request; the plan carries it to the worker.
#ifndef MOESAIC_LEADER_STEERING_H
#define MOESAIC_LEADER_STEERING_H

#include <stdbool.h>
#include <stdint.h>

// The lists are one block with the struct. Ids are below the vocabulary's size.
struct steering {
    float presence_penalty, frequency_penalty; // 0 = off
    float repetition_penalty;                  // 0 or 1 = off
    uint32_t min_tokens;                       // 0 = off
    uint32_t n_bias, n_allowed, n_words, n_word_ids;
    const uint32_t *bias_ids;     // [n_bias]
    const float *bias;            // [n_bias]
    const uint32_t *allowed_ids;  // [n_allowed]
    const uint32_t *word_ids;     // [n_word_ids] banned runs, one after another
    const uint32_t *word_lengths; // [n_words]
};

// A copy of what from points to. NULL when memory is out.
struct steering *steering_copy(const struct steering *from);

// True when it would change nothing.
bool steering_is_idle(const struct steering *s);

// Which bans together keep every allowed id from being the first token.
struct steering_conflict {
    bool words, stops; // bad words of one token; stop ids, held back by min_tokens
};
// True when no allowed id may come: what is asked for contradicts itself, whatever the prompt.
bool steering_conflicts(const struct steering *s, const uint32_t *stop_ids, uint32_t n_stop_ids,
                        struct steering_conflict *out);

// List items it takes in a plan, with n_stop_ids for min_tokens.
uint32_t steering_items(const struct steering *s, uint32_t n_stop_ids);

#endif
