// openai_fields.c: one table row a field: where it is allowed, how it is read, its range. null
// means "not given" everywhere.
#include "leader/openai_fields.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/base/check.h"
#include "leader/client.h"

// Below this, probabilities are beyond float32 and only the largest logit is left.
#define TEMPERATURE_MIN 1e-5
// top_p 0 keeps one token, like the smallest positive number.
#define TOP_P_MIN 1e-30
// Above 0: it divides. Below this nothing but repeats would be left, or infinities.
#define REPETITION_MIN 0.01

static void *place(struct openai_reader *r, const struct openai_field *f) {
    return (char *)r->request + f->offset;
}

int openai_field_wrong(struct openai_reader *r, const struct openai_field *f, const char *must) {
    return api_error_set(r->error, 400, f->name, "'%s' must be %s.", f->name, must);
}

int openai_field_range(struct openai_reader *r, const struct openai_field *f) {
    return api_error_set(r->error, 400, f->name, "'%s' must be between %.15g and %.15g.", f->name,
                         f->min, f->max);
}

// --- plain readers

static int read_bool(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (!json_is_boolean(value)) return openai_field_wrong(r, f, "a boolean");
    *(bool *)place(r, f) = json_is_true(value);
    return 0;
}

static int read_number(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (!json_is_number(value)) return openai_field_wrong(r, f, "a number");
    double x = json_number_value(value);
    if (!(x >= f->min && x <= f->max)) return openai_field_range(r, f);
    *(float *)place(r, f) = (float)x + 0.0f; // no negative zero
    return 0;
}

static int read_integer(struct openai_reader *r, const struct openai_field *f, const json_t *value,
                        uint32_t *out) {
    json_int_t x;
    if (!openai_whole(value, &x)) return openai_field_wrong(r, f, "an integer");
    if ((double)x < f->min || (double)x > f->max) return openai_field_range(r, f);
    *out = (uint32_t)x;
    return 0;
}

int openai_read_uint(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    return read_integer(r, f, value, place(r, f));
}

// --- fields with rules of their own

static int read_model(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (!json_is_string(value)) return openai_field_wrong(r, f, "a string");
    r->request->model = json_string_value(value);
    return 0;
}

static int read_temperature(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value) {
    int rc = read_number(r, f, value);
    float *t = place(r, f);
    if (rc == 0 && *t < (float)TEMPERATURE_MIN) *t = 0;
    return rc;
}

static int read_top_p(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    int rc = read_number(r, f, value);
    float *p = place(r, f);
    if (rc == 0 && *p < (float)TOP_P_MIN) *p = (float)TOP_P_MIN;
    return rc;
}

// -1 is another way to write "off".
static int read_top_k(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (json_number_value(value) == -1) {
        r->request->sampling.top_k = 0;
        return 0;
    }
    json_int_t x;
    if (openai_whole(value, &x) && (x < 0 || (double)x > f->max))
        return openai_field_wrong(r, f, "-1, or between 0 and 2147483647");
    return openai_read_uint(r, f, value);
}

static int read_seed(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    json_int_t seed;
    if (!openai_whole(value, &seed)) return openai_field_wrong(r, f, "an integer");
    r->request->has_seed = true;
    r->request->seed = seed;
    return 0;
}

static int read_max_completion_tokens(struct openai_reader *r, const struct openai_field *f,
                                      const json_t *value) {
    return read_integer(r, f, value, &r->max_completion_tokens);
}

// Completions: how many alternatives; 0 still asks for the sampled token's own.
static int read_logprobs_count(struct openai_reader *r, const struct openai_field *f,
                               const json_t *value) {
    r->request->sampling.want_logprob = true;
    return read_integer(r, f, value, &r->request->sampling.n_logprobs);
}

static int read_top_logprobs(struct openai_reader *r, const struct openai_field *f,
                             const json_t *value) {
    return read_integer(r, f, value, &r->request->sampling.n_logprobs);
}

static int add_stop(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    struct stop_strings *stop = &r->request->stop;
    if (!json_is_string(value)) return openai_field_wrong(r, f, "a string or a list of strings");
    size_t bytes = json_string_length(value);
    if (bytes == 0 || bytes > STOP_STRING_BYTES_MAX)
        return api_error_set(r->error, 400, f->name,
                             "each string of 'stop' must have 1 to %d bytes.",
                             STOP_STRING_BYTES_MAX);
    if (stop->n == STOP_STRINGS_MAX)
        return api_error_set(r->error, 400, f->name, "'stop' may have at most %d strings.",
                             STOP_STRINGS_MAX);
    stop->text[stop->n] = json_string_value(value);
    stop->bytes[stop->n++] = bytes;
    return 0;
}

