// jinja_print.h: values as text: Python's repr() and json.dumps(); str() is value_string.
#ifndef MOESAIC_COMMON_TEXT_JINJA_PRINT_H
#define MOESAIC_COMMON_TEXT_JINJA_PRINT_H

#include "common/text/jinja_text.h"

struct print_style {
    bool python;             // repr() instead of JSON; only item and colon count besides
    bool ascii;              // \uXXXX beyond ASCII
    int64_t indent;          // spaces a level; -1 = all on one line
    struct text item, colon; // separators
};

bool print_value(struct render *r, const struct value *v, const struct print_style *style,
                 struct value *out);

#endif
