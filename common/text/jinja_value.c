// jinja_value.c: the meaning of values: truth, equality, order, membership, iteration, as in
// Python.
#include "common/text/jinja_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/text/jinja_text.h"
#include "common/text/utf8.h"

bool render_fail(struct render *r, int code, const char *format, ...) {
    if (r->rc != 0) return false;
    r->rc = code;
    if (r->e == NULL) return false;
    va_list args;
    va_start(args, format);
    vsnprintf(r->e->text, sizeof r->e->text, format, args);
    va_end(args);
    return false;
}

bool render_spend(struct render *r, size_t bytes) {
    uint64_t steps = 1 + bytes / 16;
    if (steps > r->steps_left)
        return render_fail(r, ERR_REQ_TOO_LARGE,
                           "chat template: rendering takes more than %d steps", TEMPLATE_STEPS_MAX);
    r->steps_left -= steps;
    return true;
}

void *render_alloc(struct render *r, size_t count, size_t bytes) {
    size_t total;
    void *p = size_mul(count, bytes, &total) ? arena_alloc(&r->arena, total) : NULL;
    if (p == NULL)
        render_fail(r, ERR_REQ_TOO_LARGE,
                    "chat template: rendering takes more than %u MiB of memory",
                    TEMPLATE_RENDER_BYTES_MAX >> 20);
    return p;
}

struct value value_none(void) {
    return (struct value){.kind = VALUE_NONE};
}

struct value value_bool(bool b) {
    return (struct value){.kind = VALUE_BOOL, .boolean = b};
}

struct value value_int(int64_t i) {
    return (struct value){.kind = VALUE_INT, .integer = i};
}

struct value value_text(const char *bytes, size_t n, bool tainted) {
    return (struct value){.kind = VALUE_TEXT, .text = {.bytes = bytes, .n = n, .tainted = tainted}};
}

struct value value_literal(const char *s) {
    return value_text(s, strlen(s), false);
}

struct value value_undefined(const char *name, size_t n) {
    return (struct value){.kind = VALUE_UNDEFINED, .text = {.bytes = name, .n = n}};
}

struct value value_from_json(const json_t *json, bool tainted) {
    switch (json_typeof(json)) {
    case JSON_TRUE: return value_bool(true);
    case JSON_FALSE: return value_bool(false);
    case JSON_INTEGER: return value_int(json_integer_value(json));
    case JSON_REAL: return (struct value){.kind = VALUE_FLOAT, .real = json_real_value(json)};
    case JSON_STRING: return value_text(json_string_value(json), json_string_length(json), tainted);
    case JSON_ARRAY: return (struct value){.kind = VALUE_JSON_LIST, .json = json};
    case JSON_OBJECT: return (struct value){.kind = VALUE_JSON_DICT, .json = json};
    default: return value_none();
    }
}

const char *value_kind_name(const struct value *v) {
    static const char *const names[] = {"Undefined", "NoneType",    "bool", "int",  "float",
                                        "str",       "list",        "list", "dict", "dict",
                                        "Namespace", "LoopContext", "Macro"};
    return names[v->kind];
}

bool value_is_text(const struct value *v, const char *s) {
    return v->kind == VALUE_TEXT && v->text.n == strlen(s) &&
           memcmp(v->text.bytes, s, v->text.n) == 0;
}

bool value_is_list(const struct value *v) {
    return v->kind == VALUE_LIST || v->kind == VALUE_JSON_LIST;
}

bool value_is_dict(const struct value *v) {
    return v->kind == VALUE_DICT || v->kind == VALUE_JSON_DICT;
}

bool value_is_number(const struct value *v) {
    return v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_FLOAT;
}

int64_t value_integer(const struct value *v) {
    check(v->kind == VALUE_BOOL || v->kind == VALUE_INT);
    return v->kind == VALUE_BOOL ? v->boolean : v->integer;
}

double value_real(const struct value *v) {
    return v->kind == VALUE_FLOAT ? v->real : (double)value_integer(v);
}

bool value_true(const struct value *v) {
    switch (v->kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return v->boolean;
    case VALUE_INT: return v->integer != 0;
    case VALUE_FLOAT: return v->real != 0;
    case VALUE_TEXT: return v->text.n != 0;
    case VALUE_LIST: return v->list->n != 0;
    case VALUE_DICT: return v->dict->n != 0;
    case VALUE_JSON_LIST: return json_array_size(v->json) != 0;
    case VALUE_JSON_DICT: return json_object_size(v->json) != 0;
    default: return true;
    }
}

