// log_line.c: see log_line.h. Nothing here allocates: a line may be about memory being out.
#include "common/base/log_line.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/buf.h"

// What closes the longest line: the mark of a cut, a quote, two braces and the newline.
#define TAIL_BYTES_MAX 8
#define ESCAPE_BYTES_MAX 8

struct line {
    char *data;
    size_t n;
    bool json;
    bool cut; // something did not fit: nothing more is added but the tail
};

static void put(struct line *l, const char *text, size_t n) {
    if (l->cut || l->n + n > LOG_LINE_BYTES_MAX - TAIL_BYTES_MAX) {
        l->cut = true;
        return;
    }
    memcpy(l->data + l->n, text, n);
    l->n += n;
}

static void put_text(struct line *l, const char *text) {
    put(l, text, strlen(text));
}

// What put keeps free is for this.
static void put_tail(struct line *l, const char *text) {
    size_t n = strlen(text);
    memcpy(l->data + l->n, text, n);
    l->n += n;
}

// --- escapes

static unsigned code_point(const unsigned char *s, size_t n) {
    if (n == 1) return s[0];
    unsigned c = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3fu);
    return c;
}

// Controls drive terminals, the separators end lines in some viewers, and the marks of direction
// turn around what a person reads.
static bool is_hidden(unsigned c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

// Writes how the character (or, with n 0, the invalid byte) at s is shown. False: as it is.
static bool escape(char out[ESCAPE_BYTES_MAX], const struct line *l, const unsigned char *s,
                   size_t n) {
    if (n == 0 && l->json) {
        memcpy(out, "\xef\xbf\xbd", sizeof "\xef\xbf\xbd"); // U+FFFD
        return true;
    }
    unsigned c = n == 0 ? 0x80 : code_point(s, n);
    const char *named = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
    if (c == '\\' || c == '"')
        snprintf(out, ESCAPE_BYTES_MAX, "\\%c", (char)c);
    else if (named != NULL)
        snprintf(out, ESCAPE_BYTES_MAX, "%s", named);
    else if (is_hidden(c) && (l->json || n > 1))
        snprintf(out, ESCAPE_BYTES_MAX, "\\u%04x", c & 0xffffu);
    else if (is_hidden(c))
        snprintf(out, ESCAPE_BYTES_MAX, "\\x%02x", *s);
    else
        return false;
    return true;
}

// Quotes stay as they are in the sentence of a text line.
static void put_escaped(struct line *l, const char *text, bool quoted) {
    const char *end = text + strlen(text);
    while (text < end && !l->cut) {
        char shown[ESCAPE_BYTES_MAX];
        size_t n = utf8_char_bytes(text, (size_t)(end - text));
        bool plain = *text == '"' && !quoted;
        if (!plain && escape(shown, l, (const unsigned char *)text, n))
            put_text(l, shown);
        else
            put(l, text, n);
        text += n == 0 ? 1 : n;
    }
}

// --- parts

static void put_time(struct line *l, int64_t wall_ns) {
    char text[48];
    struct tm tm;
    time_t seconds = (time_t)(wall_ns / 1000000000);
    gmtime_r(&seconds, &tm);
    snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
             (int)(wall_ns / 1000000 % 1000));
    put_text(l, text);
}

static void put_number(struct line *l, const struct log_field *f) {
    char text[64];
    if (f->kind == LOG_FIELD_UINT)
        snprintf(text, sizeof text, "%llu", (unsigned long long)f->number);
    else if (isfinite(f->real) && fabs(f->real) < 1e15)
        snprintf(text, sizeof text, "%.3f", f->real);
    else
        snprintf(text, sizeof text, "null"); // JSON has no word for it
    put_text(l, text);
}

// A value without spaces and quotes needs none around it.
static bool is_bare(const char *text) {
    size_t left = strlen(text), n;
    if (left == 0) return false;
    for (; left > 0; text += n, left -= n) {
        n = utf8_char_bytes(text, left);
        if (n == 0 || *text == ' ' || *text == '"' || *text == '\\') return false;
        if (is_hidden(code_point((const unsigned char *)text, n))) return false;
    }
    return true;
}

static void put_string(struct line *l, const char *text) {
    put_text(l, "\"");
    bool open = !l->cut;
    put_escaped(l, text, true);
    if (open) put_tail(l, l->cut ? "...\"" : "\"");
}

static void put_value(struct line *l, const struct log_field *f) {
    const char *text = f->text != NULL ? f->text : "";
    if (f->kind != LOG_FIELD_TEXT)
        put_number(l, f);
    else if (!l->json && is_bare(text))
        put_text(l, text);
    else
        put_string(l, text);
}

// --- the two forms

static void put_head(struct line *l, const struct log_record *r) {
    char level[16];
    snprintf(level, sizeof level, " %-5s ", r->level);
    put_time(l, r->wall_ns);
    put_text(l, level);
    put_escaped(l, r->process, true);
    put_text(l, " ");
    put_text(l, r->area);
    put_text(l, ": ");
}

static void text_line(struct line *l, const struct log_record *r) {
    put_head(l, r);
    put_escaped(l, r->message, false);
    for (size_t i = 0; i < r->n_fields; i++) {
        put_text(l, " ");
        put_text(l, r->fields[i].key);
        put_text(l, " ");
        put_value(l, &r->fields[i]);
    }
    bool marked = l->n > 0 && l->data[l->n - 1] == '"';
    put_tail(l, l->cut && !marked ? "...\n" : "\n");
}

static void put_member(struct line *l, const char *comma, const char *key) {
    put_text(l, comma);
    put_text(l, "\"");
    put_text(l, key);
    put_text(l, "\":");
}

// A member is written whole or not at all, but for the end of a string.
static void put_json_field(struct line *l, const char *comma, const struct log_field *f) {
    size_t before = l->n;
    put_member(l, comma, f->key);
    size_t value = l->n;
    if (!l->cut) put_value(l, f);
    if (l->cut && (l->n == value || f->kind != LOG_FIELD_TEXT)) l->n = before;
}

static void json_line(struct line *l, const struct log_record *r) {
    put_text(l, "{\"time\":\"");
    put_time(l, r->wall_ns);
    put_text(l, "\",\"level\":");
    put_string(l, r->level);
    put_member(l, ",", "who");
    put_string(l, r->process);
    put_member(l, ",", "area");
    put_string(l, r->area);
    put_member(l, ",", "message");
    put_string(l, r->message);
    bool fields = r->n_fields > 0 && !l->cut;
    if (fields) put_text(l, ",\"fields\":{");
    fields = fields && !l->cut;
    for (size_t i = 0; fields && i < r->n_fields && !l->cut; i++)
        put_json_field(l, i == 0 ? "" : ",", &r->fields[i]);
    put_tail(l, fields ? "}}\n" : "}\n");
}

size_t log_line(char out[LOG_LINE_BYTES_MAX], const struct log_record *r) {
    struct line l = {.data = out, .json = r->format == LOG_FORMAT_JSON};
    if (l.json)
        json_line(&l, r);
    else
        text_line(&l, r);
    return l.n;
}
