// words.h: banned words of a request as runs of token ids. Render threads.
#ifndef MOESAIC_LEADER_WORDS_H
#define MOESAIC_LEADER_WORDS_H

#include "common/text/tokenizer.h"
#include "leader/openai.h"

// Fills the words of r->steering from r->bad_words: each word as it is, and behind a space.
int words_encode(const struct tokenizer *t, struct openai_request *r, struct api_error *e);

#endif
