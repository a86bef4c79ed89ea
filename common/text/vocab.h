// vocab.h: the tokens of a BPE and its merges, with the two look-ups that encoding needs.
//
// Byte-level: a token's content in the file is written in the byte alphabet (each byte as one
// printable character, "Ġ" for a space); here tokens are kept as the bytes they stand for. Content
// outside that alphabet stands for itself and is never produced from text. Otherwise (SentencePiece
// style) content is text as it is, and a character without a token is spelt by the tokens of its
// bytes ("<0xE4>"). Filled once by the file reader, then immutable.
#ifndef MOESAIC_COMMON_TEXT_VOCAB_H
#define MOESAIC_COMMON_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/mem.h"

#define ID_NONE UINT32_MAX
#define ID_DEAD (UINT32_MAX - 1)
#define TOKEN_BYTES_MAX 65536
#define MERGES_MAX 4194304
#define VOCAB_RANKS_MAX MERGES_MAX // there may be a list for each

struct token {
    const char *bytes; // in the arena; NULL: no such id. What the token is looked up by
    const char *text;  // what it says in an answer; the same bytes unless the decoder changes them
    uint32_t n_bytes, n_text;
    bool in_alphabet; // content was in the byte alphabet
    bool ordinary;    // in the model's vocabulary (not only an added token)
    bool added, special;
    bool byte;      // one byte of a character spelt by its bytes
    bool only_mark; // an added token that ordinary text never becomes, whatever the merges say
};

struct merge {
    uint32_t left, right; // left ID_NONE: an empty slot; ID_DEAD: one that was taken out
    uint32_t rank, id;
};

struct vocab {
    struct arena arena;
    struct token *tokens; // [n_ids]
    uint32_t n_ids;       // largest id + 1
    uint32_t *text_slots; // id + 1 of ordinary tokens by their bytes; 0 = empty
    uint32_t text_mask;
    struct merge *merges; // by pair
    uint32_t merge_mask;
    uint32_t byte_ids[256];
    uint32_t unk_id; // ID_NONE: none
    uint32_t token_bytes_max, text_bytes_max;
    uint32_t *rank_ids; // [n_ranks]: what a merge of that rank makes; ID_NONE: there is none
    uint32_t n_ranks;
    bool ordered;       // a token is made by lower ranks than those that use it; rank_ids is there
    bool byte_level;    // set before the first token is stored
    bool byte_fallback; // byte_ids are the tokens "<0x00>" to "<0xFF>", where there
    bool fuse_unk;      // neighbouring unknown characters are one unk_id
};

// Room for ids below n_ids and n_merges merges.
int vocab_init(struct vocab *v, uint32_t n_ids, uint32_t n_merges, struct err_text *e);
void vocab_finish(struct vocab *v);

// The bytes of content: in the byte alphabet of a byte-level vocabulary, else as it is. out has
// room for content_bytes. Returns the count.
size_t vocab_content_bytes(const struct vocab *v, const char *content, size_t content_bytes,
                           char *out, bool *in_alphabet);

// Stores a token's bytes under id, which must be free.
int vocab_store(struct vocab *v, uint32_t id, const char *content, size_t content_bytes,
                struct err_text *e);
// The same for bytes as they are.
int vocab_store_bytes(struct vocab *v, uint32_t id, const char *bytes, size_t n,
                      struct err_text *e);
// Makes a stored token findable. ERR_FATAL_MODEL when its content is there already.
int vocab_index(struct vocab *v, uint32_t id, struct err_text *e);
// After all tokens: refuses a vocabulary in which some text would have no tokens.
int vocab_find_bytes(struct vocab *v, struct err_text *e);
// Room for n_merges merges where none is yet.
int vocab_resize_merges(struct vocab *v, uint32_t n_merges, struct err_text *e);
// Adds a merge; the last one of a pair counts.
int vocab_add_merge(struct vocab *v, struct merge m, struct err_text *e);

// After the added tokens: takes out the merges that make an only_mark.
void vocab_drop_merges(struct vocab *v);
// After them: finds out whether the merges are ordered, as trained ones are. 0 or ERR_FATAL_NOMEM.
int vocab_order_merges(struct vocab *v);

// An ordinary token by its bytes; ID_NONE when there is none.
uint32_t vocab_id(const struct vocab *v, const char *bytes, size_t n, bool in_alphabet);
// NULL when the two do not merge.
const struct merge *vocab_merge(const struct vocab *v, uint32_t left, uint32_t right);

#endif
