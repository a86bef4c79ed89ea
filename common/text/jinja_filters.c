// jinja_filters.c: filters.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/jinja_builtin_rows.h"
#include "common/text/jinja_lookup.h"
#include "common/text/jinja_print.h"

static struct value text_value(struct text t) {
    return (struct value){.kind = VALUE_TEXT, .text = t};
}

// --- text

static bool filter_string(const struct call *c, struct value *out) {
    struct text t;
    if (!value_string(c->r, &c->args[0], &t)) return false;
    *out = text_value(t);
    return true;
}

static bool filter_trim(const struct call *c, struct value *out) {
    struct text t;
    const struct text *set = NULL;
    if (!value_string(c->r, &c->args[0], &t)) return false;
    if (call_given(c, 1) && c->args[1].kind != VALUE_NONE && !call_text(c, 1, &set)) return false;
    *out = value_text("", 0, false);
    return text_strip(c->r, &t, set, TEXT_BOTH, &out->text);
}

static bool change_case(const struct call *c, enum text_case to, struct value *out) {
    struct text t;
    return value_string(c->r, &c->args[0], &t) && text_change_case(c->r, &t, to, out);
}

static bool filter_upper(const struct call *c, struct value *out) {
    return change_case(c, CASE_UPPER, out);
}
static bool filter_lower(const struct call *c, struct value *out) {
    return change_case(c, CASE_LOWER, out);
}
static bool filter_capitalize(const struct call *c, struct value *out) {
    return change_case(c, CASE_CAPITALIZE, out);
}

static bool filter_replace(const struct call *c, struct value *out) {
    struct text subject, what[2];
    int64_t count;
    bool ok = value_string(c->r, &c->args[0], &subject) &&
              value_string(c->r, &c->args[1], &what[0]) &&
              value_string(c->r, &c->args[2], &what[1]) && call_integer(c, 3, -1, &count);
    return ok && render_spend(c->r, subject.n) && text_replace(c->r, &subject, what, count, out);
}

// --- any value

static bool filter_safe(const struct call *c, struct value *out) {
    *out = c->args[0];
    out->markup = out->kind == VALUE_TEXT;
    return true;
}

static bool filter_default(const struct call *c, struct value *out) {
    bool falsy = call_given(c, 2) && value_true(&c->args[2]) && !value_true(&c->args[0]);
    *out = c->args[0];
    if (c->args[0].kind == VALUE_UNDEFINED || falsy)
        *out = call_given(c, 1) ? c->args[1] : value_literal("");
    return true;
}

static bool filter_length(const struct call *c, struct value *out) {
    size_t n;
    if (!value_length(&c->args[0], &n))
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: object of type '%s' has no len()",
                           value_kind_name(&c->args[0]));
    *out = value_int((int64_t)n);
    return render_spend(c->r, c->args[0].kind == VALUE_TEXT ? c->args[0].text.n : 0);
}

static bool filter_tojson(const struct call *c, struct value *out) {
    struct print_style style = {.indent = -1};
    if (!call_integer(c, 2, -1, &style.indent)) return false;
    if (style.indent < 0) style.indent = -1;
    style.ascii = call_given(c, 1) && value_true(&c->args[1]);
    bool spaced = style.indent < 0;
    style.item = (struct text){.bytes = spaced ? ", " : ",", .n = spaced ? 2 : 1};
    style.colon = (struct text){.bytes = ": ", .n = 2};
    if (call_given(c, 3) && c->args[3].kind != VALUE_NONE) {
        size_t n = 0;
        bool pair = value_is_list(&c->args[3]) && value_length(&c->args[3], &n) && n == 2;
        struct value item = pair ? value_at(&c->args[3], 0) : value_none(),
                     colon = pair ? value_at(&c->args[3], 1) : value_none();
        if (item.kind != VALUE_TEXT || colon.kind != VALUE_TEXT)
            return render_fail(c->r, ERR_REQ_INVALID,
                               "chat template: tojson: separators is not two strings");
        style.item = item.text;
        style.colon = colon.text;
    }
    if (call_given(c, 4) && value_true(&c->args[4]))
        return render_fail(c->r, ERR_REQ_INVALID,
                           "chat template: tojson: sort_keys is not supported");
    return print_value(c->r, &c->args[0], &style, out);
}

