// jinja_run.h: runs a compiled template over its variables.
//
// One machine a rendering, on one thread; it allocates from its own arena, which dies with it.
// Steps, memory, stack and call depth are limited (limits.h): a template or a request that asks for
// more ends in an error.
#ifndef MOESAIC_COMMON_TEXT_JINJA_RUN_H
#define MOESAIC_COMMON_TEXT_JINJA_RUN_H

#include "common/text/jinja_program.h"
#include "common/text/jinja_text.h"

struct jinja_input {
    const json_t *variables;
    int64_t wall_ns; // since 1970, for strftime_now
};

// Writes the rendered text, with its taint, to out (which the caller finishes). variables is an
// object; strings at its top level whose name ends in "_token" are trusted, everything else in it
// is tainted. *steps, if not NULL, gets the effort spent.
int jinja_run(const struct jinja_program *p, const struct jinja_input *input,
              struct text_writer *out, uint64_t *steps, struct err_text *e);

#endif
