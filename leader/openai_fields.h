// openai_fields.h: inside of openai: the tables of scalar fields, of what is refused, and of what
// has no effect. A row is all that there is of a field: how it is read, and what the OpenAPI
// document (openapi.h) says of it.
#ifndef MOESAIC_LEADER_OPENAI_FIELDS_H
#define MOESAIC_LEADER_OPENAI_FIELDS_H

#include <jansson.h>

#include "leader/openai.h"
#include "leader/openapi.h"

// What only the parser needs of a request.
struct openai_reader {
    struct openai_request *request;
    const struct openai_defaults *defaults;
    struct api_error *error;
    int where; // whose fields are read; 0: CHAT or COMPLETION, as the request is
    uint32_t max_completion_tokens;    // 0 = not given; wins over max_tokens, its older name
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
enum neutral { NEUTRAL_NONE, NEUTRAL_FALSE, NEUTRAL_ONE, NEUTRAL_EMPTY };

// The body that a schema is part of.
struct openai_form {
    int where;
    bool chat; // has messages
    const struct openapi_facts *facts;
};

struct openai_field {
    const char *name;
    int where;
    int (*read)(struct openai_reader *r, const struct openai_field *f, const json_t *value);
    // The values that read takes, null among them, as JSON Schema; NULL when memory is out.
    json_t *(*schema)(const struct openai_field *f, const struct openai_form *form);
    size_t offset; // of its place in struct openai_request, for the plain readers
    double min, max;
    enum neutral neutral;
    const char *about; // one sentence for a reader of the document
};

struct openai_field_table {
    const struct openai_field *fields;
    size_t n;
};
extern const struct openai_field_table openai_fields_taken;   // openai_fields.c
extern const struct openai_field_table openai_fields_refused; // openai_refused.c

#define AT(member) offsetof(struct openai_request, member)

int openai_field_wrong(struct openai_reader *r, const struct openai_field *f, const char *must);
int openai_field_range(struct openai_reader *r, const struct openai_field *f);
// An integer within the row's range, to its place.
int openai_read_uint(struct openai_reader *r, const struct openai_field *f, const json_t *value);

// What a field that is given, or true, needs of another.
struct openai_rule {
    int where;
    const char *field;
    bool only_true;
    const char *needs;
    bool value, or_absent;
};
// One by one; NULL behind the last.
const struct openai_rule *openai_rule_at(size_t i);

// openai_refused.c
int openai_field_unsupported(struct openai_reader *r, const struct openai_field *f);

// openai_steer.c
int openai_read_logit_bias(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value);
json_t *openai_schema_logit_bias(const struct openai_field *f, const struct openai_form *form);
int openai_read_allowed_ids(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value);
json_t *openai_schema_allowed_ids(const struct openai_field *f, const struct openai_form *form);
int openai_read_bad_words(struct openai_reader *r, const struct openai_field *f,
                          const json_t *value);
json_t *openai_schema_bad_words(const struct openai_field *f, const struct openai_form *form);

// openai_scores.c
int openai_read_max_tokens(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value);
int openai_read_prompt_logprobs(struct openai_reader *r, const struct openai_field *f,
                                const json_t *value);
int openai_scores_check(struct openai_reader *r);

// openai_template.c
int openai_read_template_kwargs(struct openai_reader *r, const struct openai_field *f,
                                const json_t *value);
json_t *openai_schema_template_kwargs(const struct openai_field *f, const struct openai_form *form);

// openai_schema.c: of values that several fields have.
json_t *openai_schema_bool(const struct openai_field *f, const struct openai_form *form);
json_t *openai_schema_number(const struct openai_field *f, const struct openai_form *form);
json_t *openai_schema_integer(const struct openai_field *f, const struct openai_form *form);
// A list of at most so many token ids.
json_t *openai_schema_ids(uint32_t n_min, uint32_t n_max, const struct openapi_facts *facts);
// What is not null, or null.
json_t *openai_schema_or_null(json_t *schema);
// The properties of a body: every field of the tables that it may have.
json_t *openai_schema_fields(const struct openai_form *form);
// What these need of each other: a list of schemas that must all hold.
json_t *openai_schema_rules(const struct openai_form *form);

// openai_tools.c
int openai_read_tools(struct openai_reader *r, const struct openai_field *f, const json_t *value);
json_t *openai_schema_tools(const struct openai_field *f, const struct openai_form *form);
int openai_read_tool_choice(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value);
json_t *openai_schema_tool_choice(const struct openai_field *f, const struct openai_form *form);
int openai_read_documents(struct openai_reader *r, const struct openai_field *f,
                          const json_t *value);
json_t *openai_schema_documents(const struct openai_field *f, const struct openai_form *form);
// After all fields: whether the answer may be what tool_choice asks for.
int openai_tools_check(struct openai_reader *r);
json_t *openai_tools_rule(void);  // the same as a schema
json_t *openai_tool_schema(void); // one tool

// openai.c
// JSON has one kind of number, and some clients write 1 as 1.0: what is whole and exact is an
// integer.
bool openai_whole(const json_t *value, json_int_t *out);
bool openai_token_id(const json_t *value, uint32_t vocab, uint32_t *out);
// For its twins openai_tokens.c and rpc_fill.c.
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