bool value_length(const struct value *v, size_t *n) {
    switch (v->kind) {
    case VALUE_UNDEFINED: *n = 0; return true;
    case VALUE_TEXT: *n = text_characters(&v->text); return true;
    case VALUE_LIST: *n = v->list->n; return true;
    case VALUE_DICT: *n = v->dict->n; return true;
    case VALUE_JSON_LIST: *n = json_array_size(v->json); return true;
    case VALUE_JSON_DICT: *n = json_object_size(v->json); return true;
    default: return false;
    }
}

struct value value_at(const struct value *v, size_t i) {
    if (v->kind == VALUE_LIST) {
        check(i < v->list->n);
        return v->list->items[i];
    }
    check(v->kind == VALUE_JSON_LIST);
    return value_from_json(json_array_get(v->json, i), true);
}

// --- dicts

bool list_create(struct render *r, size_t n, struct value *out) {
    struct list *list = render_alloc(r, 1, sizeof *list);
    struct value *items = render_alloc(r, n, sizeof *items);
    if (list == NULL || items == NULL) return false;
    *list = (struct list){.items = items, .n = n};
    *out = (struct value){.kind = VALUE_LIST, .list = list};
    return true;
}

bool dict_create(struct render *r, bool is_namespace, struct value *out) {
    struct dict *dict = render_alloc(r, 1, sizeof *dict);
    if (dict == NULL) return false;
    *out = (struct value){.kind = is_namespace ? VALUE_NAMESPACE : VALUE_DICT, .dict = dict};
    return true;
}

static bool dict_find(struct render *r, const struct dict *d, const struct value *key,
                      struct dict_entry **out) {
    *out = NULL;
    for (size_t i = 0; i < d->n && *out == NULL; i++) {
        bool equal;
        if (!value_equal(r, &d->entries[i].key, key, &equal)) return false;
        if (equal) *out = &d->entries[i];
    }
    return true;
}

bool dict_set(struct render *r, struct dict *d, const struct value *key,
              const struct value *value) {
    struct dict_entry *entry;
    if (value_is_list(key) && !(key->kind == VALUE_LIST && key->list->tuple))
        return render_fail(r, ERR_REQ_INVALID, "chat template: a list is no key");
    if (!dict_find(r, d, key, &entry)) return false;
    if (entry != NULL) {
        entry->value = *value;
        return true;
    }
    if (d->n == d->capacity) {
        size_t capacity = d->capacity == 0 ? 8 : 2 * d->capacity;
        struct dict_entry *entries = render_alloc(r, capacity, sizeof *entries);
        if (entries == NULL) return false;
        if (d->n > 0) memcpy(entries, d->entries, d->n * sizeof *entries);
        d->entries = entries;
        d->capacity = capacity;
    }
    d->entries[d->n++] = (struct dict_entry){*key, *value};
    return true;
}

bool value_get(struct render *r, const struct value *v, const struct value *key,
               struct value *out) {
    bool is_text = key->kind == VALUE_TEXT;
    *out = is_text ? value_undefined(key->text.bytes, key->text.n) : value_undefined("item", 4);
    if (v->kind == VALUE_JSON_DICT) {
        if (!is_text) return true;
        const json_t *found = json_object_getn(v->json, key->text.bytes, key->text.n);
        if (found != NULL) *out = value_from_json(found, true);
        return render_spend(r, key->text.n);
    }
    struct dict_entry *entry;
    if (!dict_find(r, v->dict, key, &entry)) return false;
    if (entry != NULL) *out = entry->value;
    return true;
}

static json_t *unconst(const json_t *json) {
    json_t *plain; // jansson's iterators do not change the object; their signature does not say so
    memcpy(&plain, &json, sizeof plain);
    return plain;
}

static bool pair_create(struct render *r, const struct value *key, const struct value *value,
                        struct value *out) {
    if (!list_create(r, 2, out)) return false;
    out->list->tuple = true;
    out->list->items[0] = *key;
    out->list->items[1] = *value;
    return true;
}

