// jinja_compile.c: statements to code. Open blocks are a stack, so nesting of statements costs no
// recursion.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/text/jinja_compiler.h"

#define CODE_MAX 1000000
#define STRINGS_MAX 1000000
#define TARGETS_MAX 8

// --- tokens

const struct lex_token *compiler_ahead(const struct compiler *c, size_t n) {
    size_t last = c->tokens.n - 1;
    return &c->tokens.list[c->at + n < last ? c->at + n : last];
}

const struct lex_token *compiler_token(const struct compiler *c) {
    return compiler_ahead(c, 0);
}

static bool is(const struct lex_token *t, enum token_kind kind, const char *s) {
    return t->kind == kind && t->n == strlen(s) && memcmp(t->text, s, t->n) == 0;
}

bool compiler_at_operator(const struct compiler *c, const char *s) {
    return is(compiler_token(c), TOKEN_OPERATOR, s);
}

bool compiler_at_name(const struct compiler *c, const char *s) {
    return is(compiler_token(c), TOKEN_NAME, s);
}

bool compiler_take_operator(struct compiler *c, const char *s) {
    bool taken = compiler_at_operator(c, s);
    c->at += taken;
    return taken;
}

bool compiler_take_name(struct compiler *c, const char *s) {
    bool taken = compiler_at_name(c, s);
    c->at += taken;
    return taken;
}

bool compiler_expect_operator(struct compiler *c, const char *s) {
    if (compiler_take_operator(c, s)) return true;
    return compiler_fail(c, "\"%s\" is missing at \"%.*s\"", s, (int)compiler_token(c)->n,
                         compiler_token(c)->text);
}

bool compiler_expect(struct compiler *c, enum token_kind kind, const char *what) {
    const struct lex_token *t = compiler_token(c);
    if (t->kind != kind)
        return compiler_fail(c, "%s is missing at \"%.*s\"", what, (int)t->n, t->text);
    c->at++;
    return true;
}

// --- code

bool compiler_fail(struct compiler *c, const char *format, ...) {
    if (c->rc != 0) return false;
    char what[240];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    c->rc =
        err_set(c->e, ERR_FATAL_MODEL, "chat template: line %u: %s", compiler_token(c)->line, what);
    return false;
}

bool compiler_emit(struct compiler *c, enum jinja_op op, int64_t a, size_t argc) {
    struct jinja_program *p = c->program;
    if (p->n_code == CODE_MAX) return compiler_fail(c, "the template is too large");
    if (p->n_code == p->code_capacity) {
        size_t capacity = p->code_capacity == 0 ? 256 : 2 * p->code_capacity;
        struct jinja_instruction *code = mem_resize(p->code, capacity * sizeof *code);
        if (code == NULL) return compiler_fail(c, "no memory");
        p->code = code;
        p->code_capacity = capacity;
    }
    check(argc <= UINT16_MAX);
    uint32_t line = compiler_token(c)->line;
    p->code[p->n_code++] =
        (struct jinja_instruction){.op = (uint8_t)op, .argc = (uint16_t)argc, .line = line, .a = a};
    return true;
}

bool compiler_emit_jump(struct compiler *c, enum jinja_op op, size_t *jump) {
    *jump = c->program->n_code;
    return compiler_emit(c, op, 0, 0);
}

void compiler_patch(struct compiler *c, size_t jump) {
    c->program->code[jump].a = (int64_t)(c->program->n_code - jump) - 1;
}

bool compiler_jump_back(struct compiler *c, size_t target) {
    return compiler_emit(c, OP_JUMP, (int64_t)target - (int64_t)c->program->n_code - 1, 0);
}

bool compiler_string(struct compiler *c, const char *bytes, size_t n, size_t *index) {
    struct jinja_program *p = c->program;
    if (p->n_strings == STRINGS_MAX) return compiler_fail(c, "the template is too large");
    if (p->n_strings == p->strings_capacity) {
        size_t capacity = p->strings_capacity == 0 ? 64 : 2 * p->strings_capacity;
        struct jinja_string *strings = mem_resize(p->strings, capacity * sizeof *strings);
        if (strings == NULL) return compiler_fail(c, "no memory");
        p->strings = strings;
        p->strings_capacity = capacity;
    }
    char *copy = arena_alloc(&p->arena, n);
    if (copy == NULL) return compiler_fail(c, "no memory");
    if (n > 0) memcpy(copy, bytes, n);
    *index = p->n_strings;
    p->strings[p->n_strings++] = (struct jinja_string){.bytes = copy, .n = n};
    return true;
}

