// jinja_expr.c: expressions to postfix code, by precedence; depth is bounded by
// EXPRESSION_DEPTH_MAX.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/text/jinja_builtin.h"
#include "common/text/jinja_compiler.h"
#include "common/text/utf8.h"

#define ARGUMENTS_MAX 255

static bool enter(struct compiler *c) {
    if (c->depth == EXPRESSION_DEPTH_MAX)
        return compiler_fail(c, "an expression is nested too deep");
    c->depth++;
    return true;
}

static bool leave(struct compiler *c, bool ok) {
    c->depth--;
    return ok;
}

// --- literals

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// \xHH, \uHHHH or \UHHHHHHHH at in; returns its bytes or 0.
static size_t escape_hex(const char *in, size_t n, uint32_t *code) {
    size_t digits = in[1] == 'x' ? 2 : in[1] == 'u' ? 4 : 8;
    *code = 0;
    if (n < digits + 2) return 0;
    for (size_t i = 2; i < digits + 2; i++) {
        int digit = hex_digit(in[i]);
        if (digit < 0) return 0;
        *code = *code << 4 | (uint32_t)digit;
    }
    bool scalar = *code <= 0x10ffff && (*code < 0xd800 || *code > 0xdfff);
    return scalar ? digits + 2 : 0;
}

static size_t escape_octal(const char *in, size_t n, uint32_t *code) {
    size_t i = 1;
    *code = 0;
    while (i < 4 && i < n && in[i] >= '0' && in[i] <= '7')
        *code = *code << 3 | (uint32_t)(in[i++] - '0');
    return i;
}

// One escape of a string literal at in[0] = '\\': bytes read, or 0. *n_out bytes of out (room for
// 4) are written.
static size_t unescape(const char *in, size_t n, char *out, size_t *n_out) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    uint32_t code;
    size_t used = 2;
    *n_out = 0;
    const char *simple = strchr(from, in[1]);
    if (simple != NULL) {
        out[(*n_out)++] = to[simple - from];
        return used;
    }
    if (in[1] == '\n') return used; // a continued line
    if (in[1] == 'N') return 0;
    if (in[1] == 'x' || in[1] == 'u' || in[1] == 'U')
        used = escape_hex(in, n, &code);
    else if (in[1] >= '0' && in[1] <= '7')
        used = escape_octal(in, n, &code);
    else {
        out[(*n_out)++] = '\\'; // Python keeps what it does not know, the backslash with it
        used = 1;
        return used;
    }
    if (used > 0) *n_out = utf8_put(code, out);
    return used;
}

// Appends one string token's text at to; returns the new end, NULL after an error.
static char *decode_string(struct compiler *c, const struct lex_token *token, char *to) {
    const char *in = token->text + 1;
    size_t n = token->n - 2;
    for (size_t i = 0; i < n;) {
        if (in[i] != '\\') {
            *to++ = in[i++];
            continue;
        }
        size_t n_out, used = unescape(in + i, n - i, to, &n_out);
        if (used == 0) {
            compiler_fail(c, "an escape in a string is not supported");
            return NULL;
        }
        to += n_out;
        i += used;
    }
    return to;
}

// Neighbouring strings are one.
static bool compile_string(struct compiler *c) {
    size_t n = 0, first = c->at;
    while (compiler_token(c)->kind == TOKEN_STRING) {
        n += compiler_token(c)->n;
        c->at++;
    }
    char *text = mem_alloc(n + UTF8_BYTES_MAX); // no escape is shorter than what it stands for
    if (text == NULL) return compiler_fail(c, "no memory");
    char *end = text;
    for (size_t i = first; i < c->at && end != NULL; i++)
        end = decode_string(c, &c->tokens.list[i], end);
    size_t index;
    bool ok = end != NULL && compiler_string(c, text, (size_t)(end - text), &index);
    mem_free(text);
    return ok && compiler_emit(c, OP_CONST, (int64_t)index, 0);
}

