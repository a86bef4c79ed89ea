// answer.h: what the API says, as JSON text in OpenAI's shapes: errors, choices, chunks,
// log-probabilities, usage.
//
// Pure functions over plain structs; stream.c decides when, http.c carries the bytes.
#ifndef MOESAIC_LEADER_ANSWER_H
#define MOESAIC_LEADER_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/text/tokenizer.h"
#include "leader/request.h"

// An error of one call. param is the field's name or "", code OpenAI's word or "".
struct api_error {
    int status;
    uint32_t retry_after_s; // of 429 and 503; 0: no better word than 1
    char param[96];
    char code[32];
    char message[ERR_TEXT_MAX];
};

// Fills it, without a code, and returns ERR_REQ_INVALID, so that checks read
// `return api_error_set(...)`. param may be NULL.
int api_error_set(struct api_error *e, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Adds a code and returns rc.
int api_error_code(struct api_error *e, int rc, const char *code);
// The words that stand as code, one by one; NULL behind the last.
const char *answer_error_code(size_t i);
// The HTTP status of a request that ended with an enum err.
int api_error_status(int code);

// {"error":{"message":...,"type":...,"param":...,"code":...}}
void answer_error(struct buf *out, const struct api_error *e);

// What all parts of one answer begin with.
struct answer_head {
    bool chat, chunk;
    char id[48]; // "chatcmpl-..."
    int64_t created_s;
    const char *model, *fingerprint;
    int64_t seed;
    const struct buf *prompt_logprobs; // its list's entries; NULL = not there
};
// `{"id":...,"choices":[`; answer_tail closes it.
void answer_head(struct buf *out, const struct answer_head *h);

struct answer_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens; // cached: of the prompt's
};
// `]` and the usage: an object, null (with_usage and usage NULL), or not there, then `}`.
void answer_tail(struct buf *out, const struct answer_usage *usage, bool with_usage);

// One choice, of a whole answer or of a chunk. Pointers may be NULL where nothing is to be said.
struct answer_choice {
    bool chat, chunk;
    bool role; // chunk: the first, which names the role
    uint32_t index;
    const char *text;
    size_t text_bytes;
    const struct json_t *calls;        // tool_calls.h's; NULL: none
    size_t first_call;                 // chunk: those before were told
    bool called;                       // it ended well, and with calls
    const struct buf *logprobs;        // what answer_logprobs_close wrote
    const struct buf *prompt_logprobs; // its list's entries; NULL = not there
    enum finish finish;                // FINISH_NONE: not yet
    const char *stop_text;             // the stop string that matched
    size_t stop_text_bytes;
    const uint32_t *stop_id; // or the stop token that the client gave
    const uint64_t *digest;
    const uint32_t *token_ids;
    uint32_t n_token_ids;
};
void answer_choice(struct buf *out, const struct answer_choice *c);

// A token's text as a JSON string; one that is no UTF-8 is spelt "bytes:\\xe2\\x82".
void answer_token_name(struct buf *out, const struct tokenizer *t, uint32_t id);

// One token with its log-probability and alternatives, the most likely first.
struct answer_token {
    uint32_t id;
    bool unknown; // it has none: a prompt's first
    float logprob;
    uint32_t n_top;
    const uint32_t *top_ids;   // [n_top]
    const float *top_logprobs; // [n_top]
};
// A log-probability as JSON.
void answer_logprob(struct buf *out, float logprob);

// Log-probabilities collected token by token, in the shape of the endpoint.
struct answer_logprobs {
    bool chat;
    uint32_t n_tokens;
    uint64_t text_offset;             // of the next token, in characters
    struct buf first;                 // chat: content; completions: tokens
    struct buf values, tops, offsets; // completions
};
void answer_logprobs_init(struct answer_logprobs *l, bool chat);
void answer_logprobs_finish(struct answer_logprobs *l);
// text_chars: characters that this token added to the text.
void answer_logprobs_add(struct answer_logprobs *l, const struct tokenizer *t,
                         const struct answer_token *token, uint64_t text_chars);
// Writes the object of the tokens collected so far and forgets them. Those of before come first and
// stay; NULL = none.
void answer_logprobs_close(struct answer_logprobs *l, const struct answer_logprobs *before,
                           struct buf *out);

#endif
