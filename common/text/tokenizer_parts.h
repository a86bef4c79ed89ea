// tokenizer_parts.h: the inside of a tokenizer, for the file reader, the encoder and the
// detokeniser. Nobody else includes it.
#ifndef MOESAIC_COMMON_TEXT_TOKENIZER_PARTS_H
#define MOESAIC_COMMON_TEXT_TOKENIZER_PARTS_H

#include "common/text/added.h"
#include "common/text/split.h"
#include "common/text/tokenizer.h"
#include "common/text/vocab.h"

struct tokenizer {
    struct vocab vocab;
    struct splitter splitter;
    struct added_set raw;        // added tokens looked for in the text as it came
    struct added_set normalized; // and those looked for after normalising
    bool nfc;
    bool ignore_merges; // a piece that is a token is that token, whatever the merges make of it
};

#endif
