// openai_template.c: chat_template_kwargs: variables of a client's own for the model's template.
#include <stdio.h>
#include <string.h>

#include "leader/openai_fields.h"

// What the server itself gives to the template, or would have to act on.
static const char *const our_names[] = {"messages",     "tools",
                                        "documents",    "add_generation_prompt",
                                        "tokenize",     "continue_final_message",
                                        "chat_template"};
static const char trusted_end[] = "_token"; // chat.h: special tokens count in these

static bool is_ours(const char *name) {
    size_t n = strlen(name), n_end = sizeof trusted_end - 1;
    if (n >= n_end && strcmp(name + n - n_end, trusted_end) == 0) return true;
    for (size_t i = 0; i < sizeof our_names / sizeof *our_names; i++) {
        if (strcmp(name, our_names[i]) == 0) return true;
    }
    return false;
}

json_t *openai_schema_template_kwargs(const struct openai_field *f,
                                      const struct openai_form *form) {
    (void)f, (void)form;
    json_t *ours = json_array();
    char pattern[sizeof trusted_end + 1];
    snprintf(pattern, sizeof pattern, "%s$", trusted_end);
    for (size_t i = 0; i < sizeof our_names / sizeof *our_names; i++) {
        if (json_array_append_new(ours, json_string(our_names[i])) == 0) continue;
        json_decref(ours);
        return NULL;
    }
    return json_pack("{s:[s, s], s:{s:{s:[{s:o}, {s:s}]}}, s:i, s:o}", "type", "object", "null",
                     "propertyNames", "not", "anyOf", "enum", ours, "pattern", pattern,
                     "maxProperties", TEMPLATE_KWARGS_MAX, "additionalProperties",
                     openapi_ref("Anything"));
}

int openai_read_template_kwargs(struct openai_reader *r, const struct openai_field *f,
                                const json_t *value) {
    const char *name;
    json_t *variable;
    if (!json_is_object(value)) return openai_field_wrong(r, f, "an object");
    if (json_object_size(value) > TEMPLATE_KWARGS_MAX)
        return api_error_set(r->error, 400, f->name, "'%s' may have at most %d names.", f->name,
                             TEMPLATE_KWARGS_MAX);
    json_object_foreach((json_t *)value, name, variable) {
        if (is_ours(name))
            return api_error_set(r->error, 400, f->name, "'%s' must not set '%.64s'.", f->name,
                                 name);
    }
    r->request->template_kwargs = (json_t *)value;
    return 0;
}
