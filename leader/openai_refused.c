// openai_refused.c: the fields of clients that this server knows and does not do: refused by name,
// unless their value changes nothing; and those that have no effect here at all.
#include <string.h>

#include "leader/openai_fields.h"

int openai_field_unsupported(struct openai_reader *r, const struct openai_field *f) {
    return api_error_code(r->error,
                          api_error_set(r->error, 400, f->name,
                                        "'%s' with this value is not supported by this server.",
                                        f->name),
                          "unsupported_parameter");
}

// --- one neutral value

static bool is_neutral(const json_t *value, enum neutral neutral) {
    switch (neutral) {
    case NEUTRAL_NONE: return false;
    case NEUTRAL_FALSE: return json_is_false(value);
    case NEUTRAL_ONE: return json_is_number(value) && json_number_value(value) == 1;
    case NEUTRAL_EMPTY:
        return (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0) ||
               (json_is_string(value) && json_string_length(value) == 0);
    }
    return false;
}

static int read_refused(struct openai_reader *r, const struct openai_field *f,
                        const json_t *value) {
    return is_neutral(value, f->neutral) ? 0 : openai_field_unsupported(r, f);
}

static json_t *neutral_values(enum neutral neutral) {
    switch (neutral) {
    case NEUTRAL_NONE: return json_pack("[n]");
    case NEUTRAL_FALSE: return json_pack("[b, n]", 0);
    case NEUTRAL_ONE: return json_pack("[i, n]", 1);
    case NEUTRAL_EMPTY: return json_pack("[[], {}, s, n]", "");
    }
    return NULL;
}

static json_t *schema_refused(const struct openai_field *f, const struct openai_form *form) {
    (void)form;
    return json_pack("{s:o, s:b}", "enum", neutral_values(f->neutral), "x-moesaic-refused", 1);
}

// --- some words

static bool is_named(const json_t *value, const char *const *names) {
    const char *text = json_string_value(value);
    for (; text != NULL && *names != NULL; names++) {
        if (strcmp(text, *names) == 0) return true;
    }
    return false;
}

static int read_response_format(struct openai_reader *r, const struct openai_field *f,
                                const json_t *value) {
    static const char *const text[] = {"text", NULL};
    bool ok = is_named(json_object_get(value, "type"), text);
    return ok ? 0 : openai_field_unsupported(r, f);
}

static json_t *schema_response_format(const struct openai_field *f,
                                      const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s], s:{s:{s:s}}, s:[s], s:b}", "type", "object", "null", "properties",
                     "type", "const", "text", "required", "type", "x-moesaic-refused", 1);
}

static int read_modalities(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value) {
    static const char *const text[] = {"text", NULL};
    bool ok = json_array_size(value) == 1 && is_named(json_array_get(value, 0), text);
    return ok ? 0 : openai_field_unsupported(r, f);
}

static json_t *schema_modalities(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[[s], n], s:b}", "enum", "text", "x-moesaic-refused", 1);
}

// --- no effect

static int read_idle(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    (void)r, (void)f, (void)value;
    return 0;
}

static json_t *schema_idle(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:s, s:b}", "$ref", "#/components/schemas/Anything", "x-moesaic-idle", 1);
}

// --- the table

#define REFUSED(name, where, neutral)                                                              \
    {                                                                                              \
        name, where, read_refused, schema_refused, 0, 0, 0, neutral,                               \
            "Not supported: only values that ask for nothing are accepted."                        \
    }
#define ONLY(name, where, kind, about)                                                             \
    { name, where, read_##kind, schema_##kind, 0, 0, 0, NEUTRAL_NONE, about }
#define IDLE(name, where, about)                                                                   \
    { name, where, read_idle, schema_idle, 0, 0, 0, NEUTRAL_NONE, about }

static const struct openai_field fields[] = {
    ONLY("response_format", BOTH, response_format, "Only text."),
    ONLY("modalities", CHAT, modalities, "Only text."),
    REFUSED("length_penalty", BOTH, NEUTRAL_ONE),
    REFUSED("best_of", BOTH, NEUTRAL_ONE),
    REFUSED("use_beam_search", BOTH, NEUTRAL_FALSE),
    REFUSED("suffix", COMPLETION, NEUTRAL_EMPTY),
    REFUSED("echo", CHAT, NEUTRAL_FALSE),
    REFUSED("functions", CHAT, NEUTRAL_EMPTY),
    REFUSED("function_call", CHAT, NEUTRAL_NONE),
    REFUSED("audio", CHAT, NEUTRAL_NONE),
    REFUSED("web_search_options", CHAT, NEUTRAL_NONE),
    REFUSED("moderation", CHAT, NEUTRAL_NONE),
    REFUSED("verbosity", CHAT, NEUTRAL_NONE),
    REFUSED("reasoning_effort", CHAT, NEUTRAL_NONE),
    REFUSED("thinking_token_budget", BOTH, NEUTRAL_NONE),
    REFUSED("logits_processors", BOTH, NEUTRAL_EMPTY),
    REFUSED("structured_outputs", BOTH, NEUTRAL_NONE),
    REFUSED("structural_tag", BOTH, NEUTRAL_NONE),
    REFUSED("guided_json", BOTH, NEUTRAL_NONE),
    REFUSED("guided_regex", BOTH, NEUTRAL_NONE),
    REFUSED("guided_choice", BOTH, NEUTRAL_NONE),
    REFUSED("guided_grammar", BOTH, NEUTRAL_NONE),
    REFUSED("grammar", BOTH, NEUTRAL_NONE),
    REFUSED("json_schema", BOTH, NEUTRAL_NONE),
    REFUSED("chat_template", MESSAGES, NEUTRAL_NONE),
    REFUSED("prompt_embeds", COMPLETION, NEUTRAL_NONE),
    REFUSED("mm_processor_kwargs", MESSAGES, NEUTRAL_EMPTY),
    REFUSED("kv_transfer_params", BOTH, NEUTRAL_NONE),

    IDLE("user", BOTH, "Accepted; who asks is known by the key."),
    IDLE("metadata", CHAT, "Accepted; nothing is stored."),
    IDLE("store", CHAT, "Accepted; nothing is stored."),
    IDLE("service_tier", CHAT, "Accepted; there is one tier."),
    IDLE("safety_identifier", CHAT, "Accepted; nothing is moderated."),
    IDLE("prediction", CHAT, "Accepted; a prediction changes no answer."),
    IDLE("prompt_cache_key", CHAT, "Accepted; there is no prompt cache."),
    IDLE("prompt_cache_options", CHAT, "Accepted; there is no prompt cache."),
    IDLE("prompt_cache_retention", CHAT, "Accepted; there is no prompt cache."),
};

const struct openai_field_table openai_fields_refused = {fields, sizeof fields / sizeof *fields};