// --- numbers

#define NUMBER_TEXT_MAX 64

// The number that a text is, and a copy of the text without white space around it.
static bool text_to_number(struct render *r, const struct text *t, char copy[NUMBER_TEXT_MAX],
                           double *out) {
    struct text stripped;
    char *end;
    if (!text_strip(r, t, NULL, TEXT_BOTH, &stripped)) return false;
    if (stripped.n == 0 || stripped.n >= NUMBER_TEXT_MAX) return false;
    memcpy(copy, stripped.bytes, stripped.n);
    copy[stripped.n] = '\0';
    if (strspn(copy, "+-0123456789.eE") != stripped.n) return false;
    *out = strtod(copy, &end);
    return *end == '\0';
}

static bool need_defined(const struct call *c) {
    if (c->args[0].kind != VALUE_UNDEFINED) return true;
    return render_fail(c->r, ERR_REQ_INVALID, "chat template: %s of what is undefined",
                       c->what->name);
}

static bool filter_int(const struct call *c, struct value *out) {
    const struct value *v = &c->args[0];
    if (!need_defined(c)) return false;
    char copy[NUMBER_TEXT_MAX], *end;
    double real = 0;
    *out = call_given(c, 1) ? c->args[1] : value_int(0);
    if (v->kind == VALUE_BOOL || v->kind == VALUE_INT) {
        *out = value_int(value_integer(v));
        return true;
    }
    if (v->kind == VALUE_TEXT) {
        if (!text_to_number(c->r, &v->text, copy, &real)) return c->r->rc == 0;
        errno = 0;
        long long integer = strtoll(copy, &end, 10);
        if (*end == '\0' && errno == 0) {
            *out = value_int(integer);
            return true;
        }
    }
    if (v->kind == VALUE_FLOAT) real = v->real;
    if (v->kind != VALUE_TEXT && v->kind != VALUE_FLOAT) return true;
    if (fabs(real) >= 9e18)
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: int of this number");
    *out = value_int((int64_t)real);
    return true;
}

static bool filter_float(const struct call *c, struct value *out) {
    const struct value *v = &c->args[0];
    if (!need_defined(c)) return false;
    char copy[NUMBER_TEXT_MAX];
    double real = 0;
    *out = call_given(c, 1) ? c->args[1] : (struct value){.kind = VALUE_FLOAT, .real = 0};
    if (v->kind == VALUE_TEXT && !text_to_number(c->r, &v->text, copy, &real)) return c->r->rc == 0;
    if (value_is_number(v)) real = value_real(v);
    if (value_is_number(v) || v->kind == VALUE_TEXT)
        *out = (struct value){.kind = VALUE_FLOAT, .real = real};
    return true;
}

static bool filter_abs(const struct call *c, struct value *out) {
    const struct value *v = &c->args[0];
    if (!value_is_number(v) || (v->kind == VALUE_INT && v->integer == INT64_MIN))
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: abs of a %s", value_kind_name(v));
    if (v->kind == VALUE_FLOAT)
        *out = (struct value){.kind = VALUE_FLOAT, .real = fabs(v->real)};
    else
        *out = value_int(llabs(value_integer(v)));
    return true;
}

// --- lists

static bool filter_list(const struct call *c, struct value *out) {
    struct value source;
    size_t n = 0;
    if (!value_iterate(c->r, &c->args[0], &source)) return false;
    value_length(&source, &n);
    if (!render_spend(c->r, n * sizeof source) || !list_create(c->r, n, out)) return false;
    for (size_t i = 0; i < n; i++)
        out->list->items[i] = value_at(&source, i);
    return true;
}

static bool filter_reverse(const struct call *c, struct value *out) {
    if (c->args[0].kind == VALUE_TEXT) {
        const int64_t from_end[3] = {(int64_t)text_characters(&c->args[0].text) - 1, -1, -1};
        return text_slice(c->r, &c->args[0].text, from_end, out);
    }
    struct value list;
    if (!filter_list(c, &list) || !list_create(c->r, list.list->n, out)) return false;
    for (size_t i = 0; i < list.list->n; i++)
        out->list->items[i] = list.list->items[list.list->n - 1 - i];
    return true;
}

