// openapi_requests.c: the bodies of requests as JSON Schema: the fields of the tables, and the
// prompts and messages beside them, which openai.c, openai_messages.c and openai_tokens.c read.
#include "leader/openai_fields.h"

// What is not named here may be there, and has no effect.
static json_t *open_object(json_t *schema) {
    if (json_object_set_new(schema, "additionalProperties", openapi_ref("Anything")) == 0)
        return schema;
    json_decref(schema);
    return NULL;
}

// All that is JSON here.
static json_t *anything(void) {
    return json_pack("{s:[{s:[s, s, s]}, {s:s, s:I, s:I}, {s:s}, {s:s, s:o}, {s:s, s:o}], s:s}",
                     "anyOf", "type", "null", "boolean", "string", "type", "integer", "minimum",
                     (json_int_t)INT64_MIN, "maximum", (json_int_t)INT64_MAX, "type", "number",
                     "type", "array", "items", openapi_ref("Anything"), "type", "object",
                     "additionalProperties", openapi_ref("Anything"), "description",
                     "Any value; integers have 64 bits.");
}

static json_t *or_null(const char *type) {
    return json_pack("{s:[s, s]}", "type", type, "null");
}

// --- prompts

static json_t *text_prompt(void) {
    return json_pack("{s:s, s:i, s:s}", "type", "string", "minLength", 1, "description",
                     "Special tokens in it count, as it is the caller's as a whole.");
}

static json_t *id_prompt(const struct openapi_facts *facts) {
    return json_pack("{s:s, s:o, s:i}", "type", "array", "items", openapi_token_id(facts),
                     "minItems", 1);
}

static json_t *list_of(json_t *items, const struct openapi_facts *facts) {
    uint32_t max = PROMPTS_MAX;
    if (facts->choices_max != 0 && facts->choices_max < max) max = facts->choices_max;
    return json_pack("{s:s, s:o, s:i, s:I}", "type", "array", "items", items, "minItems", 1,
                     "maxItems", (json_int_t)max);
}

static json_t *prompt(const struct openapi_facts *facts) {
    return json_pack("{s:[o, o, o, o], s:s}", "anyOf", text_prompt(), list_of(text_prompt(), facts),
                     id_prompt(facts), list_of(id_prompt(facts), facts), "description",
                     "A text, a list of texts, a list of token ids, or a list of such lists.");
}

// --- messages

static json_t *content(void) {
    return json_pack("{s:[{s:s}, {s:s, s:o, s:i}], s:s}", "anyOf", "type", "string", "type",
                     "array", "items", openapi_ref("TextPart"), "maxItems", CONTENT_PARTS_MAX,
                     "description", "A text, or parts, which are joined by line ends.");
}

static json_t *text_part(void) {
    return open_object(json_pack("{s:s, s:{s:{s:s}, s:{s:s}}, s:[s, s]}", "type", "object",
                                 "properties", "type", "const", "text", "text", "type", "string",
                                 "required", "type", "text"));
}

static json_t *no_value(void) {
    return json_pack("{s:[n, []], s:b}", "enum", "x-moesaic-refused", 1);
}

static json_t *roles(const char *one, const char *other) {
    return json_pack("{s:[s, s*]}", "enum", one, other);
}

// What messages of every role may have. calls is null where they may have no tool calls.
static json_t *message(json_t *role, json_t *calls) {
    return open_object(json_pack("{s:s, s:[s], s:{s:o, s:o, s:o, s:o, s:o, s:o, s:o}}", "type",
                                 "object", "required", "role", "properties", "role", role,
                                 "content", openapi_ref("Content"), "name", or_null("string"),
                                 "tool_calls", calls, "function_call", no_value(), "audio",
                                 no_value(), "refusal", no_value()));
}

static json_t *require(json_t *schema, const char *name) {
    if (json_array_append_new(json_object_get(schema, "required"), json_string(name)) == 0)
        return schema;
    json_decref(schema);
    return NULL;
}

static json_t *with(json_t *schema, const char *name, json_t *value) {
    if (json_object_set_new(json_object_get(schema, "properties"), name, value) == 0) return schema;
    json_decref(schema);
    return NULL;
}

static json_t *plain_message(const char *role, const char *other) {
    return require(message(roles(role, other), no_value()), "content");
}

static json_t *tool_message(void) {
    return with(plain_message("tool", NULL), "tool_call_id", or_null("string"));
}

// It may be silent when it calls tools.
static json_t *assistant_message(void) {
    json_t *calls = json_pack("{s:[s, s], s:o, s:i}", "type", "array", "null", "items",
                              openapi_ref("ToolCall"), "maxItems", TOOL_CALLS_MAX);
    json_t *m = message(roles("assistant", NULL), calls);
    json_t *either =
        json_pack("[{s:[s], s:{s:o}}, {s:[s], s:{s:{s:s, s:i}}}]", "required", "content",
                  "properties", "content", openapi_ref("Content"), "required", "tool_calls",
                  "properties", "tool_calls", "type", "array", "minItems", 1);
    m = with(m, "content", openai_schema_or_null(openapi_ref("Content")));
    m = with(with(m, "reasoning_content", or_null("string")), "reasoning", or_null("string"));
    if (json_object_set_new(m, "anyOf", either) == 0) return m;
    json_decref(m);
    return NULL;
}

