// tiktoken_file.h: reads a tiktoken.model file.
#ifndef MOESAIC_COMMON_TEXT_TIKTOKEN_FILE_H
#define MOESAIC_COMMON_TEXT_TIKTOKEN_FILE_H

#include <stddef.h>

#include "common/base/err.h"

struct json_t;
struct tokenizer;

// The file's text, with the class and the special tokens that tokenizer_config.json (NULL: none)
// gives it. ERR_FATAL_MODEL with what is wrong or not supported.
int tiktoken_parse(struct tokenizer **out, const char *text, size_t bytes,
                   const struct json_t *config, struct err_text *e);

#endif