// A jump to where many go: its a holds the one before it until all are patched.
static bool emit_chained(struct compiler *c, size_t *chain) {
    size_t before = *chain;
    return compiler_emit_jump(c, OP_JUMP, chain) &&
           (c->program->code[*chain].a = (int64_t)before, true);
}

static void patch_chain(struct compiler *c, size_t chain) {
    while (chain != NO_JUMP) {
        size_t before = (size_t)c->program->code[chain].a;
        compiler_patch(c, chain);
        chain = before;
    }
}

// --- blocks

static struct block *open_block(struct compiler *c, enum block_kind kind) {
    if (c->n_blocks == BLOCKS_MAX) {
        compiler_fail(c, "statements are nested too deep");
        return NULL;
    }
    struct block *b = &c->blocks[c->n_blocks++];
    *b = (struct block){
        .kind = kind, .line = compiler_token(c)->line, .false_jump = NO_JUMP, .end_chain = NO_JUMP};
    return b;
}

static struct block *innermost(struct compiler *c, enum block_kind kind, const char *what) {
    struct block *b = c->n_blocks == 0 ? NULL : &c->blocks[c->n_blocks - 1];
    if (b != NULL && b->kind == kind) return b;
    compiler_fail(c, "{%% %s %%} has nothing to belong to", what);
    return NULL;
}

static bool statement_if(struct compiler *c) {
    struct block *b = open_block(c, BLOCK_IF);
    return b != NULL && compile_expression(c) &&
           compiler_emit_jump(c, OP_JUMP_FALSE, &b->false_jump);
}

// The branch before ends: jump behind the whole, and a false condition comes here.
static bool next_branch(struct compiler *c, struct block *b) {
    if (b->has_else) return compiler_fail(c, "a branch comes after {%% else %%}");
    if (!emit_chained(c, &b->end_chain)) return false;
    compiler_patch(c, b->false_jump);
    b->false_jump = NO_JUMP;
    return true;
}

static bool statement_elif(struct compiler *c) {
    struct block *b = innermost(c, BLOCK_IF, "elif");
    if (b == NULL || !next_branch(c, b)) return false;
    return compile_expression(c) && compiler_emit_jump(c, OP_JUMP_FALSE, &b->false_jump);
}

static bool statement_endif(struct compiler *c) {
    struct block *b = innermost(c, BLOCK_IF, "endif");
    if (b == NULL) return false;
    if (b->false_jump != NO_JUMP) compiler_patch(c, b->false_jump);
    patch_chain(c, b->end_chain);
    c->n_blocks--;
    return true;
}

// --- for

struct targets {
    size_t names[TARGETS_MAX];
    size_t n;
    bool tuple;
};

static bool parse_targets(struct compiler *c, struct targets *t) {
    *t = (struct targets){.tuple = compiler_take_operator(c, "(")};
    bool parentheses = t->tuple;
    do {
        const struct lex_token *name = compiler_token(c);
        if (t->n == TARGETS_MAX) return compiler_fail(c, "too many names are assigned at once");
        if (!compiler_expect(c, TOKEN_NAME, "a name")) return false;
        if (!compiler_string(c, name->text, name->n, &t->names[t->n++])) return false;
        t->tuple = t->tuple || compiler_at_operator(c, ",");
    } while (compiler_take_operator(c, ","));
    return !parentheses || compiler_expect_operator(c, ")");
}

static bool emit_targets(struct compiler *c, const struct targets *t) {
    if (t->tuple && !compiler_emit(c, OP_UNPACK, 0, t->n)) return false;
    for (size_t i = 0; i < t->n; i++) {
        if (!compiler_emit(c, OP_STORE, (int64_t)t->names[i], 0)) return false;
    }
    return true;
}

// Opens a loop over the value on the stack and binds its items.
static bool emit_loop(struct compiler *c, const struct targets *t, size_t *next_at) {
    return compiler_emit(c, OP_FOR, 0, 0) && compiler_emit_jump(c, OP_FOR_NEXT, next_at) &&
           emit_targets(c, t);
}

// "for x in list if condition": a loop of its own collects the items that count.
static bool emit_filter_loop(struct compiler *c, const struct targets *t) {
    size_t next_at;
    bool ok = emit_loop(c, t, &next_at) && compile_expression(c) &&
              compiler_emit(c, OP_FOR_KEEP, 0, 0) && compiler_jump_back(c, next_at);
    if (!ok) return false;
    compiler_patch(c, next_at);
    return compiler_emit(c, OP_FOR_FILTERED, 0, 0);
}

