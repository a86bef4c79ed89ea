"""Writes common/text/unicode_unhan.h: letters without case and marks that are not Han, as the inside of a PCRE2 class, which has no
way to subtract one set from another. What Hugging Face tokenizers' regular expressions match counts.

    python make_unicode_unhan.py > common/text/unicode_unhan.h
"""
from make_unicode_recent import quoted
from tokenizers import Regex, pre_tokenizers


def matched(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = []
    codes = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
    for i in range(0, len(codes), 4096):
        block = codes[i:i + 4096]
        left = {ord(c) for s, _ in split.pre_tokenize_str("".join(map(chr, block))) for c in s}
        found += [c for c in block if c not in left]
    return found


def spans(codes):
    out = []
    for c in codes:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    # A class is searched from its front: the ranges that most texts need come first.
    out.sort(key=lambda s: s[0] - s[1])
    return ["\\\\x{%x}" % a if a == b else "\\\\x{%x}-\\\\x{%x}" % (a, b) for a, b in out]


def main():
    codes = matched(r"[\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]")
    print("""// unicode_unhan.h: modifier letters, letters without case and marks, but for Han, as the inside of a PCRE2 class.
//
// Made by tests/data/text/make_unicode_unhan.py from what Hugging Face tokenizers match.
#ifndef MOESAIC_COMMON_TEXT_UNICODE_UNHAN_H
#define MOESAIC_COMMON_TEXT_UNICODE_UNHAN_H

// clang-format off
#define UNHAN_OTHER \\""")
    print("    " + quoted(spans(codes), 4).replace("\n", " \\\n"))
    print("// clang-format on\n\n#endif")


if __name__ == "__main__":
    main()
