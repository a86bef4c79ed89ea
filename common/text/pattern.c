// pattern.c: one pass over the pattern; every construct is either known to mean the same in both
// engines, rewritten, or refused.
#include "common/text/pattern.h"

#include <stdbool.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/text/unicode_recent.h"

// White_Space, as a class's inside: PCRE2's own \s also holds U+180E, which is none.
#define SPACES "\\t-\\r\\x{85}\\p{Z}"

struct reader {
    const char *source;
    size_t n, at;
    bool in_class;
    struct buf *out;
    struct err_text *e;
};

static int refuse(struct reader *r, const char *what) {
    return err_set(r->e, ERR_FATAL_MODEL,
                   "tokenizer.json: pattern: %s at byte %zu is not supported", what, r->at);
}

static int put(struct reader *r, const char *s, size_t n) {
    buf_add(r->out, s, n);
    if (!r->out->failed) return 0;
    return err_set(r->e, ERR_FATAL_MODEL, "tokenizer.json: pattern: too large");
}

static int puts_(struct reader *r, const char *s) {
    return put(r, s, strlen(s));
}

static char peek(const struct reader *r, size_t ahead) {
    return ahead < r->n - r->at ? r->source[r->at + ahead] : '\0';
}

// The inside of a class for a general category, with the characters that are younger than the
// library.
static int put_category(struct reader *r, const char *name, size_t n) {
    int rc = put(r, "\\p{", 3);
    if (rc == 0) rc = put(r, name, n);
    if (rc == 0) rc = put(r, "}", 1);
    for (size_t i = 0; rc == 0 && i < UNICODE_RECENT_COUNT; i++) {
        if (strncmp(unicode_recent[i].category, name, n) == 0)
            rc = puts_(r, unicode_recent[i].ranges);
    }
    return rc;
}

static bool is_category(const char *name, size_t n) {
    static const char *const names[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn",
                                        "Mc", "Me", "N",  "Nd", "Nl", "No", "P", "Pc",
                                        "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm",
                                        "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0) return true;
    }
    return false;
}

// \p{..} or \P{..}, at the backslash.
static int translate_property(struct reader *r) {
    bool negated = peek(r, 1) == 'P';
    if (negated && r->in_class) return refuse(r, "\\P inside a class");
    if (peek(r, 2) != '{') return refuse(r, "\\p without braces");
    const char *name = r->source + r->at + 3;
    const char *end = memchr(name, '}', r->n - r->at - 3);
    if (end == NULL) return refuse(r, "\\p{ without }");
    size_t n = (size_t)(end - name);
    bool han = n == 3 && memcmp(name, "Han", 3) == 0;
    if (!han && !is_category(name, n)) return refuse(r, "this property");
    int rc = 0;
    if (!r->in_class) rc = puts_(r, negated ? "[^" : "[");
    // A plain \p{Han} would mean the script's extensions in PCRE2; Oniguruma means the script.
    if (rc == 0 && han) rc = puts_(r, "\\p{sc:Han}" UNICODE_RECENT_HAN);
    if (rc == 0 && !han) rc = put_category(r, name, n);
    if (rc == 0 && !r->in_class) rc = puts_(r, "]");
    r->at += 4 + n;
    return rc;
}

static int translate_hex(struct reader *r) {
    size_t digits = 0;
    const char *hex = "0123456789abcdefABCDEF";
    if (peek(r, 2) == '{') {
        while (peek(r, 3 + digits) != '\0' && strchr(hex, peek(r, 3 + digits)) != NULL)
            digits++;
        if (digits == 0 || digits > 6 || peek(r, 3 + digits) != '}') return refuse(r, "this \\x{}");
        int rc = put(r, r->source + r->at, digits + 4);
        r->at += digits + 4;
        return rc;
    }
    for (size_t i = 2; i < 4; i++) {
        if (peek(r, i) == '\0' || strchr(hex, peek(r, i)) == NULL) return refuse(r, "this \\x");
    }
    if (strchr("01234567", peek(r, 2)) == NULL) return refuse(r, "\\x of a byte above 7f");
    int rc = put(r, r->source + r->at, 4);
    r->at += 4;
    return rc;
}

