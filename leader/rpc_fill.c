// rpc_fill.c: see rpc_fill.h. Strings are UTF-8: rpc_walk.c has seen them.
#include "leader/rpc_fill.h"

#include <math.h>
#include <string.h>

#include "leader/openai_fields.h"

static void no_memory(struct rpc_fill *f) {
    f->rc = api_error_set(f->error, 500, NULL, "memory is out.");
}

void rpc_fill_refuse(struct rpc_fill *f, const char *name, const char *must) {
    if (f->rc == 0) f->rc = api_error_set(f->error, 400, name, "'%s' must be %s.", name, must);
}

void rpc_fill_value(struct rpc_fill *f, const char *name, json_t *value) {
    if (f->rc != 0)
        json_decref(value);
    else if (json_object_set_new(f->fields, name, value) != 0)
        no_memory(f);
}

void rpc_fill_number(struct rpc_fill *f, const char *name, float x) {
    if (isfinite(x))
        rpc_fill_value(f, name, json_real((double)x));
    else
        rpc_fill_refuse(f, name, "a number");
}

void rpc_fill_integer(struct rpc_fill *f, const char *name, uint32_t x) {
    if (x != 0) rpc_fill_value(f, name, json_integer(x));
}

void rpc_fill_string(struct rpc_fill *f, const char *name, const char *text) {
    if (text[0] != '\0') rpc_fill_value(f, name, json_string(text));
}

void rpc_fill_json(struct rpc_fill *f, const char *name, const char *text) {
    struct openai_body body = {.text = text, .bytes = strlen(text)};
    json_t *value;
    if (text[0] == '\0' || f->rc != 0) return;
    f->rc = openai_load_value(&value, &body, name, &f->counts, f->error);
    if (f->rc == 0) rpc_fill_value(f, name, value);
}

static void append(struct rpc_fill *f, json_t *list, json_t *value) {
    if (json_array_append_new(list, value) != 0) no_memory(f);
}

void rpc_fill_strings(struct rpc_fill *f, const char *name, struct rpc_strings s) {
    if (s.n == 0 || f->rc != 0) return;
    json_t *list = json_array();
    for (size_t i = 0; i < s.n && i <= s.n_max && f->rc == 0; i++)
        append(f, list, json_string(s.at[i]));
    rpc_fill_value(f, name, list);
}

void rpc_fill_ids(struct rpc_fill *f, const char *name, struct rpc_ids s) {
    if (s.n == 0 || f->rc != 0) return;
    json_t *list = json_array();
    for (size_t i = 0; i < s.n && i <= s.n_max && f->rc == 0; i++)
        append(f, list, json_integer(s.at[i]));
    rpc_fill_value(f, name, list);
}
