// openai_tools.c: tools, tool_choice and documents: checked one by one and cleaned for the model's
// template.
//
// A template prints tools as JSON, so the order of their keys is part of the prompt: type, then
// function with name, description and parameters, as vLLM writes them, then what else the function
// has, as it came. What is null or not given is left away, as in a list that is handed to
// transformers.
#include <stdio.h>
#include <string.h>

#include "leader/openai_fields.h"

#define NAME_BYTES_MAX 64

struct tool {
    const json_t *given;
    size_t index;
    struct api_error *error;
};

static int no_memory(struct api_error *e) {
    return api_error_set(e, 500, NULL, "memory is out.");
}

static int wrong(const struct tool *t, const char *field, const char *must) {
    char param[64];
    snprintf(param, sizeof param, "tools[%zu]%s", t->index, field);
    return api_error_set(t->error, 400, param, "'%s' must be %s.", param, must);
}

static json_t *member(const json_t *object, const char *name) {
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

// OpenAI's pattern.
static bool is_name(const json_t *value) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *name = json_string_value(value);
    size_t n = json_string_length(value);
    return name != NULL && n > 0 && n <= NAME_BYTES_MAX && strspn(name, letters) == n;
}

json_t *openai_tool_schema(void) {
    char pattern[32];
    snprintf(pattern, sizeof pattern, "^[a-zA-Z0-9_-]{1,%d}$", NAME_BYTES_MAX);
    json_t *parts =
        json_pack("{s:{s:s, s:s}, s:{s:[s, s]}, s:{s:[s, s], s:o}}", "name", "type", "string",
                  "pattern", pattern, "description", "type", "string", "null", "parameters", "type",
                  "object", "null", "additionalProperties", openapi_ref("Anything"));
    return json_pack("{s:s, s:[s], s:{s:{s:[s, n]}, s:{s:s, s:[s], s:o, s:o}}, s:o}", "type",
                     "object", "required", "function", "properties", "type", "enum", "function",
                     "function", "type", "object", "required", "name", "properties", parts,
                     "additionalProperties", openapi_ref("Anything"), "additionalProperties",
                     openapi_ref("Anything"));
}

static int check_tool(const struct tool *t) {
    const json_t *type = member(t->given, "type"), *function = member(t->given, "function");
    const json_t *description = member(function, "description");
    const json_t *parameters = member(function, "parameters");
    if (!json_is_object(t->given)) return wrong(t, "", "an object");
    if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return wrong(t, ".type", "function");
    if (!json_is_object(function)) return wrong(t, ".function", "an object");
    if (!is_name(member(function, "name")))
        return wrong(t, ".function.name", "1 to 64 letters, digits, underscores and dashes");
    if (description != NULL && !json_is_string(description))
        return wrong(t, ".function.description", "a string");
    if (parameters != NULL && !json_is_object(parameters))
        return wrong(t, ".function.parameters", "an object, a JSON schema");
    return 0;
}

static int clean_function(json_t *out, const json_t *given) {
    static const char *const first[] = {"name", "description", "parameters"};
    const char *key;
    json_t *value;
    int rc = 0;
    for (size_t i = 0; i < sizeof first / sizeof *first && rc == 0; i++) {
        value = member(given, first[i]);
        if (value != NULL) rc = json_object_set(out, first[i], value);
    }
    json_object_foreach((json_t *)given, key, value) {
        if (rc == 0 && !json_is_null(value)) rc = json_object_set(out, key, value);
    }
    return rc;
}

static int add_tool(const struct tool *t, json_t *list) {
    json_t *function = json_object();
    json_t *clean = json_object();
    int rc = clean_function(function, member(t->given, "function"));
    rc |= json_object_set_new(clean, "type", json_string("function"));
    rc |= json_object_set_new(clean, "function", function);
    rc |= json_array_append_new(list, clean);
    return rc == 0 ? 0 : no_memory(t->error);
}

