// jinja_builtin.c: the tables of names, how arguments reach their rows, and what works on all kinds
// of values.
#include "common/text/jinja_builtin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/jinja_builtin_rows.h"
#include "common/text/jinja_print.h"

#define RANGE_MAX 100000 // the sandbox's own

bool call_given(const struct call *c, size_t i) {
    return i < c->n && !(c->args[i].kind == VALUE_UNDEFINED && c->args[i].text.bytes == NULL);
}

bool call_text(const struct call *c, size_t i, const struct text **out) {
    if (c->args[i].kind != VALUE_TEXT)
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: %s needs a string, not %s",
                           c->what->name, value_kind_name(&c->args[i]));
    *out = &c->args[i].text;
    return true;
}

bool call_integer(const struct call *c, size_t i, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (!call_given(c, i) || c->args[i].kind == VALUE_NONE) return true;
    if (c->args[i].kind != VALUE_INT && c->args[i].kind != VALUE_BOOL)
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: %s needs an integer, not %s",
                           c->what->name, value_kind_name(&c->args[i]));
    *out = value_integer(&c->args[i]);
    return true;
}

// --- tests

static bool test_defined(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind != VALUE_UNDEFINED);
    return true;
}

static bool test_undefined(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind == VALUE_UNDEFINED);
    return true;
}

static bool test_none(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind == VALUE_NONE);
    return true;
}

static bool test_string(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind == VALUE_TEXT);
    return true;
}

static bool test_number(const struct call *c, struct value *out) {
    *out = value_bool(value_is_number(&c->args[0]));
    return true;
}

static bool test_integer(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind == VALUE_INT);
    return true;
}

static bool test_float(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind == VALUE_FLOAT);
    return true;
}

static bool test_boolean(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind == VALUE_BOOL);
    return true;
}

static bool test_true(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind == VALUE_BOOL && c->args[0].boolean);
    return true;
}

static bool test_false(const struct call *c, struct value *out) {
    *out = value_bool(c->args[0].kind == VALUE_BOOL && !c->args[0].boolean);
    return true;
}

static bool test_mapping(const struct call *c, struct value *out) {
    *out = value_bool(value_is_dict(&c->args[0]));
    return true;
}

// An undefined value is iterable and has a length in Jinja.
static bool test_iterable(const struct call *c, struct value *out) {
    const struct value *v = &c->args[0];
    *out = value_bool(value_is_list(v) || value_is_dict(v) || v->kind == VALUE_TEXT ||
                      v->kind == VALUE_UNDEFINED);
    return true;
}

static bool remainder_of(const struct call *c, int64_t divisor, int64_t *out) {
    int64_t x;
    if (!call_given(c, 0) || c->args[0].kind == VALUE_NONE || divisor == 0)
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: %s of this value", c->what->name);
    if (!call_integer(c, 0, 0, &x)) return false;
    *out = divisor == -1 ? 0 : x % divisor;
    if (*out < 0) *out += divisor < 0 ? -divisor : divisor;
    return true;
}

static bool test_odd(const struct call *c, struct value *out) {
    int64_t rest;
    if (!remainder_of(c, 2, &rest)) return false;
    *out = value_bool(rest == 1);
    return true;
}

static bool test_even(const struct call *c, struct value *out) {
    int64_t rest;
    if (!remainder_of(c, 2, &rest)) return false;
    *out = value_bool(rest == 0);
    return true;
}

static bool test_divisible(const struct call *c, struct value *out) {
    int64_t divisor, rest;
    if (!call_integer(c, 1, 0, &divisor) || !remainder_of(c, divisor, &rest)) return false;
    *out = value_bool(rest == 0);
    return true;
}

static bool test_equal(const struct call *c, struct value *out) {
    bool equal;
    if (!value_equal(c->r, &c->args[0], &c->args[1], &equal)) return false;
    *out = value_bool(equal);
    return true;
}

static bool test_not_equal(const struct call *c, struct value *out) {
    if (!test_equal(c, out)) return false;
    out->boolean = !out->boolean;
    return true;
}

static bool ordered(const struct call *c, int low, int high, struct value *out) {
    int order;
    if (!value_order(c->r, &c->args[0], &c->args[1], &order)) return false;
    order = order < 0 ? -1 : order > 0;
    *out = value_bool(order >= low && order <= high);
    return true;
}