bool dict_items(struct render *r, const struct value *v, struct value *list) {
    size_t n, i = 0;
    if (!value_length(v, &n) || !render_spend(r, n * sizeof *v) || !list_create(r, n, list))
        return false;
    if (v->kind == VALUE_DICT) {
        for (; i < n; i++) {
            const struct dict_entry *entry = &v->dict->entries[i];
            if (!pair_create(r, &entry->key, &entry->value, &list->list->items[i])) return false;
        }
        return true;
    }
    json_t *object = unconst(v->json);
    for (void *it = json_object_iter(object); it != NULL; it = json_object_iter_next(object, it)) {
        const char *name = json_object_iter_key(it);
        struct value key = value_text(name, json_object_iter_key_len(it), true);
        struct value value = value_from_json(json_object_iter_value(it), true);
        if (!pair_create(r, &key, &value, &list->list->items[i++])) return false;
    }
    return true;
}

static bool keys(struct render *r, const struct value *v, struct value *list) {
    if (!dict_items(r, v, list)) return false;
    for (size_t i = 0; i < list->list->n; i++)
        list->list->items[i] = list->list->items[i].list->items[0];
    return true;
}

static bool characters(struct render *r, const struct text *t, struct value *list) {
    size_t n = text_characters(t), at = 0;
    if (!render_spend(r, n * sizeof(struct value)) || !list_create(r, n, list)) return false;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = utf8_next(t->bytes + at, t->n - at).bytes;
        list->list->items[i] =
            (struct value){.kind = VALUE_TEXT, .text = text_part(t, at, at + bytes)};
        at += bytes;
    }
    return true;
}

bool value_iterate(struct render *r, const struct value *v, struct value *list) {
    switch (v->kind) {
    case VALUE_LIST:
    case VALUE_JSON_LIST: *list = *v; return true;
    case VALUE_DICT:
    case VALUE_JSON_DICT: return keys(r, v, list);
    case VALUE_TEXT: return characters(r, &v->text, list);
    case VALUE_UNDEFINED: return list_create(r, 0, list);
    default:
        return render_fail(r, ERR_REQ_INVALID, "chat template: '%s' object is not iterable",
                           value_kind_name(v));
    }
}

// --- comparing

// One pair of values that are still to be compared.
struct comparison {
    struct value a, b;
    uint32_t depth;
};

struct comparisons {
    struct comparison *list;
    size_t n, capacity;
};

static bool later(struct render *r, struct comparisons *c, struct comparison pair) {
    if (pair.depth > VALUE_DEPTH_MAX)
        return render_fail(r, ERR_REQ_INVALID,
                           "chat template: values are nested too deep to compare");
    if (c->n == c->capacity) {
        size_t capacity = c->capacity == 0 ? 16 : 2 * c->capacity;
        struct comparison *list = render_alloc(r, capacity, sizeof *list);
        if (list == NULL) return false;
        if (c->n > 0) memcpy(list, c->list, c->n * sizeof *list);
        c->list = list;
        c->capacity = capacity;
    }
    c->list[c->n++] = pair;
    return true;
}

static bool equal_lists(struct render *r, const struct comparison *p, struct comparisons *pending,
                        bool *equal) {
    size_t n_a = 0, n_b = 0;
    value_length(&p->a, &n_a);
    value_length(&p->b, &n_b);
    bool tuple_a = p->a.kind == VALUE_LIST && p->a.list->tuple,
         tuple_b = p->b.kind == VALUE_LIST && p->b.list->tuple;
    *equal = n_a == n_b && tuple_a == tuple_b;
    for (size_t i = 0; i < n_a && *equal; i++) {
        struct comparison next = {value_at(&p->a, i), value_at(&p->b, i), p->depth + 1};
        if (!later(r, pending, next)) return false;
    }
    return true;
}

static bool equal_dicts(struct render *r, const struct comparison *p, struct comparisons *pending,
                        bool *equal) {
    size_t n_a = 0, n_b = 0;
    struct value items;
    value_length(&p->a, &n_a);
    value_length(&p->b, &n_b);
    *equal = n_a == n_b;
    if (!*equal || !dict_items(r, &p->a, &items)) return r->rc == 0;
    for (size_t i = 0; i < n_a && *equal; i++) {
        const struct value *pair = items.list->items[i].list->items;
        struct comparison next = {.a = pair[1], .depth = p->depth + 1};
        // A key that is a list would nest this search; templates have none.
        if (pair[0].kind != VALUE_TEXT)
            return render_fail(r, ERR_REQ_INVALID,
                               "chat template: comparing dicts with such keys is not supported");
        if (!value_get(r, &p->b, &pair[0], &next.b)) return false;
        *equal = next.b.kind != VALUE_UNDEFINED;
        if (*equal && !later(r, pending, next)) return false;
    }
    return true;
}

