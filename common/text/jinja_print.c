// jinja_print.c: an explicit stack instead of recursion; numbers as Python writes them.
#include "common/text/jinja_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/text/utf8.h"

#define NUMBER_BYTES_MAX 64
#define INDENT_MAX 64

// --- numbers

// The shortest digits that read back as the same number: "d.ddde+xx".
static void shortest(double x, char *out) {
    for (int digits = 0; digits < 17; digits++) {
        snprintf(out, NUMBER_BYTES_MAX, "%.*e", digits, x);
        if (strtod(out, NULL) == x) return;
    }
}

// Python's repr of a finite float: plain digits for exponents from -4 to 15, else "1e+16" or
// "1.5e-07".
static void format_finite(double x, char *out) {
    char text[NUMBER_BYTES_MAX];
    shortest(x, text);
    char *e = strchr(text, 'e'), *point = memchr(text, '.', (size_t)(e - text));
    long exponent = strtol(e + 1, NULL, 10);
    long decimals = (point == NULL ? 0 : (long)(e - point) - 1) - exponent;
    if (exponent < -4 || exponent >= 16)
        snprintf(out, NUMBER_BYTES_MAX, "%.*se%c%02ld", (int)(e - text), text,
                 exponent < 0 ? '-' : '+', labs(exponent));
    else
        snprintf(out, NUMBER_BYTES_MAX, "%.*f", decimals < 1 ? 1 : (int)decimals, x);
}

static void format_float(double x, bool json, char *out) {
    if (isfinite(x))
        format_finite(x, out);
    else if (isnan(x))
        snprintf(out, NUMBER_BYTES_MAX, json ? "NaN" : "nan");
    else
        snprintf(out, NUMBER_BYTES_MAX, json ? "%sInfinity" : "%sinf", x < 0 ? "-" : "");
}

// The text of a value that is neither text nor container; false for those.
static bool format_scalar(const struct value *v, bool json, char *out) {
    switch (v->kind) {
    case VALUE_NONE: snprintf(out, NUMBER_BYTES_MAX, json ? "null" : "None"); return true;
    case VALUE_BOOL:
        snprintf(out, NUMBER_BYTES_MAX, "%s",
                 json         ? (v->boolean ? "true" : "false")
                 : v->boolean ? "True"
                              : "False");
        return true;
    case VALUE_INT: snprintf(out, NUMBER_BYTES_MAX, "%" PRId64, v->integer); return true;
    case VALUE_FLOAT: format_float(v->real, json, out); return true;
    default: return false;
    }
}

// --- containers

// A container that is being written.
struct level {
    struct value list; // its items, or a dict's (key, value) pairs
    size_t at, n;
    bool is_dict, is_tuple;
};

struct printer {
    struct render *r;
    const struct print_style *style;
    struct text_writer w;
    struct level levels[VALUE_DEPTH_MAX];
    size_t n_levels;
};

static bool put(struct printer *p, const char *s) {
    return text_write_bytes(p->r, &p->w, s, strlen(s), false);
}

