// echo.h: the prompt's side of an answer over HTTP: how likely each of its tokens was, in the
// shapes of prompt_logprobs and of echo with logprobs.
//
// One for each choice whose prompt is scored. Made by a render thread with its choice, filled by
// the stream thread chunk by chunk: the numbers become text at once, so nothing else of them is
// kept.
#ifndef MOESAIC_LEADER_ECHO_H
#define MOESAIC_LEADER_ECHO_H

#include "leader/answer.h"
#include "leader/openai.h"

struct echo {
    const struct tokenizer *tokenizer;
    bool listed, echoed; // prompt_logprobs; echo with logprobs
    uint32_t n_listed_top, n_echoed_top;
    struct buf list; // the entries of prompt_logprobs

    struct answer_logprobs *to; // where echoed tokens go: own, or those of a streaming choice
    struct answer_logprobs own;
    struct detok detok;
    char *piece; // [piece_bytes], owned
    size_t piece_bytes;
    uint64_t chars;    // of the text that the client gets for its prompt
    uint64_t added;    // characters that the ids have before it: first tokens that are the model's
    uint64_t decoded;  // of the ids so far
    struct buf drifts; // of struct text_drift
    size_t next_drift; // the first that is not over
};

// NULL when memory is out.
struct echo *echo_create(const struct tokenizer *t, const struct openai_request *r);
void echo_destroy(struct echo *e);
struct prompt_start;
// Nothing comes before the first token, so it has no number. False: memory is out.
bool echo_begin(struct echo *e, const struct prompt_start *start);
void echo_add(struct echo *e, const struct prompt_scores *s);

// About the bytes that the answer has of this prompt.
uint64_t echo_bytes(const struct tokenizer *t, const struct openai_request *r, const uint32_t *ids,
                    size_t n);

#endif
