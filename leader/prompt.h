// prompt.h: a request's prompts to token ids: the model's template, then its tokenizer.
//
// Render threads only: a long prompt takes its time. Between openai.c and render.c in a request's
// walk; tokens.c shows what comes out.
#ifndef MOESAIC_LEADER_PROMPT_H
#define MOESAIC_LEADER_PROMPT_H

#include "leader/serving.h"

struct prompt_ask {
    const struct serving *serving;
    const struct openai_request *request;
    uint32_t index; // of the prompt
    const struct text_watch *watch;
};
// The ids of one prompt, at most max_model_len; truncate_prompt_tokens is done. On an error e names
// the field. ERR_REQ_ABORTED when the watch is over: nobody is to be told.
int prompt_encode(const struct prompt_ask *a, struct id_list *out, struct api_error *e);
// What ids say, special tokens too; appended to out. 0 or ERR_FATAL_NOMEM.
int prompt_text(const struct serving *s, const uint32_t *ids, size_t n, struct buf *out);
// An answer needs a prompt, and room behind it.
int prompt_check_room(const struct serving *s, const struct openai_request *r, size_t n_ids,
                      struct api_error *e);
// A model that the request names is the one that is served.
int prompt_check_model(const struct serving *s, const struct openai_request *r,
                       struct api_error *e);

#endif
