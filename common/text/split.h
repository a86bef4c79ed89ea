// split.h: pre-tokenising: a text is cut into pieces by one regular expression after another, each
// inside the pieces of the last.
//
// What a pattern matches and what lies between its matches are both pieces ("Isolated"). The
// compiled patterns are immutable; the work belongs to one call. Match steps, depth and memory are
// limited, so a pattern made to explode ends in an error.
#ifndef MOESAIC_COMMON_TEXT_SPLIT_H
#define MOESAIC_COMMON_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define SPLIT_STAGES_MAX 8

struct pcre2_real_code_8;
struct pcre2_real_general_context_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

struct splitter {
    struct pcre2_real_general_context_8 *memory; // routes the library's allocations through mem.h
    struct pcre2_real_code_8 *stages[SPLIT_STAGES_MAX];
    uint32_t n_stages;
};

int splitter_init(struct splitter *s, struct err_text *e);
void splitter_finish(struct splitter *s);
// Adds a stage: a pattern in the file's dialect, or a literal string. ERR_FATAL_MODEL with what is
// wrong.
int splitter_add(struct splitter *s, const char *source, size_t n, bool literal,
                 struct err_text *e);

// Ends of consecutive pieces; the first begins at 0.
struct cuts {
    uint32_t *ends;
    size_t n, capacity;
};

struct split_work {
    const struct splitter *splitter;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_match_data_8 *match;
    struct cuts cuts; // the result of split_run
    struct cuts spare;
};

int split_work_init(struct split_work *w, const struct splitter *s);
void split_work_finish(struct split_work *w);
// Cuts valid UTF-8 text[0, n), n < 2^31. ERR_REQ_TOO_LARGE when a match needs too many steps.
int split_run(struct split_work *w, const char *text, size_t n, struct err_text *e);

#endif