static bool end_of(const struct call *c, bool last, struct value *out) {
    struct value list;
    size_t n = 0;
    if (!value_iterate(c->r, &c->args[0], &list)) return false;
    value_length(&list, &n);
    *out = n == 0 ? value_undefined("item", 4) : value_at(&list, last ? n - 1 : 0);
    return true;
}

static bool filter_first(const struct call *c, struct value *out) {
    return end_of(c, false, out);
}
static bool filter_last(const struct call *c, struct value *out) {
    return end_of(c, true, out);
}

static bool filter_items(const struct call *c, struct value *out) {
    if (c->args[0].kind == VALUE_UNDEFINED) return list_create(c->r, 0, out);
    if (!value_is_dict(&c->args[0]))
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: items of a %s",
                           value_kind_name(&c->args[0]));
    return dict_items(c->r, &c->args[0], out);
}

static bool filter_join(const struct call *c, struct value *out) {
    struct value list;
    struct text separator = {.bytes = ""}, text;
    size_t n = 0;
    if (call_given(c, 1) && !value_string(c->r, &c->args[1], &separator)) return false;
    if (!value_iterate(c->r, &c->args[0], &list)) return false;
    value_length(&list, &n);
    struct text_writer w;
    text_writer_init(&w, c->r->arena.bytes_max);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        struct value item = value_at(&list, i);
        if (call_given(c, 2)) ok = lookup_path(c->r, &item, &c->args[2], &item);
        ok = ok && value_string(c->r, &item, &text) &&
             (i == 0 || text_write(c->r, &w, &separator)) && text_write(c->r, &w, &text);
    }
    ok = ok && text_written(c->r, &w, out);
    text_writer_finish(&w);
    return ok;
}

// A copy of the arguments from first on behind a subject that changes: the call of the test or
// filter that args[first - 1] names.
static bool named_call(const struct call *c, enum builtin_kind kind, size_t first,
                       struct call *inner, int *index) {
    const struct text *name;
    struct value *args = render_alloc(c->r, BUILTIN_PLACES, sizeof *args);
    if (args == NULL || !call_text(c, first - 1, &name)) return false;
    *index = builtin_find(kind, name->bytes, name->n);
    if (*index < 0)
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: \"%.*s\" is not supported in %s",
                           (int)(name->n < 40 ? name->n : 40), name->bytes, c->what->name);
    *inner = (struct call){.r = c->r, .program = c->program, .args = args, .n = 1};
    for (size_t i = first; i < c->n && call_given(c, i); i++)
        args[inner->n++] = c->args[i];
    return true;
}

// What is false has no items here, also when it could not be iterated.
static bool iterate_if_true(const struct call *c, struct value *list) {
    if (!value_true(&c->args[0])) return list_create(c->r, 0, list);
    return value_iterate(c->r, &c->args[0], list);
}

// selectattr, rejectattr, select, reject: the items whose value (or attribute) passes the test, or
// is true without one.
static bool choose(const struct call *c, bool by_attribute, bool wanted, struct value *out) {
    struct value list;
    struct call test;
    size_t n = 0, kept = 0, first = by_attribute ? 3 : 2;
    int index = -1;
    if (!iterate_if_true(c, &list)) return false;
    if (call_given(c, first - 1) && !named_call(c, BUILTIN_TEST, first, &test, &index))
        return false;
    value_length(&list, &n);
    if (!list_create(c->r, n, out)) return false;
    for (size_t i = 0; i < n; i++) {
        struct value item = value_at(&list, i), subject = item, passed;
        if (by_attribute && !lookup_path(c->r, &item, &c->args[1], &subject)) return false;
        passed = value_bool(value_true(&subject));
        if (index >= 0) {
            struct call one = test;
            one.args[0] = subject;
            if (!builtin_call(BUILTIN_TEST, (size_t)index, &one, &passed)) return false;
        }
        if (!render_spend(c->r, 0)) return false;
        if (value_true(&passed) == wanted) out->list->items[kept++] = item;
    }
    out->list->n = kept;
    return true;
}

