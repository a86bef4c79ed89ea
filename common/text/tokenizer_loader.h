// tokenizer_loader.h: what the readers of tokenizer.json's parts share. Nobody else includes it.
//
// Each field of the file either means what the encoder does, is known not to change ids, or is
// refused by name.
#ifndef MOESAIC_COMMON_TEXT_TOKENIZER_LOADER_H
#define MOESAIC_COMMON_TEXT_TOKENIZER_LOADER_H

#include <jansson.h>

#include "common/text/tokenizer_parts.h"

#define DECODER_STEPS_MAX 8

struct loader {
    struct tokenizer *t;
    json_t *root;
    struct normalizer decoded; // replacements that make a token's text of its content
    struct err_text *e;
};

#define refuse(l, ...) err_set((l)->e, ERR_FATAL_MODEL, "tokenizer.json: " __VA_ARGS__)

// --- fields, in tokenizer_fields.c
int loader_check_keys(struct loader *l, const json_t *object, const char *const *known,
                      const char *where);
bool loader_is_absent(const json_t *value); // missing or null
const char *loader_type(const json_t *object);
// Refuses a value that is there and is no boolean; otherwise is for one that is not there.
int loader_flag(struct loader *l, const json_t *object, const char *key, bool otherwise, bool *out);
// Refuses a value that is neither missing, null nor an empty string.
int loader_check_empty(struct loader *l, const json_t *object, const char *key);
int loader_id(struct loader *l, const json_t *value, const char *where, uint32_t *id);
// A string of at most cap - 1 bytes, with a zero byte behind it.
struct loader_text {
    char *out;
    uint32_t *n;
    size_t cap;
};
int loader_short_text(struct loader *l, const json_t *object, const char *key,
                      struct loader_text to);
// A Replace, of a normaliser or a decoder: {"pattern":{"String":...},"content":...}.
int loader_replace(struct loader *l, const json_t *value, const char *where,
                   struct normalizer_step *out);
// The components of a Sequence, or the one that stands alone; at most max of them.
struct loader_list {
    const json_t *items[DECODER_STEPS_MAX];
    size_t n;
};
int loader_list(struct loader *l, const char *where, const char *key, struct loader_list *out);

// --- parts, one file each
int loader_added_check(struct loader *l, const json_t *added);
int loader_added(struct loader *l, const json_t *added);
int loader_normalizer(struct loader *l);
int loader_pre_tokenizer(struct loader *l);
int loader_post_processor(struct loader *l);
int loader_decoder(struct loader *l); // before the vocabulary
int loader_texts(struct loader *l);   // after it: each token's text

#endif
