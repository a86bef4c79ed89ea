// text_lines.h: lines of text that tokenizers are compared on: many scripts, code, emoji, marks,
// control bytes, long runs, mixes of white space, wrong UTF-8, and a tokenizer's own added tokens.
//
// The same added tokens give the same lines everywhere: what Hugging Face makes of them is stored
// as digests (tests/data/text/make_tokenizer_kinds.py).
#ifndef MOESAIC_TESTS_HARNESS_TEXT_LINES_H
#define MOESAIC_TESTS_HARNESS_TEXT_LINES_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_LINE_BYTES_MAX 4096
#define TEXT_LINES_COUNT 10000

struct text_lines {
    uint64_t state;
    uint32_t index;
    const char **added; // not owned
    size_t n_added;
};

void text_lines_init(struct text_lines *l, const char **added, size_t n_added);
// Writes the next line and returns its bytes.
size_t text_lines_next(struct text_lines *l, char out[TEXT_LINE_BYTES_MAX]);

// A number below n >= 1, as the Python script draws it.
uint32_t text_lines_below(uint64_t *state, uint32_t n);

#endif
