// tool_formats.c: how the families write tool calls: JSON objects in a row, JSON between marks, or
// tags with plain values. Each reader takes a body as a whole or not at all.
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "leader/openai_fields.h"
#include "leader/tool_calls.h"

#define NAME_BYTES_MAX 256

// What of a body is left to read.
struct rest {
    const char *at, *end;
};

static struct rest rest_of(const struct tool_body *body) {
    return (struct rest){body->text, body->text + body->bytes};
}

static size_t left(const struct rest *r) {
    return (size_t)(r->end - r->at);
}

static void skip_spaces(struct rest *r) {
    while (r->at < r->end && (*r->at == ' ' || (*r->at >= '\t' && *r->at <= '\r')))
        r->at++;
}

// Past the mark, when it stands here.
static bool take(struct rest *r, const char *mark) {
    size_t n = strlen(mark);
    if (left(r) < n || memcmp(r->at, mark, n) != 0) return false;
    r->at += n;
    return true;
}

static bool ends(struct rest *r) {
    skip_spaces(r);
    return r->at == r->end;
}

// What stands before the next mark, and past it; false when there is none.
static bool take_until(struct rest *r, const char *mark, struct rest *out) {
    const char *at = left(r) == 0 ? NULL : memmem(r->at, left(r), mark, strlen(mark));
    if (at == NULL) return false;
    *out = (struct rest){r->at, at};
    r->at = at + strlen(mark);
    return true;
}

static void trim(struct rest *r) {
    skip_spaces(r);
    while (r->end > r->at && (r->end[-1] == ' ' || (r->end[-1] >= '\t' && r->end[-1] <= '\r')))
        r->end--;
}

// Where the JSON value ends that begins here with a bracket: by the brackets alone, what is inside
// is read afterwards. Past it; false when it does not end.
static bool take_bracketed(struct rest *r, struct rest *out) {
    uint32_t depth = 0;
    bool in_string = false;
    out->at = r->at;
    for (const char *p = r->at; p < r->end; p++) {
        if (in_string && *p == '\\') {
            p++;
            continue;
        }
        if (*p == '"') in_string = !in_string;
        if (in_string) continue;
        if (*p == '{' || *p == '[') depth++;
        if (*p == '}' || *p == ']') depth--;
        if (depth != 0) continue;
        r->at = out->end = p + 1;
        return *out->at == '{' || *out->at == '[';
    }
    return false;
}

// --- calls

static json_t *load(const struct rest *r, bool any) {
    struct openai_body text = {.any = any, .text = r->at, .bytes = left(r)};
    struct openai_counts counts = {0};
    struct api_error cause;
    json_t *value = NULL;
    return left(r) != 0 && openai_load_body(&value, &text, &counts, &cause) == 0 ? value : NULL;
}

static bool is_name(const struct rest *name) {
    for (const char *p = name->at; p < name->end; p++) {
        if ((unsigned char)*p <= ' ') return false;
    }
    return left(name) != 0 && left(name) <= NAME_BYTES_MAX;
}

// arguments is checked JSON.
static bool add_call(const struct tool_body *body, const struct rest *name,
                     const struct rest *arguments, const struct rest *id) {
    if (!is_name(name)) return false;
    json_t *call = json_object();
    int rc = json_object_set_new(call, "name", json_stringn(name->at, left(name)));
    rc |= json_object_set_new(call, "arguments", json_stringn(arguments->at, left(arguments)));
    if (id != NULL) rc |= json_object_set_new(call, "id", json_stringn(id->at, left(id)));
    rc |= json_array_append_new(body->calls, call);
    return rc == 0;
}

static void skip_string(struct rest *r) {
    for (r->at++; *r->at != '"'; r->at++)
        r->at += *r->at == '\\';
    r->at++;
}

static void skip_value(struct rest *r) {
    struct rest value;
    if (*r->at == '"') skip_string(r);
    if (*r->at == '{' || *r->at == '[') take_bracketed(r, &value);
    while (r->at < r->end && *r->at != ',')
        r->at++;
}

// The text of an object's member, a list or an object, as the model wrote it: numbers and spaces
// stay as they are. The object is checked JSON, so nothing of it is missing.
static bool find_member(struct rest object, const char *name, struct rest *out) {
    object.at++;
    while (skip_spaces(&object), left(&object) > 0 && *object.at == '"') {
        const char *key = object.at + 1;
        skip_string(&object);
        size_t n = (size_t)(object.at - key) - 1;
        skip_spaces(&object);
        take(&object, ":");
        skip_spaces(&object);
        if (n == strlen(name) && memcmp(key, name, n) == 0) return take_bracketed(&object, out);
        skip_value(&object);
        take(&object, ",");
    }
    return false;
}

