// config.c: see config.h.
#include "common/model/config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/file.h"

// The parser behind json_loadb recurses; this looks at the depth first, without recursion.
static bool depth_is_fine(const char *bytes, size_t n_bytes) {
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = bytes[i];
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
            continue;
        }
        if (c == '"') in_string = true;
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && depth > 0) depth--;
        if (depth > CONFIG_DEPTH_MAX) return false;
    }
    return true;
}

int config_parse(json_t **out, const char *bytes, size_t n_bytes, const char *file,
                 struct err_text *e) {
    if (!depth_is_fine(bytes, n_bytes))
        return err_set(e, ERR_FATAL_MODEL, "%s is nested deeper than %d levels", file,
                       CONFIG_DEPTH_MAX);
    char buf[FILE_REASON_BYTES];
    const char *reason = file_not_json(bytes, n_bytes, buf);
    if (reason != NULL) return err_set(e, ERR_FATAL_MODEL, "%s: %s", file, reason);
    json_error_t error;
    json_t *root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        if (json_error_code(&error) == json_error_out_of_memory)
            return err_set(e, ERR_FATAL_NOMEM, "no memory for %s", file);
        return err_set(e, ERR_FATAL_MODEL, "%s, line %d, column %d: %s", file, error.line,
                       error.column, error.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(e, ERR_FATAL_MODEL, "%s is not a JSON object", file);
    }
    *out = root;
    return 0;
}

int config_refuse(struct config_reader *r, const char *format, ...) {
    if (r->rc != 0) return r->rc;
    char text[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->rc = err_set(r->e, ERR_FATAL_MODEL, "%s: %s", r->file, text);
    return r->rc;
}

const json_t *config_value(const struct config_reader *r, const char *key) {
    const json_t *v = json_object_get(r->object, key);
    return json_is_null(v) ? NULL : v;
}

uint32_t config_size_or(struct config_reader *r, const char *key, uint32_t max, uint32_t fallback) {
    const json_t *v = config_value(r, key);
    if (v == NULL) return fallback;
    if (!json_is_integer(v)) {
        config_refuse(r, "%s must be a whole number", key);
        return fallback;
    }
    json_int_t n = json_integer_value(v);
    if (n < 1 || n > (json_int_t)max) {
        config_refuse(r, "%s is %lld, not within 1 to %u", key, (long long)n, max);
        return fallback;
    }
    return (uint32_t)n;
}

uint32_t config_count_or(struct config_reader *r, const char *key, uint32_t max,
                         uint32_t fallback) {
    const json_t *v = config_value(r, key);
    if (json_is_integer(v) && json_integer_value(v) == 0) return 0;
    return config_size_or(r, key, max, fallback);
}

uint32_t config_size(struct config_reader *r, const char *key, uint32_t max) {
    if (config_value(r, key) == NULL) config_refuse(r, "%s is missing", key);
    return config_size_or(r, key, max, 1);
}

double config_double_or(struct config_reader *r, const char *key, double fallback) {
    const json_t *v = config_value(r, key);
    if (v == NULL) return fallback;
    if (!json_is_number(v)) {
        config_refuse(r, "%s must be a number", key);
        return fallback;
    }
    double d = json_number_value(v);
    if (!isfinite(d) || fabs(d) > 3.4e38) {
        config_refuse(r, "%s is not a number that float32 can hold", key);
        return fallback;
    }
    return d;
}

float config_real_or(struct config_reader *r, const char *key, float fallback) {
    return (float)config_double_or(r, key, (double)fallback);
}

bool config_flag_or(struct config_reader *r, const char *key, bool fallback) {
    const json_t *v = config_value(r, key);
    if (v == NULL) return fallback;
    if (!json_is_boolean(v)) config_refuse(r, "%s must be true or false", key);
    return json_is_true(v);
}

const char *config_text_or(struct config_reader *r, const char *key, const char *fallback) {
    const json_t *v = config_value(r, key);
    if (v == NULL) return fallback;
    if (!json_is_string(v)) {
        config_refuse(r, "%s must be a string", key);
        return fallback;
    }
    return json_string_value(v);
}

void config_refuse_flag(struct config_reader *r, const char *key) {
    if (config_flag_or(r, key, false)) config_refuse(r, "%s is not supported", key);
}

void config_expect_text(struct config_reader *r, const char *key, const char *only) {
    const char *text = config_text_or(r, key, only);
    if (strcmp(text, only) != 0)
        config_refuse(r, "%s \"%.64s\" is not supported, only \"%s\"", key, text, only);
}
