// jinja_order.c: filters that put values in order: sort, dictsort, unique, min, max.
//
// Keys are worked out once an item, then items are merged: at most n log n comparisons, each of
// them paid for.
#include <string.h>

#include "common/text/jinja_builtin_rows.h"
#include "common/text/jinja_lookup.h"

struct keyed {
    struct value key, item;
};

struct keyed_list {
    struct keyed *items;
    size_t n;
};

// What an item is compared by: its attribute, and without case unless asked otherwise.
static bool make_key(const struct call *c, const struct value *item, const struct value *attribute,
                     bool case_sensitive, struct value *key) {
    *key = *item;
    if (attribute != NULL && !lookup_path(c->r, item, attribute, key)) return false;
    if (case_sensitive || key->kind != VALUE_TEXT) return true;
    struct text t = key->text;
    return text_change_case(c->r, &t, CASE_LOWER, key);
}

struct key_rule {
    const struct value *attribute; // NULL = the item itself
    bool case_sensitive;
};

static bool make_keys(const struct call *c, const struct value *list, const struct key_rule *rule,
                      struct keyed_list *out) {
    size_t n = 0;
    value_length(list, &n);
    out->n = n;
    if (!render_spend(c->r, n * sizeof *out->items)) return false;
    out->items = render_alloc(c->r, n, sizeof *out->items);
    if (out->items == NULL) return false;
    for (size_t i = 0; i < n; i++) {
        struct keyed *k = &out->items[i];
        k->item = value_at(list, i);
        if (!make_key(c, &k->item, rule->attribute, rule->case_sensitive, &k->key)) return false;
    }
    return true;
}

// Merges [begin, middle) and [middle, end) into to; equal keys keep their order.
static bool merge(struct render *r, const struct keyed *from, struct keyed *to,
                  const size_t bounds[3], bool reverse) {
    size_t a = bounds[0], b = bounds[1];
    for (size_t i = bounds[0]; i < bounds[2]; i++) {
        int order = -1;
        bool both = a < bounds[1] && b < bounds[2];
        if (both && (!render_spend(r, 0) || !value_order(r, &from[b].key, &from[a].key, &order)))
            return false;
        bool second = both ? (reverse ? order > 0 : order < 0) : a == bounds[1];
        to[i] = second ? from[b++] : from[a++];
    }
    return true;
}

static bool sort_keyed(struct render *r, struct keyed_list *list, bool reverse) {
    struct keyed *from = list->items, *to = render_alloc(r, list->n, sizeof *to);
    if (to == NULL) return false;
    for (size_t width = 1; width < list->n; width *= 2) {
        for (size_t begin = 0; begin < list->n; begin += 2 * width) {
            size_t middle = begin + width < list->n ? begin + width : list->n;
            size_t end = middle + width < list->n ? middle + width : list->n;
            if (!merge(r, from, to, (const size_t[3]){begin, middle, end}, reverse)) return false;
        }
        struct keyed *sorted = to;
        to = from;
        from = sorted;
    }
    list->items = from;
    return true;
}

static bool to_list(const struct call *c, const struct keyed_list *keyed, struct value *out) {
    if (!list_create(c->r, keyed->n, out)) return false;
    for (size_t i = 0; i < keyed->n; i++)
        out->list->items[i] = keyed->items[i].item;
    return true;
}

static bool flag(const struct call *c, size_t i) {
    return call_given(c, i) && value_true(&c->args[i]);
}

static const struct value *attribute(const struct call *c, size_t i) {
    return call_given(c, i) && c->args[i].kind != VALUE_NONE ? &c->args[i] : NULL;
}

bool filter_sort(const struct call *c, struct value *out) {
    struct value list;
    struct keyed_list keyed;
    struct key_rule rule = {attribute(c, 3), flag(c, 2)};
    if (rule.attribute != NULL && rule.attribute->kind == VALUE_TEXT &&
        memchr(rule.attribute->text.bytes, ',', rule.attribute->text.n) != NULL)
        return render_fail(c->r, ERR_REQ_INVALID,
                           "chat template: sort by several attributes is not supported");
    return value_iterate(c->r, &c->args[0], &list) && make_keys(c, &list, &rule, &keyed) &&
           sort_keyed(c->r, &keyed, flag(c, 1)) && to_list(c, &keyed, out);
}

bool filter_dictsort(const struct call *c, struct value *out) {
    struct value list, place = value_int(0);
    struct keyed_list keyed;
    struct key_rule rule = {&place, flag(c, 1)};
    if (!value_is_dict(&c->args[0]))
        return render_fail(c->r, ERR_REQ_INVALID, "chat template: dictsort of a %s",
                           value_kind_name(&c->args[0]));
    if (call_given(c, 2) && value_is_text(&c->args[2], "value"))
        place = value_int(1);
    else if (call_given(c, 2) && !value_is_text(&c->args[2], "key"))
        return render_fail(c->r, ERR_REQ_INVALID,
                           "chat template: You can only sort by either \"key\" or \"value\"");
    return dict_items(c->r, &c->args[0], &list) && make_keys(c, &list, &rule, &keyed) &&
           sort_keyed(c->r, &keyed, flag(c, 3)) && to_list(c, &keyed, out);
}

static bool was_there(const struct call *c, const struct keyed_list *keyed, size_t i, bool *found) {
    *found = false;
    for (size_t k = 0; k < i && !*found; k++) {
        if (!render_spend(c->r, 0) ||
            !value_equal(c->r, &keyed->items[k].key, &keyed->items[i].key, found))
            return false;
    }
    return true;
}

bool filter_unique(const struct call *c, struct value *out) {
    struct value list;
    struct keyed_list keyed;
    struct key_rule rule = {attribute(c, 2), flag(c, 1)};
    if (!value_iterate(c->r, &c->args[0], &list) || !make_keys(c, &list, &rule, &keyed) ||
        !list_create(c->r, keyed.n, out))
        return false;
    size_t n = 0;
    for (size_t i = 0; i < keyed.n; i++) {
        bool found;
        if (!was_there(c, &keyed, i, &found)) return false;
        if (!found) out->list->items[n++] = keyed.items[i].item;
    }
    out->list->n = n;
    return true;
}

static bool extreme(const struct call *c, int wanted, struct value *out) {
    struct value list;
    struct keyed_list keyed;
    struct key_rule rule = {attribute(c, 2), flag(c, 1)};
    if (!value_iterate(c->r, &c->args[0], &list) || !make_keys(c, &list, &rule, &keyed))
        return false;
    size_t best = 0;
    for (size_t i = 1; i < keyed.n; i++) {
        int order;
        if (!value_order(c->r, &keyed.items[i].key, &keyed.items[best].key, &order)) return false;
        if (wanted < 0 ? order < 0 : order > 0) best = i;
    }
    *out = keyed.n == 0 ? value_undefined("item", 4) : keyed.items[best].item;
    return true;
}

bool filter_min(const struct call *c, struct value *out) {
    return extreme(c, -1, out);
}
bool filter_max(const struct call *c, struct value *out) {
    return extreme(c, 1, out);
}
