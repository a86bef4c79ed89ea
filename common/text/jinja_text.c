// jinja_text.c: see jinja_text.h. Nothing here looks at more than its input once, but for what the
// render's budget pays.
#include "common/text/jinja_text.h"

#include <string.h>
#include <utf8proc.h>

#include "common/base/check.h"
#include "common/text/jinja_lex.h"
#include "common/text/unicode_casing.h"
#include "common/text/utf8.h"

void text_writer_init(struct text_writer *w, size_t bytes_max) {
    buf_init(&w->bytes, bytes_max);
    buf_init(&w->taint, bytes_max);
}

void text_writer_finish(struct text_writer *w) {
    buf_finish(&w->bytes);
    buf_finish(&w->taint);
}

static bool fill(struct text_writer *w, char byte, size_t n) {
    char block[256];
    memset(block, byte, sizeof block);
    for (size_t done = 0; done < n;) {
        size_t part = n - done < sizeof block ? n - done : sizeof block;
        buf_add(&w->taint, block, part);
        done += part;
    }
    return !w->taint.failed;
}

bool text_write(struct render *r, struct text_writer *w, const struct text *t) {
    if (!render_spend(r, t->n)) return false;
    buf_add(&w->bytes, t->bytes, t->n);
    if (t->taint != NULL)
        buf_add(&w->taint, t->taint, t->n);
    else
        fill(w, t->tainted, t->n);
    if (!w->bytes.failed && !w->taint.failed) return true;
    return render_fail(r, ERR_REQ_TOO_LARGE,
                       "chat template: the rendered text is larger than %zu MiB",
                       w->bytes.bytes_max >> 20);
}

bool text_write_bytes(struct render *r, struct text_writer *w, const char *bytes, size_t n,
                      bool tainted) {
    struct text t = {.bytes = bytes, .n = n, .tainted = tainted};
    return text_write(r, w, &t);
}

bool text_written(struct render *r, const struct text_writer *w, struct value *out) {
    size_t n = w->bytes.bytes;
    char *bytes = render_alloc(r, n, 1), *taint = render_alloc(r, n, 1);
    if (bytes == NULL || taint == NULL) return false;
    if (n > 0) {
        memcpy(bytes, w->bytes.data, n);
        memcpy(taint, w->taint.data, n);
    }
    *out = (struct value){.kind = VALUE_TEXT, .text = {.bytes = bytes, .taint = taint, .n = n}};
    return true;
}

size_t text_characters(const struct text *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += utf8_is_start(t->bytes[i]);
    return n;
}

bool text_is_tainted(const struct text *t, size_t at) {
    return t->taint != NULL ? t->taint[at] != 0 : t->tainted;
}

struct text text_part(const struct text *t, size_t begin, size_t end) {
    check(begin <= end && end <= t->n);
    struct text part = *t;
    part.bytes += begin;
    if (part.taint != NULL) part.taint += begin;
    part.n = end - begin;
    return part;
}

size_t text_find(const struct text *t, const struct text *what, size_t from) {
    if (what->n > t->n - from) return TEXT_NOT_FOUND;
    if (what->n == 0) return from;
    const char *found = memmem(t->bytes + from, t->n - from, what->bytes, what->n);
    return found == NULL ? TEXT_NOT_FOUND : (size_t)(found - t->bytes);
}

bool text_begins(const struct text *t, const struct text *what) {
    return what->n <= t->n && memcmp(t->bytes, what->bytes, what->n) == 0;
}

bool text_ends(const struct text *t, const struct text *what) {
    return what->n <= t->n && memcmp(t->bytes + t->n - what->n, what->bytes, what->n) == 0;
}

static void copy_taint(char *to, const struct text *t) {
    if (t->taint != NULL)
        memcpy(to, t->taint, t->n);
    else
        memset(to, t->tainted, t->n);
}

