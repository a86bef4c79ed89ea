// jinja_builtin_rows.h: what the files of built-ins share: access to arguments, and each file's
// table.
#ifndef MOESAIC_COMMON_TEXT_JINJA_BUILTIN_ROWS_H
#define MOESAIC_COMMON_TEXT_JINJA_BUILTIN_ROWS_H

#include "common/text/jinja_builtin.h"
#include "common/text/jinja_program.h"
#include "common/text/jinja_text.h"

#define BUILTIN_ANY 255 // n_max: any number, by name; the row sees them as they came
#define BUILTIN_PLACES 8

bool call_given(const struct call *c, size_t i);
bool call_text(const struct call *c, size_t i, const struct text **out);
bool call_integer(const struct call *c, size_t i, int64_t otherwise,
                  int64_t *out); // otherwise for none, too

const struct builtin *builtin_filters(size_t *n);
const struct builtin *builtin_methods(size_t *n);

// jinja_order.c
bool filter_sort(const struct call *c, struct value *out);
bool filter_dictsort(const struct call *c, struct value *out);
bool filter_unique(const struct call *c, struct value *out);
bool filter_min(const struct call *c, struct value *out);
bool filter_max(const struct call *c, struct value *out);
// jinja_layout.c
bool filter_indent(const struct call *c, struct value *out);
bool method_format(const struct call *c, struct value *out);
bool function_strftime_now(const struct call *c, struct value *out);

#endif
