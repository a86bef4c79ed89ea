// cell.c: see cell.h.
#include "ctl/cell.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#define ELLIPSIS "\xe2\x80\xa6"
#define UTF8_BYTES_MAX 4 // of one character
#define MARKS_MAX 2      // combining marks on one character; more only smear over other lines

struct glyph {
    const char *text;
    size_t bytes; // shown
    unsigned width;
    size_t taken; // of the source
};

static bool is_hidden(utf8proc_int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CS ||
           k == UTF8PROC_CATEGORY_CN || k == UTF8PROC_CATEGORY_CO || k == UTF8PROC_CATEGORY_ZL ||
           k == UTF8PROC_CATEGORY_ZP;
}

static struct glyph next_glyph(const char *text) {
    utf8proc_int32_t c;
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)text;
    utf8proc_ssize_t n = utf8proc_iterate(at, (utf8proc_ssize_t)strnlen(text, UTF8_BYTES_MAX), &c);
    if (n <= 0) return (struct glyph){"?", 1, 1, 1};
    if (is_hidden(c)) return (struct glyph){"?", 1, 1, (size_t)n};
    int width = utf8proc_charwidth(c);
    return (struct glyph){text, (size_t)n, width < 0 ? 0 : (unsigned)width, (size_t)n};
}

// Adds glyphs while they fit in `width` columns; the columns used. *rest is what did not fit.
static unsigned add_glyphs(struct buf *out, const char *text, unsigned width, const char **rest) {
    unsigned used = 0, marks = MARKS_MAX; // a mark needs a character to stand on
    while (*text != '\0') {
        struct glyph g = next_glyph(text);
        marks = g.width == 0 ? marks + 1 : 0;
        if (used + g.width > width) break;
        if (marks <= MARKS_MAX) {
            if (out != NULL) buf_add(out, g.text, g.bytes);
            used += g.width;
        }
        text += g.taken;
    }
    *rest = text;
    return used;
}

unsigned cell_width(const char *text) {
    const char *rest;
    return add_glyphs(NULL, text, UINT_MAX / 2, &rest);
}

static void pad(struct buf *out, unsigned columns) {
    while (columns-- > 0)
        buf_add(out, " ", 1);
}

void cell_text(struct buf *out, const char *text, unsigned width) {
    const char *rest;
    unsigned whole = cell_width(text);
    if (width == 0 || whole <= width) {
        unsigned used = add_glyphs(out, text, UINT_MAX / 2, &rest);
        pad(out, used < width ? width - used : 0);
        return;
    }
    unsigned used = add_glyphs(out, text, width - 1, &rest);
    buf_text(out, ELLIPSIS);
    pad(out, width - 1 - used);
}

void cell_right(struct buf *out, const char *text, unsigned width) {
    unsigned whole = cell_width(text);
    if (whole < width) pad(out, width - whole);
    cell_text(out, text, whole < width ? 0 : width);
}

// --- numbers

static void scaled(char *out, double n, double step, const char *units) {
    size_t i = 0;
    while (n >= step * 0.9995 && units[i + 1] != '\0') {
        n /= step;
        i++;
    }
    char unit[2] = {units[i], '\0'};
    if (units[i] == ' ') unit[0] = '\0';
    if (n >= 9999.5)
        snprintf(out, CELL_NUMBER_BYTES, "lots");
    else
        snprintf(out, CELL_NUMBER_BYTES, i == 0 || n >= 99.95 ? "%.0f%s" : "%.1f%s", n, unit);
}

static bool unknown(char *out, double n) {
    if (isfinite(n) && n >= 0) return false;
    snprintf(out, CELL_NUMBER_BYTES, "-");
    return true;
}

void cell_count(char out[CELL_NUMBER_BYTES], double n) {
    if (unknown(out, n)) return;
    if (n < 9999.5)
        snprintf(out, CELL_NUMBER_BYTES, "%.0f", n);
    else
        scaled(out, n, 1000, " kMGTPE");
}

void cell_bytes(char out[CELL_NUMBER_BYTES], double bytes) {
    if (!unknown(out, bytes)) scaled(out, bytes, 1024, "BKMGTPE");
}

void cell_age(char out[CELL_NUMBER_BYTES], double s) {
    if (unknown(out, s)) return;
    if (s < 9.95)
        snprintf(out, CELL_NUMBER_BYTES, "%.1fs", s);
    else if (s < 99.5)
        snprintf(out, CELL_NUMBER_BYTES, "%.0fs", s);
    else if (s < 99.5 * 60)
        snprintf(out, CELL_NUMBER_BYTES, "%.0fm", s / 60);
    else if (s < 99.5 * 3600)
        snprintf(out, CELL_NUMBER_BYTES, "%.0fh", s / 3600);
    else
        snprintf(out, CELL_NUMBER_BYTES, s < 9999.0 * 86400 ? "%.0fd" : "long", s / 86400);
}

void cell_rate(char out[CELL_NUMBER_BYTES], double rate) {
    if (unknown(out, rate)) return;
    if (rate >= 999.5)
        cell_count(out, rate);
    else
        snprintf(out, CELL_NUMBER_BYTES,
                 rate == 0 || rate >= 99.95 ? "%.0f"
                 : rate >= 9.995            ? "%.1f"
                                            : "%.2f",
                 rate);
}
