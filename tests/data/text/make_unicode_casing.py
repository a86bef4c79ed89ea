"""Writes common/text/unicode_casing.h: characters whose upper or title case is more than one character, as Python has them.

    python make_unicode_casing.py > common/text/unicode_casing.h
"""


def literal(text):
    return '"' + "".join("\\x%02x" % b for b in text.encode()) + '"'


def main():
    print("""// unicode_casing.h: characters whose upper or title case is more than one character (Unicode's SpecialCasing).
//
// Made by tests/data/text/make_unicode_casing.py; sorted by code. Title case NULL: it is one character, utf8proc's.
#ifndef MOESAIC_COMMON_TEXT_UNICODE_CASING_H
#define MOESAIC_COMMON_TEXT_UNICODE_CASING_H

#include <stddef.h>
#include <stdint.h>

// clang-format off
static const struct unicode_casing {
    uint32_t code;
    const char *upper, *title;
} unicode_casing[] = {""")
    for code in range(0x110000):
        c = chr(code)
        if 0xD800 <= code < 0xE000 or (len(c.upper()) == 1 and len(c.title()) == 1):
            continue
        assert len(c.upper()) > 1
        print("    {0x%x, %s, %s}," % (code, literal(c.upper()), literal(c.title()) if len(c.title()) > 1 else "NULL"))
    print("};\n// clang-format on\n\n#endif")


if __name__ == "__main__":
    main()
