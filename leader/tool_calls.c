// tool_calls.c: see tool_calls.h. Each byte is searched for marks once, and a body is read at most
// twice, so the time is linear in the answer whatever the model writes.
#include "leader/tool_calls.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/limits.h"

// A model that writes more than these many spaces means them.
#define SPACES_MAX 64

static const char python_tag[] = "<|python_tag|>";

uint64_t tool_id_seed(const char *answer_id, uint32_t choice) {
    return XXH3_64bits_withSeed(answer_id, strlen(answer_id), choice);
}

void tool_reader_finish(struct tool_reader *r) {
    buf_finish(&r->held);
    json_decref(r->calls);
    r->calls = NULL;
}

size_t tool_reader_n_calls(const struct tool_reader *r) {
    return json_array_size(r->calls);
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static const char *find(const char *text, size_t bytes, const char *mark) {
    return bytes == 0 ? NULL : memmem(text, bytes, mark, strlen(mark));
}

// --- calls

static void make_id(const struct tool_reader *r, size_t index, char *out, size_t out_bytes) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t hash = XXH3_64bits_withSeed(&index, sizeof index, r->id_seed);
    if (!r->format->short_ids) {
        snprintf(out, out_bytes, "call_%016llx", (unsigned long long)hash);
        return;
    }
    for (size_t i = 0; i < 9; i++, hash /= 62)
        out[i] = letters[hash % 62];
    out[9] = '\0';
}

static int keep_call(struct tool_reader *r, json_t *call) {
    char id[32];
    size_t n = json_array_size(r->calls);
    if (r->only_one && n > 0) return 0;
    make_id(r, n, id, sizeof id);
    int rc = 0;
    if (json_object_get(call, "id") == NULL) rc = json_object_set_new(call, "id", json_string(id));
    if (r->calls == NULL) r->calls = json_array();
    return rc | json_array_append(r->calls, call);
}

// The calls of one body; false when it has none, or anything else.
static bool read_calls(struct tool_reader *r, const char *text, size_t bytes, struct buf *content) {
    struct tool_body body = {
        .text = text, .bytes = bytes, .tools = r->tools, .calls = json_array()};
    bool ok = r->format->read(&body) && json_array_size(body.calls) != 0 &&
              json_array_size(r->calls) + json_array_size(body.calls) <= TOOL_CALLS_MAX;
    for (size_t i = 0; ok && i < json_array_size(body.calls); i++)
        content->failed |= keep_call(r, json_array_get(body.calls, i)) != 0;
    json_decref(body.calls);
    return ok;
}

// --- outside of calls

// The first bytes of what is held are content.
static void show(struct tool_reader *r, size_t bytes, struct buf *content) {
    buf_add(content, r->held.data, bytes);
    buf_drop(&r->held, bytes);
    r->searched = r->searched > bytes ? r->searched - bytes : 0;
    r->begun |= bytes != 0;
}

static size_t spaces_before(const struct tool_reader *r, size_t end) {
    size_t n = 0;
    while (n < end && n < SPACES_MAX && is_space(r->held.data[end - n - 1]))
        n++;
    return n;
}

// Bytes at the end of what is held that may be the beginning of the mark.
static size_t half_mark(const struct tool_reader *r, const char *mark) {
    size_t n = strlen(mark) - 1;
    if (n > r->held.bytes) n = r->held.bytes;
    while (n > 0 && memcmp(r->held.data + r->held.bytes - n, mark, n) != 0)
        n--;
    return n;
}

static void enter(struct tool_reader *r, size_t body) {
    r->inside = true;
    r->body = r->searched = body;
}

// The spaces before a mark wait with it: they are part of the call's layout.
static bool look_for_open(struct tool_reader *r, struct buf *content) {
    const char *open = r->format->open;
    const char *at = find(r->held.data + r->searched, r->held.bytes - r->searched, open);
    size_t end = at != NULL ? (size_t)(at - r->held.data) : r->held.bytes - half_mark(r, open);
    r->searched = end;
    size_t spaces = spaces_before(r, end);
    show(r, end - spaces, content);
    if (at != NULL) enter(r, spaces + strlen(open));
    return at != NULL;
}

