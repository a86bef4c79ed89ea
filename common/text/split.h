// split.h: pre-tokenising: a text is cut into pieces by one regular expression after another, each
// inside the pieces of the last.
//
// What a pattern matches and what lies between its matches become pieces by the stage's behaviour.
// The compiled patterns are immutable; the work belongs to one call. Match steps, depth and memory
// are limited, so a pattern made to explode ends in an error.
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

// What becomes of matches ("b" in "abab", pieces in brackets).
enum split_behavior {
    SPLIT_ISOLATED,    // [a][b][a][b]
    SPLIT_REMOVED,     // [a][a]
    SPLIT_CONTIGUOUS,  // neighbouring matches, or gaps, are one piece
    SPLIT_TO_PREVIOUS, // [ab][ab]
    SPLIT_TO_NEXT      // [a][ba][b]
};

// A stage as the file gives it: a pattern in its dialect, or a literal string.
struct split_rule {
    const char *source;
    size_t n;
    bool literal;
    bool invert; // matches are what the pattern does not match
    enum split_behavior behavior;
};

struct split_stage {
    struct pcre2_real_code_8 *code;
    bool invert;
    enum split_behavior behavior;
};

struct splitter {
    struct pcre2_real_general_context_8 *memory; // routes the library's allocations through mem.h
    struct split_stage stages[SPLIT_STAGES_MAX];
    uint32_t n_stages;
};

int splitter_init(struct splitter *s, struct err_text *e);
void splitter_finish(struct splitter *s);
// Adds a stage. ERR_FATAL_MODEL with what is wrong.
int splitter_add(struct splitter *s, const struct split_rule *rule, struct err_text *e);

struct split_piece {
    uint32_t begin, end;
};

// Where a stage is in its piece of the text.
struct split_cursor {
    struct split_piece subject; // what it cuts; empty: it needs the next
    uint32_t at;                // what lies before is in pieces
    struct split_piece match;   // found, not yet handed on; empty: none
    struct split_piece joined;  // what matches and gaps came to so far; empty: nothing
    bool any, last_matched;     // whether there was one before, and whether it was a match
};

struct text_watch; // tokenizer.h

struct split_work {
    const struct splitter *splitter;
    const struct text_watch *watch; // NULL: it is always wanted
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_match_data_8 *match;
    struct split_cursor cursors[SPLIT_STAGES_MAX];
    struct split_piece whole; // without stages: the text, until it is taken
    const char *text;
    uint32_t n_matches; // so far, for the watch
};

int split_work_init(struct split_work *w, const struct splitter *s);
void split_work_finish(struct split_work *w);
// Begins with valid UTF-8 text[0, n), n < 2^31, which stays until the last piece is taken.
void split_start(struct split_work *w, const char *text, size_t n);
// The next piece, in order; it is never empty. Only as much of the text is matched as the piece
// needs, so that who has enough pieces stops. False at the end, or on an error: *rc is
// ERR_REQ_INVALID when a match needs too many steps, ERR_REQ_ABORTED when the watch says so, else
// 0 or ERR_FATAL_NOMEM.
bool split_next(struct split_work *w, struct split_piece *out, int *rc, struct err_text *e);

#endif
