// jinja_compiler.h: the compiler's state, shared by its halves: expressions (jinja_expr.c) and
// statements (jinja_compile.c).
//
// Every function returns false after it set the error; nothing is emitted past the first failure
// that matters.
#ifndef MOESAIC_COMMON_TEXT_JINJA_COMPILER_H
#define MOESAIC_COMMON_TEXT_JINJA_COMPILER_H

#include <stdbool.h>

#include "common/text/jinja_lex.h"
#include "common/text/jinja_program.h"

#define EXPRESSION_DEPTH_MAX 64
#define BLOCKS_MAX 64
#define MACROS_MAX 256
#define SHADOWS_MAX 8
#define NO_JUMP SIZE_MAX

enum block_kind {
    BLOCK_IF,
    BLOCK_FOR,
    BLOCK_SET,
    BLOCK_MACRO,
    BLOCK_GENERATION,
    BLOCK_FILTER,
    BLOCK_WITH
};

// An open {% if %}, {% for %}, ... Jumps to the same place form a chain through their a until they
// are patched.
struct block {
    enum block_kind kind;
    uint32_t line;
    size_t false_jump; // if: of the branch at hand
    size_t end_chain;  // if: jumps behind the whole; for: breaks
    size_t next_at;    // for: the OP_FOR_NEXT
    size_t over_jump;  // for: OP_FOR_END once it is there; macro: the jump over it
    size_t name;       // set: what it sets
    size_t tokens_at;  // filter: where its name stands
    bool has_else;
};

struct compiler {
    struct jinja_program *program;
    struct lex_tokens tokens;
    size_t at;
    uint32_t depth;
    struct block blocks[BLOCKS_MAX];
    size_t n_blocks;
    size_t macros[MACROS_MAX]; // their names
    size_t n_macros;
    size_t shadows[SHADOWS_MAX]; // the macro's parameters that have names of functions
    size_t n_shadows;
    int rc;
    struct err_text *e;
};

// --- tokens
const struct lex_token *compiler_token(const struct compiler *c);
const struct lex_token *compiler_ahead(const struct compiler *c, size_t n);
bool compiler_at_operator(const struct compiler *c, const char *s);
bool compiler_at_name(const struct compiler *c, const char *s);
bool compiler_take_operator(struct compiler *c, const char *s); // true and past it when it is there
bool compiler_take_name(struct compiler *c, const char *s);
bool compiler_expect_operator(struct compiler *c, const char *s);
bool compiler_expect(struct compiler *c, enum token_kind kind, const char *what);

// --- code
bool compiler_fail(struct compiler *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool compiler_emit(struct compiler *c, enum jinja_op op, int64_t a, size_t argc);
bool compiler_emit_jump(struct compiler *c, enum jinja_op op, size_t *jump);
void compiler_patch(struct compiler *c, size_t jump); // to the next instruction
bool compiler_jump_back(struct compiler *c, size_t target);
bool compiler_string(struct compiler *c, const char *bytes, size_t n, size_t *index);

// --- expressions, in jinja_expr.c
bool compile_expression(struct compiler *c);
bool compile_is_function(const struct lex_token *name); // one of Jinja's, such as range
bool compile_expression_without_if(struct compiler *c); // what a for goes over
bool compile_filters(struct compiler *c, bool first);   // |a|b; first: without the first bar

#endif
