// options_value.c: turns the text of one option into its field.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/conf/options_private.h"

static int bad_value(const char *where, const char *text, const char *expected,
                     struct err_text *e) {
    return err_set(e, ERR_FATAL_CONFIG, "%s: \"%s\" is not %s", where, text, expected);
}

// A finite decimal number and what follows it. Hexadecimal, "inf" and leading spaces are not what a
// person means.
static bool parse_number(const char *text, double *out, const char **rest) {
    if (strspn(text, "0123456789.") == 0 || text[1] == 'x' || text[1] == 'X') return false;
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    *rest = end;
    return end != text && errno == 0;
}

// Units count as powers of 1,024 ("2G", "512MiB") or, with a single B, of 1,000 ("2GB").
static bool parse_unit(const char *unit, double *factor) {
    static const char letters[] = "KMGT";
    *factor = 1;
    if (*unit == '\0') return true;
    const char *letter = strchr(letters, toupper((unsigned char)*unit));
    if (letter == NULL) return false;
    bool decimal = strcmp(unit + 1, "B") == 0;
    if (!decimal && unit[1] != '\0' && strcmp(unit + 1, "i") != 0 && strcmp(unit + 1, "iB") != 0)
        return false;
    for (const char *l = letters; l <= letter; l++)
        *factor *= decimal ? 1000 : 1024;
    return true;
}

bool options_bytes(const char *text, uint64_t *out) {
    double value, factor;
    const char *unit;
    if (!parse_number(text, &value, &unit) || !parse_unit(unit, &factor)) return false;
    if (value * factor >= 9e18) return false;
    *out = (uint64_t)(value * factor);
    return true;
}

static void integer_range(const struct option *o, double *low, double *high) {
    *low = o->type == OPTION_INT ? INT32_MIN : 0;
    *high = o->type == OPTION_PORT ? UINT16_MAX : o->type == OPTION_INT ? INT32_MAX : UINT32_MAX;
    if (o->min != 0 || o->max != 0) *low = o->min, *high = o->max;
}

static int set_integer(const struct option *o, void *field, const char *text, const char *where,
                       struct err_text *e) {
    double low, high;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    // A service that is named like the program gives its pods such a variable.
    if (strncmp(text, "tcp://", 6) == 0)
        return bad_value(where, text,
                         "a whole number; if Kubernetes set it for a service of that name, give "
                         "the pod enableServiceLinks: false",
                         e);
    if (end == text || *end != '\0' || isspace((unsigned char)*text))
        return bad_value(where, text, "a whole number", e);
    integer_range(o, &low, &high);
    if (errno != 0 || (double)value < low || (double)value > high)
        return err_set(e, ERR_FATAL_CONFIG, "%s: %s is not within %.0f to %.0f", where, text, low,
                       high);
    if (o->type == OPTION_PORT) *(uint16_t *)field = (uint16_t)value;
    if (o->type == OPTION_INT) *(int32_t *)field = (int32_t)value;
    if (o->type == OPTION_UINT) *(uint32_t *)field = (uint32_t)value;
    return 0;
}

static int set_bool(bool *field, const char *text, const char *where, struct err_text *e) {
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *field = i % 2 == 1;
        return 0;
    }
    return bad_value(where, text, "true or false", e);
}

static int set_share(const struct option *o, struct memory_share *field, const char *text,
                     const char *where, struct err_text *e) {
    double percent;
    const char *rest;
    uint64_t bytes = 0;
    if (parse_number(text, &percent, &rest) && strcmp(rest, "%") == 0) {
        if (percent < 1 || percent > 100) return bad_value(where, text, "within 1% to 100%", e);
        *field = (struct memory_share){.percent = (uint32_t)percent};
        return 0;
    }
    if (!options_bytes(text, &bytes) || (double)bytes < o->min)
        return bad_value(where, text, "a size (512MiB) or a share (20%)", e);
    *field = (struct memory_share){.bytes = bytes};
    return 0;
}

static int set_seconds(const struct option *o, int64_t *field, const char *text, const char *where,
                       struct err_text *e) {
    double value;
    const char *rest;
    if (!parse_number(text, &value, &rest) || *rest != '\0')
        return bad_value(where, text, "a number of seconds", e);
    if (value < o->min || value > o->max)
        return err_set(e, ERR_FATAL_CONFIG, "%s: %s is not within %g to %g seconds", where, text,
                       o->min, o->max);
    *field = (int64_t)(value * 1e9);
    return 0;
}

static int set_float(const struct option *o, float *field, const char *text, const char *where,
                     struct err_text *e) {
    double value;
    const char *rest;
    if (!parse_number(text, &value, &rest) || *rest != '\0')
        return bad_value(where, text, "a number", e);
    if (value < o->min || value > o->max)
        return err_set(e, ERR_FATAL_CONFIG, "%s: %s is not within %g to %g", where, text, o->min,
                       o->max);
    *field = (float)value;
    return 0;
}

static int set_string(const char **field, const char *text, struct arena *arena,
                      struct err_text *e) {
    size_t bytes = strlen(text) + 1;
    char *copy = arena_alloc(arena, bytes);
    if (copy == NULL) return err_set(e, ERR_FATAL_NOMEM, "out of memory");
    memcpy(copy, text, bytes);
    *field = copy;
    return 0;
}

static bool is_choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (const char *c = choices; c != NULL; c = strchr(c, '|')) {
        if (*c == '|') c++;
        if (strncmp(c, text, n) == 0 && (c[n] == '|' || c[n] == '\0')) return n > 0;
    }
    return false;
}

int option_set(const struct option *o, void *out, const struct option_text *value,
               struct err_text *e) {
    void *field = (char *)out + o->offset;
    const char *text = value->text, *where = value->where;
    switch (o->type) {
    case OPTION_SECRET:
    case OPTION_STRING: return set_string(field, text, value->arena, e);
    case OPTION_CHOICE:
        if (!is_choice(o->choices, text))
            return err_set(e, ERR_FATAL_CONFIG, "%s: \"%s\" is not one of %s", where, text,
                           o->choices);
        return set_string(field, text, value->arena, e);
    case OPTION_BOOL: return set_bool(field, text, where, e);
    case OPTION_UINT:
    case OPTION_INT:
    case OPTION_PORT: return set_integer(o, field, text, where, e);
    case OPTION_BYTES:
        return options_bytes(text, field) ? 0 : bad_value(where, text, "a size (512MiB, 2G)", e);
    case OPTION_SHARE: return set_share(o, field, text, where, e);
    case OPTION_SECONDS: return set_seconds(o, field, text, where, e);
    case OPTION_FLOAT: return set_float(o, field, text, where, e);
    }
    return err_set(e, ERR_FATAL_CONFIG, "%s: the option has no type", where);
}
