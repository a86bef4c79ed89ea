// nfc.c: decomposition and composition are utf8proc's; the ordering of marks in between is done
// here, because the library's is quadratic in the length of a run of marks, and its whole-string
// functions allocate by themselves.
#include "common/text/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/utf8.h"

#define OPTIONS ((utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE))
#define DECOMPOSED_MAX 32 // the longest decomposition of one character has 18
#define INSERTION_SORT_MAX 32

bool nfc_is_plain(const char *text, size_t n) {
    // U+0300 is the first whose first byte is 0xcc.
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] >= 0xcc) return false;
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
static ptrdiff_t decompose(const char *text, size_t n, struct buf *codes) {
    int last_boundclass = 0;
    for (size_t i = 0; i < n;) {
        struct utf8_unit unit = utf8_next(text + i, n - i);
        utf8proc_int32_t parts[DECOMPOSED_MAX];
        utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)unit.code, parts,
                                                         DECOMPOSED_MAX, OPTIONS, &last_boundclass);
        check(count >= 0 && count <= DECOMPOSED_MAX);
        buf_add(codes, parts, (size_t)count * sizeof *parts);
        i += unit.bytes;
    }
    return codes->failed ? -1 : (ptrdiff_t)(codes->bytes / sizeof(utf8proc_int32_t));
}

static int append_composed(struct buf *out, utf8proc_int32_t *codes, ptrdiff_t count) {
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(codes, count, OPTIONS);
    check(composed >= 0);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char encoded[UTF8_BYTES_MAX];
        buf_add(out, encoded, utf8_put((uint32_t)codes[i], encoded));
    }
    return out->failed ? ERR_FATAL_NOMEM : 0;
}

int nfc_append(struct buf *out, const char *text, size_t n) {
    if (nfc_is_plain(text, n)) {
        buf_add(out, text, n);
        return out->failed ? ERR_FATAL_NOMEM : 0;
    }
    struct buf room = {0};
    ptrdiff_t count = decompose(text, n, &room);
    utf8proc_int32_t *codes = (utf8proc_int32_t *)(void *)room.data;
    int rc = count < 0 ? ERR_FATAL_NOMEM : order_marks(codes, (size_t)count);
    if (rc == 0) rc = append_composed(out, codes, count);
    buf_finish(&room);
    return rc;
}