static bool statement_for(struct compiler *c) {
    struct targets targets;
    struct block *b = open_block(c, BLOCK_FOR);
    if (b == NULL || !parse_targets(c, &targets)) return false;
    if (!compiler_take_name(c, "in")) return compiler_fail(c, "\"in\" is missing");
    if (!compile_expression_without_if(c)) return false;
    if (compiler_at_operator(c, ","))
        return compiler_fail(c, "a tuple without parentheses is not supported");
    if (compiler_take_name(c, "if") && !emit_filter_loop(c, &targets)) return false;
    if (compiler_at_name(c, "recursive")) return compiler_fail(c, "recursive is not supported");
    return emit_loop(c, &targets, &b->next_at);
}

static bool end_loop(struct compiler *c, struct block *b) {
    if (!compiler_emit(c, OP_FOR_DONE, 0, 0) || !compiler_jump_back(c, b->next_at)) return false;
    compiler_patch(c, b->next_at);
    patch_chain(c, b->end_chain);
    b->end_chain = NO_JUMP;
    return compiler_emit_jump(c, OP_FOR_END, &b->over_jump);
}

static bool statement_else(struct compiler *c) {
    struct block *b = c->n_blocks == 0 ? NULL : &c->blocks[c->n_blocks - 1];
    bool is_for = b != NULL && b->kind == BLOCK_FOR;
    if (!is_for) b = innermost(c, BLOCK_IF, "else");
    if (b == NULL) return false;
    if (is_for && b->has_else) return compiler_fail(c, "a second {%% else %%}");
    if (!(is_for ? end_loop(c, b) : next_branch(c, b))) return false;
    b->has_else = true;
    return true;
}

static bool statement_endfor(struct compiler *c) {
    struct block *b = innermost(c, BLOCK_FOR, "endfor");
    if (b == NULL || (!b->has_else && !end_loop(c, b))) return false;
    compiler_patch(c, b->over_jump);
    c->n_blocks--;
    return true;
}

// The loop that break and continue mean: no text that is being captured may lie between. A loop
// that is at its else is over.
static struct block *enclosing_loop(struct compiler *c, const char *what) {
    size_t i = c->n_blocks;
    while (i > 0) {
        struct block *b = &c->blocks[--i];
        if (b->kind == BLOCK_FOR && !b->has_else) return b;
        if (b->kind != BLOCK_IF && b->kind != BLOCK_FOR) break;
    }
    compiler_fail(c, "{%% %s %%} here is not supported", what);
    return NULL;
}

static bool statement_break(struct compiler *c) {
    struct block *b = enclosing_loop(c, "break");
    return b != NULL && emit_chained(c, &b->end_chain);
}

static bool statement_continue(struct compiler *c) {
    struct block *b = enclosing_loop(c, "continue");
    return b != NULL && compiler_jump_back(c, b->next_at);
}

// --- set

static bool set_attribute(struct compiler *c, size_t name) {
    size_t attribute;
    c->at++; // the point
    const struct lex_token *token = compiler_token(c);
    if (!compiler_expect(c, TOKEN_NAME, "a name")) return false;
    if (!compiler_string(c, token->text, token->n, &attribute) || !compiler_expect_operator(c, "="))
        return false;
    return compiler_emit(c, OP_NAME, (int64_t)name, 0) && compile_expression(c) &&
           compiler_emit(c, OP_STORE_ATTRIBUTE, (int64_t)attribute, 0);
}

static bool statement_set(struct compiler *c) {
    struct targets targets;
    if (!parse_targets(c, &targets)) return false;
    if (compiler_at_operator(c, ".") && !targets.tuple) return set_attribute(c, targets.names[0]);
    if (compiler_take_operator(c, "=")) {
        if (!compile_expression(c)) return false;
        if (compiler_at_operator(c, ","))
            return compiler_fail(c, "a tuple without parentheses is not supported");
        return emit_targets(c, &targets);
    }
    if (targets.tuple || compiler_token(c)->kind != TOKEN_BLOCK_END)
        return compiler_fail(c, "this form of {%% set %%} is not supported");
    struct block *b = open_block(c, BLOCK_SET);
    if (b == NULL) return false;
    b->name = targets.names[0];
    return compiler_emit(c, OP_CAPTURE, 0, 0) && compiler_emit(c, OP_SCOPE, 0, 0);
}

static bool statement_endset(struct compiler *c) {
    struct block *b = innermost(c, BLOCK_SET, "endset");
    if (b == NULL) return false;
    c->n_blocks--;
    return compiler_emit(c, OP_SCOPE_END, 0, 0) && compiler_emit(c, OP_CAPTURE_END, 0, 0) &&
           compiler_emit(c, OP_STORE, (int64_t)b->name, 0);
}

// --- macros

