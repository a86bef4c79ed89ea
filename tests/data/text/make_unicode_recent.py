"""Writes common/text/unicode_recent.h: characters that Hugging Face tokenizers' regular expressions know and Unicode 14 does not.

Run with Python 3.11 (its unicodedata is Unicode 14.0, as PCRE2 10.42 is) and the tokenizers package:
    python3.11 make_unicode_recent.py > common/text/unicode_recent.h
"""
import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split()
UNASSIGNED = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) == "Cn"]


def matched(pattern):
    """The unassigned characters that the pattern matches."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = []
    for i in range(0, len(UNASSIGNED), 4096):
        block = UNASSIGNED[i:i + 4096]
        left = {ord(c) for s, _ in split.pre_tokenize_str("".join(map(chr, block))) for c in s}
        found += [c for c in block if c not in left]
    return found


def ranges(codes):
    spans = []
    for c in codes:
        if spans and spans[-1][1] == c - 1:
            spans[-1][1] = c
        else:
            spans.append([c, c])
    return ["\\\\x{%x}" % a if a == b else "\\\\x{%x}-\\\\x{%x}" % (a, b) for a, b in spans]


def quoted(parts, indent):
    lines, line = [], ""
    for p in parts:
        if len(line) + len(p) > 90 - indent:
            lines.append(line)
            line = ""
        line += p
    return ("\n" + " " * indent).join('"%s"' % part for part in lines + [line])


def main():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    print("""// unicode_recent.h: characters younger than Unicode 14, as insides of PCRE2 classes.
//
// Made by tests/data/text/make_unicode_recent.py from what Hugging Face tokenizers match. Debian 12's PCRE2 knows Unicode 14; a
// younger PCRE2 knows some of these itself, which does no harm.
#ifndef MOESAIC_COMMON_TEXT_UNICODE_RECENT_H
#define MOESAIC_COMMON_TEXT_UNICODE_RECENT_H

// clang-format off
static const struct unicode_recent {
    const char *category, *ranges;
} unicode_recent[] = {""")
    for category in CATEGORIES:
        codes = matched(r"\p{%s}" % category)
        if codes:
            print('    {"%s",\n     %s},' % (category, quoted(ranges(codes), 5)))
    print("};")
    print("#define UNICODE_RECENT_COUNT (sizeof unicode_recent / sizeof *unicode_recent)\n")
    print("#define UNICODE_RECENT_HAN \\\n    " + quoted(ranges(matched(r"\p{Han}")), 4).replace("\n", " \\\n"))
    print("// clang-format on\n\n#endif")


if __name__ == "__main__":
    main()