static bool compile_number(struct compiler *c) {
    const struct lex_token *token = compiler_token(c);
    char text[64];
    if (token->n >= sizeof text) return compiler_fail(c, "a number is too long");
    memcpy(text, token->text, token->n);
    text[token->n] = '\0';
    c->at++;
    errno = 0;
    if (token->kind == TOKEN_INTEGER) {
        long long value = strtoll(text, NULL, 10);
        if (errno != 0) return compiler_fail(c, "a number is too large");
        return compiler_emit(c, OP_INT, value, 0);
    }
    struct jinja_program *p = c->program;
    double *floats = mem_resize(p->floats, (p->n_floats + 1) * sizeof *floats);
    if (floats == NULL) return compiler_fail(c, "no memory");
    p->floats = floats;
    floats[p->n_floats] = strtod(text, NULL);
    return compiler_emit(c, OP_FLOAT, (int64_t)p->n_floats++, 0);
}

static bool compile_list(struct compiler *c, const char *end, size_t n, bool tuple) {
    while (!compiler_take_operator(c, end)) {
        if (!compile_expression(c)) return false;
        if (++n > ARGUMENTS_MAX) return compiler_fail(c, "a list is too long");
        if (!compiler_take_operator(c, ",") && !compiler_at_operator(c, end))
            return compiler_expect_operator(c, end);
    }
    return compiler_emit(c, OP_LIST, tuple, n);
}

static bool compile_dict(struct compiler *c) {
    size_t n = 0;
    while (!compiler_take_operator(c, "}")) {
        bool ok =
            compile_expression(c) && compiler_expect_operator(c, ":") && compile_expression(c);
        if (!ok) return false;
        if (++n > ARGUMENTS_MAX) return compiler_fail(c, "a dict is too long");
        if (!compiler_take_operator(c, ",") && !compiler_at_operator(c, "}"))
            return compiler_expect_operator(c, "}");
    }
    return compiler_emit(c, OP_DICT, 0, n);
}

// After "(": an expression in parentheses, or a tuple.
static bool compile_parentheses(struct compiler *c) {
    if (compiler_take_operator(c, ")")) return compiler_emit(c, OP_LIST, 1, 0);
    if (!compile_expression(c)) return false;
    if (compiler_take_operator(c, ",")) return compile_list(c, ")", 1, true);
    return compiler_expect_operator(c, ")");
}

// --- calls

// After "(": arguments up to ")"; *n counts them on top of what it holds.
static bool compile_arguments(struct compiler *c, size_t *n) {
    bool keywords = false;
    while (!compiler_take_operator(c, ")")) {
        const struct lex_token *name = compiler_token(c), *equals = compiler_ahead(c, 1);
        bool keyword = name->kind == TOKEN_NAME && equals->kind == TOKEN_OPERATOR &&
                       equals->n == 1 && *equals->text == '=';
        size_t index = 0;
        if (keyword && !compiler_string(c, name->text, name->n, &index)) return false;
        if (compiler_at_operator(c, "*") || compiler_at_operator(c, "**"))
            return compiler_fail(c, "* in arguments is not supported");
        if (keywords && !keyword)
            return compiler_fail(c, "an argument by position follows one by name");
        keywords = keyword;
        if (keyword) c->at += 2;
        if (!compile_expression(c)) return false;
        if (keyword && !compiler_emit(c, OP_KEYWORD, (int64_t)index, 0)) return false;
        if (++*n > ARGUMENTS_MAX) return compiler_fail(c, "a call has too many arguments");
        if (!compiler_take_operator(c, ",") && !compiler_at_operator(c, ")"))
            return compiler_expect_operator(c, ")");
    }
    return true;
}

// Jinja complains of an unknown filter or test in a branch only when it gets there.
static bool emit_unknown(struct compiler *c, const char *kind, const struct lex_token *name) {
    char text[160];
    size_t index;
    int n = snprintf(text, sizeof text, "chat template: No %s named '%.*s' found.", kind,
                     (int)(name->n < 64 ? name->n : 64), name->text);
    return compiler_string(c, text, (size_t)n, &index) &&
           compiler_emit(c, OP_FAIL, (int64_t)index, 0);
}

