// jinja_operators.h: what + - * / // % ~ and comparisons do.
#ifndef MOESAIC_COMMON_TEXT_JINJA_OPERATORS_H
#define MOESAIC_COMMON_TEXT_JINJA_OPERATORS_H

#include "common/text/jinja_program.h"
#include "common/text/jinja_text.h"

bool operator_binary(struct render *r, enum jinja_binary op, const struct value operands[2],
                     struct value *out);
bool operator_sign(struct render *r, bool negate, const struct value *x, struct value *out);

#endif