static int put_digits(struct reader *r) {
    int rc = r->in_class ? 0 : puts_(r, "[");
    if (rc == 0) rc = put_category(r, "Nd", 2);
    if (rc == 0 && !r->in_class) rc = puts_(r, "]");
    return rc;
}

static int translate_escape(struct reader *r) {
    char c = peek(r, 1);
    switch (c) {
    case 'p':
    case 'P': return translate_property(r);
    case 'x': return translate_hex(r);
    case 's': r->at += 2; return puts_(r, r->in_class ? SPACES : "[" SPACES "]");
    case 'S':
        if (r->in_class) return refuse(r, "\\S inside a class");
        r->at += 2;
        return puts_(r, "[^" SPACES "]");
    case 'd': r->at += 2; return put_digits(r);
    case 'v': r->at += 2; return puts_(r, "\\x0b"); // PCRE2's \v is a class
    case 'r':
    case 'n':
    case 't':
    case 'f': break;
    default:
        if (c == '\0' || strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ", c) == NULL)
            return refuse(r, "this escape");
    }
    r->at += 2;
    return put(r, r->source + r->at - 2, 2);
}

static int translate_in_class(struct reader *r) {
    char c = peek(r, 0);
    if (c == '[') return refuse(r, "a class inside a class");
    if (c == '&' && peek(r, 1) == '&') return refuse(r, "&& inside a class");
    if (c == ']') r->in_class = false;
    r->at++;
    return put(r, &c, 1);
}

static int translate_class_start(struct reader *r) {
    size_t n = peek(r, 1) == '^' ? 2 : 1;
    if (peek(r, n) == ']') return refuse(r, "an empty class");
    r->in_class = true;
    r->at += n;
    return put(r, r->source + r->at - n, n);
}

static int translate_group(struct reader *r) {
    static const char *const starts[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    if (peek(r, 1) == '*') return refuse(r, "(*");
    if (peek(r, 1) != '?') {
        r->at++;
        return put(r, "(?:", 3); // what a group captured is never asked for
    }
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t n = strlen(starts[i]);
        if (n > r->n - r->at || memcmp(r->source + r->at, starts[i], n) != 0) continue;
        r->at += n;
        return put(r, starts[i], n);
    }
    return refuse(r, "this kind of group");
}

// {n}, {n,} or {n,m}; a + behind it means "possessive" here and "again" in Oniguruma.
static int translate_braces(struct reader *r) {
    size_t n = 1;
    while (peek(r, n) >= '0' && peek(r, n) <= '9')
        n++;
    if (n == 1) return refuse(r, "{ without a number");
    if (peek(r, n) == ',') n++;
    while (peek(r, n) >= '0' && peek(r, n) <= '9')
        n++;
    if (peek(r, n) != '}') return refuse(r, "this {");
    if (peek(r, n + 1) == '+') return refuse(r, "{}+");
    r->at += n + 1;
    return put(r, r->source + r->at - n - 1, n + 1);
}

static int translate_one(struct reader *r) {
    char c = peek(r, 0);
    if (c == '\0') return refuse(r, "a zero byte");
    if (c == '\\') return translate_escape(r);
    if (r->in_class) return translate_in_class(r);
    switch (c) {
    case '[': return translate_class_start(r);
    case '(': return translate_group(r);
    case '{': return translate_braces(r);
    case '^': return refuse(r, "^");
    case '$': return refuse(r, "$");
    case '.': return refuse(r, ".");
    default: r->at++; return put(r, &c, 1);
    }
}

int pattern_translate(struct buf *out, const char *source, size_t n, struct err_text *e) {
    if (n == 0 || n > PATTERN_BYTES_MAX)
        return err_set(e, ERR_FATAL_MODEL, "tokenizer.json: pattern: %zu bytes", n);
    struct reader r = {.source = source, .n = n, .out = out, .e = e};
    while (r.at < n) {
        int rc = translate_one(&r);
        if (rc != 0) return rc;
    }
    return 0;
}
