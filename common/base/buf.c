// buf.c: see buf.h.
#include "common/base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"

#define CAPACITY_FIRST 256

void buf_init(struct buf *b, size_t bytes_max) {
    *b = (struct buf){.bytes_max = bytes_max};
}

void buf_finish(struct buf *b) {
    mem_free(b->data);
    *b = (struct buf){0};
}

void buf_reset(struct buf *b) {
    b->bytes = 0;
    b->failed = false;
}

// Makes room for more bytes behind the ones there are.
static bool reserve(struct buf *b, size_t more) {
    size_t need;
    if (b->failed || !size_add(b->bytes, more, &need) ||
        (b->bytes_max != 0 && need > b->bytes_max)) {
        b->failed = true;
        return false;
    }
    if (need <= b->capacity) return true;
    size_t capacity = b->capacity < CAPACITY_FIRST ? CAPACITY_FIRST : b->capacity;
    while (capacity < need) {
        if (!size_mul(capacity, 2, &capacity)) capacity = need;
    }
    char *data = mem_resize(b->data, capacity);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void buf_add(struct buf *b, const void *data, size_t bytes) {
    if (bytes == 0 || !reserve(b, bytes)) return;
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
}

void buf_text(struct buf *b, const char *text) {
    buf_add(b, text, strlen(text));
}

void buf_format(struct buf *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    check(n >= 0);
    if (reserve(b, (size_t)n + 1)) {
        vsnprintf(b->data + b->bytes, (size_t)n + 1, format, again);
        b->bytes += (size_t)n;
    }
    va_end(again);
}

void buf_drop(struct buf *b, size_t bytes) {
    check(bytes <= b->bytes);
    if (bytes == 0) return;
    b->bytes -= bytes;
    memmove(b->data, b->data + bytes, b->bytes);
}

// The table of well-formed sequences in the Unicode standard: the second byte's range depends on
// the first.
size_t utf8_char_bytes(const char *text, size_t bytes) {
    const unsigned char *s = (const unsigned char *)text;
    if (bytes == 0) return 0;
    if (s[0] < 0x80) return 1;
    size_t n = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > bytes) return 0;
    unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
    }
    return n;
}

static void add_escape(struct buf *b, unsigned char c) {
    static const char plain[] = "\"\\\b\f\n\r\t";
    static const char letter[] = "\"\\bfnrt";
    const char *at = c == 0 ? NULL : strchr(plain, c);
    if (at != NULL) {
        char pair[2] = {'\\', letter[at - plain]};
        buf_add(b, pair, sizeof pair);
    } else {
        buf_format(b, "\\u%04x", c);
    }
}

static bool needs_escape(unsigned char c) {
    return c < 0x20 || c == '"' || c == '\\' || c == 0x7f;
}

void buf_json_raw(struct buf *b, const char *text, size_t bytes) {
    size_t i = 0;
    while (i < bytes) {
        size_t run = i;
        size_t n = 0;
        while (run < bytes && !needs_escape((unsigned char)text[run]) &&
               (n = utf8_char_bytes(text + run, bytes - run)) != 0)
            run += n;
        buf_add(b, text + i, run - i);
        i = run;
        if (i == bytes) break;
        if (needs_escape((unsigned char)text[i]))
            add_escape(b, (unsigned char)text[i]);
        else
            buf_text(b, "\xef\xbf\xbd");
        i++;
    }
}

void buf_json(struct buf *b, const char *text, size_t bytes) {
    buf_add(b, "\"", 1);
    buf_json_raw(b, text, bytes);
    buf_add(b, "\"", 1);
}