static bool emit_builtin(struct compiler *c, enum builtin_kind kind, const struct lex_token *name,
                         size_t argc) {
    static const enum jinja_op ops[] = {OP_FILTER, OP_TEST, OP_FUNCTION, OP_METHOD};
    static const char *const words[] = {"filter", "test", "function", "method"};
    int index = builtin_find(kind, name->text, name->n);
    if (index < 0 && c->n_blocks > 0 && kind <= BUILTIN_TEST)
        return emit_unknown(c, words[kind], name);
    if (index < 0)
        return compiler_fail(c, "%s \"%.*s\" is not supported", words[kind], (int)name->n,
                             name->text);
    return compiler_emit(c, ops[kind], index, argc);
}

// A name that is called: a built-in function, or a macro.
static bool compile_call(struct compiler *c, const struct lex_token *name) {
    size_t argc = 0, index;
    if (!compile_arguments(c, &argc)) return false;
    for (size_t i = 0; i < c->n_macros; i++) {
        const struct jinja_string *macro = &c->program->strings[c->macros[i]];
        if (macro->n == name->n && memcmp(macro->bytes, name->text, name->n) == 0)
            return compiler_string(c, name->text, name->n, &index) &&
                   compiler_emit(c, OP_CALL, (int64_t)index, argc);
    }
    return emit_builtin(c, BUILTIN_FUNCTION, name, argc);
}

static bool is_one_of(const struct lex_token *name, const char *const *names) {
    for (; *names != NULL; names++) {
        if (strlen(*names) == name->n && memcmp(*names, name->text, name->n) == 0) return true;
    }
    return false;
}

bool compile_is_function(const struct lex_token *name) {
    static const char *const functions[] = {"range",           "dict",         "lipsum",
                                            "cycler",          "joiner",       "namespace",
                                            "raise_exception", "strftime_now", NULL};
    return is_one_of(name, functions);
}

// Names that are functions or special in Jinja, and so mean something else than a variable that is
// not there.
static bool is_reserved(const struct lex_token *name) {
    static const char *const special[] = {"caller", "varargs", "kwargs", "self", "super", NULL};
    return compile_is_function(name) || is_one_of(name, special);
}

// A macro's parameter hides the built-in of its name.
static bool is_shadowed(const struct compiler *c, const struct lex_token *name) {
    for (size_t i = 0; i < c->n_shadows; i++) {
        const struct jinja_string *s = &c->program->strings[c->shadows[i]];
        if (s->n == name->n && memcmp(s->bytes, name->text, s->n) == 0) return true;
    }
    return false;
}

static bool compile_name(struct compiler *c) {
    static const struct {
        const char *name;
        enum jinja_op op;
    } constants[] = {{"true", OP_TRUE},   {"True", OP_TRUE}, {"false", OP_FALSE},
                     {"False", OP_FALSE}, {"none", OP_NONE}, {"None", OP_NONE}};
    const struct lex_token *name = compiler_token(c);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (compiler_take_name(c, constants[i].name))
            return compiler_emit(c, constants[i].op, 0, 0);
    }
    c->at++;
    bool shadowed = is_shadowed(c, name);
    if (shadowed && compiler_at_operator(c, "("))
        return compiler_fail(c, "\"%.*s\" is a parameter here, and called", (int)name->n,
                             name->text);
    if (compiler_take_operator(c, "(")) return compile_call(c, name);
    if (!shadowed && compiler_at_name(c, "is") && name->n == 12 &&
        memcmp(name->text, "strftime_now", 12) == 0)
        return compiler_emit(c, OP_TRUE, 0, 0); // a function is defined, not none, ...
    if (is_reserved(name) && !shadowed)
        return compiler_fail(c, "\"%.*s\" as a value is not supported", (int)name->n, name->text);
    size_t index;
    return compiler_string(c, name->text, name->n, &index) &&
           compiler_emit(c, OP_NAME, (int64_t)index, 0);
}