int openai_read_tools(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    size_t n = json_array_size(value);
    if (!json_is_array(value)) return openai_field_wrong(r, f, "a list of tools");
    if (n == 0) return 0;
    if (n > TOOLS_MAX)
        return api_error_set(r->error, 400, f->name, "'%s' may have at most %d tools.", f->name,
                             TOOLS_MAX);
    if (json_dumpb(value, NULL, 0, 0) > TOOLS_BYTES_MAX)
        return api_error_set(r->error, 400, f->name, "'%s' may have at most %u bytes.", f->name,
                             TOOLS_BYTES_MAX);
    json_t *list = r->request->tools = json_array();
    int rc = list == NULL ? no_memory(r->error) : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct tool t = {json_array_get(value, i), i, r->error};
        rc = check_tool(&t);
        if (rc == 0) rc = add_tool(&t, list);
    }
    return rc;
}

json_t *openai_schema_tools(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s], s:o, s:i}", "type", "array", "null", "items", openapi_ref("Tool"),
                     "maxItems", TOOLS_MAX);
}

// --- tool_choice

static int forced(struct openai_reader *r, const struct openai_field *f) {
    int rc = api_error_set(r->error, 400, f->name,
                           "'%s' may be \"none\" or \"auto\": a call that must happen needs output "
                           "bound to a grammar, which this server does not have.",
                           f->name);
    return api_error_code(r->error, rc, "unsupported_parameter");
}

int openai_read_tool_choice(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value) {
    const char *word = json_string_value(value);
    r->has_tool_choice = true;
    if (json_is_object(value) || (word != NULL && strcmp(word, "required") == 0))
        return forced(r, f);
    r->calls_tools = word != NULL && strcmp(word, "auto") == 0;
    if (r->calls_tools || (word != NULL && strcmp(word, "none") == 0)) return 0;
    return openai_field_wrong(r, f, "\"none\" or \"auto\"");
}

json_t *openai_schema_tool_choice(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s, n]}", "enum", "none", "auto");
}

static void forget_tools(struct openai_request *q) {
    json_decref(q->tools);
    q->tools = NULL;
}

int openai_tools_check(struct openai_reader *r) {
    struct openai_request *q = r->request;
    if (q->tools == NULL || r->where == TOKENIZE) return 0;
    if (r->has_tool_choice && !r->calls_tools) {
        if (r->defaults->hides_unused_tools) forget_tools(q);
        return 0;
    }
    q->tool_format = r->defaults->tool_format;
    if (q->tool_format != NULL) {
        q->skip_special_tokens = false; // the marks of calls are some
        return 0;
    }
    int rc = api_error_set(r->error, 400, "tool_choice",
                           "\"auto\" tool choice, also by no word about it, requires "
                           "--enable-auto-tool-choice and --tool-call-parser to be set; with "
                           "\"none\" the model sees the tools and answers with text.");
    return api_error_code(r->error, rc, "unsupported_parameter");
}

json_t *openai_tools_rule(void) {
    return json_pack("{s:{s:[s], s:{s:{s:s, s:i}}}, s:{s:[s], s:{s:{s:s}}}}", "if", "required",
                     "tools", "properties", "tools", "type", "array", "minItems", 1, "then",
                     "required", "tool_choice", "properties", "tool_choice", "const", "none");
}

// --- documents

json_t *openai_schema_documents(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s], s:{s:s, s:{s:s}}, s:i}", "type", "array", "null", "items", "type",
                     "object", "additionalProperties", "type", "string", "maxItems", DOCUMENTS_MAX);
}

int openai_read_documents(struct openai_reader *r, const struct openai_field *f,
                          const json_t *value) {
    const char *must = "a list of objects whose values are strings";
    const char *key;
    json_t *text;
    if (!json_is_array(value)) return openai_field_wrong(r, f, must);
    if (json_array_size(value) > DOCUMENTS_MAX)
        return api_error_set(r->error, 400, f->name, "'%s' may have at most %d documents.", f->name,
                             DOCUMENTS_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *one = json_array_get(value, i);
        if (!json_is_object(one)) return openai_field_wrong(r, f, must);
        json_object_foreach(one, key, text) {
            if (!json_is_string(text)) return openai_field_wrong(r, f, must);
        }
    }
    r->request->documents = (json_t *)value;
    return 0;
}