static bool add_object(const struct tool_body *body, const struct rest *text) {
    static const char none[] = "{}";
    struct rest arguments = {none, none + 2};
    json_t *call = load(text, false);
    const json_t *name = json_object_get(call, "name");
    const char *key = json_object_get(call, "arguments") != NULL ? "arguments" : "parameters";
    const json_t *given = json_object_get(call, key);
    bool ok = json_is_string(name) && (given == NULL || json_is_object(given)) &&
              (given == NULL || find_member(*text, key, &arguments));
    if (ok) {
        struct rest n = {json_string_value(name),
                         json_string_value(name) + json_string_length(name)};
        ok = add_call(body, &n, &arguments, NULL);
    }
    json_decref(call);
    return ok;
}

// --- JSON objects: one, several with commas or semicolons between them, or a list

static bool read_objects(const struct tool_body *body) {
    struct rest r = rest_of(body), object;
    skip_spaces(&r);
    bool list = take(&r, "[");
    do {
        skip_spaces(&r);
        if (left(&r) == 0 || *r.at != '{' || !take_bracketed(&r, &object)) return false;
        if (!add_object(body, &object)) return false;
        skip_spaces(&r);
    } while (take(&r, ",") || (!list && take(&r, ";")));
    return (!list || take(&r, "]")) && ends(&r);
}

// --- marks around names and JSON

struct marks {
    const char *begin, *middle, *end; // of one call: begin NAME middle {...} end
    bool numbered;                    // the name is "functions.NAME:0", which is the id as well
};

// "functions.look:0": the part between is the name.
static bool name_of_id(struct rest *name) {
    take(name, "functions.");
    for (const char *p = name->end; p > name->at; p--) {
        if (p[-1] != ':') continue;
        name->end = p - 1;
        return true;
    }
    return false;
}

static bool add_marked(const struct tool_body *body, struct rest id, struct rest arguments,
                       bool numbered) {
    struct rest name = id;
    trim(&arguments);
    json_t *value = load(&arguments, false);
    bool ok = value != NULL && (!numbered || (is_name(&id) && name_of_id(&name)));
    json_decref(value);
    return ok && add_call(body, &name, &arguments, numbered ? &id : NULL);
}

static bool read_marked(const struct tool_body *body, const struct marks *marks) {
    struct rest r = rest_of(body), name, arguments;
    while (!ends(&r)) {
        if (!take(&r, marks->begin) || !take_until(&r, marks->middle, &name) ||
            !take_until(&r, marks->end, &arguments))
            return false;
        trim(&name);
        if (!add_marked(body, name, arguments, marks->numbered)) return false;
    }
    return true;
}

static bool read_deepseek_v3(const struct tool_body *body) {
    static const struct marks marks = {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
                                       "\n```<｜tool▁call▁end｜>", false};
    return read_marked(body, &marks);
}

static bool read_deepseek_v31(const struct tool_body *body) {
    static const struct marks marks = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                                       "<｜tool▁call▁end｜>", false};
    return read_marked(body, &marks);
}