static bool compile_primary(struct compiler *c) {
    switch (compiler_token(c)->kind) {
    case TOKEN_NAME: return compile_name(c);
    case TOKEN_STRING: return compile_string(c);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT: return compile_number(c);
    default: break;
    }
    if (compiler_take_operator(c, "(")) return compile_parentheses(c);
    if (compiler_take_operator(c, "[")) return compile_list(c, "]", 0, false);
    if (compiler_take_operator(c, "{")) return compile_dict(c);
    return compiler_fail(c, "an expression is missing at \"%.*s\"", (int)compiler_token(c)->n,
                         compiler_token(c)->text);
}

// --- behind a primary: .name, [..], |filter, is test

static bool compile_point(struct compiler *c) {
    const struct lex_token *name = compiler_token(c);
    if (name->kind == TOKEN_INTEGER) return compile_number(c) && compiler_emit(c, OP_ITEM, 0, 0);
    if (!compiler_expect(c, TOKEN_NAME, "a name")) return false;
    size_t argc = 1, index;
    if (compiler_take_operator(c, "("))
        return compile_arguments(c, &argc) && emit_builtin(c, BUILTIN_METHOD, name, argc);
    return compiler_string(c, name->text, name->n, &index) &&
           compiler_emit(c, OP_ATTRIBUTE, (int64_t)index, 0);
}

// A part of a slice, none when it is left out.
static bool compile_bound(struct compiler *c) {
    bool left_out = compiler_at_operator(c, ":") || compiler_at_operator(c, "]");
    return left_out ? compiler_emit(c, OP_NONE, 0, 0) : compile_expression(c);
}

// After "[".
static bool compile_subscript(struct compiler *c) {
    if (compiler_at_operator(c, "]")) return compiler_fail(c, "a subscript is missing");
    if (!compile_bound(c)) return false;
    if (compiler_take_operator(c, "]")) return compiler_emit(c, OP_ITEM, 0, 0);
    if (!compiler_expect_operator(c, ":") || !compile_bound(c)) return false;
    bool step = compiler_take_operator(c, ":");
    if (!(step ? compile_bound(c) : compiler_emit(c, OP_NONE, 0, 0))) return false;
    return compiler_expect_operator(c, "]") && compiler_emit(c, OP_SLICE, 0, 0);
}

static bool compile_postfix(struct compiler *c) {
    for (;;) {
        if (compiler_take_operator(c, ".")) {
            if (!compile_point(c)) return false;
        } else if (compiler_take_operator(c, "[")) {
            if (!compile_subscript(c)) return false;
        } else if (compiler_at_operator(c, "(")) {
            return compiler_fail(c, "calling this is not supported");
        } else {
            return true;
        }
    }
}

static bool compile_filter(struct compiler *c) {
    const struct lex_token *name = compiler_token(c);
    size_t argc = 1;
    if (!compiler_expect(c, TOKEN_NAME, "a filter")) return false;
    if (compiler_take_operator(c, "(") && !compile_arguments(c, &argc)) return false;
    return emit_builtin(c, BUILTIN_FILTER, name, argc);
}

// "is divisibleby 3": a test takes one argument without parentheses.
static bool at_bare_argument(const struct compiler *c) {
    enum token_kind kind = compiler_token(c)->kind;
    if (kind == TOKEN_NAME)
        return !compiler_at_name(c, "else") && !compiler_at_name(c, "or") &&
               !compiler_at_name(c, "and");
    bool literal = kind == TOKEN_STRING || kind == TOKEN_INTEGER || kind == TOKEN_FLOAT;
    return literal || compiler_at_operator(c, "[") || compiler_at_operator(c, "{");
}

