// foreign.h: the flags of other engines: what each means here.
//
// People come with command lines of vLLM, SGLang, TGI (text-generation-launcher) and llama-server.
// Each of their serving flags is our own option, another name of one, something that is always so
// here, something that has nothing to do here, or refused with what to use instead. Nothing that
// would change an answer is passed over in silence. options.c applies the table; it has no state.
#ifndef MOESAIC_COMMON_CONF_FOREIGN_H
#define MOESAIC_COMMON_CONF_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum foreign_kind {
    FOREIGN_SAME,    // an option of our own; the row has its documentation and its words
    FOREIGN_ALIAS,   // another name of the option .to
    FOREIGN_IMPLIED, // what it asks for is always so: one line at info, or at warn for its denial
    FOREIGN_IDLE,    // has nothing to do here and changes no answer: one line at warn
    FOREIGN_REFUSED, // unless its value is one of .fine, or it is a switch that is off
};

// Names are separated by blanks. A letter or several with a colon name the engines of what follows
// (v vLLM, s SGLang, t TGI, l llama-server, o others). "name=" takes a value, "name?" may take one,
// "name*" takes several, "name" is a switch; one with a dash in front is written with one dash.
struct foreign_row {
    enum foreign_kind kind;
    const char *names;
    const char *to;    // of an alias
    const char *fine;  // values that ask for nothing, separated by blanks
    const char *words; // "their>ours ..." of values, separated by blanks
    const char *says;  // of a refusal: what to use instead, or why
    bool human;        // numbers may end in k, m, g (thousands) or K, M, G (powers of 1,024)
    bool plan; // moectl plan answers it, too: sizes and types, whose words are then the same
};

struct foreign_part {
    const struct foreign_row *rows;
    size_t n_rows;
};

// foreign_names.c, foreign_text.c, foreign_http.c, foreign_cluster.c, foreign_kernels.c
extern const struct foreign_part foreign_names, foreign_text, foreign_http, foreign_cluster,
    foreign_kernels;

struct foreign_flag {
    const struct foreign_row *row;
    char takes;      // '=', '?', '*', or 0 for a switch
    char name[64];   // as in the table, with one dash or two
    char engines[8]; // letters
};

// Finds a name as written behind "--", or with its one dash. '_' equals '-'; what follows a dot is
// a field of a JSON value ("--speculative-config.model") and is not looked at.
bool foreign_find(const char *name, struct foreign_flag *out);

// A walk over all names, from {0}; false at the end.
struct foreign_walk {
    size_t row;
    const char *rest; // of the row's names
    char engines[8];
};
bool foreign_next(struct foreign_walk *w, struct foreign_flag *out);

bool foreign_is_fine(const struct foreign_row *row, const char *value);

#define FOREIGN_VALUE_BYTES 32
// The value as our option wants it: text itself, a word of the row, or a number in buf.
const char *foreign_value(const struct foreign_row *row, const char *text,
                          char buf[FOREIGN_VALUE_BYTES]);

void foreign_print_markdown(FILE *to); // docs/flags.md

#endif
