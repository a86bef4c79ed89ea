// rpc_prompt.h: what a client of gRPC gives to be read, in Generate and in Tokenize.
#ifndef MOESAIC_LEADER_RPC_PROMPT_H
#define MOESAIC_LEADER_RPC_PROMPT_H

#include <jansson.h>

#include "generate.pb-c.h"
#include "leader/openai.h"

// Of a message; nothing is owned.
struct rpc_prompt {
    const char *text; // "": not set, as all texts here
    size_t n_ids, n_messages;
    const uint32_t *ids;
    Moesaic__V1__ChatMessage **messages;
    const char *template_kwargs, *tools, *tool_choice, *documents;
    int32_t truncate;
    bool continue_final_message;
    bool has_generation_prompt, add_generation_prompt;
    bool has_special_tokens, add_special_tokens;
};

// True when messages are given.
static inline bool rpc_prompt_is_chat(const struct rpc_prompt *p) {
    return p->n_messages != 0;
}
// The fields beside the prompt itself, for openai_fields.c. Those of chats are refused where there
// are no messages.
int rpc_prompt_fill(json_t *fields, const struct rpc_prompt *p, struct api_error *e);
// The prompt into a request whose fields were read.
int rpc_prompt_read(struct openai_request *r, const struct rpc_prompt *p, uint32_t vocab,
                    struct api_error *e);

#endif
