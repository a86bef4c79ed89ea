// text_lines.c: see text_lines.h.
#include "tests/harness/text_lines.h"

#include <stdbool.h>
#include <string.h>

#include "common/text/utf8.h"

static const char *const words[] = {"the",
                                    "quick",
                                    "Brown",
                                    "fox's",
                                    "don't",
                                    "we're",
                                    "I'll",
                                    "THEY'VE",
                                    "it'S",
                                    "He'd",
                                    "mixture",
                                    "EXPERTS",
                                    "iPhone",
                                    "HTTPServer",
                                    "naïve",
                                    "café",
                                    "Ångström",
                                    "straße",
                                    "ñandú",
                                    "Ελλάδα",
                                    "καλημέρα",
                                    "Привет",
                                    "мир",
                                    "ДОМ",
                                    "שלום",
                                    "עולם",
                                    "مرحبا",
                                    "بالعالم",
                                    "नमस्ते",
                                    "दुनिया",
                                    "สวัสดีชาวโลก",
                                    "こんにちは",
                                    "カタカナ",
                                    "漢字",
                                    "々〇〆",
                                    "一只小熊",
                                    "在森林里",
                                    "找到了钥匙",
                                    "안녕하세요",
                                    "세계",
                                    "ქართული",
                                    "հայերեն",
                                    "ᏣᎳᎩ",
                                    "አማርኛ",
                                    "བོད་སྐད",
                                    "ខ្មែរ",
                                    "မြန်မာ",
                                    "ǅ",
                                    "ﬁ",
                                    "Ⅷ",
                                    "½",
                                    "²",
                                    "٣٤",
                                    "४५",
                                    "𝟘𝟙",
                                    "𝔘𝔫",
                                    "x²+y²",
                                    "e=mc²",
                                    "3.14159",
                                    "1,000,000",
                                    "0x1F",
                                    "1e-9",
                                    "2026-11-29",
                                    "--flag",
                                    "/usr/bin",
                                    "foo_bar",
                                    "fooBarBaz",
                                    "FOO_BAR",
                                    "__init__",
                                    "a->b",
                                    "i++;",
                                    "{\"a\":[1,2,null]}",
                                    "<b>bold</b>",
                                    "&amp;",
                                    "$HOME",
                                    "#include",
                                    "<stdio.h>",
                                    "SELECT",
                                    "def",
                                    "f(x):",
                                    "return",
                                    ":-)",
                                    "...",
                                    "!!!",
                                    "---",
                                    "===",
                                    "***",
                                    "~~~",
                                    "```",
                                    "\\\\",
                                    "//",
                                    "@user",
                                    "#tag",
                                    "100%",
                                    "€5",
                                    "£6",
                                    "→",
                                    "∑",
                                    "≤",
                                    "©",
                                    "™",
                                    "「引用」",
                                    "。",
                                    "，",
                                    "！",
                                    "▁",
                                    "▁mark",
                                    "<0x41>",
                                    "ſ",
                                    "K",
                                    "⺀",
                                    "〡",
                                    "\xef\xbb\xbf"
                                    "bom",
                                    "a\xcc\x81"
                                    "b",
                                    "Ａ",
                                    "①",
                                    "㎏",
                                    "ﷺ"};
static const char *const emoji[] = {"😀",
                                    "👍🏽",
                                    "👨‍👩‍👧‍👦",
                                    "🏳️‍🌈",
                                    "🇰🇪",
                                    "❤️",
                                    "1️⃣",
                                    "☕︎",
                                    "🫠",
                                    "🩷"};
static const char *const marks[] = {"\xcc\x81",     "\xcc\x96",     "\xcc\x80\xcc\xa7",
                                    "\xcd\x85",     "\xe3\x82\x99", "\xe0\xbd\xb2",
                                    "\xe3\x80\xaa", "\xe2\x80\x8d", "\xef\xb8\x8f"};
static const char *const blanks[] = {" ",
                                     "  ",
                                     "   ",
                                     "\t",
                                     "\n",
                                     "\n\n",
                                     "\r\n",
                                     "\r",
                                     " \n",
                                     "\n ",
                                     "\v",
                                     "\f",
                                     "\xc2\x85",
                                     "\xc2\xa0",
                                     "\xe2\x80\x89",
                                     "\xe2\x80\xa8",
                                     "\xe3\x80\x80",
                                     "\xe1\xa0\x8e",
                                     "\xe2\x80\x8b",
                                     "\xe1\x9a\x80"};
static const char *const parts[] = {
    "'", "s",  "S", "\xc5\xbf",     "t", " ", "re", "LL", "D", "d'", "\xe2\x80\x99s", "VE",
    "m", "'s", "A", "\xe4\xbd\xa0", "é", "1"};
static const char *const units[] = {
    " ",  "\n", "a",        "A",   "0",  "-",  "é",    "哈",
    "😀",  "\t", "\xcc\x81", " \n", "ab", "'s", "\r\n", "\xe3\x80\x80",
    "Ab", "a1", ". ",       "▁",   "/",  "ཀ"};

#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof *(list)))

struct line {
    char *out;
    size_t n;
};

uint32_t text_lines_below(uint64_t *state, uint32_t n) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 33) % n);
}

