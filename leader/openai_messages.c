// openai_messages.c: a chat's messages, checked one by one and cleaned for the model's template:
// only keys that are known, none that is null, tool calls with their arguments as objects.
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/limits.h"
#include "leader/openai_fields.h"

struct message {
    const json_t *given;
    size_t index;
    const char *role;
    bool knows_developer;
    json_t *clean;                // owned by the request's list
    struct openai_counts *counts; // the request's
    struct api_error *error;
};

static int no_memory(struct api_error *e) {
    return api_error_set(e, 500, NULL, "memory is out.");
}

static int wrong(const struct message *m, const char *field, const char *must) {
    char param[96];
    snprintf(param, sizeof param, "messages[%zu].%s", m->index, field);
    return api_error_set(m->error, 400, param, "'%s' must be %s.", param, must);
}

// NULL for a key that is null, too.
static json_t *member(const json_t *object, const char *name) {
    json_t *value = json_object_get(object, name);
    return json_is_null(value) ? NULL : value;
}

static bool is_role(const struct message *m, const char *role) {
    return strcmp(m->role, role) == 0;
}

static int keep(const struct message *m, const char *name, json_t *value) {
    return json_object_set(m->clean, name, value) == 0 ? 0 : no_memory(m->error);
}

static int keep_string(const struct message *m, const char *name) {
    json_t *value = member(m->given, name);
    if (value == NULL) return 0;
    return json_is_string(value) ? keep(m, name, value) : wrong(m, name, "a string");
}

// --- content

static int part_error(struct api_error *e, size_t message, size_t part) {
    char param[64];
    snprintf(param, sizeof param, "messages[%zu].content[%zu]", message, part);
    return api_error_set(e, 400, param, "'%s' must be a text part; other kinds are not supported.",
                         param);
}

// Text parts are joined by line ends.
static int join_parts(const json_t *parts, size_t message, json_t **out, struct api_error *e) {
    struct buf text;
    buf_init(&text, 0);
    int rc = 0;
    for (size_t i = 0; i < json_array_size(parts) && rc == 0; i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *value = json_object_get(part, "text");
        if (type == NULL || strcmp(type, "text") != 0 || !json_is_string(value)) {
            rc = part_error(e, message, i);
            break;
        }
        if (i != 0) buf_text(&text, "\n");
        buf_add(&text, json_string_value(value), json_string_length(value));
    }
    if (rc == 0) *out = json_stringn(text.bytes == 0 ? "" : text.data, text.bytes);
    if (rc == 0 && (text.failed || *out == NULL))
        rc = api_error_set(e, 500, NULL, "memory is out.");
    buf_finish(&text);
    return rc;
}

static int read_parts(const json_t *parts, size_t message, json_t **out, struct api_error *e) {
    char param[64];
    if (json_array_size(parts) <= CONTENT_PARTS_MAX) return join_parts(parts, message, out, e);
    snprintf(param, sizeof param, "messages[%zu].content", message);
    return api_error_set(e, 400, param, "'%s' may have at most %d parts.", param,
                         CONTENT_PARTS_MAX);
}

// A message that only calls tools has none. Templates add up texts, so it gets an empty one, as in
// vLLM.
static bool may_be_silent(const struct message *m) {
    return is_role(m, "assistant") && json_array_size(member(m->given, "tool_calls")) != 0;
}

static int read_content(const struct message *m) {
    json_t *content = member(m->given, "content");
    json_t *joined = NULL;
    if (content == NULL && may_be_silent(m)) {
        int rc = json_object_set_new(m->clean, "content", json_string(""));
        return rc == 0 ? 0 : no_memory(m->error);
    }
    if (json_is_string(content)) return keep(m, "content", content);
    if (!json_is_array(content)) return wrong(m, "content", "a string or a list of text parts");
    int rc = read_parts(content, m->index, &joined, m->error);
    if (rc == 0) rc = keep(m, "content", joined);
    json_decref(joined);
    return rc;
}

// --- tool calls

struct call {
    const struct message *message;
    const json_t *given;
    size_t index;
};

static int call_wrong(const struct call *c, const char *field, const char *must) {
    char name[64];
    snprintf(name, sizeof name, "tool_calls[%zu]%s", c->index, field);
    return wrong(c->message, name, must);
}

// Clients send what the model wrote, a text; templates want what it means.
static int read_arguments(const struct call *c, json_t **out) {
    json_t *arguments = member(member(c->given, "function"), "arguments");
    struct openai_body text = {.text = json_string_value(arguments),
                               .bytes = json_string_length(arguments)};
    struct api_error cause;
    *out = NULL;
    if (json_is_object(arguments)) *out = json_incref(arguments);
    if (arguments == NULL || (json_is_string(arguments) && text.bytes == 0)) *out = json_object();
    if (*out != NULL) return 0;
    if (json_is_string(arguments) && openai_load_body(out, &text, c->message->counts, &cause) == 0)
        return 0;
    return call_wrong(c, ".function.arguments", "an object or its JSON text, of bounded size");
}