static bool read_kimi_k2(const struct tool_body *body) {
    static const struct marks marks = {"<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                                       "<|tool_call_end|>", true};
    return read_marked(body, &marks);
}

// Older ones write a list, newer ones a name and its arguments behind a mark each.
static bool read_mistral(const struct tool_body *body) {
    struct rest r = rest_of(body), name, arguments;
    skip_spaces(&r);
    if (left(&r) == 0 || *r.at == '[' || *r.at == '{') return read_objects(body);
    do {
        name.at = r.at;
        while (r.at < r.end && *r.at != '[' && *r.at != '{')
            r.at++;
        name.end = r.at;
        if (take(&r, "[CALL_ID]") && !take_until(&r, "[ARGS]", &arguments)) return false;
        take(&r, "[ARGS]");
        skip_spaces(&r);
        if (left(&r) == 0 || *r.at != '{' || !take_bracketed(&r, &arguments)) return false;
        trim(&name);
        if (!add_marked(body, name, arguments, false)) return false;
        skip_spaces(&r);
    } while (take(&r, "[TOOL_CALLS]"));
    return ends(&r);
}

// --- tags: the values are plain text, and the tools say which are strings

// The name of the type that the tool's schema gives a parameter, or NULL.
static const char *type_of(const struct tool_body *body, const struct rest *function,
                           const struct rest *parameter) {
    for (size_t i = 0; i < json_array_size(body->tools); i++) {
        const json_t *f = json_object_get(json_array_get(body->tools, i), "function");
        const json_t *name = json_object_get(f, "name");
        if (json_string_length(name) != left(function) ||
            memcmp(json_string_value(name), function->at, left(function)) != 0)
            continue;
        const json_t *all = json_object_get(json_object_get(f, "parameters"), "properties");
        const json_t *one = json_object_getn(all, parameter->at, left(parameter));
        return json_string_value(json_object_get(one, "type"));
    }
    return NULL;
}

static bool is_word(const struct rest *r, const char *word) {
    return left(r) == strlen(word) && strncasecmp(r->at, word, left(r)) == 0;
}

// A value that the schema does not call a string, and that reads as JSON, is that; everything else
// is a string. Models write Python's words for booleans, too.
static void add_value(struct buf *out, const char *type, struct rest value) {
    struct rest text = value;
    trim(&text);
    bool plain = type == NULL || strcmp(type, "string") == 0;
    const char *word = is_word(&text, "true")                             ? "true"
                       : is_word(&text, "false")                          ? "false"
                       : is_word(&text, "null") || is_word(&text, "none") ? "null"
                                                                          : NULL;
    json_t *parsed = plain || word != NULL ? NULL : load(&text, true);
    if (!plain && word != NULL)
        buf_text(out, word);
    else if (parsed != NULL)
        buf_add(out, text.at, left(&text));
    else
        buf_json(out, value.at, left(&value));
    json_decref(parsed);
}

struct tags {
    const char *key, *key_end, *value, *value_end; // around a parameter's; value "" when it follows
    bool lines;                                    // a value has lines of its own
};

static bool add_parameter(const struct tool_body *body, const struct tags *tags, struct rest *r,
                          const struct rest *function, struct buf *arguments) {
    struct rest key, value;
    if (!take_until(r, tags->key_end, &key)) return false;
    skip_spaces(&key);
    if (tags->value[0] != '\0') {
        skip_spaces(r);
        if (!take(r, tags->value)) return false;
    }
    if (!take_until(r, tags->value_end, &value)) return false;
    if (tags->lines) take(&value, "\n");
    if (tags->lines && value.end > value.at && value.end[-1] == '\n') value.end--;
    trim(&key);
    buf_text(arguments, arguments->bytes > 1 ? ", " : "");
    buf_json(arguments, key.at, left(&key));
    buf_text(arguments, ": ");
    add_value(arguments, type_of(body, function, &key), value);
    return true;
}

// The arguments are loaded once more as a whole, which refuses a parameter that is given twice.
static bool add_tagged(const struct tool_body *body, const struct rest *function,
                       const struct buf *arguments) {
    struct rest text = {arguments->data, arguments->data + arguments->bytes};
    json_t *value = arguments->failed ? NULL : load(&text, false);
    json_decref(value);
    return value != NULL && add_call(body, function, &text, NULL);
}

static bool read_parameters(const struct tool_body *body, const struct tags *tags, struct rest *r,
                            struct rest function) {
    struct buf arguments;
    bool ok = true;
    trim(&function);
    buf_init(&arguments, 0);
    buf_text(&arguments, "{");
    while (skip_spaces(r), ok && take(r, tags->key))
        ok = add_parameter(body, tags, r, &function, &arguments);
    buf_text(&arguments, "}");
    ok = ok && add_tagged(body, &function, &arguments);
    buf_finish(&arguments);
    return ok;
}

static bool read_qwen3_coder(const struct tool_body *body) {
    static const struct tags tags = {"<parameter=", ">", "", "</parameter>", true};
    struct rest r = rest_of(body), function;
    do {
        skip_spaces(&r);
        if (!take(&r, "<function=") || !take_until(&r, ">", &function)) return false;
        if (!read_parameters(body, &tags, &r, function) || !take(&r, "</function>")) return false;
    } while (!ends(&r));
    return true;
}

static bool read_glm45(const struct tool_body *body) {
    static const struct tags tags = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
                                     false};
    struct rest r = rest_of(body), function = r;
    const char *key = left(&r) == 0 ? NULL : memmem(r.at, left(&r), tags.key, strlen(tags.key));
    function.end = r.at = key != NULL ? key : r.end;
    if (left(&function) != 0 && memchr(function.at, '<', left(&function)) != NULL) return false;
    return read_parameters(body, &tags, &r, function) && ends(&r);
}

// --- the table

static const struct tool_format formats[] = {
    {"hermes", "<tool_call>", "</tool_call>", read_objects, false, false},
    {"qwen3_coder", "<tool_call>", "</tool_call>", read_qwen3_coder, false, false},
    {"glm45", "<tool_call>", "</tool_call>", read_glm45, false, true},
    {"mistral", "[TOOL_CALLS]", NULL, read_mistral, true, false},
    {"llama3_json", NULL, NULL, read_objects, false, false},
    {"deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", read_deepseek_v3, false,
     false},
    {"deepseek_v31", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", read_deepseek_v31, false,
     false},
    {"kimi_k2", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", read_kimi_k2, false,
     false},
};

const struct tool_format *tool_format_find(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    }
    return NULL;
}
