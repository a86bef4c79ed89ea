// drift.h: where a text and what its tokens say have different numbers of characters, because the
// tokenizer's normaliser writes some of them in another of Unicode's forms: e and a mark as one, or
// the other way round.
#ifndef MOESAIC_COMMON_TEXT_DRIFT_H
#define MOESAIC_COMMON_TEXT_DRIFT_H

#include "common/base/buf.h"
#include "common/text/tokenizer.h"

// Characters up to the end of such a place, of the text as it came and as it is normalised.
struct text_drift {
    uint64_t before, after;
};

// Appends a text_drift for each such place of valid UTF-8, in order. 0 or ERR_FATAL_NOMEM.
int drift_find(const struct tokenizer *t, const char *text, size_t n, struct buf *out);

#endif
