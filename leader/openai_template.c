// openai_template.c: chat_template_kwargs: variables of a client's own for the model's template.
#include <string.h>

#include "leader/openai_fields.h"

// What the server itself gives to the template, or would have to act on.
static bool is_ours(const char *name) {
    static const char *const names[] = {"messages",     "tools",
                                        "documents",    "add_generation_prompt",
                                        "tokenize",     "continue_final_message",
                                        "chat_template"};
    static const char trusted[] = "_token"; // chat.h: special tokens count in these
    size_t n = strlen(name), n_trusted = sizeof trusted - 1;
    if (n >= n_trusted && strcmp(name + n - n_trusted, trusted) == 0) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
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
