// jinja_methods.c: methods of strings and dicts.
#include <string.h>

#include "common/text/jinja_builtin_rows.h"

static struct value text_value(struct text t) {
    return (struct value){.kind = VALUE_TEXT, .text = t};
}

static bool strip(const struct call *c, enum text_side side, struct value *out) {
    const struct text *subject, *set = NULL;
    if (!call_text(c, 0, &subject)) return false;
    if (call_given(c, 1) && c->args[1].kind != VALUE_NONE && !call_text(c, 1, &set)) return false;
    *out = value_text("", 0, false);
    return text_strip(c->r, subject, set, side, &out->text);
}

static bool method_strip(const struct call *c, struct value *out) {
    return strip(c, TEXT_BOTH, out);
}
static bool method_lstrip(const struct call *c, struct value *out) {
    return strip(c, TEXT_LEFT, out);
}
static bool method_rstrip(const struct call *c, struct value *out) {
    return strip(c, TEXT_RIGHT, out);
}

typedef bool splitter_function(struct render *r, const struct text *t, const struct text *separator,
                               int64_t maxsplit, struct value *list);

static bool split(const struct call *c, splitter_function *function, struct value *out) {
    const struct text *subject, *separator = NULL;
    int64_t maxsplit;
    if (!call_text(c, 0, &subject) || !call_integer(c, 2, -1, &maxsplit)) return false;
    if (call_given(c, 1) && c->args[1].kind != VALUE_NONE && !call_text(c, 1, &separator))
        return false;
    return render_spend(c->r, subject->n) && function(c->r, subject, separator, maxsplit, out);
}

static bool method_split(const struct call *c, struct value *out) {
    return split(c, text_split, out);
}
static bool method_rsplit(const struct call *c, struct value *out) {
    return split(c, text_rsplit, out);
}

// The affix is a string, or a tuple of which one must fit.
static bool affix(const struct call *c, bool (*fits)(const struct text *, const struct text *),
                  struct value *out) {
    const struct text *subject, *what;
    if (!call_text(c, 0, &subject)) return false;
    *out = value_bool(false);
    const struct value *arg = &c->args[1];
    if (arg->kind == VALUE_LIST && arg->list->tuple) {
        for (size_t i = 0; i < arg->list->n && !out->boolean; i++) {
            const struct value *item = &arg->list->items[i];
            if (item->kind != VALUE_TEXT)
                return render_fail(c->r, ERR_REQ_INVALID, "chat template: %s needs strings",
                                   c->what->name);
            out->boolean = fits(subject, &item->text);
        }
        return true;
    }
    if (!call_text(c, 1, &what)) return false;
    out->boolean = fits(subject, what);
    return render_spend(c->r, what->n);
}

static bool method_startswith(const struct call *c, struct value *out) {
    return affix(c, text_begins, out);
}
static bool method_endswith(const struct call *c, struct value *out) {
    return affix(c, text_ends, out);
}

static bool method_removeprefix(const struct call *c, struct value *out) {
    const struct text *subject, *what;
    if (!call_text(c, 0, &subject) || !call_text(c, 1, &what)) return false;
    *out = text_value(text_part(subject, text_begins(subject, what) ? what->n : 0, subject->n));
    return true;
}

static bool method_removesuffix(const struct call *c, struct value *out) {
    const struct text *subject, *what;
    if (!call_text(c, 0, &subject) || !call_text(c, 1, &what)) return false;
    *out = text_value(text_part(subject, 0, subject->n - (text_ends(subject, what) ? what->n : 0)));
    return true;
}

static bool method_replace(const struct call *c, struct value *out) {
    const struct text *subject, *old, *with;
    int64_t count;
    if (!call_text(c, 0, &subject) || !call_text(c, 1, &old) || !call_text(c, 2, &with))
        return false;
    if (!call_integer(c, 3, -1, &count)) return false;
    const struct text what[2] = {*old, *with};
    return render_spend(c->r, subject->n) && text_replace(c->r, subject, what, count, out);
}

static bool change_case(const struct call *c, enum text_case to, struct value *out) {
    const struct text *subject;
    return call_text(c, 0, &subject) && text_change_case(c->r, subject, to, out);
}

static bool method_upper(const struct call *c, struct value *out) {
    return change_case(c, CASE_UPPER, out);
}
static bool method_lower(const struct call *c, struct value *out) {
    return change_case(c, CASE_LOWER, out);
}
static bool method_title(const struct call *c, struct value *out) {
    return change_case(c, CASE_TITLE, out);
}
static bool method_capitalize(const struct call *c, struct value *out) {
    return change_case(c, CASE_CAPITALIZE, out);
}

static bool method_find(const struct call *c, struct value *out) {
    const struct text *subject, *what;
    if (!call_text(c, 0, &subject) || !call_text(c, 1, &what) || !render_spend(c->r, subject->n))
        return false;
    size_t at = text_find(subject, what, 0);
    struct text before = text_part(subject, 0, at == TEXT_NOT_FOUND ? 0 : at);
    *out = value_int(at == TEXT_NOT_FOUND ? -1 : (int64_t)text_characters(&before));
    return true;
}

