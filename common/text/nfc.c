// nfc.c: decomposition and composition are utf8proc's; the ordering of marks in between is done
// here, because the library's is quadratic in the length of a run of marks, and its whole-string
// functions allocate by themselves.
#include "common/text/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/unicode_inert.h"
#include "common/text/utf8.h"

static const utf8proc_option_t form_options[] = {
    [FORM_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [FORM_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [FORM_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [FORM_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

#define DECOMPOSED_MAX 32 // the longest decomposition of one character has 18
#define INSERTION_SORT_MAX 32
#define PART_BYTES 4096

bool nfc_is_plain(enum unicode_form form, const char *text, size_t n) {
    // U+0300 is the first that NFC may change; its first byte is 0xcc. The others change é, or ².
    unsigned char first = form == FORM_NFC ? 0xcc : 0x80;
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] >= first) return false;
    }
    return true;
}

static unsigned class_of(utf8proc_int32_t code) {
    return (unsigned)utf8proc_get_property(code)->combining_class & 0xffu;
}

static void sort_short(utf8proc_int32_t *marks, size_t n) {
    for (size_t i = 1; i < n; i++) {
        utf8proc_int32_t mark = marks[i];
        size_t j = i;
        for (; j > 0 && class_of(marks[j - 1]) > class_of(mark); j--)
            marks[j] = marks[j - 1];
        marks[j] = mark;
    }
}

// A stable counting sort by combining class.
static int sort_long(utf8proc_int32_t *marks, size_t n) {
    utf8proc_int32_t *copy = mem_alloc(n * sizeof *copy);
    if (copy == NULL) return ERR_FATAL_NOMEM;
    memcpy(copy, marks, n * sizeof *copy);
    size_t starts[257] = {0};
    for (size_t i = 0; i < n; i++)
        starts[class_of(copy[i]) + 1]++;
    for (size_t c = 1; c < 257; c++)
        starts[c] += starts[c - 1];
    for (size_t i = 0; i < n; i++)
        marks[starts[class_of(copy[i])]++] = copy[i];
    mem_free(copy);
    return 0;
}

static int order_marks(utf8proc_int32_t *codes, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && class_of(codes[end]) != 0)
            end++;
        if (end - i > INSERTION_SORT_MAX) {
            if (sort_long(codes + i, end - i) != 0) return ERR_FATAL_NOMEM;
        } else {
            sort_short(codes + i, end - i);
        }
        i = end + 1;
    }
    return 0;
}

// Decomposes text into codes, which it grows; returns the count or -1.
static ptrdiff_t decompose(enum unicode_form form, const char *text, size_t n, struct buf *codes) {
    int last_boundclass = 0;
    for (size_t i = 0; i < n;) {
        struct utf8_unit unit = utf8_next(text + i, n - i);
        utf8proc_int32_t parts[DECOMPOSED_MAX];
        utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)unit.code, parts, DECOMPOSED_MAX,
                                    form_options[form], &last_boundclass);
        check(count >= 0 && count <= DECOMPOSED_MAX);
        buf_add(codes, parts, (size_t)count * sizeof *parts);
        i += unit.bytes;
    }
    return codes->failed ? -1 : (ptrdiff_t)(codes->bytes / sizeof(utf8proc_int32_t));
}

static int append_composed(struct buf *out, enum unicode_form form, utf8proc_int32_t *codes,
                           ptrdiff_t count) {
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(codes, count, form_options[form]);
    check(composed >= 0);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char encoded[UTF8_BYTES_MAX];
        buf_add(out, encoded, utf8_put((uint32_t)codes[i], encoded));
    }
    return out->failed ? ERR_FATAL_NOMEM : 0;
}

// Tables older than the library's are what ids were made with: such a character stays as it is, and
// nothing combines over it.
static bool is_inert(uint32_t code) {
    size_t low = 0, high = sizeof unicode_inert / sizeof *unicode_inert;
    if (code < unicode_inert[0][0]) return false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (unicode_inert[middle][1] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof unicode_inert / sizeof *unicode_inert && unicode_inert[low][0] <= code;
}

// Bytes before the first inert character of text, whose own bytes go to *inert (0: there is none).
static size_t find_inert(const char *text, size_t n, size_t *inert) {
    *inert = 0;
    for (size_t i = 0; i < n;) {
        struct utf8_unit unit = utf8_next(text + i, n - i);
        if (is_inert(unit.code)) {
            *inert = unit.bytes;
            return i;
        }
        i += unit.bytes;
    }
    return n;
}

// Codes take many times the bytes of their text, so a long one is done in parts. Nothing combines
// over a character below U+0300.
static size_t part_end(const char *text, size_t n) {
    size_t end = PART_BYTES;
    while (end < n && !(utf8_is_start(text[end]) && (unsigned char)text[end] < 0xcc))
        end++;
    return end < n ? end : n;
}

static int append_part(struct buf *out, enum unicode_form form, const char *text, size_t n) {
    struct buf room = {0};
    ptrdiff_t count = decompose(form, text, n, &room);
    utf8proc_int32_t *codes = (utf8proc_int32_t *)(void *)room.data;
    int rc = count < 0 ? ERR_FATAL_NOMEM : order_marks(codes, (size_t)count);
    if (rc == 0) rc = append_composed(out, form, codes, count);
    buf_finish(&room);
    return rc;
}

static int append_form(struct buf *out, enum unicode_form form, const char *text, size_t n) {
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0;) {
        size_t part = part_end(text + i, n - i);
        rc = append_part(out, form, text + i, part);
        i += part;
    }
    return rc;
}

int nfc_append(struct buf *out, enum unicode_form form, const char *text, size_t n) {
    int rc = 0;
    if (nfc_is_plain(form, text, n)) {
        buf_add(out, text, n);
        return out->failed ? ERR_FATAL_NOMEM : 0;
    }
    for (size_t i = 0; i < n && rc == 0;) {
        size_t inert, before = find_inert(text + i, n - i, &inert);
        if (before > 0) rc = append_form(out, form, text + i, before);
        buf_add(out, text + i + before, inert);
        i += before + inert;
    }
    return rc == 0 && out->failed ? ERR_FATAL_NOMEM : rc;
}