static bool hide_function(struct compiler *c, size_t name) {
    if (c->n_shadows == SHADOWS_MAX) return compiler_fail(c, "too many names of functions");
    c->shadows[c->n_shadows++] = name;
    return true;
}

static bool compile_parameter(struct compiler *c) {
    const struct lex_token *name = compiler_token(c);
    size_t index, jump;
    if (!compiler_expect(c, TOKEN_NAME, "a name") ||
        !compiler_string(c, name->text, name->n, &index))
        return false;
    bool has_default = compiler_take_operator(c, "=");
    if (!compiler_emit(c, OP_PARAMETER, (int64_t)index, has_default)) return false;
    bool ok = !has_default || (compiler_emit_jump(c, OP_JUMP, &jump) && compile_expression(c) &&
                               compiler_emit(c, OP_STORE, (int64_t)index, 0));
    if (ok && has_default) compiler_patch(c, jump);
    return ok && (!compile_is_function(name) || hide_function(c, index));
}

static bool compile_parameters(struct compiler *c) {
    if (!compiler_expect_operator(c, "(")) return false;
    while (!compiler_take_operator(c, ")")) {
        if (!compile_parameter(c)) return false;
        if (!compiler_take_operator(c, ",") && !compiler_at_operator(c, ")"))
            return compiler_expect_operator(c, ")");
    }
    return compiler_emit(c, OP_PARAMETERS_END, 0, 0);
}

static bool statement_macro(struct compiler *c) {
    for (size_t i = 0; i < c->n_blocks; i++) {
        if (c->blocks[i].kind != BLOCK_IF)
            return compiler_fail(c, "{%% macro %%} inside another block is not supported");
    }
    struct block *b = open_block(c, BLOCK_MACRO);
    const struct lex_token *name = compiler_token(c);
    size_t index;
    if (b == NULL || !compiler_expect(c, TOKEN_NAME, "a name")) return false;
    if (!compiler_string(c, name->text, name->n, &index)) return false;
    return compiler_emit(c, OP_MACRO, (int64_t)index, 0) &&
           compiler_emit_jump(c, OP_JUMP, &b->over_jump) && compile_parameters(c);
}

static bool statement_endmacro(struct compiler *c) {
    struct block *b = innermost(c, BLOCK_MACRO, "endmacro");
    if (b == NULL || !compiler_emit(c, OP_RETURN, 0, 0)) return false;
    compiler_patch(c, b->over_jump);
    c->n_blocks--;
    c->n_shadows = 0;
    if (compiler_token(c)->kind == TOKEN_NAME) c->at++; // Jinja lets the name follow
    return true;
}

// --- blocks whose names are their own

// {% generation %} marks what the assistant said, for training; here it is only a scope.
static bool statement_generation(struct compiler *c) {
    return open_block(c, BLOCK_GENERATION) != NULL && compiler_emit(c, OP_SCOPE, 0, 0);
}

static bool statement_endgeneration(struct compiler *c) {
    if (innermost(c, BLOCK_GENERATION, "endgeneration") == NULL) return false;
    c->n_blocks--;
    return compiler_emit(c, OP_SCOPE_END, 0, 0);
}

// The filters run when the text is there, so their tokens are read again then.
static bool statement_filter(struct compiler *c) {
    struct block *b = open_block(c, BLOCK_FILTER);
    if (b == NULL) return false;
    b->tokens_at = c->at;
    while (compiler_token(c)->kind != TOKEN_BLOCK_END && compiler_token(c)->kind != TOKEN_END)
        c->at++;
    return compiler_emit(c, OP_CAPTURE, 0, 0) && compiler_emit(c, OP_SCOPE, 0, 0);
}

static bool statement_endfilter(struct compiler *c) {
    struct block *b = innermost(c, BLOCK_FILTER, "endfilter");
    if (b == NULL || !compiler_emit(c, OP_SCOPE_END, 0, 0) ||
        !compiler_emit(c, OP_CAPTURE_END, 0, 0))
        return false;
    size_t here = c->at;
    c->at = b->tokens_at;
    c->n_blocks--;
    if (!compile_filters(c, true)) return false;
    if (compiler_token(c)->kind != TOKEN_BLOCK_END)
        return compiler_fail(c, "{%% filter %%} takes only filters");
    c->at = here;
    return compiler_emit(c, OP_PRINT, 0, 0);
}