static bool compile_test(struct compiler *c) {
    bool negated = compiler_take_name(c, "not");
    const struct lex_token *name = compiler_token(c);
    size_t argc = 1;
    if (!compiler_expect(c, TOKEN_NAME, "a test")) return false;
    if (compiler_take_operator(c, "(")) {
        if (!compile_arguments(c, &argc)) return false;
    } else if (at_bare_argument(c)) {
        if (compiler_at_name(c, "is")) return compiler_fail(c, "tests with is cannot be chained");
        if (!compile_primary(c) || !compile_postfix(c)) return false;
        argc++;
    }
    if (!emit_builtin(c, BUILTIN_TEST, name, argc)) return false;
    return !negated || compiler_emit(c, OP_NOT, 0, 0);
}

bool compile_filters(struct compiler *c, bool first) {
    for (;;) {
        if (first || compiler_take_operator(c, "|")) {
            if (!compile_filter(c)) return false;
            first = false;
        } else if (compiler_take_name(c, "is")) {
            if (!compile_test(c)) return false;
        } else if (compiler_at_operator(c, "(")) {
            return compiler_fail(c, "calling this is not supported");
        } else {
            return true;
        }
    }
}

// --- operators, tightest first

// A sign's operand takes no filters of its own: they belong to the whole.
static bool compile_unary(struct compiler *c, bool with_filters) {
    if (!enter(c)) return false;
    bool minus = compiler_at_operator(c, "-"), plus = compiler_at_operator(c, "+"), ok;
    if (minus || plus) {
        c->at++;
        ok = compile_unary(c, false) && compiler_emit(c, minus ? OP_NEGATE : OP_PLUS, 0, 0);
    } else {
        ok = compile_primary(c);
    }
    ok = ok && compile_postfix(c) && (!with_filters || compile_filters(c, false));
    return leave(c, ok);
}

struct operator_row {
    const char *text;
    enum jinja_binary binary;
};

// The operator of a NULL-terminated list at the position; NULL when there is none.
static const struct operator_row *take_operator(struct compiler *c,
                                                const struct operator_row *rows) {
    for (; rows->text != NULL; rows++) {
        if (compiler_take_operator(c, rows->text)) return rows;
    }
    return NULL;
}

static bool compile_product(struct compiler *c) {
    static const struct operator_row rows[] = {{"*", BINARY_MULTIPLY},
                                               {"/", BINARY_DIVIDE},
                                               {"//", BINARY_FLOOR_DIVIDE},
                                               {"%", BINARY_MODULO},
                                               {NULL, 0}};
    if (!compile_unary(c, true)) return false;
    if (compiler_at_operator(c, "**")) return compiler_fail(c, "** is not supported");
    for (const struct operator_row *row; (row = take_operator(c, rows)) != NULL;) {
        if (!compile_unary(c, true) || !compiler_emit(c, OP_BINARY, row->binary, 0)) return false;
        if (compiler_at_operator(c, "**")) return compiler_fail(c, "** is not supported");
    }
    return true;
}

static bool compile_concat(struct compiler *c) {
    if (!compile_product(c)) return false;
    while (compiler_take_operator(c, "~")) {
        if (!compile_product(c) || !compiler_emit(c, OP_BINARY, BINARY_CONCAT, 0)) return false;
    }
    return true;
}

static bool compile_sum(struct compiler *c) {
    static const struct operator_row rows[] = {
        {"+", BINARY_ADD}, {"-", BINARY_SUBTRACT}, {NULL, 0}};
    if (!compile_concat(c)) return false;
    for (const struct operator_row *row; (row = take_operator(c, rows)) != NULL;) {
        if (!compile_concat(c) || !compiler_emit(c, OP_BINARY, row->binary, 0)) return false;
    }
    return true;
}

