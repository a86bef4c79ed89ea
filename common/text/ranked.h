// ranked.h: what tokenizers in tiktoken's style have in common: tokens are bytes, and a token's id
// is its rank. Two neighbours merge when together they are a token, the lowest rank first, so the
// merges need not be written down.
#ifndef MOESAIC_COMMON_TEXT_RANKED_H
#define MOESAIC_COMMON_TEXT_RANKED_H

#include "common/text/tokenizer_parts.h"

// A token has as many places to split it as bytes, so its length is bounded closer than elsewhere.
#define RANKED_BYTES_MAX 256

// After all ordinary tokens were stored and indexed: all merges that make one of them. file is for
// messages.
int ranked_merges(struct vocab *v, const char *file, struct err_text *e);

// A token that only a template, or a prompt that is taken as it is, makes.
struct ranked_special {
    uint32_t id;
    const char *content;
    size_t n_bytes;
    bool special; // it does not show in an answer
};
int ranked_add_special(struct tokenizer *t, const struct ranked_special *token, const char *file,
                       struct err_text *e);

#endif
