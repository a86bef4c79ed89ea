// continuation.c: see continuation.h.
#include "leader/continuation.h"

#include <jansson.h>
#include <string.h>

#define FIELD "continue_final_message"
// Its last character shows whether the template keeps or trims spaces.
static const char mark[] = "MOESAIC_CONTINUES_HERE ";
#define MARK_BYTES (sizeof mark - 1)

static const json_t *last_content(const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return json_object_get(last, "content");
}

static json_t *marked(const json_t *content) {
    struct buf text;
    buf_init(&text, 0);
    buf_add(&text, json_string_value(content), json_string_length(content));
    buf_text(&text, mark);
    json_t *out = text.failed ? NULL : json_stringn(text.data, text.bytes);
    buf_finish(&text);
    return out;
}

struct json_t *continuation_mark(const struct json_t *messages, struct api_error *e) {
    const json_t *content = last_content(messages);
    size_t i = json_array_size(messages) - 1;
    if (!json_is_string(content)) {
        api_error_set(e, 400, FIELD, "'" FIELD "' needs a last message with text.");
        return NULL;
    }
    json_t *list = json_copy((json_t *)messages);
    json_t *last = json_copy(json_array_get(messages, i));
    int rc = json_object_set_new(last, "content", marked(content));
    rc |= json_array_set_new(list, i, last);
    if (rc == 0) return list;
    json_decref(list);
    api_error_set(e, 500, NULL, "memory is out.");
    return NULL;
}

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// The last place; SIZE_MAX when there is none.
static size_t find_mark(const struct chat_output *prompt, size_t bytes) {
    size_t found = SIZE_MAX, at = 0;
    const char *hit;
    while (prompt->bytes > at &&
           (hit = memmem(prompt->text + at, prompt->bytes - at, mark, bytes)) != NULL) {
        found = (size_t)(hit - prompt->text);
        at = found + 1;
    }
    return found;
}

// A template that leaves parts of the message away would be continued at another text.
static bool shows(const struct chat_output *prompt, const json_t *content) {
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    for (; n > 0 && is_blank(*text); text++)
        n--;
    while (n > 0 && is_blank(text[n - 1]))
        n--;
    return n == 0 || memmem(prompt->text, prompt->bytes, text, n) != NULL;
}

static void end_at(struct chat_output *prompt, size_t bytes) {
    prompt->bytes = bytes;
    while (prompt->n_spans > 0 && prompt->spans[prompt->n_spans - 1].begin >= bytes)
        prompt->n_spans--;
    if (prompt->n_spans > 0) prompt->spans[prompt->n_spans - 1].end = bytes;
}

int continuation_cut(struct chat_output *prompt, const struct json_t *messages,
                     struct api_error *e) {
    size_t at = find_mark(prompt, MARK_BYTES - 1);
    if (at == SIZE_MAX || !shows(prompt, last_content(messages)))
        return api_error_set(e, 400, FIELD,
                             "the model's chat template does not show the last message as it is, "
                             "so '" FIELD "' is not possible.");
    bool trimmed =
        at + MARK_BYTES > prompt->bytes || memcmp(prompt->text + at, mark, MARK_BYTES) != 0;
    while (trimmed && at > 0 && is_blank(prompt->text[at - 1]))
        at--;
    end_at(prompt, at);
    return 0;
}
