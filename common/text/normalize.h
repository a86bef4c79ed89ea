// normalize.h: a tokenizer's normaliser: up to NORMALIZER_STEPS_MAX rewrites of a text, one after
// another.
//
// The steps are immutable after loading; the work belongs to one call. What a step makes of a place
// where trust changes counts as not trusted.
#ifndef MOESAIC_COMMON_TEXT_NORMALIZE_H
#define MOESAIC_COMMON_TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/text/nfc.h"
#include "common/text/runs.h"

#define NORMALIZER_STEPS_MAX 8
#define NORMALIZER_BYTES_MAX 16 // of what a step looks for and what it writes

enum normalizer_kind {
    NORMALIZE_FORM,    // one of Unicode's
    NORMALIZE_PREPEND, // to, before a text that is not empty
    NORMALIZE_REPLACE, // each from by to, left to right
    NORMALIZE_STRIP    // white space at the ends
};

struct normalizer_step {
    enum normalizer_kind kind;
    enum unicode_form form;
    bool left, right;
    char from[NORMALIZER_BYTES_MAX], to[NORMALIZER_BYTES_MAX];
    uint32_t n_from, n_to;
};

struct normalizer {
    struct normalizer_step steps[NORMALIZER_STEPS_MAX];
    uint32_t n;
};

// True when replacements could make a text many times longer: only a file made to do harm has such.
bool normalizer_explodes(const struct normalizer *z);

struct normalize_work {
    struct buf texts[2];
    struct runs runs[2]; // lists have room for as many runs as the whole text has
};

// Rewrites a segment of valid UTF-8. out is the segment itself when nothing changes, else a text
// that lives in w until the next call. 0 or ERR_FATAL_NOMEM.
int normalize_segment(const struct normalizer *z, struct normalize_work *w, const struct segment *s,
                      struct segment *out);
// The same for a text without trust (an added token's content), into out.
int normalize_text(const struct normalizer *z, const char *text, size_t n, struct buf *out);

#endif
