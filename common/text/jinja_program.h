// jinja_program.h: a template compiled to a flat array of instructions for a stack machine.
//
// Expressions become postfix code, statements jumps: rendering needs no recursion and no look back
// at the source. Immutable after compiling. Jumps are relative to the instruction after the jump,
// so code can be moved as a block.
#ifndef MOESAIC_COMMON_TEXT_JINJA_PROGRAM_H
#define MOESAIC_COMMON_TEXT_JINJA_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/mem.h"

enum jinja_op {
    OP_DATA,  // writes constant a
    OP_CONST, // pushes constant a
    OP_TRUE,
    OP_FALSE,
    OP_NONE,
    OP_UNDEFINED,
    OP_INT, // pushes number a
    OP_FLOAT,
    OP_NAME,      // pushes the variable called name a
    OP_PRINT,     // pops and writes
    OP_ATTRIBUTE, // obj -> obj.a
    OP_ITEM,      // obj key -> obj[key]
    OP_SLICE,     // obj start stop step -> obj[start:stop:step]; none where left out
    OP_BINARY,    // x y -> x a y, a an enum jinja_binary
    OP_NOT,
    OP_NEGATE,
    OP_PLUS,
    OP_LIST,    // argc values -> list; a = 1: tuple
    OP_DICT,    // argc key and value pairs -> dict
    OP_KEYWORD, // marks the top value as an argument called name a
    OP_FILTER,  // argc values -> one; a is the built-in's index, as in the next three
    OP_TEST,
    OP_FUNCTION,
    OP_METHOD,
    OP_CALL, // argc arguments of the macro called name a
    OP_POP,
    OP_JUMP,            // a = distance
    OP_JUMP_FALSE,      // pops
    OP_JUMP_FALSE_KEEP, // jumps and keeps, or pops and goes on: "and"
    OP_JUMP_TRUE_KEEP,  // "or"
    OP_STORE,           // pops into name a of the innermost scope
    OP_STORE_ATTRIBUTE, // ns value -> nothing: ns.a = value
    OP_UNPACK,          // sequence of argc items -> its items, the first on top
    OP_FOR,             // pops what is iterated, opens a loop
    OP_FOR_NEXT,        // pushes the next item in a fresh scope; at the end jumps by a
    OP_FOR_DONE,     // an item went through the whole body: what else is about (Jinja's own rule)
    OP_FOR_KEEP,     // pops a condition; a true one keeps the loop's item for the filtered list
    OP_FOR_FILTERED, // closes a filtering loop, pushes the kept items
    OP_FOR_END,      // closes the loop; jumps by a when OP_FOR_DONE ran
    OP_SCOPE,        // names that are set from here on
    OP_SCOPE_END,    // are forgotten here
    OP_FAIL,         // ends the rendering with text a
    OP_CAPTURE,      // from here, output goes to a text
    OP_CAPTURE_END,  // pushes that text
    OP_MACRO,     // name a becomes a macro that begins after the next instruction (a jump over it)
    OP_PARAMETER, // binds name a to the call's next argument and skips the default's jump, if there
                  // is one
    OP_PARAMETERS_END, // fails for arguments that are left over
    OP_RETURN,         // ends a macro
    OP_END
};

enum jinja_binary {
    BINARY_ADD,
    BINARY_SUBTRACT,
    BINARY_MULTIPLY,
    BINARY_DIVIDE,
    BINARY_FLOOR_DIVIDE,
    BINARY_MODULO,
    BINARY_CONCAT,
    BINARY_EQUAL,
    BINARY_NOT_EQUAL,
    BINARY_LESS,
    BINARY_LESS_EQUAL,
    BINARY_GREATER,
    BINARY_GREATER_EQUAL,
    BINARY_IN,
    BINARY_NOT_IN
};

struct jinja_instruction {
    uint8_t op;
    uint16_t argc;
    uint32_t line;
    int64_t a;
};

// A string constant or a name; equal ones share an index.
struct jinja_string {
    const char *bytes; // in the program's arena
    size_t n;
};

struct jinja_program {
    struct arena arena;
    struct jinja_instruction *code; // owned
    size_t n_code, code_capacity;
    struct jinja_string *strings; // owned
    size_t n_strings, strings_capacity;
    double *floats; // owned
    size_t n_floats;
};

int jinja_compile(struct jinja_program *out, const char *source, size_t n, struct err_text *e);
void jinja_program_finish(struct jinja_program *p);

#endif