static bool equal_numbers(const struct value *a, const struct value *b) {
    if (a->kind != VALUE_FLOAT && b->kind != VALUE_FLOAT)
        return value_integer(a) == value_integer(b);
    return value_real(a) == value_real(b);
}

static bool equal_step(struct render *r, const struct comparison *p, struct comparisons *pending,
                       bool *equal) {
    const struct value *a = &p->a, *b = &p->b;
    if (value_is_number(a) && value_is_number(b)) {
        *equal = equal_numbers(a, b);
        return true;
    }
    if (value_is_list(a) && value_is_list(b)) return equal_lists(r, p, pending, equal);
    if (value_is_dict(a) && value_is_dict(b)) return equal_dicts(r, p, pending, equal);
    *equal = a->kind == b->kind;
    if (!*equal || a->kind == VALUE_NONE || a->kind == VALUE_UNDEFINED) return true;
    if (a->kind == VALUE_TEXT) {
        *equal = a->text.n == b->text.n && memcmp(a->text.bytes, b->text.bytes, a->text.n) == 0;
        return render_spend(r, *equal ? a->text.n : 0);
    }
    *equal = a->kind == VALUE_NAMESPACE ? a->dict == b->dict : a->integer == b->integer;
    return true;
}

bool value_equal(struct render *r, const struct value *a, const struct value *b, bool *equal) {
    struct comparison first = {*a, *b, 0};
    struct comparisons pending = {0};
    if (!equal_step(r, &first, &pending, equal)) return false;
    while (*equal && pending.n > 0) {
        struct comparison next = pending.list[--pending.n];
        if (!render_spend(r, 0) || !equal_step(r, &next, &pending, equal)) return false;
    }
    return true;
}

bool value_order(struct render *r, const struct value *a, const struct value *b, int *order) {
    if (value_is_number(a) && value_is_number(b)) {
        double x = value_real(a), y = value_real(b);
        *order = x < y ? -1 : x > y;
        if (a->kind != VALUE_FLOAT && b->kind != VALUE_FLOAT) {
            int64_t i = value_integer(a), j = value_integer(b);
            *order = i < j ? -1 : i > j;
        }
        if (isnan(x) || isnan(y))
            return render_fail(r, ERR_REQ_INVALID, "chat template: NaN has no order");
        return true;
    }
    if (a->kind == VALUE_TEXT && b->kind == VALUE_TEXT) {
        size_t n = a->text.n < b->text.n ? a->text.n : b->text.n;
        *order = memcmp(a->text.bytes, b->text.bytes, n);
        if (*order == 0) *order = a->text.n < b->text.n ? -1 : a->text.n > b->text.n;
        return render_spend(r, n);
    }
    return render_fail(r, ERR_REQ_INVALID, "chat template: '%s' and '%s' have no order",
                       value_kind_name(a), value_kind_name(b));
}

bool value_contains(struct render *r, const struct value *container, const struct value *item,
                    bool *found) {
    *found = false;
    if (container->kind == VALUE_TEXT) {
        if (item->kind != VALUE_TEXT)
            return render_fail(r, ERR_REQ_INVALID,
                               "chat template: 'in <string>' needs a string, not %s",
                               value_kind_name(item));
        *found = text_find(&container->text, &item->text, 0) != TEXT_NOT_FOUND;
        return render_spend(r, container->text.n);
    }
    if (value_is_dict(container)) {
        struct value got;
        if (value_is_list(item) || value_is_dict(item))
            return render_fail(r, ERR_REQ_INVALID, "chat template: a %s is no key",
                               value_kind_name(item));
        if (!value_get(r, container, item, &got)) return false;
        *found = got.kind != VALUE_UNDEFINED;
        return true;
    }
    if (!value_is_list(container) && container->kind != VALUE_UNDEFINED)
        return render_fail(r, ERR_REQ_INVALID,
                           "chat template: argument of type '%s' is not iterable",
                           value_kind_name(container));
    size_t n = 0;
    value_length(container, &n);
    for (size_t i = 0; i < n && !*found; i++) {
        struct value member = value_at(container, i);
        if (!render_spend(r, 0) || !value_equal(r, &member, item, found)) return false;
    }
    return true;
}