static bool put_escape(struct printer *p, uint32_t code, bool tainted) {
    char text[16];
    static const char *const names[] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f",
        ['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\"};
    const char *name = code <= '\\' ? names[code] : NULL;
    if (name != NULL)
        snprintf(text, sizeof text, "%s", name);
    else if (code < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", code);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                 0xdc00 + ((code - 0x10000) & 0x3ff));
    return text_write_bytes(p->r, &p->w, text, strlen(text), tainted);
}

static bool is_escaped(const struct print_style *style, uint32_t code) {
    return code < 0x20 || code == '"' || code == '\\' || (style->ascii && code > 0x7e);
}

static bool put_json_string(struct printer *p, const struct text *t) {
    if (!put(p, "\"")) return false;
    for (size_t i = 0; i < t->n;) {
        size_t plain = i;
        struct utf8_unit unit = {.bytes = 0};
        for (; plain < t->n; plain += unit.bytes) {
            unit = utf8_next(t->bytes + plain, t->n - plain);
            if (is_escaped(p->style, unit.code)) break;
        }
        struct text part = text_part(t, i, plain);
        if (part.n > 0 && !text_write(p->r, &p->w, &part)) return false;
        if (plain < t->n && !put_escape(p, unit.code, text_is_tainted(t, plain))) return false;
        i = plain + (plain < t->n ? unit.bytes : 0);
    }
    return put(p, "\"");
}

// Python's str.isprintable for one character.
static bool is_printable(uint32_t code) {
    if (code == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

// A character as repr() writes it inside quotes; the bytes are its own when it needs no escape.
static void repr_character(uint32_t code, char quote, char out[16]) {
    if (code == '\n' || code == '\r' || code == '\t')
        snprintf(out, 16, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    else if (code == '\\' || code == (unsigned char)quote)
        snprintf(out, 16, "\\%c", (char)code);
    else if (is_printable(code))
        out[utf8_put(code, out)] = '\0';
    else if (code < 0x100)
        snprintf(out, 16, "\\x%02x", code);
    else if (code < 0x10000)
        snprintf(out, 16, "\\u%04x", code);
    else
        snprintf(out, 16, "\\U%08x", code);
}

static bool put_repr(struct printer *p, const struct text *t) {
    bool single = t->n > 0 && memchr(t->bytes, '\'', t->n) != NULL,
         twice = t->n > 0 && memchr(t->bytes, '"', t->n) != NULL;
    const char *quote = single && !twice ? "\"" : "'";
    bool ok = put(p, quote);
    for (size_t i = 0; i < t->n && ok;) {
        char out[16];
        struct utf8_unit unit = utf8_next(t->bytes + i, t->n - i);
        repr_character(unit.code, *quote, out);
        ok = text_write_bytes(p->r, &p->w, out, strlen(out), text_is_tainted(t, i));
        i += unit.bytes;
    }
    return ok && put(p, quote);
}

static bool put_string(struct printer *p, const struct text *t) {
    return p->style->python ? put_repr(p, t) : put_json_string(p, t);
}

static bool put_newline(struct printer *p) {
    if (p->style->indent < 0) return true;
    char spaces[INDENT_MAX];
    memset(spaces, ' ', sizeof spaces);
    if (!put(p, "\n")) return false;
    for (size_t i = 0; i < p->n_levels; i++) {
        if (!text_write_bytes(p->r, &p->w, spaces, (size_t)p->style->indent, false)) return false;
    }
    return true;
}

static const char *opening(const struct level *l) {
    return l->is_dict ? "{" : l->is_tuple ? "(" : "[";
}

static const char *closing(const struct level *l) {
    if (l->is_tuple && l->n == 1) return ",)";
    return l->is_dict ? "}" : l->is_tuple ? ")" : "]";
}

// Writes a value whole, or opens it as a new level.
static bool begin_value(struct printer *p, const struct value *v) {
    char text[NUMBER_BYTES_MAX];
    bool python = p->style->python;
    if (v->kind == VALUE_TEXT) return put_string(p, &v->text);
    if (format_scalar(v, !python, text)) return put(p, text);
    if (python && v->kind == VALUE_UNDEFINED) return put(p, "Undefined");
    if (!value_is_list(v) && !value_is_dict(v))
        return render_fail(p->r, ERR_REQ_INVALID, "chat template: printing a %s is not supported",
                           value_kind_name(v));
    if (p->n_levels == VALUE_DEPTH_MAX)
        return render_fail(p->r, ERR_REQ_INVALID,
                           "chat template: values are nested too deep to print");
    struct level level = {.list = *v, .is_dict = value_is_dict(v)};
    level.is_tuple = python && v->kind == VALUE_LIST && v->list->tuple;
    if (level.is_dict && !dict_items(p->r, v, &level.list)) return false;
    value_length(&level.list, &level.n);
    if (level.n == 0) return put(p, opening(&level)) && put(p, closing(&level));
    p->levels[p->n_levels++] = level;
    return put(p, opening(&level));
}

// A key. JSON has only strings: Python turns numbers, booleans and None into their JSON text.
static bool put_key(struct printer *p, const struct value *key) {
    char text[NUMBER_BYTES_MAX];
    const char *quote = p->style->python ? "" : "\"";
    if (key->kind == VALUE_TEXT)
        return put_string(p, &key->text) && text_write(p->r, &p->w, &p->style->colon);
    if (!format_scalar(key, !p->style->python, text))
        return render_fail(p->r, ERR_REQ_INVALID, "chat template: a %s as a key is not supported",
                           value_kind_name(key));
    return put(p, quote) && put(p, text) && put(p, quote) &&
           text_write(p->r, &p->w, &p->style->colon);
}

static bool next_item(struct printer *p) {
    struct level *level = &p->levels[p->n_levels - 1];
    if (level->at == level->n) {
        p->n_levels--;
        return put_newline(p) && put(p, closing(level));
    }
    if (level->at > 0 && !text_write(p->r, &p->w, &p->style->item)) return false;
    if (!put_newline(p)) return false;
    struct value item = value_at(&level->list, level->at++);
    if (!level->is_dict) return begin_value(p, &item);
    struct value key = value_at(&item, 0), value = value_at(&item, 1);
    return put_key(p, &key) && begin_value(p, &value);
}

bool print_value(struct render *r, const struct value *v, const struct print_style *style,
                 struct value *out) {
    if (style->indent > INDENT_MAX)
        return render_fail(r, ERR_REQ_INVALID, "chat template: tojson's indent is above %d",
                           INDENT_MAX);
    struct printer p = {.r = r, .style = style};
    text_writer_init(&p.w, r->arena.bytes_max);
    bool ok = begin_value(&p, v);
    while (ok && p.n_levels > 0)
        ok = next_item(&p);
    ok = ok && text_written(r, &p.w, out);
    text_writer_finish(&p.w);
    return ok;
}

bool value_string(struct render *r, const struct value *v, struct text *out) {
    const struct print_style repr = {.python = true,
                                     .indent = -1,
                                     .item = {.bytes = ", ", .n = 2},
                                     .colon = {.bytes = ": ", .n = 2}};
    struct value printed;
    *out = (struct text){.bytes = ""};
    if (v->kind == VALUE_UNDEFINED) return true;
    if (v->kind == VALUE_TEXT) {
        *out = v->text;
        return true;
    }
    if (!print_value(r, v, &repr, &printed)) return false;
    *out = printed.text;
    return true;
}
