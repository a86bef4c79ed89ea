// openai_schema.c: what the OpenAPI document says of fields: the twin of the plain readers in
// openai_fields.c, and the walk over the tables.
#include <math.h>
#include <string.h>

#include "leader/openai_fields.h"

// Token ids of a document that knows no model.
static uint32_t vocab_of(const struct openapi_facts *facts) {
    return facts->vocab != 0 ? facts->vocab : VOCAB_MAX;
}

json_t *openai_schema_or_null(json_t *schema) {
    return json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
}

// --- plain values

// 2 rather than 2.0.
static json_t *number(double x) {
    return x == trunc(x) ? json_integer((json_int_t)x) : json_real(x);
}

json_t *openai_schema_bool(const struct openai_field *f, const struct openai_form *form) {
    (void)f, (void)form;
    return json_pack("{s:[s, s]}", "type", "boolean", "null");
}

json_t *openai_schema_number(const struct openai_field *f, const struct openai_form *form) {
    (void)form;
    return json_pack("{s:[s, s], s:o, s:o}", "type", "number", "null", "minimum", number(f->min),
                     "maximum", number(f->max));
}

json_t *openai_schema_integer(const struct openai_field *f, const struct openai_form *form) {
    (void)form;
    return json_pack("{s:[s, s], s:o, s:o}", "type", "integer", "null", "minimum", number(f->min),
                     "maximum", number(f->max));
}

// --- token ids

json_t *openapi_token_id(const struct openapi_facts *facts) {
    return json_pack("{s:s, s:i, s:I}", "type", "integer", "minimum", 0, "maximum",
                     (json_int_t)vocab_of(facts) - 1);
}

json_t *openai_schema_ids(uint32_t n_min, uint32_t n_max, const struct openapi_facts *facts) {
    return json_pack("{s:[s, s], s:o, s:I, s:I}", "type", "array", "null", "items",
                     openapi_token_id(facts), "minItems", (json_int_t)n_min, "maxItems",
                     (json_int_t)n_max);
}

// --- the walk

static json_t *rounded(double x) {
    return number(round(x * 1e6) / 1e6); // 0.7, not the nearest float's 0.699999988
}

static bool is_of(const json_t *schema, const char *type) {
    const char *first = json_string_value(json_array_get(json_object_get(schema, "type"), 0));
    return first != NULL && strcmp(first, type) == 0;
}

// What the place holds before a body is read; NULL: nothing that a client could give. Sampling's
// own defaults are the model's.
static json_t *find_default(const struct openai_field *f, const json_t *schema,
                            const struct openai_form *form) {
    static const struct openai_defaults nothing = {0};
    const struct openai_defaults *d = form->facts->defaults;
    struct openai_request r;
    json_t *out = NULL;
    openai_request_init(&r, form->chat, d == NULL ? &nothing : d);
    const char *at = (const char *)&r + f->offset;
    if (f->offset != 0 && is_of(schema, "boolean"))
        out = json_boolean(*(const bool *)at);
    else if (f->offset != 0 && is_of(schema, "number") && d != NULL)
        out = *(const float *)at >= f->min ? rounded(*(const float *)at) : NULL;
    else if (f->offset != 0 && is_of(schema, "integer") && *(const uint32_t *)at != 0)
        out = json_integer(*(const uint32_t *)at); // 0 is often another word for no word
    openai_request_finish(&r);
    return out;
}

static int add_field(json_t *out, const struct openai_field *f, const struct openai_form *form) {
    json_t *schema = f->schema(f, form);
    json_t *value = find_default(f, schema, form);
    int rc = json_object_set_new(out, f->name, schema);
    if (f->about != NULL) rc |= json_object_set_new(schema, "description", json_string(f->about));
    if (value != NULL) rc |= json_object_set_new(schema, "default", value);
    return rc;
}

static int add_table(json_t *out, const struct openai_field_table *t,
                     const struct openai_form *form) {
    int rc = 0;
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        if (t->fields[i].where & form->where) rc = add_field(out, &t->fields[i], form);
    }
    return rc;
}

json_t *openai_schema_fields(const struct openai_form *form) {
    json_t *out = json_object();
    if (out != NULL && add_table(out, &openai_fields_taken, form) == 0 &&
        add_table(out, &openai_fields_refused, form) == 0)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *rule_schema(const struct openai_rule *rule) {
    json_t *given = rule->only_true ? json_pack("{s:b}", "const", 1)
                                    : json_pack("{s:{s:s}}", "not", "type", "null");
    json_t *then = json_pack("{s:[s], s:{s:{s:b}}}", "required", rule->needs, "properties",
                             rule->needs, "const", (int)rule->value);
    if (rule->or_absent) {
        json_decref(then);
        then = json_pack("{s:{s:{s:[b, n]}}}", "properties", rule->needs, "enum", (int)rule->value);
    }
    return json_pack("{s:{s:[s], s:{s:o}}, s:o}", "if", "required", rule->field, "properties",
                     rule->field, given, "then", then);
}

json_t *openai_schema_rules(const struct openai_form *form) {
    json_t *list = json_array();
    const struct openai_rule *rule;
    for (size_t i = 0; (rule = openai_rule_at(i)) != NULL; i++) {
        if ((rule->where & form->where) == 0) continue;
        if (json_array_append_new(list, rule_schema(rule)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    const struct openai_defaults *d = form->facts->defaults;
    if ((form->where & CHAT) != 0 && d != NULL && d->tool_format == NULL)
        json_array_append_new(list, openai_tools_rule());
    return list;
}
