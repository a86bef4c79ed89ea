"""Writes common/text/unicode_inert.h: characters that Hugging Face's normalisers do not know, being younger than their tables, while
utf8proc may: marks that have no combining class there, and characters without a decomposition.

Run with Python 3.11 (its unicodedata is Unicode 14.0); characters younger than that are found by their class in unicode_recent.h's maker.
    python3.11 make_unicode_inert.py > common/text/unicode_inert.h
"""
import unicodedata

from make_unicode_recent import matched
from tokenizers import normalizers

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
CODES = [c for c in range(0x300, 0x110000) if not 0xD800 <= c < 0xE000]
# Known by number: decompositions of Unicode 15, and the first half of a pair that Unicode 13 composes.
YOUNGER = [*range(0x1E030, 0x1E06E), 0x11930]


def differs(c):
    theirs = {f: getattr(normalizers, f)() for f in FORMS}
    if any(theirs[f].normalize_str(chr(c)) != unicodedata.normalize(f, chr(c)) for f in FORMS):
        return True
    text = "a\u0301" + chr(c) + "\u0316"
    return unicodedata.combining(chr(c)) != 0 and theirs["NFC"].normalize_str(text) != unicodedata.normalize("NFC", text)


def main():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    codes = sorted({*filter(differs, CODES), *matched(r"[\p{Mn}\p{Mc}]"), *YOUNGER})
    spans = []
    for c in codes:
        if spans and spans[-1][1] == c - 1:
            spans[-1][1] = c
        else:
            spans.append([c, c])
    print("""// unicode_inert.h: characters that Hugging Face's normalisers leave as they are because their tables
// are older.
//
// Made by tests/data/text/make_unicode_inert.py. Sorted; each row is a first and a last character.
#ifndef MOESAIC_COMMON_TEXT_UNICODE_INERT_H
#define MOESAIC_COMMON_TEXT_UNICODE_INERT_H

#include <stdint.h>

// clang-format off
static const uint32_t unicode_inert[][2] = {""")
    for i in range(0, len(spans), 4):
        print("    " + " ".join("{0x%x, 0x%x}," % tuple(s) for s in spans[i:i + 4]))
    print("};\n// clang-format on\n\n#endif")


if __name__ == "__main__":
    main()
