// tok_json_file.h: reads Grok-2's tokenizer.tok.json.
#ifndef MOESAIC_COMMON_TEXT_TOK_JSON_FILE_H
#define MOESAIC_COMMON_TEXT_TOK_JSON_FILE_H

#include <stddef.h>

#include "common/base/err.h"

struct tokenizer;

// The file's text. ERR_FATAL_MODEL with what is wrong or not supported.
int tok_json_parse(struct tokenizer **out, const char *text, size_t bytes, struct err_text *e);

#endif