static bool method_count(const struct call *c, struct value *out) {
    const struct text *subject, *what;
    if (!call_text(c, 0, &subject) || !call_text(c, 1, &what) || !render_spend(c->r, subject->n))
        return false;
    int64_t n = what->n == 0 ? (int64_t)text_characters(subject) + 1 : 0;
    for (size_t at = 0; what->n > 0; at += what->n) {
        at = text_find(subject, what, at);
        if (at == TEXT_NOT_FOUND) break;
        n++;
    }
    *out = value_int(n);
    return true;
}

static bool method_join(const struct call *c, struct value *out) {
    const struct text *separator;
    struct value list;
    size_t n = 0;
    if (!call_text(c, 0, &separator) || !value_iterate(c->r, &c->args[1], &list)) return false;
    value_length(&list, &n);
    struct text_writer w;
    text_writer_init(&w, c->r->arena.bytes_max);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        struct value item = value_at(&list, i);
        if (item.kind != VALUE_TEXT)
            ok = render_fail(c->r, ERR_REQ_INVALID, "chat template: join needs strings");
        ok = ok && (i == 0 || text_write(c->r, &w, separator)) && text_write(c->r, &w, &item.text);
    }
    ok = ok && text_written(c->r, &w, out);
    text_writer_finish(&w);
    return ok;
}

static bool need_dict(const struct call *c) {
    if (value_is_dict(&c->args[0])) return true;
    return render_fail(c->r, ERR_REQ_INVALID, "chat template: '%s' object has no method %s",
                       value_kind_name(&c->args[0]), c->what->name);
}

static bool method_items(const struct call *c, struct value *out) {
    return need_dict(c) && dict_items(c->r, &c->args[0], out);
}

static bool method_keys(const struct call *c, struct value *out) {
    return need_dict(c) && value_iterate(c->r, &c->args[0], out);
}

static bool method_values(const struct call *c, struct value *out) {
    if (!need_dict(c) || !dict_items(c->r, &c->args[0], out)) return false;
    for (size_t i = 0; i < out->list->n; i++)
        out->list->items[i] = out->list->items[i].list->items[1];
    return true;
}

static bool method_get(const struct call *c, struct value *out) {
    bool found;
    if (!need_dict(c) || !value_contains(c->r, &c->args[0], &c->args[1], &found)) return false;
    if (found) return value_get(c->r, &c->args[0], &c->args[1], out);
    *out = call_given(c, 2) ? c->args[2] : value_none();
    return true;
}

// What changes a list or dict ends the rendering, as in Hugging Face's sandbox; a template may name
// it in a branch that is not taken.
static bool method_unsafe(const struct call *c, struct value *out) {
    (void)out;
    return render_fail(c->r, ERR_REQ_INVALID,
                       "chat template: access to attribute '%s' of '%s' object is unsafe",
                       c->what->name, value_kind_name(&c->args[0]));
}

static const struct builtin methods[] = {
    {"strip", method_strip, 1, 2, {NULL}},
    {"lstrip", method_lstrip, 1, 2, {NULL}},
    {"rstrip", method_rstrip, 1, 2, {NULL}},
    {"split", method_split, 1, 3, {"sep", "maxsplit"}},
    {"rsplit", method_rsplit, 1, 3, {"sep", "maxsplit"}},
    {"startswith", method_startswith, 2, 2, {NULL}},
    {"endswith", method_endswith, 2, 2, {NULL}},
    {"removeprefix", method_removeprefix, 2, 2, {NULL}},
    {"removesuffix", method_removesuffix, 2, 2, {NULL}},
    {"replace", method_replace, 3, 4, {NULL}},
    {"upper", method_upper, 1, 1, {NULL}},
    {"lower", method_lower, 1, 1, {NULL}},
    {"title", method_title, 1, 1, {NULL}},
    {"capitalize", method_capitalize, 1, 1, {NULL}},
    {"find", method_find, 2, 2, {NULL}},
    {"count", method_count, 2, 2, {NULL}},
    {"join", method_join, 2, 2, {NULL}},
    {"items", method_items, 1, 1, {NULL}},
    {"keys", method_keys, 1, 1, {NULL}},
    {"values", method_values, 1, 1, {NULL}},
    {"get", method_get, 2, 3, {NULL}},
    {"format", method_format, 1, BUILTIN_ANY, {NULL}},
    {"append", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"clear", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"extend", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"insert", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"pop", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"popitem", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"remove", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"reverse", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"setdefault", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"sort", method_unsafe, 1, BUILTIN_ANY, {NULL}},
    {"update", method_unsafe, 1, BUILTIN_ANY, {NULL}},
};

const struct builtin *builtin_methods(size_t *n) {
    *n = sizeof methods / sizeof *methods;
    return methods;
}
