// continuation.h: continue_final_message: the prompt ends inside the last message, whose text the
// answer goes on with.
//
// The template writes what ends a message behind its content, so a mark at the content's end shows
// where to cut the rendered prompt; Hugging Face's apply_chat_template does the same. Used by
// prompt.c alone.
#ifndef MOESAIC_LEADER_CONTINUATION_H
#define MOESAIC_LEADER_CONTINUATION_H

#include "common/text/chat.h"
#include "leader/answer.h"

// A copy of the list whose last message has the mark; NULL with e filled when it has no text.
struct json_t *continuation_mark(const struct json_t *messages, struct api_error *e);
// Cuts the prompt where the mark stands. messages are those without it.
int continuation_cut(struct chat_output *prompt, const struct json_t *messages,
                     struct api_error *e);

#endif