static bool filter_selectattr(const struct call *c, struct value *out) {
    return choose(c, true, true, out);
}
static bool filter_rejectattr(const struct call *c, struct value *out) {
    return choose(c, true, false, out);
}
static bool filter_select(const struct call *c, struct value *out) {
    return choose(c, false, true, out);
}
static bool filter_reject(const struct call *c, struct value *out) {
    return choose(c, false, false, out);
}

// map(attribute="x", default=y) or map("filter").
static bool filter_map(const struct call *c, struct value *out) {
    struct value list;
    struct call filter;
    size_t n = 0;
    int index = -1;
    bool by_attribute = call_given(c, 2);
    if (!iterate_if_true(c, &list)) return false;
    if (call_given(c, 1) == by_attribute)
        return render_fail(c->r, ERR_REQ_INVALID,
                           "chat template: map needs a filter or an attribute");
    struct call named = *c;
    named.n = 2;
    if (!by_attribute && !named_call(&named, BUILTIN_FILTER, 2, &filter, &index)) return false;
    value_length(&list, &n);
    if (!list_create(c->r, n, out)) return false;
    for (size_t i = 0; i < n; i++) {
        struct value item = value_at(&list, i), *to = &out->list->items[i];
        if (by_attribute) {
            if (!lookup_path(c->r, &item, &c->args[2], to)) return false;
            if (to->kind == VALUE_UNDEFINED && call_given(c, 3)) *to = c->args[3];
            continue;
        }
        struct call one = filter;
        one.args[0] = item;
        if (!builtin_call(BUILTIN_FILTER, (size_t)index, &one, to)) return false;
    }
    return true;
}

static const struct builtin filters[] = {
    {"string", filter_string, 1, 1, {NULL}},
    {"trim", filter_trim, 1, 2, {"chars"}},
    {"upper", filter_upper, 1, 1, {NULL}},
    {"lower", filter_lower, 1, 1, {NULL}},
    {"capitalize", filter_capitalize, 1, 1, {NULL}},
    {"replace", filter_replace, 3, 4, {"old", "new", "count"}},
    {"safe", filter_safe, 1, 1, {NULL}},
    {"default", filter_default, 1, 3, {"default_value", "boolean"}},
    {"d", filter_default, 1, 3, {"default_value", "boolean"}},
    {"length", filter_length, 1, 1, {NULL}},
    {"count", filter_length, 1, 1, {NULL}},
    {"tojson", filter_tojson, 1, 5, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"int", filter_int, 1, 2, {"default"}},
    {"float", filter_float, 1, 2, {"default"}},
    {"abs", filter_abs, 1, 1, {NULL}},
    {"list", filter_list, 1, 1, {NULL}},
    {"reverse", filter_reverse, 1, 1, {NULL}},
    {"first", filter_first, 1, 1, {NULL}},
    {"last", filter_last, 1, 1, {NULL}},
    {"items", filter_items, 1, 1, {NULL}},
    {"join", filter_join, 1, 3, {"d", "attribute"}},
    {"selectattr", filter_selectattr, 2, 4, {NULL}},
    {"rejectattr", filter_rejectattr, 2, 4, {NULL}},
    {"select", filter_select, 1, 3, {NULL}},
    {"reject", filter_reject, 1, 3, {NULL}},
    {"sort", filter_sort, 1, 4, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", filter_dictsort, 1, 4, {"case_sensitive", "by", "reverse"}},
    {"unique", filter_unique, 1, 3, {"case_sensitive", "attribute"}},
    {"min", filter_min, 1, 3, {"case_sensitive", "attribute"}},
    {"max", filter_max, 1, 3, {"case_sensitive", "attribute"}},
    {"indent", filter_indent, 1, 4, {"width", "first", "blank"}},
    {"map", filter_map, 1, 4, {"", "attribute", "default"}},
};

const struct builtin *builtin_filters(size_t *n) {
    *n = sizeof filters / sizeof *filters;
    return filters;
}
