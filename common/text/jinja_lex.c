// jinja_lex.c: one loop over the source; inside tags, one token a step.
#include "common/text/jinja_lex.h"

#include <stdbool.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/text/utf8.h"

#define BRACKETS_MAX 64
#define LEX_TOKENS_MAX 500000

struct lexer {
    const char *source;
    size_t n, at;
    uint32_t line;
    bool line_starting; // what came last ended a line
    char brackets[BRACKETS_MAX];
    size_t n_brackets;
    struct lex_tokens *out;
    struct err_text *e;
};

int jinja_is_space(uint32_t c) {
    return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t jinja_normalize(char *source, size_t n) {
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        bool pair = source[i] == '\r' && i + 1 < n && source[i + 1] == '\n';
        if (pair) continue;
        source[to++] = source[i] == '\r' ? '\n' : source[i];
    }
    return to > 0 && source[to - 1] == '\n' ? to - 1 : to;
}

void lex_tokens_finish(struct lex_tokens *t) {
    mem_free(t->list);
    *t = (struct lex_tokens){0};
}

static int wrong(struct lexer *x, const char *what) {
    return err_set(x->e, ERR_FATAL_MODEL, "chat template: line %u: %s", x->line, what);
}

static int add(struct lexer *x, enum token_kind kind, const char *text, size_t n) {
    struct lex_tokens *t = x->out;
    if (t->n == LEX_TOKENS_MAX) return wrong(x, "too many tokens");
    if (t->n == t->capacity) {
        size_t capacity = t->capacity < 256 ? 256 : 2 * t->capacity;
        struct lex_token *list = mem_resize(t->list, capacity * sizeof *list);
        if (list == NULL) return err_set(x->e, ERR_FATAL_NOMEM, "chat template: no memory");
        t->list = list;
        t->capacity = capacity;
    }
    t->list[t->n++] = (struct lex_token){.kind = kind, .line = x->line, .text = text, .n = n};
    return 0;
}

static char peek(const struct lexer *x, size_t ahead) {
    return ahead < x->n - x->at ? x->source[x->at + ahead] : '\0';
}

static bool looking_at(const struct lexer *x, const char *s) {
    size_t n = strlen(s);
    return n <= x->n - x->at && memcmp(x->source + x->at, s, n) == 0;
}

static void advance(struct lexer *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x->line += x->source[x->at + i] == '\n';
    if (n > 0) x->line_starting = x->source[x->at + n - 1] == '\n';
    x->at += n;
}

// Bytes of the white-space character at the position, 0 when there is none.
static size_t space_bytes(const struct lexer *x) {
    if (x->at >= x->n) return 0;
    struct utf8_unit unit = utf8_next(x->source + x->at, x->n - x->at);
    return unit.valid && jinja_is_space(unit.code) ? unit.bytes : 0;
}

static void skip_spaces(struct lexer *x) {
    for (size_t n = space_bytes(x); n > 0; n = space_bytes(x))
        advance(x, n);
}

// --- text between tags

static size_t trimmed_right(const char *text, size_t n) {
    while (n > 0) {
        size_t begin = n - 1;
        while (begin > 0 && !utf8_is_start(text[begin]))
            begin--;
        struct utf8_unit unit = utf8_next(text + begin, n - begin);
        if (!unit.valid || !jinja_is_space(unit.code)) break;
        n = begin;
    }
    return n;
}

// What is left of text before a tag: sign '-' strips all white space; a block or comment that
// stands alone at the beginning of its line loses the line's indentation unless its sign is '+'.
static size_t kept_before(const char *text, size_t n, char opener, char sign, bool line_starting) {
    if (sign == '-') return trimmed_right(text, n);
    if (sign == '+' || opener == '{') return n;
    size_t begin = n;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    if (begin == 0 && !line_starting) return n;
    size_t kept = trimmed_right(text + begin, n - begin);
    return kept == 0 ? begin : n;
}

static bool at_tag(const struct lexer *x) {
    return peek(x, 0) == '{' && (peek(x, 1) == '%' || peek(x, 1) == '{' || peek(x, 1) == '#');
}

