// jinja_operators.c: operators, as Python computes them; integers that leave 64 bits are refused.
#include "common/text/jinja_operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

// Python escapes what is added to a string that |safe made; where that would change it, it is
// refused.
static bool join_markup(struct render *r, const struct value operands[2], struct value *out) {
    const struct value *x = &operands[0], *y = &operands[1];
    bool any = (x->kind == VALUE_TEXT && x->markup) || (y->kind == VALUE_TEXT && y->markup);
    if (!any || out->kind != VALUE_TEXT) return true;
    for (int i = 0; i < 2; i++) {
        const struct text *t = &operands[i].text;
        if (operands[i].kind != VALUE_TEXT || operands[i].markup) continue;
        for (size_t k = 0; k < t->n; k++) {
            if (strchr("&<>'\"", t->bytes[k]) != NULL && t->bytes[k] != '\0')
                return render_fail(r, ERR_REQ_INVALID,
                                   "chat template: text with HTML's characters is added to one of "
                                   "|safe, which is not supported");
        }
    }
    out->markup = true;
    return true;
}

static bool no_operands(struct render *r, const struct value *x, const struct value *y) {
    return render_fail(r, ERR_REQ_INVALID,
                       "chat template: this operator does not take '%s' and '%s'",
                       value_kind_name(x), value_kind_name(y));
}

static bool overflow(struct render *r) {
    return render_fail(r, ERR_REQ_INVALID, "chat template: an integer needs more than 64 bits");
}

static int64_t floor_divide(int64_t x, int64_t y) {
    int64_t quotient = x / y;
    return quotient - (x % y != 0 && (x < 0) != (y < 0));
}

static bool integers(struct render *r, enum jinja_binary op, int64_t x, int64_t y,
                     struct value *out) {
    int64_t result = 0;
    bool wide = false;
    bool divides = op == BINARY_DIVIDE || op == BINARY_FLOOR_DIVIDE || op == BINARY_MODULO;
    if (divides && y == 0)
        return render_fail(r, ERR_REQ_INVALID, "chat template: division by zero");
    switch (op) {
    case BINARY_ADD: wide = __builtin_add_overflow(x, y, &result); break;
    case BINARY_SUBTRACT: wide = __builtin_sub_overflow(x, y, &result); break;
    case BINARY_MULTIPLY: wide = __builtin_mul_overflow(x, y, &result); break;
    case BINARY_DIVIDE:
        // Both must be exact as floats, else Python would round once and this twice.
        if (llabs(x / 2) >= INT64_C(1) << 52 || llabs(y / 2) >= INT64_C(1) << 52)
            return overflow(r);
        *out = (struct value){.kind = VALUE_FLOAT, .real = (double)x / (double)y};
        return true;
    case BINARY_FLOOR_DIVIDE:
        wide = y == -1 && __builtin_sub_overflow((int64_t)0, x, &result);
        if (!wide) result = y == -1 ? -x : floor_divide(x, y);
        break;
    default: result = y == -1 ? 0 : x - floor_divide(x, y) * y; break;
    }
    if (wide) return overflow(r);
    *out = value_int(result);
    return true;
}

// Python's float // and %: the remainder has the divisor's sign.
static void divide_floats(double x, double y, double *quotient, double *remainder) {
    double rest = fmod(x, y), q = (x - rest) / y;
    if (rest != 0 && (y < 0) != (rest < 0)) {
        rest += y;
        q -= 1;
    } else if (rest == 0) {
        rest = copysign(0, y);
    }
    double whole = q != 0 ? floor(q) : copysign(0, x / y);
    *quotient = whole + (q - whole > 0.5);
    *remainder = rest;
}

static bool floats(struct render *r, enum jinja_binary op, double x, double y, struct value *out) {
    double quotient = 0, remainder = 0;
    bool divides = op == BINARY_DIVIDE || op == BINARY_FLOOR_DIVIDE || op == BINARY_MODULO;
    if (divides && y == 0)
        return render_fail(r, ERR_REQ_INVALID, "chat template: division by zero");
    if (divides) divide_floats(x, y, &quotient, &remainder);
    double result = op == BINARY_ADD            ? x + y
                    : op == BINARY_SUBTRACT     ? x - y
                    : op == BINARY_MULTIPLY     ? x * y
                    : op == BINARY_DIVIDE       ? x / y
                    : op == BINARY_FLOOR_DIVIDE ? quotient
                                                : remainder;
    *out = (struct value){.kind = VALUE_FLOAT, .real = result};
    return true;
}

