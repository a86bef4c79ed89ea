// openai_tokens.c: the bodies of /tokenize and /detokenize.
#include <jansson.h>

#include "leader/openai_fields.h"

static bool given(const json_t *value) {
    return value != NULL && !json_is_null(value);
}

static int no_memory(struct api_error *e) {
    return api_error_set(e, 500, NULL, "memory is out.");
}

static struct openai_prompt *one_prompt(struct openai_request *r) {
    r->prompts = arena_alloc(&r->arena, sizeof *r->prompts);
    r->n_prompts = 1;
    return r->prompts;
}

static int read_text(struct openai_request *r, const json_t *text, struct api_error *e) {
    if (!json_is_string(text)) return api_error_set(e, 400, "prompt", "'prompt' must be a string.");
    struct openai_prompt *p = one_prompt(r);
    if (p == NULL) return no_memory(e);
    *p = (struct openai_prompt){.text = json_string_value(text),
                                .text_bytes = json_string_length(text)};
    return 0;
}

static int read_tokenize(struct openai_request *r, struct openai_reader *reader) {
    const json_t *messages = json_object_get(r->root, "messages");
    const json_t *prompt = json_object_get(r->root, "prompt");
    if (given(messages) == given(prompt))
        return api_error_set(reader->error, 400, "prompt",
                             "exactly one of 'prompt' and 'messages' must be given.");
    int rc = openai_fields_read(reader, r->root);
    if (rc == 0) rc = openai_fields_check(reader);
    if (rc != 0) return rc;
    return r->chat ? openai_messages(r, messages, reader->error)
                   : read_text(r, prompt, reader->error);
}

static int read_detokenize(struct openai_request *r, struct openai_reader *reader) {
    const json_t *tokens = json_object_get(r->root, "tokens");
    r->prompt_field = "tokens";
    int rc = openai_fields_read(reader, r->root);
    if (rc != 0) return rc;
    struct openai_prompt *p = one_prompt(r);
    if (p == NULL) return no_memory(reader->error);
    *p = (struct openai_prompt){0};
    if (json_is_array(tokens) && json_array_size(tokens) == 0) return 0;
    return openai_read_ids(r, tokens, reader->defaults->vocab, p, reader->error);
}

static int parse(struct openai_request *out, const struct openai_body *body,
                 struct openai_reader *reader) {
    struct openai_request r;
    struct openai_counts counts = {0};
    json_t *root;
    int rc = openai_load_body(&root, body, &counts, reader->error);
    if (rc != 0) return rc;
    openai_request_init(&r, given(json_object_get(root, "messages")), reader->defaults);
    r.chat = r.chat && reader->where == TOKENIZE;
    r.root = root;
    r.counts = counts;
    reader->request = &r;
    rc = reader->where == TOKENIZE ? read_tokenize(&r, reader) : read_detokenize(&r, reader);
    if (rc != 0)
        openai_request_finish(&r);
    else
        *out = r;
    return rc;
}

int openai_parse_tokenize(struct openai_request *out, const struct openai_body *body,
                          const struct openai_defaults *defaults, struct api_error *e) {
    struct openai_reader reader = {.defaults = defaults, .error = e, .where = TOKENIZE};
    return parse(out, body, &reader);
}

int openai_parse_detokenize(struct openai_request *out, const struct openai_body *body,
                            const struct openai_defaults *defaults, struct api_error *e) {
    struct openai_reader reader = {.defaults = defaults, .error = e, .where = DETOKENIZE};
    return parse(out, body, &reader);
}
