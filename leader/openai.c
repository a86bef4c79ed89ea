// openai.c: see openai.h. The body as a whole, and the prompts; openai_messages.c has the messages.
#include "leader/openai.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "leader/openai_fields.h"

// What OpenAI's completions mean by no word about it.
#define COMPLETION_TOKENS_DEFAULT 16
// Doubles up to 2^53 hold every integer.
#define WHOLE_MAX 9007199254740992.0

// --- the body

struct shape {
    uint32_t depth; // deepest nesting
    struct openai_counts counts;
};

// Looks only at what stands outside of strings; says nothing about whether it is JSON.
static struct shape shape_of(const char *body, size_t bytes) {
    struct shape s = {.counts = {.n_values = 1}};
    uint32_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = body[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        if (in_string) continue;
        bool opens = c == '[' || c == '{';
        if (opens) depth++;
        if ((c == ']' || c == '}') && depth != 0) depth--;
        if (depth > s.depth) s.depth = depth;
        s.counts.n_containers += opens;
        s.counts.n_values += opens || c == ','; // at least as many as there are
    }
    return s;
}

// Where a JSON error lies: the member of the outermost object, or nothing.
struct place {
    uint32_t depth;
    bool in_string, named;
    size_t start, end, name, name_end; // of the last string; of the member's name
};

static void step_over(struct place *p, char c, size_t i) {
    if (c == '"') p->start = i + 1;
    if (c == ':' && p->depth == 1) {
        p->name = p->start;
        p->name_end = p->end;
        p->named = true;
    }
    if (c == ',' && p->depth == 1) p->named = false;
    if (c == '[' || c == '{') p->depth++;
    if ((c == ']' || c == '}') && p->depth != 0) p->depth--;
}

// Only a name that a field could have; what else stands there is the client's.
static void name_member(const char *body, size_t bytes, char *out, size_t out_bytes) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
    struct place p = {0};
    out[0] = '\0';
    for (size_t i = 0; i < bytes; i++) {
        if (p.in_string && body[i] == '\\') {
            i++;
            continue;
        }
        if (body[i] == '"') p.in_string = !p.in_string;
        if (body[i] == '"' && !p.in_string) p.end = i;
        if (!p.in_string ? body[i] != '"' : body[i] == '"') step_over(&p, body[i], i);
    }
    size_t n = p.name_end - p.name;
    if (!p.named || p.name_end <= p.name || n >= out_bytes) return;
    memcpy(out, body + p.name, n);
    out[n] = '\0';
    if (strspn(out, letters) != n) out[0] = '\0';
}

// The library's words, but where they are for programmers.
static const char *json_words(const json_error_t *error) {
    switch (json_error_code(error)) {
    case json_error_null_character: return "\\u0000 is not allowed in a string";
    case json_error_null_byte_in_key: return "\\u0000 is not allowed in a name";
    case json_error_end_of_input_expected: return "something stands behind its end";
    default: return error->text;
    }
}

static int not_json(const struct openai_body *body, const json_error_t *error,
                    struct api_error *e) {
    char name[32];
    enum json_error_code code = json_error_code(error);
    const char *text = json_words(error);
    size_t at = error->position > 0 ? (size_t)error->position : 0;
    name_member(body->text, at < body->bytes ? at : body->bytes, name, sizeof name);
    // What comes behind the whole belongs to no field.
    if (name[0] == '\0' || code == json_error_end_of_input_expected)
        return api_error_set(e, 400, NULL, "the body is not valid JSON: %s (byte %zu).", text, at);
    return api_error_set(e, 400, name, "the body is not valid JSON: %s (byte %zu, in '%s').", text,
                         at, name);
}

// A text has at most REQUEST_BYTES_MAX bytes, so sums stay within 32 bits.
static int count_on(struct openai_counts *sum, const struct openai_counts *more, const char *name,
                    struct api_error *e) {
    const char *what = name != NULL ? name : "body";
    if (more->n_values > JSON_VALUES_MAX - sum->n_values)
        return api_error_set(e, 400, name, "the JSON of the %s has more than %d values.", what,
                             JSON_VALUES_MAX);
    if (more->n_containers > JSON_CONTAINERS_MAX - sum->n_containers)
        return api_error_set(e, 400, name, "the JSON of the %s has more than %u lists and objects.",
                             what, JSON_CONTAINERS_MAX);
    sum->n_values += more->n_values;
    sum->n_containers += more->n_containers;
    return 0;
}

int openai_load_value(json_t **out, const struct openai_body *body, const char *name,
                      struct openai_counts *counts, struct api_error *e) {
    json_error_t error;
    struct shape shape = shape_of(body->text, body->bytes);
    const char *what = name != NULL ? name : "body";
    int rc = count_on(counts, &shape.counts, name, e);
    if (rc != 0) return rc;
    if (shape.depth > JSON_DEPTH_MAX)
        return api_error_set(e, 400, name, "the JSON of the %s is nested deeper than %d.", what,
                             JSON_DEPTH_MAX);
    size_t flags = JSON_REJECT_DUPLICATES | (body->any ? JSON_DECODE_ANY : 0u);
    *out = json_loadb(body->text, body->bytes, flags, &error);
    if (*out != NULL) return 0;
    if (name == NULL) return not_json(body, &error, e);
    return api_error_set(e, 400, name, "'%s' is not valid JSON: %s (byte %d).", name,
                         json_words(&error), error.position);
}

