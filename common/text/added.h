// added.h: added tokens ("<|im_start|>"): found in text before it is pre-tokenised, leftmost first,
// the longest of one place.
//
// A set is sorted once by content and then immutable. Text is trusted (a template's) or not (a
// user's); in text that is not trusted only tokens of white space are found, so that nobody can
// forge a role.
#ifndef MOESAIC_COMMON_TEXT_ADDED_H
#define MOESAIC_COMMON_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define ADDED_BYTES_MAX 1024
#define ADDED_TOKENS_MAX 65536

struct added_token {
    const char *content; // owned by the vocabulary's arena
    uint32_t n_bytes, id;
    bool blank;          // only white space: harmless in anybody's text
    bool single_word;    // counts only where no word's character touches it
    bool lstrip, rstrip; // takes the white space before it, after it
};

struct added_set {
    struct added_token *tokens; // sorted by content after added_set_sort
    uint32_t n, capacity;
    uint32_t first[257]; // tokens[first[b], first[b + 1]) begin with byte b
};

int added_set_add(struct added_set *s, struct added_token token, struct err_text *e);
// ERR_FATAL_MODEL when two tokens have the same content.
int added_set_sort(struct added_set *s, struct err_text *e);
void added_set_finish(struct added_set *s);

const struct added_token *added_set_find(const struct added_set *s, const char *content, size_t n);

// The longest token at text + at that ends at or before n; those that are not blank must end at or
// before trusted_end. NULL: none.
struct added_range {
    size_t at, trusted_end, n;
};
const struct added_token *added_set_match(const struct added_set *s, const char *text,
                                          struct added_range r);

#endif