static bool test_less(const struct call *c, struct value *out) {
    return ordered(c, -1, -1, out);
}
static bool test_less_equal(const struct call *c, struct value *out) {
    return ordered(c, -1, 0, out);
}
static bool test_greater(const struct call *c, struct value *out) {
    return ordered(c, 1, 1, out);
}
static bool test_greater_equal(const struct call *c, struct value *out) {
    return ordered(c, 0, 1, out);
}

static bool test_in(const struct call *c, struct value *out) {
    bool found;
    if (!value_contains(c->r, &c->args[1], &c->args[0], &found)) return false;
    *out = value_bool(found);
    return true;
}

static const struct builtin tests[] = {
    {"defined", test_defined, 1, 1, {NULL}},   {"undefined", test_undefined, 1, 1, {NULL}},
    {"none", test_none, 1, 1, {NULL}},         {"string", test_string, 1, 1, {NULL}},
    {"number", test_number, 1, 1, {NULL}},     {"integer", test_integer, 1, 1, {NULL}},
    {"float", test_float, 1, 1, {NULL}},       {"boolean", test_boolean, 1, 1, {NULL}},
    {"true", test_true, 1, 1, {NULL}},         {"false", test_false, 1, 1, {NULL}},
    {"mapping", test_mapping, 1, 1, {NULL}},   {"iterable", test_iterable, 1, 1, {NULL}},
    {"sequence", test_iterable, 1, 1, {NULL}}, {"odd", test_odd, 1, 1, {NULL}},
    {"even", test_even, 1, 1, {NULL}},         {"divisibleby", test_divisible, 2, 2, {"num"}},
    {"eq", test_equal, 2, 2, {NULL}},          {"equalto", test_equal, 2, 2, {NULL}},
    {"==", test_equal, 2, 2, {NULL}},          {"ne", test_not_equal, 2, 2, {NULL}},
    {"!=", test_not_equal, 2, 2, {NULL}},      {"lt", test_less, 2, 2, {NULL}},
    {"lessthan", test_less, 2, 2, {NULL}},     {"<", test_less, 2, 2, {NULL}},
    {"le", test_less_equal, 2, 2, {NULL}},     {"<=", test_less_equal, 2, 2, {NULL}},
    {"gt", test_greater, 2, 2, {NULL}},        {"greaterthan", test_greater, 2, 2, {NULL}},
    {">", test_greater, 2, 2, {NULL}},         {"ge", test_greater_equal, 2, 2, {NULL}},
    {">=", test_greater_equal, 2, 2, {NULL}},  {"in", test_in, 2, 2, {NULL}},
};

// --- functions

static bool function_range(const struct call *c, struct value *out) {
    int64_t start = 0, stop, step;
    bool one = !call_given(c, 1);
    if (!call_integer(c, one ? 0 : 1, 0, &stop) || (!one && !call_integer(c, 0, 0, &start)))
        return false;
    if (!call_integer(c, 2, 1, &step)) return false;
    if (step == 0) return render_fail(c->r, ERR_REQ_INVALID, "chat template: range() with step 0");
    size_t n = 0;
    __int128 width = (__int128)stop - start, size = step < 0 ? -(__int128)step : step;
    if (step < 0) width = -width;
    if (width > 0) width = (width + size - 1) / size;
    if (width > RANGE_MAX)
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: range() is too long");
    if (width > 0) n = (size_t)width;
    if (!render_spend(c->r, n * sizeof(struct value)) || !list_create(c->r, n, out)) return false;
    for (size_t i = 0; i < n; i++)
        out->list->items[i] = value_int(start + (int64_t)i * step);
    return true;
}

// Keyword arguments become entries.
static bool entries_from_keywords(const struct call *c, bool is_namespace, struct value *out) {
    if (!dict_create(c->r, is_namespace, out)) return false;
    for (size_t i = 0; i < c->n; i++) {
        if (c->args[i].keyword == KEYWORD_NONE)
            return render_fail(c->r, ERR_REQ_INVALID,
                               "chat template: %s() takes only named arguments", c->what->name);
        const struct jinja_string *name = &c->program->strings[c->args[i].keyword - 1];
        struct value key = value_text(name->bytes, name->n, false), value = c->args[i];
        value.keyword = KEYWORD_NONE;
        if (!dict_set(c->r, out->dict, &key, &value)) return false;
    }
    return true;
}

