// character.c: see character.h. Categories are utf8proc's; Alphabetic is wider than letters by the
// ranges below.
#include "common/text/character.h"

#include <utf8proc.h>

#include "common/text/utf8.h"

bool character_is_space(uint32_t code) {
    if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

// Symbols that Unicode calls alphabetic: letters in circles and squares.
static bool is_lettered_symbol(uint32_t code) {
    return (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
           (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189);
}

bool character_is_word(uint32_t code) {
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return is_lettered_symbol(code) || code == 0x200c || code == 0x200d; // joiners
    }
}

// The character that ends at n >= 1.
static struct utf8_unit unit_before(const char *text, size_t n) {
    size_t begin = n - 1;
    while (begin > 0 && n - begin < UTF8_BYTES_MAX && !utf8_is_start(text[begin]))
        begin--;
    return utf8_next(text + begin, n - begin);
}

size_t character_spaces_at(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        struct utf8_unit unit = utf8_next(text + at, n - at);
        if (!character_is_space(unit.code)) break;
        at += unit.bytes;
    }
    return at;
}

size_t character_spaces_before(const char *text, size_t n) {
    size_t at = n;
    while (at > 0) {
        struct utf8_unit unit = unit_before(text, at);
        if (!character_is_space(unit.code)) break;
        at -= unit.bytes;
    }
    return n - at;
}

bool character_word_at(const char *text, size_t n) {
    return n > 0 && character_is_word(utf8_next(text, n).code);
}

bool character_word_before(const char *text, size_t n) {
    return n > 0 && character_is_word(unit_before(text, n).code);
}
