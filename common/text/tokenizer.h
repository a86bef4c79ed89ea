// tokenizer.h: text to ids and back, from a Hugging Face tokenizer.json.
//
// Immutable after loading and shared by all threads. Reads byte-level BPE and BPE in
// SentencePiece's style (a mark for spaces, byte fallback), tiktoken.model files of the kind Kimi
// has, and Grok-2's tokenizer.tok.json; docs/text.md lists the components. Anything else in a file
// is refused by name.
#ifndef MOESAIC_COMMON_TEXT_TOKENIZER_H
#define MOESAIC_COMMON_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct tokenizer;

// Asked now and then during long work: true when nobody wants the result any more.
struct text_watch {
    bool (*over)(void *context);
    void *context;
};

int tokenizer_parse(struct tokenizer **out, const char *json, size_t bytes, struct err_text *e);
// folder/tokenizer.json, else tiktoken.model, else tokenizer.tok.json, each with what
// tokenizer_config.json says about tokens to add.
int tokenizer_load(struct tokenizer **out, const char *folder, struct err_text *e);
void tokenizer_destroy(struct tokenizer *t);

uint32_t tokenizer_vocab(const struct tokenizer *t); // largest id + 1
// The id of an added or ordinary token given by its content as the file writes it; UINT32_MAX when
// there is none.
uint32_t tokenizer_id(const struct tokenizer *t, const char *content);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
// The bytes a token stands for in the middle of a text. NULL for ids that are not in the
// vocabulary.
const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *bytes);

struct id_list {
    uint32_t *ids; // mem_alloc'd, owned
    size_t n, capacity;
};
void id_list_finish(struct id_list *l);

// A text to encode. With parse_special, added tokens in it become their ids; without, their letters
// are ordinary text (a user cannot forge a role), except that added tokens of nothing but white
// space always count. With add_special, the tokens that the model's post-processor adds ("<s>")
// stand around it; a chat template writes them itself.
struct encode_text {
    const char *text;
    size_t bytes;
    bool parse_special;
    size_t ids_max; // that the list may hold in the end
    bool add_special;
    const struct text_watch *watch; // NULL: the ids are always wanted
};

// Appends the ids of a text. Invalid UTF-8 becomes U+FFFD first. Time is O(n log n).
// ERR_REQ_TOO_LARGE when out would hold more than ids_max ids, as soon as it would;
// ERR_REQ_INVALID when it takes too many steps to split;
// ERR_REQ_ABORTED when the watch is over; on any error out is as it was before.
int tokenizer_encode(const struct tokenizer *t, const struct encode_text *text, struct id_list *out,
                     struct err_text *e);

// The same for a rendered prompt (chat.h): added tokens count where they lie in trusted spans. All
// spans are one text, so without added tokens in users' text the ids are those of the whole text
// with parse_special. The spans must cover the text in order.
struct chat_output;
struct encode_bounds {
    size_t ids_max;
    const struct text_watch *watch;
};
int tokenizer_encode_spans(const struct tokenizer *t, const struct chat_output *prompt,
                           const struct encode_bounds *bounds, struct id_list *out,
                           struct err_text *e);

// Streaming detokeniser: bytes that form whole UTF-8 characters come out; a cut character waits for
// its next token. All pushes and the finish together are what Hugging Face decodes the ids to at
// once.
#define DETOK_PENDING_MAX 64

struct detok {
    const struct tokenizer *tokenizer; // not owned
    bool skip_special;                 // special tokens give nothing
    bool begun;                        // a token has come
    bool unstripped;                   // what goes from the beginning may still come
    uint32_t n_stripped;
    unsigned char pending[DETOK_PENDING_MAX];
    uint32_t n_pending;
};
void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special);
// The text goes on from another (a completion's prompt): the space that a first token would lose
// stays.
void detok_continue(struct detok *d);
// Appends the text of one more id to buf (cap bytes): returns bytes written. Bytes that can never
// become valid UTF-8 come out as U+FFFD. buf needs detok_bytes_max(t). Where characters are spelt
// by byte tokens, a run of them waits for its end, at most DETOK_PENDING_MAX bytes, because one
// wrong byte spoils all of the run.
size_t detok_push(struct detok *d, uint32_t id, char *buf, size_t cap);
size_t detok_finish(struct detok *d, char *buf, size_t cap); // what is still pending
size_t detok_bytes_max(const struct tokenizer *t);

#endif