static bool join_lists(struct render *r, const struct value *x, const struct value *y,
                       struct value *out) {
    size_t n_x = 0, n_y = 0;
    bool tuple_x = x->kind == VALUE_LIST && x->list->tuple,
         tuple_y = y->kind == VALUE_LIST && y->list->tuple;
    if (tuple_x != tuple_y) return no_operands(r, x, y);
    value_length(x, &n_x);
    value_length(y, &n_y);
    if (!render_spend(r, (n_x + n_y) * sizeof *x) || !list_create(r, n_x + n_y, out)) return false;
    for (size_t i = 0; i < n_x; i++)
        out->list->items[i] = value_at(x, i);
    for (size_t i = 0; i < n_y; i++)
        out->list->items[n_x + i] = value_at(y, i);
    out->list->tuple = tuple_x;
    return true;
}

static bool repeat_list(struct render *r, const struct value *x, int64_t times, struct value *out) {
    size_t n = 0, total = 0;
    value_length(x, &n);
    if (times > 0 && !size_mul(n, (size_t)times, &total)) return overflow(r);
    if (!render_spend(r, total) || !list_create(r, total, out)) return false;
    for (size_t i = 0; i < total; i++)
        out->list->items[i] = value_at(x, i % n);
    out->list->tuple = x->kind == VALUE_LIST && x->list->tuple;
    return true;
}

// A sequence times an integer, in either order.
static bool repeat(struct render *r, const struct value operands[2], struct value *out) {
    bool swapped = value_is_number(&operands[0]);
    const struct value *x = &operands[swapped], *times = &operands[!swapped];
    if (!value_is_number(times) || times->kind == VALUE_FLOAT)
        return no_operands(r, &operands[0], &operands[1]);
    if (x->kind == VALUE_TEXT) return text_repeat(r, &x->text, value_integer(times), out);
    if (value_is_list(x)) return repeat_list(r, x, value_integer(times), out);
    return no_operands(r, &operands[0], &operands[1]);
}

static bool arithmetic(struct render *r, enum jinja_binary op, const struct value operands[2],
                       struct value *out) {
    const struct value *x = &operands[0], *y = &operands[1];
    bool number_x = value_is_number(x), number_y = value_is_number(y);
    if (number_x && number_y) {
        if (x->kind == VALUE_FLOAT || y->kind == VALUE_FLOAT)
            return floats(r, op, value_real(x), value_real(y), out);
        return integers(r, op, value_integer(x), value_integer(y), out);
    }
    if (op == BINARY_ADD && x->kind == VALUE_TEXT && y->kind == VALUE_TEXT)
        return text_concat(r, &x->text, &y->text, out);
    if (op == BINARY_ADD && value_is_list(x) && value_is_list(y)) return join_lists(r, x, y, out);
    if (op == BINARY_MULTIPLY) return repeat(r, operands, out);
    return no_operands(r, x, y);
}

static bool concat(struct render *r, const struct value operands[2], struct value *out) {
    struct text x, y;
    return value_string(r, &operands[0], &x) && value_string(r, &operands[1], &y) &&
           text_concat(r, &x, &y, out);
}

static bool compare(struct render *r, enum jinja_binary op, const struct value operands[2],
                    struct value *out) {
    int order;
    if (!value_order(r, &operands[0], &operands[1], &order)) return false;
    *out = value_bool(op == BINARY_LESS         ? order < 0
                      : op == BINARY_LESS_EQUAL ? order <= 0
                      : op == BINARY_GREATER    ? order > 0
                                                : order >= 0);
    return true;
}

bool operator_binary(struct render *r, enum jinja_binary op, const struct value operands[2],
                     struct value *out) {
    bool yes = false;
    switch (op) {
    case BINARY_CONCAT: return concat(r, operands, out);
    case BINARY_ADD: return arithmetic(r, op, operands, out) && join_markup(r, operands, out);
    case BINARY_EQUAL:
    case BINARY_NOT_EQUAL:
        if (!value_equal(r, &operands[0], &operands[1], &yes)) return false;
        *out = value_bool(yes == (op == BINARY_EQUAL));
        return true;
    case BINARY_IN:
    case BINARY_NOT_IN:
        if (!value_contains(r, &operands[1], &operands[0], &yes)) return false;
        *out = value_bool(yes == (op == BINARY_IN));
        return true;
    case BINARY_LESS:
    case BINARY_LESS_EQUAL:
    case BINARY_GREATER:
    case BINARY_GREATER_EQUAL: return compare(r, op, operands, out);
    default: return arithmetic(r, op, operands, out);
    }
}

bool operator_sign(struct render *r, bool negate, const struct value *x, struct value *out) {
    if (!value_is_number(x))
        return render_fail(r, ERR_REQ_INVALID, "chat template: a sign before a '%s'",
                           value_kind_name(x));
    if (x->kind == VALUE_FLOAT) {
        *out = (struct value){.kind = VALUE_FLOAT, .real = negate ? -x->real : x->real};
        return true;
    }
    return integers(r, negate ? BINARY_SUBTRACT : BINARY_ADD, 0, value_integer(x), out);
}