// For a format without a mark: calls are the whole answer, so its first letter decides.
static bool look_at_start(struct tool_reader *r, struct buf *content) {
    size_t spaces = 0, tag = sizeof python_tag - 1;
    while (spaces < r->held.bytes && spaces <= SPACES_MAX && is_space(r->held.data[spaces]))
        spaces++;
    size_t n = r->held.bytes - spaces;
    bool open = !r->begun && spaces <= SPACES_MAX; // a call may still begin
    if (r->held.bytes == 0 || (open && n == 0)) return false;
    const char *text = r->held.data + spaces;
    bool tagged = open && memcmp(text, python_tag, n < tag ? n : tag) == 0;
    if (tagged && n < tag) return false;
    if (open && (tagged || *text == '{')) {
        enter(r, spaces + (tagged ? tag : 0));
        return true;
    }
    show(r, r->held.bytes, content);
    return false;
}

// --- inside of calls

// It was none: everything up to end, marks and all.
static void give_up(struct tool_reader *r, size_t end, struct buf *content) {
    r->inside = false;
    show(r, end, content);
}

static void leave(struct tool_reader *r, size_t end) {
    r->inside = false;
    r->begun = true;
    buf_drop(&r->held, end);
    r->searched = 0;
}

// The last mark in [begin, end) of what is held.
static size_t last_open(const struct tool_reader *r, size_t begin, size_t end) {
    size_t n = strlen(r->format->open), found = SIZE_MAX;
    const char *at;
    while (begin < end && (at = find(r->held.data + begin, end - begin, r->format->open)) != NULL) {
        found = (size_t)(at - r->held.data);
        begin = found + n;
    }
    return found;
}

// A body that is none may have a call behind a second mark.
static void close_body(struct tool_reader *r, size_t end, size_t mark, struct buf *content) {
    if (read_calls(r, r->held.data + r->body, end - r->body, content)) {
        leave(r, end + mark);
        return;
    }
    size_t again = r->format->open == NULL ? SIZE_MAX : last_open(r, r->body, end);
    size_t body = again == SIZE_MAX ? end : again + strlen(r->format->open);
    if (body == end || !read_calls(r, r->held.data + body, end - body, content)) {
        give_up(r, end + mark, content);
        return;
    }
    size_t before = again - spaces_before(r, again);
    show(r, before, content);
    leave(r, end + mark - before);
}

static bool look_for_close(struct tool_reader *r, struct buf *content) {
    const char *close = r->format->close, *at = NULL;
    size_t n = close == NULL ? 1 : strlen(close);
    if (close != NULL) at = find(r->held.data + r->searched, r->held.bytes - r->searched, close);
    if (at != NULL) {
        close_body(r, (size_t)(at - r->held.data), n, content);
        return true;
    }
    if (r->held.bytes >= r->body + n) r->searched = r->held.bytes - n + 1;
    if (r->held.bytes - r->body > TOOL_BODY_BYTES_MAX) give_up(r, r->held.bytes, content);
    return false;
}

// --- the answer

static bool advance(struct tool_reader *r, struct buf *content) {
    if (r->inside) return look_for_close(r, content);
    return r->format->open == NULL ? look_at_start(r, content) : look_for_open(r, content);
}

void tool_reader_push(struct tool_reader *r, const char *text, size_t bytes, struct buf *content) {
    if (r->format == NULL) {
        buf_add(content, text, bytes);
        return;
    }
    if (bytes == 0) return;
    buf_add(&r->held, text, bytes);
    while (!r->held.failed && advance(r, content)) {
    }
    content->failed |= r->held.failed;
}

void tool_reader_end(struct tool_reader *r, struct buf *content) {
    if (r->format == NULL) return;
    if (r->inside && r->format->needs_close)
        give_up(r, r->held.bytes, content);
    else if (r->inside)
        close_body(r, r->held.bytes, 0, content);
    bool layout = tool_reader_n_calls(r) != 0 && spaces_before(r, r->held.bytes) == r->held.bytes;
    if (!layout) show(r, r->held.bytes, content);
    buf_reset(&r->held);
}
