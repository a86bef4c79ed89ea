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
    int where; // whose fields are read; 0: CHAT or COMPLETION, as the request is
    uint32_t max_completion_tokens; // 0 = not given; wins over max_tokens, its older name
    bool has_top_logprobs, has_stream_options;
    bool has_tool_choice, calls_tools; // calls_tools: "auto" was given
};

enum {
    CHAT = 1,
    COMPLETION = 2,
    BOTH = CHAT | COMPLETION,
    TOKENIZE = 4,
    DETOKENIZE = 8,
    ANY = BOTH | TOKENIZE | DETOKENIZE,
    MESSAGES = CHAT | TOKENIZE, // what may have messages
};

// The value of a refused field that changes nothing, and is therefore accepted.
enum neutral { NEUTRAL_NONE, NEUTRAL_FALSE, NEUTRAL_ZERO, NEUTRAL_ONE, NEUTRAL_EMPTY };

struct openai_field {
    const char *name;
    int where;
    int (*read)(struct openai_reader *r, const struct openai_field *f, const json_t *value);
    size_t offset; // of its place in struct openai_request, for the plain readers
    double min, max;
    enum neutral neutral;
};

#define AT(member) offsetof(struct openai_request, member)

int openai_field_wrong(struct openai_reader *r, const struct openai_field *f, const char *must);
int openai_field_range(struct openai_reader *r, const struct openai_field *f);
// An integer within the row's range, to its place.
int openai_read_uint(struct openai_reader *r, const struct openai_field *f, const json_t *value);

// openai_steer.c
int openai_read_logit_bias(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value);
int openai_read_allowed_ids(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value);
int openai_read_bad_words(struct openai_reader *r, const struct openai_field *f,
                          const json_t *value);

// openai_scores.c
int openai_read_max_tokens(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value);
int openai_read_prompt_logprobs(struct openai_reader *r, const struct openai_field *f,
                                const json_t *value);
int openai_scores_check(struct openai_reader *r);

// openai_template.c
int openai_read_template_kwargs(struct openai_reader *r, const struct openai_field *f,
                                const json_t *value);

// openai_tools.c
int openai_read_tools(struct openai_reader *r, const struct openai_field *f, const json_t *value);
int openai_read_tool_choice(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value);
int openai_read_documents(struct openai_reader *r, const struct openai_field *f,
                          const json_t *value);
// After all fields: whether the answer may be what tool_choice asks for.
int openai_tools_check(struct openai_reader *r);

// openai.c, for its twins openai_tokens.c and rpc_fill.c
// A value of JSON, within the limits; with a name it is that field of another message. Counts on in
// *counts, which is bounded.
int openai_load_value(struct json_t **out, const struct openai_body *body, const char *name,
                      struct openai_counts *counts, struct api_error *e);
int openai_load_body(struct json_t **out, const struct openai_body *body,
                     struct openai_counts *counts, struct api_error *e);
int openai_read_ids(struct openai_request *r, const json_t *list, uint32_t vocab,
                    struct openai_prompt *out, struct api_error *e);

// Reads every known field but messages and prompt.
int openai_fields_read(struct openai_reader *r, const json_t *root);
// Checks of fields against each other.
int openai_fields_check(struct openai_reader *r);

#endif
