// jinja_value.h: what a template computes with: Python's values as far as templates need them.
//
// Values live in the render's arena or borrow from the variables given to it. Text remembers byte
// by byte whether it is tainted, that is, came from a message: so the rendered prompt knows which
// special tokens a user wrote.
#ifndef MOESAIC_COMMON_TEXT_JINJA_VALUE_H
#define MOESAIC_COMMON_TEXT_JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/mem.h"

#define KEYWORD_NONE 0u
#define VALUE_DEPTH_MAX 64 // levels that comparing and printing go down

enum value_kind {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,      // own list
    VALUE_JSON_LIST, // borrowed
    VALUE_DICT,      // own dict
    VALUE_JSON_DICT, // borrowed
    VALUE_NAMESPACE, // own dict whose entries may be set
    VALUE_LOOP,
    VALUE_MACRO
};

// taint: one byte for each, 1 = tainted; NULL: all of it is as tainted says.
struct text {
    const char *bytes;
    const char *taint;
    size_t n;
    bool tainted;
};

struct list;
struct dict;

struct value {
    uint8_t kind;     // enum value_kind
    bool markup;      // of a text: |safe made it, so that adding to it would escape
    uint32_t keyword; // of an argument: 1 + name it was passed by; KEYWORD_NONE = by position
    union {
        bool boolean;
        int64_t integer; // also a loop's serial number, a macro's index
        double real;
        struct text text; // of an undefined value: its name
        struct list *list;
        struct dict *dict;
        const json_t *json;
    };
};

struct list {
    struct value *items;
    size_t n;
    bool tuple;
};

struct dict_entry {
    struct value key, value;
};

struct dict {
    struct dict_entry *entries;
    size_t n, capacity;
};

// Memory, effort and errors of one rendering.
struct render {
    struct arena arena;
    uint64_t steps_left;
    int64_t wall_ns; // what strftime_now calls now
    int rc;          // the first failure; later ones do not replace it
    struct err_text *e;
};

// Records a failure that ends the rendering; always returns false, so that `return
// render_fail(...)` reads well.
bool render_fail(struct render *r, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Counts effort: steps, and bytes touched. False when the rendering has had its share.
bool render_spend(struct render *r, size_t bytes);
void *render_alloc(struct render *r, size_t count, size_t bytes); // NULL has been recorded

struct value value_none(void);
struct value value_bool(bool b);
struct value value_int(int64_t i);
struct value value_text(const char *bytes, size_t n, bool tainted);
struct value value_literal(const char *s); // trusted
struct value value_undefined(const char *name, size_t n);
struct value value_from_json(const json_t *json, bool tainted);

const char *value_kind_name(const struct value *v); // Python's: "str"
bool value_is_text(const struct value *v, const char *s);
bool value_is_list(const struct value *v);
bool value_is_dict(const struct value *v);    // no namespace
bool value_is_number(const struct value *v);  // bool, int or float
double value_real(const struct value *v);     // of a number
int64_t value_integer(const struct value *v); // of a bool or int

bool value_true(const struct value *v);
// Length of text (characters), list or dict; false when it has none.
bool value_length(const struct value *v, size_t *n);
// Item i < n of a list.
struct value value_at(const struct value *v, size_t i);
bool value_get(struct render *r, const struct value *dict, const struct value *key,
               struct value *out);
bool value_equal(struct render *r, const struct value *a, const struct value *b, bool *equal);
// Sets *order to <0, 0, >0; fails for what Python does not order.
bool value_order(struct render *r, const struct value *a, const struct value *b, int *order);
bool value_contains(struct render *r, const struct value *container, const struct value *item,
                    bool *found);
// What a for loop goes over: a list's items, a dict's keys, a text's characters.
bool value_iterate(struct render *r, const struct value *v, struct value *list);
// Python's str().
bool value_string(struct render *r, const struct value *v, struct text *out);

bool list_create(struct render *r, size_t n, struct value *out);
bool dict_create(struct render *r, bool is_namespace, struct value *out);
bool dict_set(struct render *r, struct dict *d, const struct value *key, const struct value *value);
// (key, value) tuples in order.
bool dict_items(struct render *r, const struct value *v, struct value *list);

#endif
