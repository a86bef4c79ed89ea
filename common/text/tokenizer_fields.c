// tokenizer_fields.c: single fields of tokenizer.json, checked.
#include <stdio.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/text/json_reader.h"
#include "common/text/tokenizer_loader.h"

int loader_check_keys(struct loader *l, const json_t *object, const char *const *known,
                      const char *where) {
    char place[80];
    snprintf(place, sizeof place, "tokenizer.json: %s", where);
    return json_check_keys(object, known, place, l->e);
}

bool loader_is_absent(const json_t *value) {
    return value == NULL || json_is_null(value);
}

const char *loader_type(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type == NULL ? "" : type;
}

int loader_flag(struct loader *l, const json_t *object, const char *key, bool otherwise,
                bool *out) {
    const json_t *value = json_object_get(object, key);
    *out = loader_is_absent(value) ? otherwise : json_is_true(value);
    if (loader_is_absent(value) || json_is_boolean(value)) return 0;
    return refuse(l, "%s of %s is not a boolean", key, loader_type(object));
}

int loader_check_empty(struct loader *l, const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (loader_is_absent(value) || (json_is_string(value) && json_string_length(value) == 0))
        return 0;
    return refuse(l, "%s is not supported", key);
}

int loader_id(struct loader *l, const json_t *value, const char *where, uint32_t *id) {
    bool ok = json_is_integer(value) && json_integer_value(value) >= 0 &&
              json_integer_value(value) < VOCAB_MAX;
    if (!ok) return refuse(l, "%s: an id is not an integer below %d", where, VOCAB_MAX);
    *id = (uint32_t)json_integer_value(value);
    return 0;
}

int loader_short_text(struct loader *l, const json_t *object, const char *key,
                      struct loader_text to) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || json_string_length(value) >= to.cap)
        return refuse(l, "%s of %s is not a string of at most %zu bytes", key, loader_type(object),
                      to.cap - 1);
    *to.n = (uint32_t)json_string_length(value);
    memcpy(to.out, json_string_value(value), *to.n);
    to.out[*to.n] = '\0';
    return 0;
}

int loader_replace(struct loader *l, const json_t *value, const char *where,
                   struct normalizer_step *out) {
    static const char *const known[] = {"type", "pattern", "content", NULL};
    static const char *const literal[] = {"String", NULL};
    *out = (struct normalizer_step){.kind = NORMALIZE_REPLACE};
    const json_t *pattern = json_object_get(value, "pattern");
    if (!json_is_object(pattern)) return refuse(l, "%s: Replace lacks a pattern", where);
    char place[80];
    snprintf(place, sizeof place, "%s: pattern of Replace", where);
    int rc = loader_check_keys(l, value, known, where);
    if (rc == 0) rc = loader_check_keys(l, pattern, literal, place);
    if (rc == 0)
        rc = loader_short_text(l, pattern, "String",
                               (struct loader_text){out->from, &out->n_from, sizeof out->from});
    if (rc == 0)
        rc = loader_short_text(l, value, "content",
                               (struct loader_text){out->to, &out->n_to, sizeof out->to});
    if (rc == 0 && out->n_from == 0) rc = refuse(l, "%s: Replace looks for nothing", where);
    return rc;
}

int loader_list(struct loader *l, const char *where, const char *key, struct loader_list *out) {
    const char *const known[] = {"type", key, NULL};
    const json_t *value = json_object_get(l->root, where);
    *out = (struct loader_list){.items = {value}, .n = loader_is_absent(value) ? 0 : 1};
    if (strcmp(loader_type(value), "Sequence") != 0) return 0;
    const json_t *list = json_object_get(value, key);
    if (!json_is_array(list)) return refuse(l, "%s.%s is not a list", where, key);
    if (json_array_size(list) > DECODER_STEPS_MAX)
        return refuse(l, "%s.%s has more than %d components", where, key, DECODER_STEPS_MAX);
    out->n = json_array_size(list);
    for (size_t i = 0; i < out->n; i++)
        out->items[i] = json_array_get(list, i);
    return loader_check_keys(l, value, known, where);
}