// After the end of a block or comment: '-' takes all white space behind, otherwise one newline
// goes.
static void trim_after(struct lexer *x, char sign) {
    if (sign == '-')
        skip_spaces(x);
    else if (sign != '+' && peek(x, 0) == '\n')
        advance(x, 1);
}

static int lex_comment(struct lexer *x) {
    while (x->at < x->n && !looking_at(x, "#}"))
        advance(x, 1);
    if (x->at == x->n) return wrong(x, "a comment has no end");
    char sign = x->source[x->at - 1];
    advance(x, 2);
    trim_after(x, sign);
    return 0;
}

// At "%}" or a sign before it: the end of a tag named by name; restores the position when it is not
// one.
static bool match_end_of_tag(struct lexer *x, const char *name, char *sign) {
    struct lexer saved = *x;
    skip_spaces(x);
    bool named = looking_at(x, name);
    if (named) advance(x, strlen(name));
    skip_spaces(x);
    *sign = peek(x, 0) == '-' || peek(x, 0) == '+' ? peek(x, 0) : '\0';
    if (*sign != '\0') advance(x, 1);
    if (named && looking_at(x, "%}")) {
        advance(x, 2);
        return true;
    }
    *x = saved;
    return false;
}

// After "{% raw %}", behind which no newline is trimmed: text up to "{% endraw %}" is data.
static int lex_raw(struct lexer *x, char begin_sign) {
    if (begin_sign == '-') skip_spaces(x);
    const char *text = x->source + x->at;
    bool line_starting = x->line_starting;
    uint32_t line = x->line;
    while (x->at < x->n) {
        size_t n = (size_t)(x->source + x->at - text);
        if (!looking_at(x, "{%")) {
            advance(x, 1);
            continue;
        }
        struct lexer saved = *x;
        advance(x, 2);
        char sign = peek(x, 0) == '-' || peek(x, 0) == '+' ? peek(x, 0) : '\0', end_sign;
        if (sign != '\0') advance(x, 1);
        if (match_end_of_tag(x, "endraw", &end_sign)) {
            trim_after(x, end_sign);
            n = kept_before(text, n, '%', sign, line_starting);
            return n > 0 ? add(x, TOKEN_DATA, text, n) : 0;
        }
        *x = saved;
        advance(x, 1);
    }
    x->line = line;
    return wrong(x, "{% raw %} has no end");
}

// --- inside tags

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int lex_number(struct lexer *x) {
    size_t n = 0;
    enum token_kind kind = TOKEN_INTEGER;
    while (is_digit(peek(x, n)))
        n++;
    if (peek(x, n) == '.' && is_digit(peek(x, n + 1))) {
        kind = TOKEN_FLOAT;
        for (n++; is_digit(peek(x, n));)
            n++;
    }
    size_t sign = peek(x, n + 1) == '+' || peek(x, n + 1) == '-';
    if ((peek(x, n) | 0x20) == 'e' && is_digit(peek(x, n + 1 + sign))) {
        kind = TOKEN_FLOAT;
        for (n += 1 + sign; is_digit(peek(x, n));)
            n++;
    }
    bool leading_zero = kind == TOKEN_INTEGER && n > 1 && peek(x, 0) == '0';
    if (is_name_byte(peek(x, n)) || leading_zero)
        return wrong(x, "this form of a number is not supported");
    int rc = add(x, kind, x->source + x->at, n);
    advance(x, n);
    return rc;
}

static int lex_string(struct lexer *x) {
    char quote = peek(x, 0);
    size_t n = 1;
    while (x->at + n < x->n && peek(x, n) != quote)
        n += peek(x, n) == '\\' ? 2 : 1;
    if (x->at + n >= x->n) return wrong(x, "a string has no end");
    int rc = add(x, TOKEN_STRING, x->source + x->at, n + 1);
    advance(x, n + 1);
    return rc;
}

