// pattern.h: a pre-tokeniser's regular expression, from the file's dialect (Oniguruma's) into
// PCRE2's.
//
// The two engines read most of what tokenizer files contain alike, but not all: "\s", "\p{Han}" and
// characters younger than the library's Unicode tables differ and are rewritten; "\h", "^", nested
// classes and the like are refused by name.
#ifndef MOESAIC_COMMON_TEXT_PATTERN_H
#define MOESAIC_COMMON_TEXT_PATTERN_H

#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/err.h"

#define PATTERN_BYTES_MAX 65536

// Appends the PCRE2 form of source to out. ERR_FATAL_MODEL with the construct that is not
// supported.
int pattern_translate(struct buf *out, const char *source, size_t n, struct err_text *e);

#endif
