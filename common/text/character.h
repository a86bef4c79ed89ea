// character.h: the two kinds of characters that tokenizer files speak of without a pattern: white
// space, and those of a word (as Rust's \s and \w have them).
#ifndef MOESAIC_COMMON_TEXT_CHARACTER_H
#define MOESAIC_COMMON_TEXT_CHARACTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool character_is_space(uint32_t code);
bool character_is_word(uint32_t code);

// Of valid UTF-8 text[0, n): bytes of white space at its beginning, and at its end.
size_t character_spaces_at(const char *text, size_t n);
size_t character_spaces_before(const char *text, size_t n);
// Whether the text begins, or ends, with a word's character.
bool character_word_at(const char *text, size_t n);
bool character_word_before(const char *text, size_t n);

#endif