// Clients send what the model wrote: the text of an object.
static json_t *tool_call(void) {
    json_t *arguments =
        json_pack("{s:[{s:s, s:s, s:{s:s}, s:s}, {s:[s, s]}], s:s}", "anyOf", "type", "string",
                  "contentMediaType", "application/json", "contentSchema", "type", "object",
                  "format", "json-object", "type", "object", "null", "description",
                  "The JSON text of an object, or the object itself.");
    json_t *function =
        json_pack("{s:s, s:[s], s:{s:{s:s}, s:o}}", "type", "object", "required", "name",
                  "properties", "name", "type", "string", "arguments", arguments);
    return open_object(json_pack("{s:s, s:[s], s:{s:o, s:{s:[s, n]}, s:o}}", "type", "object",
                                 "required", "function", "properties", "id", or_null("string"),
                                 "type", "enum", "function", "function", open_object(function)));
}

static json_t *any_message(void) {
    return json_pack("{s:[o, o, o, o]}", "anyOf", openapi_ref("InstructionMessage"),
                     openapi_ref("UserMessage"), openapi_ref("AssistantMessage"),
                     openapi_ref("ToolMessage"));
}

static json_t *messages(void) {
    return json_pack("{s:s, s:o, s:i, s:i}", "type", "array", "items", openapi_ref("Message"),
                     "minItems", 1, "maxItems", MESSAGES_MAX);
}

// --- bodies

// A body whose prompt has this name; other names a prompt that it must not have then.
static json_t *body(const struct openai_form *form, const char *name, json_t *prompt,
                    const char *other) {
    json_t *properties = json_object();
    int rc = json_object_set_new(properties, name, prompt);
    if (other != NULL)
        rc |= json_object_set_new(properties, other, json_pack("{s:s}", "type", "null"));
    json_t *fields = openai_schema_fields(form);
    if (rc != 0 || json_object_update(properties, fields) != 0) {
        json_decref(properties);
        properties = NULL;
    }
    json_decref(fields);
    json_t *out = open_object(json_pack("{s:s, s:[s], s:o}", "type", "object", "required", name,
                                        "properties", properties));
    json_t *rules = openai_schema_rules(form);
    if (json_array_size(rules) == 0)
        json_decref(rules);
    else
        json_object_set_new(out, "allOf", rules);
    return out;
}

static json_t *detokenize_body(const struct openapi_facts *facts) {
    const struct openai_form form = {DETOKENIZE, false, facts};
    json_t *ids = json_pack("{s:s, s:o}", "type", "array", "items", openapi_token_id(facts));
    if (facts->max_model_len != 0)
        json_object_set_new(ids, "maxItems", json_integer(facts->max_model_len));
    return body(&form, "tokens", ids, NULL);
}

static int add_bodies(json_t *out, const struct openapi_facts *facts) {
    const struct openai_form chat = {CHAT, true, facts}, completion = {COMPLETION, false, facts};
    const struct openai_form chat_ids = {TOKENIZE, true, facts}, ids = {TOKENIZE, false, facts};
    json_t *text = json_pack("{s:s}", "type", "string");
    json_t *either = json_pack("{s:[o, o]}", "anyOf", openapi_ref("TokenizeText"),
                               openapi_ref("TokenizeMessages"));
    int rc = json_object_set_new(out, "ChatRequest", body(&chat, "messages", messages(), NULL));
    rc |= json_object_set_new(out, "CompletionRequest",
                              body(&completion, "prompt", prompt(facts), NULL));
    rc |= json_object_set_new(out, "TokenizeRequest", either);
    rc |= json_object_set_new(out, "TokenizeText", body(&ids, "prompt", text, "messages"));
    rc |= json_object_set_new(out, "TokenizeMessages",
                              body(&chat_ids, "messages", messages(), "prompt"));
    rc |= json_object_set_new(out, "DetokenizeRequest", detokenize_body(facts));
    return rc;
}

static int add_parts(json_t *out) {
    int rc = json_object_set_new(out, "Message", any_message());
    rc |= json_object_set_new(out, "InstructionMessage", plain_message("system", "developer"));
    rc |= json_object_set_new(out, "UserMessage", plain_message("user", NULL));
    rc |= json_object_set_new(out, "AssistantMessage", assistant_message());
    rc |= json_object_set_new(out, "ToolMessage", tool_message());
    rc |= json_object_set_new(out, "ToolCall", tool_call());
    rc |= json_object_set_new(out, "Content", content());
    rc |= json_object_set_new(out, "TextPart", text_part());
    rc |= json_object_set_new(out, "Tool", openai_tool_schema());
    rc |= json_object_set_new(out, "Anything", anything());
    return rc;
}

json_t *openapi_requests(const struct openapi_facts *facts) {
    json_t *out = json_object();
    if (out != NULL && (add_bodies(out, facts) | add_parts(out)) == 0) return out;
    json_decref(out);
    return NULL;
}
