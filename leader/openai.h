// openai.h: JSON to a checked request: the bodies of /v1/chat/completions and /v1/completions, and
// of /tokenize and /detokenize, which are requests without an answer's fields.
//
// Before it api.c, after it render.c. No I/O and no state: fuzzed as a whole. What would change an
// answer and is not supported is refused by name; what could not change it (user, metadata, store,
// ...) is accepted, and so are names that no API documents.
#ifndef MOESAIC_LEADER_OPENAI_H
#define MOESAIC_LEADER_OPENAI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/mem.h"
#include "leader/answer.h"
#include "leader/request.h"
#include "leader/stop.h"
#include "leader/tool_calls.h"

struct json_t;

// What a field is when the client does not give it (generation_config.json, or neutral).
struct openai_defaults {
    float temperature, top_p, min_p;
    uint32_t top_k;           // 0 = off
    float repetition_penalty; // 0 = off
    uint32_t max_tokens;      // 0 = up to the context's end
    uint32_t vocab;           // token ids are below it

    bool knows_developer; // the chat template has the role; else it is another word for system
    const struct tool_format *tool_format; // how calls are read out of answers; NULL: not at all
    bool priorities;                       // requests may have some
    bool hides_unused_tools;               // with tool_choice "none" the template gets no tools
};

// As many of a prompt's last ids as leave room for the answer.
#define TRUNCATE_TO_FIT UINT32_MAX

struct openai_prompt {
    const char *text; // NULL: ids
    size_t text_bytes;
    const uint32_t *ids;
    uint32_t n_ids;
};

// What the JSON of one request holds: its body, and what stands as text inside of it.
struct openai_counts {
    uint32_t n_values, n_containers;
};

struct openai_request {
    bool chat;
    struct json_t *root; // the body; owns every text below
    struct openai_counts counts;
    struct arena arena; // owns prompts and their ids
    const char *model;  // NULL = not given

    struct json_t *messages;               // chat: as the template gets them, owned
    struct json_t *tools;                  // the same; NULL = none
    struct json_t *documents;              // root's, checked; NULL = not given
    bool knows_developer;                  // the defaults'
    const struct tool_format *tool_format; // NULL: the answer is text
    bool parallel_tool_calls;              // else only the first call counts
    struct openai_prompt *prompts;
    uint32_t n_prompts;       // 1 for chat
    const char *prompt_field; // where they came from, for errors; static text

    struct sampling sampling;       // without seed and indices
    struct steering steering;       // lists are the arena's; without the words
    const struct json_t *bad_words; // list of strings, root's; NULL = none
    bool has_seed;
    int64_t seed;
    uint32_t n;                    // choices a prompt
    uint32_t max_tokens;           // 0 = not given
    uint32_t max_tokens_overruled; // by its newer name; 0 = none
    const char *max_tokens_field;  // which name it was given by; static text
    uint32_t max_tokens_default;   // then; UINT32_MAX = up to the context's end
    struct stop_strings stop;
    uint32_t n_stop_ids;
    uint32_t stop_ids[STOP_IDS_MAX];
    bool stream, include_usage, continuous_usage;
    bool ignore_eos, skip_special_tokens, add_generation_prompt, return_token_ids;
    bool add_special_tokens; // around a prompt that is no chat
    bool return_token_strs;  // /tokenize
    bool continue_final_message, echo;
    bool prompt_only;     // max_tokens is 0: nothing is generated
    bool prompt_logprobs; // wanted, with n_prompt_logprobs alternatives
    bool echo_logprobs;   // echo with logprobs: of the prompt's tokens as well
    uint32_t n_prompt_logprobs;
    uint32_t truncate_prompt; // keeps this many last ids; 0 = all, TRUNCATE_TO_FIT
    const char *request_id;   // root's; NULL = not given
    const char *cache_salt;   // the same
    int32_t priority;
    struct json_t *template_kwargs; // root's, checked names; NULL = none
};

struct openai_body {
    bool chat; // of /v1/chat/completions
    bool any;  // a value of any kind will do
    const char *text;
    size_t bytes;
};
// 0 or ERR_REQ_INVALID with e filled; out is then untouched.
int openai_parse(struct openai_request *out, const struct openai_body *body,
                 const struct openai_defaults *defaults, struct api_error *e);
// chat becomes true when the body has messages.
int openai_parse_tokenize(struct openai_request *out, const struct openai_body *body,
                          const struct openai_defaults *defaults, struct api_error *e);
// The ids are the only prompt; there may be none.
int openai_parse_detokenize(struct openai_request *out, const struct openai_body *body,
                            const struct openai_defaults *defaults, struct api_error *e);
void openai_request_finish(struct openai_request *r);
// The prompt is scored, with so many alternatives.
static inline bool openai_scores(const struct openai_request *r) {
    return r->prompt_logprobs || r->echo_logprobs;
}
uint32_t openai_score_top(const struct openai_request *r);

// For a client whose message is no JSON body (rpc_request.c): an empty request of the defaults, and
// the list of messages. The scalar fields are openai_fields_read's.
void openai_request_init(struct openai_request *r, bool chat, const struct openai_defaults *d);
int openai_messages(struct openai_request *r, const struct json_t *messages, struct api_error *e);

#endif