bool text_concat(struct render *r, const struct text *a, const struct text *b, struct value *out) {
    if (a->n == 0 || b->n == 0) {
        *out = (struct value){.kind = VALUE_TEXT, .text = a->n == 0 ? *b : *a};
        return true;
    }
    size_t n = a->n + b->n;
    bool uniform = a->taint == NULL && b->taint == NULL && a->tainted == b->tainted;
    char *bytes = render_spend(r, n) ? render_alloc(r, n, 1) : NULL;
    char *taint = uniform || bytes == NULL ? NULL : render_alloc(r, n, 1);
    if (bytes == NULL || (!uniform && taint == NULL)) return false;
    memcpy(bytes, a->bytes, a->n);
    memcpy(bytes + a->n, b->bytes, b->n);
    if (!uniform) {
        copy_taint(taint, a);
        copy_taint(taint + a->n, b);
    }
    *out = (struct value){.kind = VALUE_TEXT, .text = {bytes, taint, n, a->tainted}};
    return true;
}

bool text_repeat(struct render *r, const struct text *t, int64_t times, struct value *out) {
    if (times <= 0 || t->n == 0) {
        *out = value_text("", 0, false);
        return true;
    }
    struct text_writer w;
    text_writer_init(&w, r->arena.bytes_max);
    bool ok = true;
    for (int64_t i = 0; i < times && ok; i++)
        ok = text_write(r, &w, t);
    ok = ok && text_written(r, &w, out);
    text_writer_finish(&w);
    return ok;
}

// --- stripping

static bool in_set(const struct text *set, const char *character, size_t n) {
    if (set == NULL) return jinja_is_space(utf8_next(character, n).code);
    for (size_t i = 0; i < set->n;) {
        size_t bytes = utf8_next(set->bytes + i, set->n - i).bytes;
        if (bytes == n && memcmp(set->bytes + i, character, n) == 0) return true;
        i += bytes;
    }
    return false;
}

static size_t character_before(const struct text *t, size_t end) {
    size_t begin = end - 1;
    while (begin > 0 && !utf8_is_start(t->bytes[begin]))
        begin--;
    return begin;
}

// Whether the character is stripped. Each one looks through the set, a step a byte.
static bool strips(struct render *r, const struct text *set, const char *character, size_t n) {
    return render_spend(r, set == NULL ? 0 : 16 * set->n) && in_set(set, character, n);
}

bool text_strip(struct render *r, const struct text *t, const struct text *set, enum text_side side,
                struct text *out) {
    size_t begin = 0, end = t->n;
    while ((side & TEXT_LEFT) && begin < end) {
        size_t n = utf8_next(t->bytes + begin, end - begin).bytes;
        if (!strips(r, set, t->bytes + begin, n)) break;
        begin += n;
    }
    while ((side & TEXT_RIGHT) && begin < end) {
        size_t at = character_before(t, end);
        if (!strips(r, set, t->bytes + at, end - at)) break;
        end = at;
    }
    *out = text_part(t, begin, end);
    return r->rc == 0;
}

// --- slices

static size_t byte_of(const struct text *t, size_t character) {
    size_t at = 0;
    for (; at < t->n && character > 0; character--)
        at += utf8_next(t->bytes + at, t->n - at).bytes;
    return at;
}

bool text_slice(struct render *r, const struct text *t, const int64_t range[3], struct value *out) {
    if (!render_spend(r, t->n)) return false;
    if (range[2] == 1) {
        size_t begin = byte_of(t, (size_t)range[0]);
        size_t end = range[1] <= range[0] ? begin : byte_of(t, (size_t)range[1]);
        *out = (struct value){.kind = VALUE_TEXT, .text = text_part(t, begin, end)};
        return true;
    }
    struct value source = {.kind = VALUE_TEXT, .text = *t}, list;
    if (!value_iterate(r, &source, &list)) return false;
    struct text_writer w;
    text_writer_init(&w, r->arena.bytes_max);
    bool ok = true;
    for (int64_t i = range[0]; ok && (range[2] > 0 ? i < range[1] : i > range[1]); i += range[2])
        ok = text_write(r, &w, &list.list->items[i].text);
    ok = ok && text_written(r, &w, out);
    text_writer_finish(&w);
    return ok;
}

// --- splitting

// Pieces as they are found; the list is made at the end.
struct pieces {
    struct value *items;
    size_t n, capacity;
};