int openai_load_body(json_t **out, const struct openai_body *body, struct openai_counts *counts,
                     struct api_error *e) {
    json_t *root;
    int rc = openai_load_value(&root, body, NULL, counts, e);
    if (rc != 0) return rc;
    if (!body->any && !json_is_object(root)) {
        json_decref(root);
        return api_error_set(e, 400, NULL, "the body must be a JSON object.");
    }
    *out = root;
    return 0;
}

// --- integers

bool openai_whole(const json_t *value, json_int_t *out) {
    double x = json_number_value(value);
    *out = json_integer_value(value);
    if (!json_is_real(value)) return json_is_integer(value);
    if (!(fabs(x) <= WHOLE_MAX) || x != trunc(x)) return false;
    *out = (json_int_t)x;
    return true;
}

bool openai_token_id(const json_t *value, uint32_t vocab, uint32_t *out) {
    json_int_t id;
    if (!openai_whole(value, &id) || id < 0 || id >= vocab) return false;
    *out = (uint32_t)id;
    return true;
}

// --- prompts

static int prompt_error(const struct openai_request *r, struct api_error *e) {
    if (strcmp(r->prompt_field, "prompt") != 0)
        return api_error_set(e, 400, r->prompt_field,
                             "'%s' must be a list of token ids of this model.", r->prompt_field);
    return api_error_set(e, 400, "prompt",
                         "'prompt' must be a string, a list of strings, a list of token ids of "
                         "this model, or a list of such lists.");
}

int openai_read_ids(struct openai_request *r, const json_t *list, uint32_t vocab,
                    struct openai_prompt *out, struct api_error *e) {
    size_t n = json_array_size(list);
    size_t bytes;
    if (n == 0 || n > POSITIONS_MAX || !size_mul(n, sizeof(uint32_t), &bytes))
        return prompt_error(r, e);
    uint32_t *ids = arena_alloc(&r->arena, bytes);
    if (ids == NULL) return api_error_set(e, 500, NULL, "memory is out.");
    for (size_t i = 0; i < n; i++) {
        if (!openai_token_id(json_array_get(list, i), vocab, &ids[i])) return prompt_error(r, e);
    }
    *out = (struct openai_prompt){.ids = ids, .n_ids = (uint32_t)n};
    return 0;
}

static int read_prompt(struct openai_request *r, const json_t *value, uint32_t vocab,
                       struct openai_prompt *out, struct api_error *e) {
    if (!json_is_string(value)) return openai_read_ids(r, value, vocab, out, e);
    *out = (struct openai_prompt){.text = json_string_value(value),
                                  .text_bytes = json_string_length(value)};
    return 0;
}

static int read_prompts(struct openai_request *r, uint32_t vocab, struct api_error *e) {
    const json_t *prompt = json_object_get(r->root, "prompt");
    bool one = json_is_string(prompt) || json_is_number(json_array_get(prompt, 0));
    size_t n = one ? 1 : json_array_size(prompt);
    if (n == 0 && json_is_array(prompt))
        return api_error_set(e, 400, "prompt", "'prompt' is an empty list.");
    if (n == 0) return prompt_error(r, e);
    if (n > PROMPTS_MAX)
        return api_error_set(e, 400, "prompt", "'prompt' may have at most %d prompts.",
                             PROMPTS_MAX);
    r->prompts = arena_alloc(&r->arena, n * sizeof *r->prompts);
    if (r->prompts == NULL) return api_error_set(e, 500, NULL, "memory is out.");
    r->n_prompts = (uint32_t)n;
    if (one) return read_prompt(r, prompt, vocab, &r->prompts[0], e);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_prompt(r, json_array_get(prompt, i), vocab, &r->prompts[i], e);
    return rc;
}

// --- the request

void openai_request_init(struct openai_request *r, bool chat, const struct openai_defaults *d) {
    *r = (struct openai_request){.chat = chat};
    arena_init(&r->arena, 0);
    r->prompt_field = chat ? "messages" : "prompt";
    r->max_tokens_field = "max_tokens";
    r->max_tokens_default = d->max_tokens != 0 ? d->max_tokens : UINT32_MAX;
    r->knows_developer = d->knows_developer;
    r->parallel_tool_calls = true;
    r->n = 1;
    r->skip_special_tokens = true;
    r->add_generation_prompt = true;
    r->add_special_tokens = !chat;
    r->sampling.temperature = d->temperature;
    r->sampling.top_p = d->top_p;
    r->sampling.min_p = d->min_p;
    r->sampling.top_k = d->top_k;
    r->steering.repetition_penalty = d->repetition_penalty;
}

int openai_parse(struct openai_request *out, const struct openai_body *body,
                 const struct openai_defaults *defaults, struct api_error *e) {
    struct openai_request r;
    struct openai_reader reader = {.request = &r, .defaults = defaults, .error = e};
    openai_request_init(&r, body->chat, defaults);
    if (!r.chat && defaults->max_tokens == 0) r.max_tokens_default = COMPLETION_TOKENS_DEFAULT;
    int rc = openai_load_body(&r.root, body, &r.counts, e);
    if (rc == 0) rc = openai_fields_read(&reader, r.root);
    if (rc == 0) rc = openai_fields_check(&reader);
    if (rc == 0)
        rc = r.chat ? openai_messages(&r, json_object_get(r.root, "messages"), e)
                    : read_prompts(&r, defaults->vocab, e);
    if (rc != 0) {
        openai_request_finish(&r);
        return rc;
    }
    *out = r;
    return 0;
}

void openai_request_finish(struct openai_request *r) {
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->root);
    arena_finish(&r->arena);
    *r = (struct openai_request){0};
}