static int read_stop(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (!json_is_array(value)) return add_stop(r, f, value);
    int rc = 0;
    for (size_t i = 0; i < json_array_size(value) && rc == 0; i++)
        rc = add_stop(r, f, json_array_get(value, i));
    return rc;
}

static int read_stop_ids(struct openai_reader *r, const struct openai_field *f,
                         const json_t *value) {
    struct openai_request *q = r->request;
    if (!json_is_array(value)) return openai_field_wrong(r, f, "a list of token ids");
    if ((double)json_array_size(value) > f->max)
        return api_error_set(r->error, 400, f->name, "'%s' may have at most %.0f ids.", f->name,
                             f->max);
    for (size_t i = 0; i < json_array_size(value); i++) {
        uint32_t *id = &q->stop_ids[q->n_stop_ids++];
        if (!openai_token_id(json_array_get(value, i), r->defaults->vocab, id))
            return openai_field_wrong(r, f, "a list of token ids of this model");
    }
    return 0;
}

static int read_stream_options(struct openai_reader *r, const struct openai_field *f,
                               const json_t *value) {
    if (!json_is_object(value)) return openai_field_wrong(r, f, "an object");
    const json_t *usage = json_object_get(value, "include_usage");
    const json_t *each = json_object_get(value, "continuous_usage_stats");
    if (usage != NULL && !json_is_boolean(usage) && !json_is_null(usage))
        return api_error_set(r->error, 400, "stream_options.include_usage",
                             "'stream_options.include_usage' must be a boolean.");
    if (each != NULL && !json_is_boolean(each) && !json_is_null(each))
        return api_error_set(r->error, 400, "stream_options.continuous_usage_stats",
                             "'stream_options.continuous_usage_stats' must be a boolean.");
    r->request->include_usage = json_is_true(usage);
    r->request->continuous_usage = json_is_true(usage) && json_is_true(each);
    return 0;
}

// -1: as many as fit. What is above the context is refused where that is known.
static int read_truncate(struct openai_reader *r, const struct openai_field *f,
                         const json_t *value) {
    json_int_t x;
    if (!openai_whole(value, &x)) return openai_field_wrong(r, f, "an integer");
    if (x != -1 && (x < 1 || x > INT32_MAX))
        return openai_field_wrong(r, f, "-1, or between 1 and the model's context length");
    r->request->truncate_prompt = x == -1 ? TRUNCATE_TO_FIT : (uint32_t)x;
    return 0;
}

static int read_request_id(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value) {
    const char *id = json_string_value(value);
    if (id == NULL || !client_id_ok(id))
        return openai_field_wrong(r, f, "1 to 128 printable ASCII characters without spaces");
    r->request->request_id = id;
    return 0;
}

static int read_cache_salt(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value) {
    if (json_string_length(value) == 0) return openai_field_wrong(r, f, "a string, not empty");
    r->request->cache_salt = json_string_value(value);
    return 0;
}

// A template writes the model's first tokens itself.
static int read_add_special(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value) {
    int rc = read_bool(r, f, value);
    return rc == 0 && r->request->chat && r->request->add_special_tokens
               ? openai_field_unsupported(r, f)
               : rc;
}

// --- what the document says of them

static json_t *schema_model(const struct openai_field *f, const struct openai_form *form) {
    (void)f;
    if (form->facts->model != NULL) return json_pack("{s:[s, n]}", "enum", form->facts->model);
    return json_pack("{s:[s, s]}", "type", "string", "null");
}

static json_t *schema_stream_options(const struct openai_field *f, const struct openai_form *form) {
    json_t *idle =
        json_pack("{s:s, s:b}", "$ref", "#/components/schemas/Anything", "x-moesaic-idle", 1);
    return json_pack("{s:[s, s], s:{s:o, s:o, s:o}, s:o}", "type", "object", "null", "properties",
                     "include_usage", openai_schema_bool(f, form), "continuous_usage_stats",
                     openai_schema_bool(f, form), "include_obfuscation", idle,
                     "additionalProperties", openapi_ref("Anything"));
}

static json_t *schema_seed(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s], s:I, s:I}", "type", "integer", "null", "minimum",
                     (json_int_t)INT64_MIN, "maximum", (json_int_t)INT64_MAX);
}

