// jinja_lookup.c: see jinja_lookup.h.
#include "common/text/jinja_lookup.h"

#include <string.h>

#include "common/text/jinja_builtin.h"
#include "common/text/utf8.h"

static bool is_undefined(struct render *r, const struct value *v) {
    if (v->kind != VALUE_UNDEFINED) return false;
    size_t n = v->text.n < 80 ? v->text.n : 80;
    render_fail(r, ERR_REQ_INVALID, "chat template: '%.*s' is undefined", (int)n,
                n == 0 ? "" : v->text.bytes);
    return true;
}

bool lookup_attribute(struct render *r, const struct value *v, const struct text *name,
                      struct value *out) {
    static const char *const dict_methods[] = {"items",      "keys",    "values",   "get",
                                               "pop",        "update",  "copy",     "clear",
                                               "setdefault", "popitem", "fromkeys", NULL};
    if (is_undefined(r, v)) return false;
    bool dict = value_is_dict(v),
         method = v->kind == VALUE_TEXT && builtin_find(BUILTIN_METHOD, name->bytes, name->n) >= 0;
    for (size_t i = 0; dict && dict_methods[i] != NULL; i++)
        method = method || (strlen(dict_methods[i]) == name->n &&
                            memcmp(dict_methods[i], name->bytes, name->n) == 0);
    if (method)
        return render_fail(r, ERR_REQ_INVALID,
                           "chat template: the method \"%.*s\" as a value is not supported",
                           (int)name->n, name->bytes);
    *out = value_undefined(name->bytes, name->n);
    if (!dict && v->kind != VALUE_NAMESPACE) return true;
    struct value key = {.kind = VALUE_TEXT, .text = *name};
    return value_get(r, v, &key, out);
}

// Index i of n, counted from the end when negative; SIZE_MAX when out of range.
static size_t index_of(int64_t i, size_t n) {
    if (i < 0) i += (int64_t)n;
    return i < 0 || (uint64_t)i >= n ? SIZE_MAX : (size_t)i;
}

bool lookup_item(struct render *r, const struct value *v, const struct value *key,
                 struct value *out) {
    size_t n = 0;
    if (is_undefined(r, v)) return false;
    if (value_is_dict(v)) return value_get(r, v, key, out);
    *out = value_undefined("item", 4);
    if (key->kind == VALUE_TEXT) {
        *out = value_undefined(key->text.bytes, key->text.n);
        return v->kind == VALUE_NAMESPACE ? value_get(r, v, key, out) : true;
    }
    bool indexed = value_is_list(v) || v->kind == VALUE_TEXT;
    if (!indexed || (key->kind != VALUE_INT && key->kind != VALUE_BOOL)) return true;
    value_length(v, &n);
    size_t i = index_of(value_integer(key), n);
    if (i == SIZE_MAX) return true;
    if (v->kind == VALUE_TEXT) {
        const int64_t range[3] = {(int64_t)i, (int64_t)i + 1, 1};
        return text_slice(r, &v->text, range, out);
    }
    *out = value_at(v, i);
    return true;
}

// A bound of a slice; otherwise is for one that was left out.
static bool bound(struct render *r, const struct value *v, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (v->kind == VALUE_NONE) return true;
    if (v->kind != VALUE_INT && v->kind != VALUE_BOOL)
        return render_fail(r, ERR_REQ_INVALID, "chat template: a slice needs integers");
    *out = value_integer(v);
    return true;
}

// As Python clamps a bound of a slice over n items.
static int64_t clamp(int64_t i, int64_t n, int64_t low, int64_t high) {
    if (i < 0) i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

static bool slice_range(struct render *r, const struct value bounds[3], int64_t n,
                        int64_t range[3]) {
    if (!bound(r, &bounds[2], 1, &range[2])) return false;
    if (range[2] == 0 || range[2] == INT64_MIN)
        return render_fail(r, ERR_REQ_INVALID, "chat template: a slice's step is wrong");
    bool back = range[2] < 0;
    int64_t low = back ? -1 : 0, high = back ? n - 1 : n;
    if (!bound(r, &bounds[0], 0, &range[0]) || !bound(r, &bounds[1], 0, &range[1])) return false;
    range[0] = bounds[0].kind == VALUE_NONE ? (back ? high : low) : clamp(range[0], n, low, high);
    range[1] = bounds[1].kind == VALUE_NONE ? (back ? low : high) : clamp(range[1], n, low, high);
    // Beyond the length a step is one item; cutting it keeps the loop's sum from overflowing.
    if (range[2] > n) range[2] = n + 1;
    if (range[2] < -n) range[2] = -n - 1;
    return true;
}

bool lookup_slice(struct render *r, const struct value *v, const struct value bounds[3],
                  struct value *out) {
    size_t n = 0, count = 0;
    int64_t range[3];
    if (is_undefined(r, v)) return false;
    if (!value_is_list(v) && v->kind != VALUE_TEXT)
        return render_fail(r, ERR_REQ_INVALID, "chat template: a '%s' has no slices",
                           value_kind_name(v));
    value_length(v, &n);
    if (!slice_range(r, bounds, (int64_t)n, range)) return false;
    if (v->kind == VALUE_TEXT) return text_slice(r, &v->text, range, out);
    if (!render_spend(r, n * sizeof *v) || !list_create(r, n, out)) return false;
    for (int64_t i = range[0]; range[2] > 0 ? i < range[1] : i > range[1]; i += range[2])
        out->list->items[count++] = value_at(v, (size_t)i);
    out->list->n = count;
    out->list->tuple = v->kind == VALUE_LIST && v->list->tuple;
    return true;
}

static bool is_digits(const struct text *t) {
    for (size_t i = 0; i < t->n; i++) {
        if (t->bytes[i] < '0' || t->bytes[i] > '9') return false;
    }
    return t->n > 0 && t->n < 10;
}

bool lookup_path(struct render *r, const struct value *v, const struct value *path,
                 struct value *out) {
    struct value at = *v;
    if (path->kind == VALUE_INT) return lookup_item(r, &at, path, out);
    if (path->kind != VALUE_TEXT)
        return render_fail(r, ERR_REQ_INVALID, "chat template: an attribute is not a name");
    const struct text point = {.bytes = ".", .n = 1};
    for (size_t begin = 0; begin <= path->text.n;) {
        size_t end = text_find(&path->text, &point, begin);
        if (end == TEXT_NOT_FOUND) end = path->text.n;
        struct text name = text_part(&path->text, begin, end);
        struct value key = {.kind = VALUE_TEXT, .text = name}, next;
        if (is_digits(&name)) {
            int64_t i = 0;
            for (size_t k = 0; k < name.n; k++)
                i = 10 * i + (name.bytes[k] - '0');
            key = value_int(i);
        }
        if (!lookup_item(r, &at, &key, &next)) return false;
        at = next;
        begin = end + 1;
    }
    *out = at;
    return true;
}