static bool add_piece(struct render *r, struct pieces *p, struct text piece) {
    if (p->n == p->capacity) {
        size_t capacity = p->capacity == 0 ? 16 : 2 * p->capacity;
        struct value *items = render_alloc(r, capacity, sizeof *items);
        if (items == NULL) return false;
        if (p->n > 0) memcpy(items, p->items, p->n * sizeof *items);
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->n++] = (struct value){.kind = VALUE_TEXT, .text = piece};
    return render_spend(r, piece.n);
}

static bool finish_pieces(struct render *r, const struct pieces *p, struct value *list,
                          bool reversed) {
    if (!list_create(r, p->n, list)) return false;
    for (size_t i = 0; i < p->n; i++)
        list->list->items[i] = p->items[reversed ? p->n - 1 - i : i];
    return true;
}

// The bytes up to the first white space, all of them when there is none.
static size_t word_bytes(const struct text *t) {
    size_t end = 0;
    while (end < t->n) {
        size_t n = utf8_next(t->bytes + end, t->n - end).bytes;
        if (in_set(NULL, t->bytes + end, n)) break;
        end += n;
    }
    return end;
}

static bool split_spaces(struct render *r, const struct text *t, int64_t maxsplit,
                         struct pieces *p) {
    struct text rest = *t;
    while (text_strip(r, &rest, NULL, TEXT_LEFT, &rest) && rest.n > 0) {
        bool last = maxsplit >= 0 && (int64_t)p->n == maxsplit;
        size_t end = last ? rest.n : word_bytes(&rest);
        struct text piece = text_part(&rest, 0, end);
        if (last && !text_strip(r, &piece, NULL, TEXT_RIGHT, &piece)) return false;
        if (!add_piece(r, p, piece)) return false;
        rest = text_part(&rest, end, rest.n);
    }
    return r->rc == 0;
}

bool text_split(struct render *r, const struct text *t, const struct text *separator,
                int64_t maxsplit, struct value *list) {
    struct pieces p = {0};
    if (separator == NULL)
        return split_spaces(r, t, maxsplit, &p) && finish_pieces(r, &p, list, false);
    if (separator->n == 0) return render_fail(r, ERR_REQ_INVALID, "chat template: empty separator");
    size_t begin = 0;
    while (maxsplit < 0 || (int64_t)p.n < maxsplit) {
        size_t at = text_find(t, separator, begin);
        if (at == TEXT_NOT_FOUND) break;
        if (!add_piece(r, &p, text_part(t, begin, at))) return false;
        begin = at + separator->n;
    }
    return add_piece(r, &p, text_part(t, begin, t->n)) && finish_pieces(r, &p, list, false);
}

// The last occurrence that ends at or before end; the search goes backwards and its cost is the
// render's.
static size_t find_last(struct render *r, const struct text *t, const struct text *what,
                        size_t end) {
    for (size_t at = end; at >= what->n; at--) {
        if (!render_spend(r, what->n)) return TEXT_NOT_FOUND;
        if (memcmp(t->bytes + at - what->n, what->bytes, what->n) == 0) return at - what->n;
    }
    return TEXT_NOT_FOUND;
}

bool text_rsplit(struct render *r, const struct text *t, const struct text *separator,
                 int64_t maxsplit, struct value *list) {
    struct pieces p = {0};
    if (separator == NULL && maxsplit < 0) return text_split(r, t, NULL, -1, list);
    if (separator == NULL || separator->n == 0)
        return render_fail(r, ERR_REQ_INVALID, "chat template: this rsplit is not supported");
    size_t end = t->n;
    while (maxsplit < 0 || (int64_t)p.n < maxsplit) {
        size_t at = find_last(r, t, separator, end);
        if (at == TEXT_NOT_FOUND) break;
        if (!add_piece(r, &p, text_part(t, at + separator->n, end))) return false;
        end = at;
    }
    return r->rc == 0 && add_piece(r, &p, text_part(t, 0, end)) && finish_pieces(r, &p, list, true);
}

// --- replacing

