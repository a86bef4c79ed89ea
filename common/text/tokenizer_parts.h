// tokenizer_parts.h: the inside of a tokenizer, for the file reader, the encoder and the
// detokeniser. Nobody else includes it.
#ifndef MOESAIC_COMMON_TEXT_TOKENIZER_PARTS_H
#define MOESAIC_COMMON_TEXT_TOKENIZER_PARTS_H

#include "common/text/added.h"
#include "common/text/normalize.h"
#include "common/text/split.h"
#include "common/text/tokenizer.h"
#include "common/text/vocab.h"

#define AFFIX_IDS_MAX 8

// Whether text gets a space it did not have, before it is split.
enum prefix_rule {
    PREFIX_NEVER,
    PREFIX_FIRST, // the beginning of the whole text
    PREFIX_ALWAYS // each stretch between added tokens
};

// What is done to a stretch of normalised text before it is split.
struct spacing {
    enum prefix_rule prefix;
    char mark[8]; // stands for each space; empty: spaces stay
    uint32_t n_mark;
};

// How tokens become text. What can be done token by token is in token.text already.
struct decoder {
    bool byte_runs;    // neighbouring byte tokens are characters together
    bool first_unmark; // of the first token, all marks go
    char mark[8];
    uint32_t n_mark;
    char strip[8]; // up to strip_max of this character go from the beginning of the whole
    uint32_t n_strip, strip_max;
};

struct affix {
    uint32_t ids[AFFIX_IDS_MAX];
    uint32_t n;
};

struct tokenizer {
    struct vocab vocab;
    struct normalizer normalizer;
    struct spacing spacing;
    struct splitter splitter;
    struct decoder decoder;
    struct added_set raw;        // added tokens looked for in the text as it came
    struct added_set normalized; // and those looked for after normalising
    struct affix before, after;  // what a post-processor adds to a whole text
    bool ignore_merges; // a piece that is a token is that token, whatever the merges make of it
};

struct json_t;

// What tokenizer_config.json says beyond the file: tokens to add; what contradicts it is refused.
int tokenizer_configure(struct tokenizer *t, const struct json_t *config, struct err_text *e);

#endif