static int balance(struct lexer *x, char c) {
    if (c == '(' || c == '[' || c == '{') {
        if (x->n_brackets == BRACKETS_MAX) return wrong(x, "brackets are nested too deep");
        x->brackets[x->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        return 0;
    }
    if (c != ')' && c != ']' && c != '}') return 0;
    if (x->n_brackets == 0 || x->brackets[x->n_brackets - 1] != c)
        return wrong(x, "brackets do not match");
    x->n_brackets--;
    return 0;
}

static int lex_operator(struct lexer *x) {
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<=", NULL};
    size_t n = 0;
    for (size_t i = 0; two[i] != NULL && n == 0; i++)
        n = looking_at(x, two[i]) ? 2 : 0;
    if (n == 0) n = peek(x, 0) != '\0' && strchr("+-/*%~[](){}<>=.:|,", peek(x, 0)) != NULL ? 1 : 0;
    if (n == 0) return wrong(x, "a character has no meaning here");
    int rc = balance(x, peek(x, 0));
    if (rc == 0) rc = add(x, TOKEN_OPERATOR, x->source + x->at, n);
    advance(x, n);
    return rc;
}

static int lex_inside(struct lexer *x) {
    char c = peek(x, 0);
    if (c == '"' || c == '\'') return lex_string(x);
    if (is_digit(c)) return lex_number(x);
    if (!is_name_byte(c)) return lex_operator(x);
    size_t n = 1;
    while (is_name_byte(peek(x, n)))
        n++;
    int rc = add(x, TOKEN_NAME, x->source + x->at, n);
    advance(x, n);
    return rc;
}

// The tag's end at the position: its bytes with the sign, or 0.
static size_t end_bytes(const struct lexer *x, const char *end) {
    if (x->n_brackets > 0) return 0;
    char sign = peek(x, 0);
    bool has_sign = sign == '-' || (sign == '+' && end[0] == '%');
    if (has_sign && peek(x, 1) == end[0] && peek(x, 2) == end[1]) return 3;
    return looking_at(x, end) ? 2 : 0;
}

static int lex_tag(struct lexer *x, const char *end, enum token_kind end_kind) {
    for (;;) {
        skip_spaces(x);
        if (x->at == x->n) return wrong(x, "a tag has no end");
        size_t n = end_bytes(x, end);
        if (n > 0) {
            char sign = n == 3 ? peek(x, 0) : '\0';
            int rc = add(x, end_kind, x->source + x->at, n);
            advance(x, n);
            if (end_kind == TOKEN_BLOCK_END)
                trim_after(x, sign);
            else if (sign == '-')
                skip_spaces(x);
            return rc;
        }
        int rc = lex_inside(x);
        if (rc != 0) return rc;
    }
}

static int lex_opened(struct lexer *x, char opener) {
    if (opener == '#') return lex_comment(x);
    char sign;
    if (opener == '%' && match_end_of_tag(x, "raw", &sign)) return lex_raw(x, sign);
    bool block = opener == '%';
    int rc = add(x, block ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN, x->source + x->at, 0);
    if (rc != 0) return rc;
    x->n_brackets = 0;
    return lex_tag(x, block ? "%}" : "}}", block ? TOKEN_BLOCK_END : TOKEN_PRINT_END);
}

// Data up to the next tag, then the tag.
static int lex_step(struct lexer *x) {
    const char *text = x->source + x->at;
    bool line_starting = x->line_starting;
    uint32_t line = x->line;
    while (x->at < x->n && !at_tag(x))
        advance(x, 1);
    size_t n = (size_t)(x->source + x->at - text);
    bool tag = x->at < x->n;
    char opener = peek(x, 1), sign = peek(x, 2);
    if (tag) n = kept_before(text, n, opener, sign, line_starting);
    if (n > 0) {
        uint32_t now = x->line;
        x->line = line;
        int rc = add(x, TOKEN_DATA, text, n);
        x->line = now;
        if (rc != 0) return rc;
    }
    if (!tag) return 0;
    advance(x, sign == '-' || sign == '+' ? 3 : 2);
    return lex_opened(x, opener);
}

int jinja_lex(struct lex_tokens *out, const char *source, size_t n, struct err_text *e) {
    struct lexer x = {
        .source = source, .n = n, .line = 1, .line_starting = true, .out = out, .e = e};
    int rc = utf8_valid(source, n) ? 0 : wrong(&x, "it is not UTF-8");
    while (x.at < n && rc == 0)
        rc = lex_step(&x);
    if (rc == 0) rc = add(&x, TOKEN_END, source + n, 0);
    if (rc != 0) lex_tokens_finish(out);
    return rc;
}