static void add(struct line *to, const char *bytes, size_t n) {
    if (to->n + n > TEXT_LINE_BYTES_MAX) return;
    memcpy(to->out + to->n, bytes, n);
    to->n += n;
}

static void add_text(struct line *to, const char *text) {
    add(to, text, strlen(text));
}

static void pick(struct text_lines *l, struct line *to, const char *const *list, uint32_t n) {
    add_text(to, list[text_lines_below(&l->state, n)]);
}

static uint32_t below(struct text_lines *l, uint32_t n) {
    return text_lines_below(&l->state, n);
}

static void gap(struct text_lines *l, struct line *to) {
    if (below(l, 3) == 0)
        pick(l, to, blanks, COUNT(blanks));
    else
        add_text(to, " ");
}

static void add_words(struct text_lines *l, struct line *to, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        pick(l, to, words, COUNT(words));
        if (below(l, 8) != 0) gap(l, to);
    }
}

static void add_code(struct text_lines *l, struct line *to, uint32_t ceiling) {
    char bytes[UTF8_BYTES_MAX];
    uint32_t code = 1 + below(l, ceiling - 1);
    if (code >= 0xd800 && code < 0xe000) code = 0xd7ff;
    add(to, bytes, utf8_put(code, bytes));
}

// --- kinds of lines

static void mixed(struct text_lines *l, struct line *to) {
    for (uint32_t i = below(l, 8); i > 0; i--) {
        uint32_t kind = below(l, 4);
        if (kind == 0) pick(l, to, emoji, COUNT(emoji));
        if (kind == 1) pick(l, to, marks, COUNT(marks));
        for (uint32_t k = below(l, 9); kind == 2 && k > 0; k--)
            add(to, &"0123456789"[below(l, 10)], 1);
        add_words(l, to, 1);
    }
}

static void ascii(struct text_lines *l, struct line *to) {
    for (uint32_t i = 1 + below(l, 40); i > 0; i--)
        add(to, &(char){(char)(1 + below(l, 127))}, 1);
}

static void unicode(struct text_lines *l, struct line *to) {
    static const uint32_t ceilings[] = {0x250, 0x600, 0x3000, 0x10000, 0x20000, 0x110000};
    uint32_t ceiling = ceilings[below(l, COUNT(ceilings))];
    for (uint32_t i = 1 + below(l, 16); i > 0; i--) {
        add_code(l, to, ceiling);
        if (below(l, 4) == 0) pick(l, to, parts, COUNT(parts));
    }
}

static void bytes(struct text_lines *l, struct line *to) {
    static const char tame[] = "a \xe4\xbd\xa0\xf0\x9f\x98\x80";
    for (uint32_t i = 1 + below(l, 24); i > 0; i--) {
        char byte = below(l, 2) ? (char)below(l, 256) : tame[below(l, sizeof tame - 1)];
        add(to, &byte, 1);
    }
}

static void added(struct text_lines *l, struct line *to) {
    for (uint32_t i = 1 + below(l, 6); i > 0; i--) {
        const char *token = l->n_added == 0 ? "<s>" : l->added[below(l, (uint32_t)l->n_added)];
        size_t n = strlen(token);
        uint32_t kind = below(l, 8);
        if (kind == 0) n = below(l, (uint32_t)n); // only its beginning
        if (kind == 1) gap(l, to);
        add(to, token, n);
        if (kind == 2) pick(l, to, marks, COUNT(marks));
        if (kind < 5) gap(l, to);
        if (kind != 7) add_words(l, to, below(l, 3));
    }
}

static void contractions(struct text_lines *l, struct line *to) {
    for (uint32_t i = 2 + below(l, 18); i > 0; i--)
        pick(l, to, parts, COUNT(parts));
}

static void run(struct text_lines *l, struct line *to) {
    const char *unit = units[below(l, COUNT(units))];
    static const uint32_t lengths[] = {2, 3, 4, 7, 8, 15, 16, 31, 64, 129, 300};
    if (below(l, 2)) add_words(l, to, 1);
    for (uint32_t i = lengths[below(l, COUNT(lengths))]; i > 0; i--)
        add_text(to, unit);
    if (below(l, 2)) add_words(l, to, 1);
}

static void spaces(struct text_lines *l, struct line *to) {
    for (uint32_t i = 1 + below(l, 8); i > 0; i--) {
        for (uint32_t k = below(l, 5); k > 0; k--)
            pick(l, to, blanks, COUNT(blanks));
        if (below(l, 3)) pick(l, to, words, COUNT(words));
    }
}

void text_lines_init(struct text_lines *l, const char **tokens, size_t n_added) {
    *l = (struct text_lines){.state = 20261129, .added = tokens, .n_added = n_added};
}

size_t text_lines_next(struct text_lines *l, char out[TEXT_LINE_BYTES_MAX]) {
    struct line to = {.out = out};
    switch (l->index++ % 10) {
    case 0:
    case 1: add_words(l, &to, below(l, 12)); break;
    case 2: mixed(l, &to); break;
    case 3: ascii(l, &to); break;
    case 4: unicode(l, &to); break;
    case 5: bytes(l, &to); break;
    case 6: added(l, &to); break;
    case 7: contractions(l, &to); break;
    case 8: run(l, &to); break;
    default: spaces(l, &to);
    }
    return to.n;
}