static bool function_namespace(const struct call *c, struct value *out) {
    return entries_from_keywords(c, true, out);
}

static bool function_dict(const struct call *c, struct value *out) {
    return entries_from_keywords(c, false, out);
}

static bool function_raise(const struct call *c, struct value *out) {
    struct text message;
    (void)out;
    if (!value_string(c->r, &c->args[0], &message)) return false;
    return render_fail(c->r, ERR_REQ_REFUSED, "%.*s",
                       (int)(message.n < ERR_TEXT_MAX ? message.n : ERR_TEXT_MAX), message.bytes);
}

static const struct builtin functions[] = {
    {"range", function_range, 1, 3, {NULL}},
    {"namespace", function_namespace, 0, BUILTIN_ANY, {NULL}},
    {"dict", function_dict, 0, BUILTIN_ANY, {NULL}},
    {"strftime_now", function_strftime_now, 1, 1, {"format"}},
    {"raise_exception", function_raise, 1, 1, {"message"}},
};

// --- calls

static const struct {
    const struct builtin *rows;
    size_t n;
} fixed_tables[BUILTIN_KINDS] = {
    [BUILTIN_TEST] = {tests, sizeof tests / sizeof *tests},
    [BUILTIN_FUNCTION] = {functions, sizeof functions / sizeof *functions},
};

static const struct builtin *table(enum builtin_kind kind, size_t *n) {
    if (kind == BUILTIN_FILTER) return builtin_filters(n);
    if (kind == BUILTIN_METHOD) return builtin_methods(n);
    *n = fixed_tables[kind].n;
    return fixed_tables[kind].rows;
}

int builtin_find(enum builtin_kind kind, const char *name, size_t n) {
    size_t rows;
    const struct builtin *list = table(kind, &rows);
    for (size_t i = 0; i < rows; i++) {
        if (strlen(list[i].name) == n && memcmp(list[i].name, name, n) == 0) return (int)i;
    }
    return -1;
}

// The place of a named argument, 0 when there is none of that name.
static size_t parameter_place(const struct call *c, const struct value *arg, bool has_subject) {
    const struct jinja_string *name = &c->program->strings[arg->keyword - 1];
    const char *const *names = c->what->parameters;
    for (size_t i = 0; i < sizeof c->what->parameters / sizeof *names && names[i] != NULL; i++) {
        if (strlen(names[i]) == name->n && memcmp(names[i], name->bytes, name->n) == 0)
            return i + has_subject;
    }
    return SIZE_MAX;
}

static bool place_arguments(struct call *c, bool has_subject, struct value *places) {
    const struct value absent = value_undefined(NULL, 0);
    for (size_t i = 0; i < BUILTIN_PLACES; i++)
        places[i] = absent;
    for (size_t i = 0; i < c->n; i++) {
        size_t place =
            c->args[i].keyword == KEYWORD_NONE ? i : parameter_place(c, &c->args[i], has_subject);
        if (place >= c->what->n_max || places[place].kind != VALUE_UNDEFINED ||
            places[place].text.bytes != NULL)
            return render_fail(c->r, ERR_REQ_INVALID,
                               "chat template: %s: these arguments are not supported",
                               c->what->name);
        places[place] = c->args[i];
        places[place].keyword = KEYWORD_NONE;
    }
    c->args = places;
    c->n = c->what->n_max;
    for (size_t i = 0; i < c->what->n_min; i++) {
        if (!call_given(c, i))
            return render_fail(c->r, ERR_REQ_INVALID, "chat template: %s lacks an argument",
                               c->what->name);
    }
    return true;
}

bool builtin_call(enum builtin_kind kind, size_t index, struct call *c, struct value *out) {
    size_t n;
    struct value places[BUILTIN_PLACES];
    c->what = &table(kind, &n)[index];
    if (c->what->n_max != BUILTIN_ANY && !place_arguments(c, kind != BUILTIN_FUNCTION, places))
        return false;
    return render_spend(c->r, 0) && c->what->run(c, out);
}