// All values are worked out before the first name is bound.
static bool statement_with(struct compiler *c) {
    size_t names[TARGETS_MAX], n = 0;
    if (open_block(c, BLOCK_WITH) == NULL) return false;
    while (compiler_token(c)->kind != TOKEN_BLOCK_END) {
        const struct lex_token *name = compiler_token(c);
        if (n == TARGETS_MAX) return compiler_fail(c, "too many names are assigned at once");
        if (!compiler_expect(c, TOKEN_NAME, "a name") ||
            !compiler_string(c, name->text, name->n, &names[n++]) ||
            !compiler_expect_operator(c, "=") || !compile_expression(c))
            return false;
        if (!compiler_take_operator(c, ",")) break;
    }
    if (!compiler_emit(c, OP_SCOPE, 0, 0)) return false;
    while (n > 0) {
        if (!compiler_emit(c, OP_STORE, (int64_t)names[--n], 0)) return false;
    }
    return true;
}

static bool statement_endwith(struct compiler *c) {
    if (innermost(c, BLOCK_WITH, "endwith") == NULL) return false;
    c->n_blocks--;
    return compiler_emit(c, OP_SCOPE_END, 0, 0);
}

// --- the whole

static const struct statement {
    const char *name;
    bool (*compile)(struct compiler *c);
} statements[] = {
    {"if", statement_if},
    {"elif", statement_elif},
    {"else", statement_else},
    {"endif", statement_endif},
    {"for", statement_for},
    {"endfor", statement_endfor},
    {"break", statement_break},
    {"continue", statement_continue},
    {"set", statement_set},
    {"endset", statement_endset},
    {"macro", statement_macro},
    {"endmacro", statement_endmacro},
    {"generation", statement_generation},
    {"endgeneration", statement_endgeneration},
    {"filter", statement_filter},
    {"endfilter", statement_endfilter},
    {"with", statement_with},
    {"endwith", statement_endwith},
};

static bool compile_statement(struct compiler *c) {
    const struct lex_token *name = compiler_token(c);
    if (!compiler_expect(c, TOKEN_NAME, "a statement")) return false;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!is(name, TOKEN_NAME, statements[i].name)) continue;
        return statements[i].compile(c) && compiler_expect(c, TOKEN_BLOCK_END, "\"%}\"");
    }
    return compiler_fail(c, "{%% %.*s %%} is not supported", (int)name->n, name->text);
}

static bool compile_data(struct compiler *c, const struct lex_token *token) {
    size_t index;
    return compiler_string(c, token->text, token->n, &index) &&
           compiler_emit(c, OP_DATA, (int64_t)index, 0);
}

static bool compile_print(struct compiler *c) {
    if (!compile_expression(c) || !compiler_emit(c, OP_PRINT, 0, 0)) return false;
    if (compiler_at_operator(c, ",")) return compiler_fail(c, "printing a tuple is not supported");
    return compiler_expect(c, TOKEN_PRINT_END, "\"}}\"");
}

static bool compile_all(struct compiler *c) {
    while (compiler_token(c)->kind != TOKEN_END) {
        const struct lex_token *token = compiler_token(c);
        c->at++;
        bool ok = token->kind == TOKEN_DATA          ? compile_data(c, token)
                  : token->kind == TOKEN_PRINT_BEGIN ? compile_print(c)
                                                     : compile_statement(c);
        if (!ok) return false;
    }
    if (c->n_blocks > 0)
        return compiler_fail(c, "a block that was opened in line %u has no end",
                             c->blocks[c->n_blocks - 1].line);
    return compiler_emit(c, OP_END, 0, 0);
}

// A macro may be called in the text of one that comes before it.
static bool find_macros(struct compiler *c) {
    for (size_t i = 0; i + 2 < c->tokens.n; i++) {
        const struct lex_token *t = &c->tokens.list[i];
        if (t->kind != TOKEN_BLOCK_BEGIN || !is(t + 1, TOKEN_NAME, "macro")) continue;
        if (c->n_macros == MACROS_MAX) return compiler_fail(c, "too many macros");
        if (!compiler_string(c, t[2].text, t[2].n, &c->macros[c->n_macros++])) return false;
    }
    return true;
}

int jinja_compile(struct jinja_program *out, const char *source, size_t n, struct err_text *e) {
    struct compiler c = {.program = out, .e = e};
    *out = (struct jinja_program){0};
    arena_init(&out->arena, 0);
    int rc = jinja_lex(&c.tokens, source, n, e);
    if (rc != 0) return rc;
    if (find_macros(&c)) compile_all(&c);
    lex_tokens_finish(&c.tokens);
    if (c.rc != 0) jinja_program_finish(out);
    return c.rc;
}

void jinja_program_finish(struct jinja_program *p) {
    arena_finish(&p->arena);
    mem_free(p->code);
    mem_free(p->strings);
    mem_free(p->floats);
    *p = (struct jinja_program){0};
}
