// jinja_layout.c: text put into form: the filter indent, the method format, the function
// strftime_now.
#include <string.h>
#include <time.h>

#include "common/text/jinja_builtin_rows.h"

// --- indent

// Bytes of the line break at the position, 0 when there is none: what Python's splitlines knows.
static size_t line_break(const char *s, size_t n) {
    if (n >= 2 && s[0] == '\r' && s[1] == '\n') return 2;
    if ((s[0] >= '\n' && s[0] <= '\r') || (s[0] >= 0x1c && s[0] <= 0x1e)) return 1;
    if (n >= 2 && memcmp(s, "\xc2\x85", 2) == 0) return 2;
    if (n >= 3 && (memcmp(s, "\xe2\x80\xa8", 3) == 0 || memcmp(s, "\xe2\x80\xa9", 3) == 0))
        return 3;
    return 0;
}

struct indentation {
    const struct call *c;
    struct text_writer w;
    struct text before;
    bool first, blank;
};

static bool write_line(struct indentation *i, const struct text *line, size_t number) {
    static const struct text newline = {.bytes = "\n", .n = 1};
    bool indented = number == 0 ? i->first : i->blank || line->n > 0;
    return (number == 0 || text_write(i->c->r, &i->w, &newline)) &&
           (!indented || text_write(i->c->r, &i->w, &i->before)) &&
           text_write(i->c->r, &i->w, line);
}

static bool write_lines(struct indentation *i, const struct text *t) {
    size_t begin = 0, number = 0;
    for (size_t at = 0; at < t->n;) {
        size_t skip = line_break(t->bytes + at, t->n - at);
        at += skip == 0;
        if (skip == 0) continue;
        struct text line = text_part(t, begin, at);
        if (!write_line(i, &line, number++)) return false;
        begin = at += skip;
    }
    struct text last = text_part(t, begin, t->n);
    return write_line(i, &last, number);
}

static bool indentation_text(const struct call *c, struct text *out) {
    static const struct text space = {.bytes = " ", .n = 1};
    struct value spaces;
    int64_t width;
    if (call_given(c, 1) && c->args[1].kind == VALUE_TEXT) {
        *out = c->args[1].text;
        return true;
    }
    if (!call_integer(c, 1, 4, &width) || !text_repeat(c->r, &space, width, &spaces)) return false;
    *out = spaces.text;
    return true;
}

bool filter_indent(const struct call *c, struct value *out) {
    const struct text *t;
    struct indentation i = {.c = c,
                            .first = call_given(c, 2) && value_true(&c->args[2]),
                            .blank = call_given(c, 3) && value_true(&c->args[3])};
    if (!call_text(c, 0, &t) || !indentation_text(c, &i.before)) return false;
    if (!render_spend(c->r, t->n)) return false;
    text_writer_init(&i.w, c->r->arena.bytes_max);
    bool ok = write_lines(&i, t) && text_written(c->r, &i.w, out);
    text_writer_finish(&i.w);
    return ok;
}

// --- format

static bool bad_format(const struct call *c, const char *what) {
    return render_fail(c->r, ERR_REQ_INVALID, "chat template: format: %s", what);
}

static bool has_conversion(const struct text *field) {
    for (size_t i = 0; i < field->n; i++) {
        if (memchr(".[!:", field->bytes[i], 4) != NULL) return true;
    }
    return false;
}

// The argument of a field: {} the next one, {0} by place, {name} by name.
static bool field_value(const struct call *c, const struct text *field, size_t *next,
                        const struct value **out) {
    size_t place = 0;
    *out = NULL;
    if (has_conversion(field)) return bad_format(c, "fields with conversions are not supported");
    bool digits = field->n > 0 && field->n < 4;
    for (size_t i = 0; i < field->n && digits; i++) {
        digits = field->bytes[i] >= '0' && field->bytes[i] <= '9';
        place = place * 10 + (size_t)(field->bytes[i] - '0');
    }
    if (field->n == 0) place = (*next)++;
    for (size_t i = 1, by_place = 0; i < c->n && *out == NULL; i++) {
        const struct value *arg = &c->args[i];
        if (arg->keyword == KEYWORD_NONE) {
            if ((field->n == 0 || digits) && by_place++ == place) *out = arg;
            continue;
        }
        const struct jinja_string *name = &c->program->strings[arg->keyword - 1];
        if (name->n == field->n && memcmp(name->bytes, field->bytes, name->n) == 0) *out = arg;
    }
    return *out != NULL ? true : bad_format(c, "a field has no argument");
}

static bool format_field(const struct call *c, const struct text *field, size_t *next,
                         struct text_writer *w) {
    const struct value *v;
    struct text t;
    return field_value(c, field, next, &v) && value_string(c->r, v, &t) && text_write(c->r, w, &t);
}

static bool format_all(const struct call *c, const struct text *t, struct text_writer *w) {
    size_t next = 0;
    for (size_t at = 0; at < t->n;) {
        const char *s = t->bytes + at;
        bool brace = *s == '{' || *s == '}';
        if (!brace || (at + 1 < t->n && s[1] == *s)) {
            struct text one = text_part(t, at, at + 1);
            if (!text_write(c->r, w, &one)) return false;
            at += brace ? 2 : 1;
            continue;
        }
        const char *end = *s == '{' ? memchr(s, '}', t->n - at) : NULL;
        if (end == NULL) return bad_format(c, "a single brace");
        struct text field = text_part(t, at + 1, at + (size_t)(end - s));
        if (!format_field(c, &field, &next, w)) return false;
        at += (size_t)(end - s) + 1;
    }
    return true;
}

bool method_format(const struct call *c, struct value *out) {
    const struct text *t;
    struct text_writer w;
    if (!call_text(c, 0, &t) || !render_spend(c->r, t->n)) return false;
    text_writer_init(&w, c->r->arena.bytes_max);
    bool ok = format_all(c, t, &w) && text_written(c->r, &w, out);
    text_writer_finish(&w);
    return ok;
}

// --- time

#define TIME_FORMAT_MAX 128
#define TIME_TEXT_MAX 1024

bool function_strftime_now(const struct call *c, struct value *out) {
    const struct text *t;
    char format[TIME_FORMAT_MAX];
    struct tm tm;
    time_t now = (time_t)(c->r->wall_ns / 1000000000);
    if (!call_text(c, 0, &t)) return false;
    if (t->n >= sizeof format)
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: strftime_now: format too long");
    memcpy(format, t->bytes, t->n);
    format[t->n] = '\0';
    char *text = render_alloc(c->r, TIME_TEXT_MAX, 1);
    if (text == NULL || localtime_r(&now, &tm) == NULL) return false;
    // 0 bytes also mean an empty format.
    size_t n = strftime(text, TIME_TEXT_MAX, format, &tm);
    *out = value_text(text, n, text_is_tainted(t, 0));
    return true;
}