static int read_call(const struct call *c, json_t *list) {
    json_t *function = member(c->given, "function");
    json_t *name = member(function, "name"), *id = member(c->given, "id"), *arguments;
    const char *type = json_string_value(member(c->given, "type"));
    if (member(c->given, "type") != NULL && (type == NULL || strcmp(type, "function") != 0))
        return call_wrong(c, ".type", "function");
    if (!json_is_object(function)) return call_wrong(c, ".function", "an object");
    if (!json_is_string(name)) return call_wrong(c, ".function.name", "a string");
    if (id != NULL && !json_is_string(id)) return call_wrong(c, ".id", "a string");
    int rc = read_arguments(c, &arguments);
    if (rc != 0) return rc;
    json_t *clean = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name", name,
                              "arguments", arguments);
    if (id != NULL) rc = json_object_set(clean, "id", id);
    rc |= json_array_append_new(list, clean);
    return rc == 0 ? 0 : no_memory(c->message->error);
}

static int read_calls(const struct message *m) {
    const json_t *calls = member(m->given, "tool_calls");
    size_t n = json_array_size(calls);
    if (calls == NULL || (json_is_array(calls) && n == 0)) return 0;
    if (!json_is_array(calls) || n > TOOL_CALLS_MAX || !is_role(m, "assistant"))
        return wrong(m, "tool_calls", "a list of at most 128 calls, of an assistant");
    json_t *list = json_array();
    int rc = keep(m, "tool_calls", list);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct call call = {m, json_array_get(calls, i), i};
        rc = read_call(&call, list);
    }
    json_decref(list);
    return rc;
}

// --- the rest of a message

// One thought has two names; templates read either.
static int read_reasoning(const struct message *m) {
    static const char *const names[] = {"reasoning_content", "reasoning"};
    if (!is_role(m, "assistant")) return 0;
    for (size_t i = 0; i < 2; i++) {
        json_t *value = member(m->given, names[i]);
        if (value == NULL) continue;
        if (!json_is_string(value)) return wrong(m, names[i], "a string");
        int rc = keep(m, names[0], value);
        return rc == 0 ? keep(m, names[1], value) : rc;
    }
    return 0;
}

// What is not empty would be lost on the way to the template.
static int refuse_others(const struct message *m) {
    static const char *const names[] = {"function_call", "audio", "refusal"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const json_t *value = member(m->given, names[k]);
        if (value == NULL || (json_is_array(value) && json_array_size(value) == 0)) continue;
        char param[64];
        snprintf(param, sizeof param, "messages[%zu].%s", m->index, names[k]);
        return api_error_code(m->error,
                              api_error_set(m->error, 400, param, "'%s' is not supported.", param),
                              "unsupported_parameter");
    }
    return 0;
}

// developer is OpenAI's newer word for system; many templates know only the older one and would
// drop such a message without a word.
static const char *role_for_template(const struct message *m, const char *role) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    if (role == NULL) return NULL;
    if (strcmp(role, "developer") == 0) return m->knows_developer ? "developer" : "system";
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(role, roles[i]) == 0) return roles[i];
    }
    return NULL;
}

static int read_message(struct message *m, json_t *list) {
    m->role = role_for_template(m, json_string_value(json_object_get(m->given, "role")));
    if (m->role == NULL) return wrong(m, "role", "system, developer, user, assistant or tool");
    m->clean = json_object();
    int rc = json_object_set_new(m->clean, "role", json_string(m->role));
    rc |= json_array_append_new(list, m->clean);
    if (rc != 0) return no_memory(m->error);
    rc = refuse_others(m);
    if (rc == 0) rc = read_reasoning(m);
    if (rc == 0) rc = read_content(m);
    if (rc == 0) rc = read_calls(m);
    if (rc == 0) rc = keep_string(m, "name");
    if (rc == 0 && is_role(m, "tool")) rc = keep_string(m, "tool_call_id");
    return rc;
}

int openai_messages(struct openai_request *r, const json_t *messages, struct api_error *e) {
    size_t n = json_array_size(messages); // 0 when it is no array
    if (n == 0 && json_is_array(messages))
        return api_error_set(e, 400, "messages", "'messages' is an empty list.");
    if (n == 0) return api_error_set(e, 400, "messages", "'messages' must be a list of messages.");
    if (n > MESSAGES_MAX)
        return api_error_set(e, 400, "messages", "'messages' may have at most %d messages.",
                             MESSAGES_MAX);
    r->messages = json_array();
    r->n_prompts = 1;
    if (r->messages == NULL) return no_memory(e);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct message m = {.given = json_array_get(messages, i),
                            .index = i,
                            .knows_developer = r->knows_developer,
                            .counts = &r->counts,
                            .error = e};
        rc = read_message(&m, r->messages);
    }
    return rc;
}
