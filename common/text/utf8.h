// utf8.h: reading UTF-8 that may be wrong: characters, and the pieces of bytes that U+FFFD stands
// for.
//
// Wrong bytes are grouped as Unicode recommends and as Python's bytes.decode(errors="replace")
// does: the longest beginning of a valid character is one replacement, any other byte is one of its
// own. Owns nothing; any thread.
#ifndef MOESAIC_COMMON_TEXT_UTF8_H
#define MOESAIC_COMMON_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd"
#define UTF8_REPLACEMENT_CODE 0xfffdu
#define UTF8_BYTES_MAX 4

struct utf8_unit {
    uint32_t code;  // UTF8_REPLACEMENT_CODE when not valid
    uint32_t bytes; // 1 to 4
    bool valid;
    bool cut; // not valid only because the text ended inside a character
};

// The unit at text[0, n), n >= 1.
struct utf8_unit utf8_next(const char *text, size_t n);

// Writes code (a Unicode scalar value) and returns its bytes, at most UTF8_BYTES_MAX.
size_t utf8_put(uint32_t code, char *out);

bool utf8_valid(const char *text, size_t n);

// True for a byte that begins a character (in valid text).
static inline bool utf8_is_start(char byte) {
    return ((unsigned char)byte & 0xc0u) != 0x80u;
}

// Characters of a valid text.
static inline uint64_t utf8_count(const char *text, size_t n) {
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += utf8_is_start(text[i]) ? 1 : 0;
    return count;
}

#endif