static bool take_comparison(struct compiler *c, enum jinja_binary *binary) {
    static const struct operator_row rows[] = {{"==", BINARY_EQUAL},
                                               {"!=", BINARY_NOT_EQUAL},
                                               {"<", BINARY_LESS},
                                               {"<=", BINARY_LESS_EQUAL},
                                               {">", BINARY_GREATER},
                                               {">=", BINARY_GREATER_EQUAL},
                                               {NULL, 0}};
    const struct operator_row *row = take_operator(c, rows);
    if (row != NULL) {
        *binary = row->binary;
        return true;
    }
    const struct lex_token *next = compiler_ahead(c, 1);
    bool not_in = compiler_at_name(c, "not") && next->kind == TOKEN_NAME && next->n == 2 &&
                  memcmp(next->text, "in", 2) == 0;
    if (!not_in && !compiler_at_name(c, "in")) return false;
    c->at += not_in ? 2 : 1;
    *binary = not_in ? BINARY_NOT_IN : BINARY_IN;
    return true;
}

static bool compile_comparison(struct compiler *c) {
    enum jinja_binary binary, another;
    if (!compile_sum(c)) return false;
    if (!take_comparison(c, &binary)) return true;
    if (!compile_sum(c) || !compiler_emit(c, OP_BINARY, binary, 0)) return false;
    return take_comparison(c, &another)
               ? compiler_fail(c, "a chain of comparisons is not supported")
               : true;
}

static bool compile_not(struct compiler *c) {
    if (!compiler_take_name(c, "not")) return compile_comparison(c);
    if (!enter(c)) return false;
    return leave(c, compile_not(c) && compiler_emit(c, OP_NOT, 0, 0));
}

static bool compile_and(struct compiler *c) {
    size_t jump;
    if (!compile_not(c)) return false;
    while (compiler_take_name(c, "and")) {
        if (!compiler_emit_jump(c, OP_JUMP_FALSE_KEEP, &jump) || !compile_not(c)) return false;
        compiler_patch(c, jump);
    }
    return true;
}

bool compile_expression_without_if(struct compiler *c) {
    size_t jump;
    if (!compile_and(c)) return false;
    while (compiler_take_name(c, "or")) {
        if (!compiler_emit_jump(c, OP_JUMP_TRUE_KEEP, &jump) || !compile_and(c)) return false;
        compiler_patch(c, jump);
    }
    return true;
}

// Exchanges the code of [begin, middle) and [middle, end of code).
static bool rotate(struct compiler *c, size_t begin, size_t middle) {
    struct jinja_instruction *code = c->program->code;
    size_t n_first = middle - begin, n_second = c->program->n_code - middle;
    struct jinja_instruction *first = mem_alloc(n_first * sizeof *first);
    if (first == NULL) return compiler_fail(c, "no memory");
    memcpy(first, code + begin, n_first * sizeof *first);
    memmove(code + begin, code + middle, n_second * sizeof *code);
    memcpy(code + begin + n_second, first, n_first * sizeof *first);
    mem_free(first);
    return true;
}

// "a if condition else b": the condition's code, which comes second in the source, must run first.
static bool compile_conditional(struct compiler *c, size_t begin) {
    size_t middle = c->program->n_code, false_jump, end_jump;
    if (!compile_expression_without_if(c) || !compiler_emit_jump(c, OP_JUMP_FALSE, &false_jump))
        return false;
    if (!rotate(c, begin, middle)) return false;
    false_jump -= middle - begin;
    if (!compiler_emit_jump(c, OP_JUMP, &end_jump)) return false;
    compiler_patch(c, false_jump);
    bool otherwise = compiler_take_name(c, "else");
    if (!(otherwise ? compile_expression(c) : compiler_emit(c, OP_UNDEFINED, 0, 0))) return false;
    compiler_patch(c, end_jump);
    return true;
}

bool compile_expression(struct compiler *c) {
    if (!enter(c)) return false;
    size_t begin = c->program->n_code;
    bool ok = compile_expression_without_if(c);
    while (ok && compiler_take_name(c, "if"))
        ok = compile_conditional(c, begin);
    return leave(c, ok);
}
