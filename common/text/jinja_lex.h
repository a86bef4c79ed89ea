// jinja_lex.h: a template's source to a flat array of tokens, with the white-space rules of Hugging
// Face's Jinja.
//
// trim_blocks and lstrip_blocks are on, "\r\n" is "\n", one newline at the very end is dropped.
// Names are ASCII.
#ifndef MOESAIC_COMMON_TEXT_JINJA_LEX_H
#define MOESAIC_COMMON_TEXT_JINJA_LEX_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum token_kind {
    TOKEN_DATA,        // literal text between tags
    TOKEN_BLOCK_BEGIN, // {%
    TOKEN_BLOCK_END,
    TOKEN_PRINT_BEGIN, // {{
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING, // with its quotes
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
    TOKEN_END
};

struct lex_token {
    enum token_kind kind;
    uint32_t line;
    const char *text; // in the source that was given
    size_t n;
};

struct lex_tokens {
    struct lex_token *list; // owned; the last one is TOKEN_END
    size_t n, capacity;
};

// source has been through jinja_normalize and must outlive the tokens.
int jinja_lex(struct lex_tokens *out, const char *source, size_t n, struct err_text *e);
void lex_tokens_finish(struct lex_tokens *t);

// Unifies newlines in place and drops the last one; returns the new length.
size_t jinja_normalize(char *source, size_t n);

// True for the characters that Python calls white space.
int jinja_is_space(uint32_t code);

#endif