static json_t *schema_top_k(const struct openai_field *f, const struct openai_form *form) {
    struct openai_field with_off = *f;
    with_off.min = -1;
    return openai_schema_integer(&with_off, form);
}

// An integer whose largest value the instance knows.
static json_t *schema_at_most(const struct openai_field *f, const struct openai_form *form,
                              uint32_t known) {
    struct openai_field bounded = *f;
    if (known != 0 && known < f->max) bounded.max = known;
    return openai_schema_integer(&bounded, form);
}

static json_t *schema_max_tokens(const struct openai_field *f, const struct openai_form *form) {
    uint32_t context = form->facts->max_model_len;
    return schema_at_most(f, form, context == 0 ? 0 : context - 1); // one is the prompt's
}

static json_t *schema_n(const struct openai_field *f, const struct openai_form *form) {
    return schema_at_most(f, form, form->facts->choices_max);
}

static json_t *stop_string(void) {
    return json_pack("{s:s, s:i, s:i}", "type", "string", "minLength", 1, "maxLength",
                     STOP_STRING_BYTES_MAX);
}

static json_t *schema_stop(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[o, {s:s, s:o, s:i}, {s:s}]}", "anyOf", stop_string(), "type", "array",
                     "items", stop_string(), "maxItems", STOP_STRINGS_MAX, "type", "null");
}

static json_t *schema_stop_ids(const struct openai_field *f, const struct openai_form *form) {
    return openai_schema_ids(0, (uint32_t)f->max, form->facts);
}

static json_t *schema_truncate(const struct openai_field *f, const struct openai_form *form) {
    uint32_t context = form->facts->max_model_len;
    (void)f;
    return json_pack("{s:[s, s], s:i, s:I, s:{s:i}}", "type", "integer", "null", "minimum", -1,
                     "maximum", (json_int_t)(context != 0 ? context : INT32_MAX), "not", "const",
                     0);
}

static int read_priority(struct openai_reader *r, const struct openai_field *f,
                         const json_t *value) {
    json_int_t x;
    if (!openai_whole(value, &x) || x < INT32_MIN || x > INT32_MAX)
        return openai_field_wrong(r, f, "an integer of 32 bits");
    if (x != 0 && !r->defaults->priorities)
        return api_error_code(
            r->error,
            api_error_set(r->error, 400, f->name,
                          "'priority' needs a server with --scheduling-policy priority."),
            "unsupported_parameter");
    r->request->priority = (int32_t)x;
    return 0;
}

static json_t *schema_priority(const struct openai_field *f, const struct openai_form *form) {
    const struct openai_defaults *d = form->facts->defaults;
    (void)f;
    if (d != NULL && !d->priorities) return json_pack("{s:[i, n]}", "enum", 0);
    return json_pack("{s:[s, s], s:I, s:I}", "type", "integer", "null", "minimum",
                     (json_int_t)INT32_MIN, "maximum", (json_int_t)INT32_MAX);
}

static json_t *schema_request_id(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s], s:s, s:i}", "type", "string", "null", "pattern", "^[!-~]+$",
                     "maxLength", REQUEST_ID_BYTES_MAX);
}

static json_t *schema_cache_salt(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s], s:i}", "type", "string", "null", "minLength", 1);
}

static json_t *schema_add_special(const struct openai_field *f, const struct openai_form *form) {
    return form->chat ? json_pack("{s:[b, n]}", "enum", 0) : openai_schema_bool(f, form);
}

// --- the table

