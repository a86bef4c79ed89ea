// chat.h: a model's chat template: messages to prompt text. A small safe Jinja engine of our own.
//
// Immutable after parsing and shared by all threads. Rendering has step, depth and output limits
// and touches nothing but its input. Text that came from messages is marked, so that the tokenizer
// can keep users from forging special tokens.
#ifndef MOESAIC_COMMON_TEXT_CHAT_H
#define MOESAIC_COMMON_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct chat_template;
struct json_t;

int chat_template_parse(struct chat_template **out, const char *source, size_t bytes,
                        struct err_text *e);
// From folder/chat_template.jinja, else tokenizer_config.json's chat_template. *out = NULL and 0
// when the model has none.
int chat_template_load(struct chat_template **out, const char *folder, struct err_text *e);
void chat_template_destroy(struct chat_template *t);
// Whether text stands in an expression of the template as a string of its own, such as the name of
// a role that it asks for.
bool chat_template_mentions(const struct chat_template *t, const char *text);

// A piece of the prompt: literal template text, in which special tokens count, or text of the user,
// in which they do not.
struct chat_span {
    size_t begin, end; // bytes of text
    bool trusted;
};

struct chat_output {
    char *text; // mem_alloc'd
    size_t bytes;
    struct chat_span *spans; // cover text in order
    size_t n_spans;
};
void chat_output_finish(struct chat_output *o);

// variables is an object: messages, add_generation_prompt, bos_token, eos_token, ... Strings at its
// top level whose name ends in "_token" are trusted, so they must not come from a request;
// everything else in it is not. The text is what Hugging Face's apply_chat_template gives for the
// same variables; it drops a message's keys that are null, which is the caller's to do. A
// template's raise_exception(text) becomes ERR_REQ_REFUSED with that text.
// wall_ns is what strftime_now calls now, in the process's time zone.
int chat_template_render(const struct chat_template *t, const struct json_t *variables,
                         int64_t wall_ns, struct chat_output *out, struct err_text *e);

#endif