// Python puts the new text before every character and at the end when the old one is empty.
static bool replace_nothing(struct render *r, const struct text *t, const struct text *with,
                            int64_t count, struct text_writer *w) {
    size_t at = 0;
    for (int64_t done = 0;; done++) {
        if (count < 0 || done < count) {
            if (!text_write(r, w, with)) return false;
        }
        if (at >= t->n) return true;
        size_t n = utf8_next(t->bytes + at, t->n - at).bytes;
        struct text character = text_part(t, at, at + n);
        if (!text_write(r, w, &character)) return false;
        at += n;
    }
}

static bool replace_all(struct render *r, const struct text *t, const struct text what[2],
                        int64_t count, struct text_writer *w) {
    size_t begin = 0;
    for (int64_t done = 0; count < 0 || done < count; done++) {
        size_t at = text_find(t, &what[0], begin);
        if (at == TEXT_NOT_FOUND) break;
        struct text before = text_part(t, begin, at);
        if (!text_write(r, w, &before) || !text_write(r, w, &what[1])) return false;
        begin = at + what[0].n;
    }
    struct text rest = text_part(t, begin, t->n);
    return text_write(r, w, &rest);
}

bool text_replace(struct render *r, const struct text *t, const struct text what[2], int64_t count,
                  struct value *out) {
    struct text_writer w;
    text_writer_init(&w, r->arena.bytes_max);
    bool ok = what[0].n == 0 ? replace_nothing(r, t, &what[1], count, &w)
                             : replace_all(r, t, what, count, &w);
    ok = ok && text_written(r, &w, out);
    text_writer_finish(&w);
    return ok;
}

// --- case

static bool is_cased(uint32_t code) {
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

static const struct unicode_casing *special_casing(uint32_t code) {
    size_t low = 0, high = sizeof unicode_casing / sizeof *unicode_casing;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (unicode_casing[middle].code == code) return &unicode_casing[middle];
        if (unicode_casing[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

// A sigma at a word's end is written another way.
static bool is_final_sigma(const struct text *t, size_t at, size_t end) {
    if (at == 0 || !is_cased(utf8_next(t->bytes + character_before(t, at), at).code)) return false;
    return end == t->n || !is_cased(utf8_next(t->bytes + end, t->n - end).code);
}

// Writes the character at text[at, end) in another case; to is upper, lower or title.
static bool write_changed(struct render *r, struct text_writer *w, const struct text *t,
                          const size_t range[2], enum text_case to) {
    uint32_t code = utf8_next(t->bytes + range[0], range[1] - range[0]).code;
    utf8proc_int32_t c = (utf8proc_int32_t)code;
    bool tainted = text_is_tainted(t, range[0]);
    const struct unicode_casing *special = to == CASE_LOWER ? NULL : special_casing(code);
    const char *text = special == NULL ? NULL : to == CASE_UPPER ? special->upper : special->title;
    if (to == CASE_LOWER && code == 0x130) text = "i\xcc\x87";
    if (text != NULL) return text_write_bytes(r, w, text, strlen(text), tainted);
    c = to == CASE_UPPER   ? utf8proc_toupper(c)
        : to == CASE_LOWER ? utf8proc_tolower(c)
                           : utf8proc_totitle(c);
    if (to == CASE_LOWER && code == 0x3a3 && is_final_sigma(t, range[0], range[1])) c = 0x3c2;
    char bytes[UTF8_BYTES_MAX];
    return text_write_bytes(r, w, bytes, utf8_put((uint32_t)c, bytes), tainted);
}

bool text_change_case(struct render *r, const struct text *t, enum text_case to,
                      struct value *out) {
    struct text_writer w;
    text_writer_init(&w, r->arena.bytes_max);
    bool ok = true, inside_word = false;
    for (size_t at = 0; at < t->n && ok;) {
        struct utf8_unit unit = utf8_next(t->bytes + at, t->n - at);
        const size_t range[2] = {at, at + unit.bytes};
        bool first = to == CASE_CAPITALIZE ? at == 0 : !inside_word;
        enum text_case mapping = to <= CASE_LOWER ? to : first ? CASE_TITLE : CASE_LOWER;
        ok = write_changed(r, &w, t, range, mapping);
        inside_word = is_cased(unit.code);
        at += unit.bytes;
    }
    ok = ok && text_written(r, &w, out);
    text_writer_finish(&w);
    return ok;
}