#define RULE(name, where, kind, about)                                                             \
    { name, where, read_##kind, schema_##kind, 0, 0, 0, 0, about }
#define BOOL(name, where, place, about)                                                            \
    { name, where, read_bool, openai_schema_bool, AT(place), 0, 0, 0, about }
#define NUMBER(name, where, place, min, max, about)                                                \
    { name, where, read_number, openai_schema_number, AT(place), min, max, 0, about }
#define UINT(name, where, place, min, max, about)                                                  \
    { name, where, openai_read_uint, openai_schema_integer, AT(place), min, max, 0, about }

static const struct openai_field fields[] = {
    RULE("model", ANY, model, "The served model's name, where it is given."),
    BOOL("stream", BOTH, stream, "Server-sent events rather than one answer."),
    RULE("stream_options", BOTH, stream_options,
         "Only with stream: the usage in a last chunk, and with both in each."),
    {"temperature", BOTH, read_temperature, openai_schema_number, AT(sampling.temperature), 0, 2, 0,
     "Below 0.00001 the likeliest token is taken. Not given: the model's own."},
    {"top_p", BOTH, read_top_p, openai_schema_number, AT(sampling.top_p), 0, 1, 0,
     "The likeliest tokens that have this probability together. Not given: the model's own."},
    {"top_k", BOTH, read_top_k, schema_top_k, AT(sampling.top_k), 0, INT32_MAX, 0,
     "So many of the likeliest tokens; 0 and -1 are off. Not given: the model's own."},
    NUMBER("min_p", BOTH, sampling.min_p, 0, 1,
           "Tokens of at least this share of the likeliest one's probability."),
    NUMBER("presence_penalty", BOTH, steering.presence_penalty, -2, 2,
           "Taken off the logit of each token that was generated."),
    NUMBER("frequency_penalty", BOTH, steering.frequency_penalty, -2, 2,
           "Taken off the logit for each time that the token was generated."),
    NUMBER("repetition_penalty", BOTH, steering.repetition_penalty, REPETITION_MIN, 10,
           "Divides the positive logits of tokens of prompt and answer, multiplies negative ones."),
    {"logit_bias", BOTH, openai_read_logit_bias, openai_schema_logit_bias, 0, -100, 100, 0,
     "Added to the logits of these token ids."},
    {"allowed_token_ids", BOTH, openai_read_allowed_ids, openai_schema_allowed_ids, 0, 0, 0, 0,
     "Only these tokens may come."},
    {"bad_words", BOTH, openai_read_bad_words, openai_schema_bad_words, 0, 0, 0, 0,
     "Strings that must not come; each has something but spaces, at most 200 tokens in all."},
    UINT("min_tokens", BOTH, steering.min_tokens, 0, INT32_MAX,
         "No stop token and no stop string counts before; at most max_tokens."),
    RULE("seed", BOTH, seed, "Drawn when it is not given, and returned."),
    {"n", BOTH, openai_read_uint, schema_n, AT(n), 1, CHOICES_MAX, 0, "Choices for each prompt."},
    {"max_tokens", BOTH, openai_read_max_tokens, schema_max_tokens, AT(max_tokens), 0, INT32_MAX, 0,
     "Tokens of the answer at most, which shares the context with the prompt; 0 only with echo or "
     "prompt_logprobs."},
    {"max_completion_tokens", CHAT, read_max_completion_tokens, schema_max_tokens, 0, 1, INT32_MAX,
     0, "The newer name of max_tokens, which it overrules."},
    RULE("stop", BOTH, stop, "The answer ends before the one of these that is complete first."),
    // Room is left for the model's own stop ids.
    {"stop_token_ids", BOTH, read_stop_ids, schema_stop_ids, 0, 0, STOP_IDS_MAX / 2, 0,
     "Tokens that end the answer, beside the model's own."},
    BOOL("logprobs", CHAT, sampling.want_logprob, "Log-probabilities of the answer's tokens."),
    {"top_logprobs", CHAT, read_top_logprobs, openai_schema_integer, 0, 0, TOP_LOGPROBS_MAX, 0,
     "So many of the likeliest tokens in each place; needs logprobs."},
    {"logprobs", COMPLETION, read_logprobs_count, openai_schema_integer, 0, 0, TOP_LOGPROBS_MAX, 0,
     "Log-probabilities of the answer's tokens, and of so many of the likeliest in each place."},
    BOOL("ignore_eos", BOTH, ignore_eos, "The model's own stop tokens do not end the answer."),
    BOOL("skip_special_tokens", BOTH, skip_special_tokens, "Special tokens are no text."),
    BOOL("add_generation_prompt", MESSAGES, add_generation_prompt,
         "The template opens the answer's message."),
    BOOL("return_token_ids", BOTH, return_token_ids, "Each choice has token_ids."),
    BOOL("include_stop_str_in_output", BOTH, stop.keep,
         "The text ends behind the stop string or the stop token."),
    RULE("truncate_prompt_tokens", BOTH | TOKENIZE, truncate,
         "Only so many of the prompt's last tokens are read; -1: as many as leave room."),
    BOOL("continue_final_message", MESSAGES, continue_final_message,
         "The answer goes on with the last message; needs add_generation_prompt false."),
    {"chat_template_kwargs", MESSAGES, openai_read_template_kwargs, openai_schema_template_kwargs,
     0, 0, 0, 0, "Variables for the model's template."},
    BOOL("echo", COMPLETION, echo,
         "The text begins with the prompt, and logprobs with the prompt's."),
    {"prompt_logprobs", BOTH, openai_read_prompt_logprobs, openai_schema_integer,
     AT(n_prompt_logprobs), 0, TOP_LOGPROBS_MAX, 0,
     "Log-probabilities of the prompt's tokens, and of so many of the likeliest in each place; not "
     "with stream."},
    RULE("request_id", BOTH, request_id, "As the header X-Request-Id, which wins."),
    RULE("priority", BOTH, priority,
         "With --scheduling-policy priority: the lowest is served first."),
    RULE("cache_salt", BOTH, cache_salt,
         "Cached blocks of the prompt are shared with requests of the same salt and key only."),
    {"tools", MESSAGES, openai_read_tools, openai_schema_tools, 0, 0, 0, 0,
     "Functions that the template shows to the model."},
    {"tool_choice", CHAT, openai_read_tool_choice, openai_schema_tool_choice, 0, 0, 0, 0,
     "none: the model sees the tools and answers with text. auto, and no word about it beside "
     "tools, need a "
     "server with --enable-auto-tool-choice."},
    BOOL("parallel_tool_calls", CHAT, parallel_tool_calls,
         "false: calls behind the first are left out of the answer."),
    {"documents", MESSAGES, openai_read_documents, openai_schema_documents, 0, 0, 0, 0,
     "For templates that know them."},
    BOOL("return_token_strs", TOKENIZE, return_token_strs, "The text of each token."),
    {"add_special_tokens", BOTH | TOKENIZE, read_add_special, schema_add_special,
     AT(add_special_tokens), 0, 0, 0,
     "The model's own first tokens before a text; templates write their own."},
};

const struct openai_field_table openai_fields_taken = {fields, sizeof fields / sizeof *fields};

static int where_of(const struct openai_reader *r) {
    if (r->where != 0) return r->where;
    return r->request->chat ? CHAT : COMPLETION;
}

static int read_table(struct openai_reader *r, const struct openai_field_table *t,
                      const json_t *root) {
    int here = where_of(r);
    for (size_t i = 0; i < t->n; i++) {
        const struct openai_field *f = &t->fields[i];
        const json_t *value = json_object_get(root, f->name);
        if ((f->where & here) == 0 || value == NULL || json_is_null(value)) continue;
        int rc = f->read(r, f, value);
        if (rc != 0) return rc;
    }
    return 0;
}

int openai_fields_read(struct openai_reader *r, const json_t *root) {
    int rc = read_table(r, &openai_fields_taken, root);
    return rc == 0 ? read_table(r, &openai_fields_refused, root) : rc;
}

// --- fields against each other

static const struct openai_rule rules[] = {
    {CHAT, "top_logprobs", false, "logprobs", true, false},
    {MESSAGES, "continue_final_message", true, "add_generation_prompt", false, false},
    {BOTH, "stream_options", false, "stream", true, false},
    {BOTH, "prompt_logprobs", false, "stream", false, true},
};

const struct openai_rule *openai_rule_at(size_t i) {
    return i < sizeof rules / sizeof *rules ? &rules[i] : NULL;
}

static int check_rules(struct openai_reader *r) {
    const json_t *root = r->request->root;
    int here = where_of(r);
    for (const struct openai_rule *rule = rules; rule < rules + sizeof rules / sizeof *rules;
         rule++) {
        const json_t *value = json_object_get(root, rule->field);
        const json_t *needed = json_object_get(root, rule->needs);
        bool applies =
            rule->only_true ? json_is_true(value) : value != NULL && !json_is_null(value);
        bool kept = rule->value ? json_is_true(needed) : json_is_false(needed);
        kept |= rule->or_absent && (needed == NULL || json_is_null(needed));
        if ((rule->where & here) != 0 && applies && !kept)
            return api_error_set(r->error, 400, rule->field, "'%s' needs '%s' to be %s.",
                                 rule->field, rule->needs, rule->value ? "true" : "false");
    }
    return 0;
}

int openai_fields_check(struct openai_reader *r) {
    struct openai_request *q = r->request;
    if (r->max_completion_tokens != 0) {
        q->max_tokens_overruled = q->max_tokens;
        q->max_tokens = r->max_completion_tokens;
        q->max_tokens_field = "max_completion_tokens";
    }
    int rc = check_rules(r);
    if (rc != 0) return rc;
    if (q->max_tokens != 0 && q->steering.min_tokens > q->max_tokens)
        return api_error_set(r->error, 400, "min_tokens", "'min_tokens' must be at most '%s' (%u).",
                             q->max_tokens_field, q->max_tokens);
    rc = openai_scores_check(r);
    return rc == 0 ? openai_tools_check(r) : rc;
}
