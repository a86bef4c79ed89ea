// jinja_builtin.h: filters, tests, functions and methods: one table row each.
//
// A template that names one that is not in the tables is refused when it is loaded.
#ifndef MOESAIC_COMMON_TEXT_JINJA_BUILTIN_H
#define MOESAIC_COMMON_TEXT_JINJA_BUILTIN_H

#include "common/text/jinja_value.h"

// args[0] is what stands before the bar or the point (functions: the first argument); n counts all.
// Keyword arguments carry their name.
struct call {
    struct render *r;
    const struct jinja_program *program;
    const struct builtin *what;
    struct value *args;
    size_t n;
};

typedef bool builtin_run(const struct call *c, struct value *out);

struct builtin {
    const char *name;
    builtin_run *run;
    uint8_t n_min, n_max;      // arguments, with the subject
    const char *parameters[6]; // names of the arguments behind the subject (functions: of all), for
                               // keywords
};

enum builtin_kind { BUILTIN_FILTER, BUILTIN_TEST, BUILTIN_FUNCTION, BUILTIN_METHOD, BUILTIN_KINDS };

// The index of a name, -1 when there is none.
int builtin_find(enum builtin_kind kind, const char *name, size_t n);
bool builtin_call(enum builtin_kind kind, size_t index, struct call *c, struct value *out);

#endif
