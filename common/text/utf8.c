// utf8.c: one table-free decoder; every reader of outside text in this folder goes through it.
#include "common/text/utf8.h"

#include "common/base/check.h"

// What may follow a first byte: how many more, and the range of the second (it excludes overlong
// forms, surrogates and values above U+10FFFF).
struct shape {
    uint32_t more;
    unsigned char low, high;
};

static struct shape shape_of(unsigned char first) {
    if (first >= 0xc2 && first <= 0xdf) return (struct shape){1, 0x80, 0xbf};
    if (first == 0xe0) return (struct shape){2, 0xa0, 0xbf};
    if (first == 0xed) return (struct shape){2, 0x80, 0x9f};
    if (first >= 0xe1 && first <= 0xef) return (struct shape){2, 0x80, 0xbf};
    if (first == 0xf0) return (struct shape){3, 0x90, 0xbf};
    if (first >= 0xf1 && first <= 0xf3) return (struct shape){3, 0x80, 0xbf};
    if (first == 0xf4) return (struct shape){3, 0x80, 0x8f};
    return (struct shape){0, 0, 0};
}

struct utf8_unit utf8_next(const char *text, size_t n) {
    check(n >= 1);
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return (struct utf8_unit){s[0], 1, true, false};
    struct shape shape = shape_of(s[0]);
    struct utf8_unit bad = {UTF8_REPLACEMENT_CODE, 1, false, false};
    if (shape.more == 0) return bad;
    uint32_t code = s[0] & (0x3fu >> shape.more);
    for (uint32_t i = 1; i <= shape.more; i++) {
        if (i == n) {
            bad.cut = true;
            return bad;
        }
        unsigned char low = i == 1 ? shape.low : 0x80, high = i == 1 ? shape.high : 0xbf;
        if (s[i] < low || s[i] > high) return bad;
        code = code << 6 | (s[i] & 0x3fu);
        bad.bytes = i + 1;
    }
    return (struct utf8_unit){code, shape.more + 1, true, false};
}

size_t utf8_put(uint32_t code, char *out) {
    check(code <= 0x10ffff);
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80u | (code & 0x3fu));
        code >>= 6;
    }
    out[0] = (char)(lead[n] | code);
    return n;
}

bool utf8_valid(const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        if ((unsigned char)text[i] < 0x80) {
            i++;
            continue;
        }
        struct utf8_unit unit = utf8_next(text + i, n - i);
        if (!unit.valid) return false;
        i += unit.bytes;
    }
    return true;
}
