// openai_fields.h: inside of openai: the table of scalar fields, and of the fields that are
// refused.
#ifndef MOESAIC_LEADER_OPENAI_FIELDS_H
#define MOESAIC_LEADER_OPENAI_FIELDS_H

#include <jansson.h>

#include "leader/openai.h"

// What only the parser needs of a request.
struct openai_reader {
    struct openai_request *request;
    const struct openai_defaults *defaults;
    struct api_error *error;
    uint32_t max_completion_tokens; // 0 = not given; wins over max_tokens, its older name
    bool has_top_logprobs, has_stream_options;
};

// Reads every known field but messages and prompt.
int openai_fields_read(struct openai_reader *r, const json_t *root);
// Checks of fields against each other.
int openai_fields_check(struct openai_reader *r);

#endif
