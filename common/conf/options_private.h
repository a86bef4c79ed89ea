// options_private.h: between options.c (sources and their order), options_foreign.c (flags of other
// engines) and options_value.c (one value from text).
#ifndef MOESAIC_COMMON_CONF_OPTIONS_PRIVATE_H
#define MOESAIC_COMMON_CONF_OPTIONS_PRIVATE_H

#include "common/conf/options.h"

// A value as somebody wrote it.
struct option_text {
    const char *text;
    const char *where;   // for errors: "--port", "MOESAIC_PORT", "a.yaml:3: port"
    struct arena *arena; // for strings
};

#define OPTIONS_MAX 96
#define OPTION_NAME_BYTES_MAX 64
#define OPTION_WHERE_BYTES_MAX 400

// Which source set a row so far; a weaker one must not overwrite it.
enum source { SOURCE_DEFAULT, SOURCE_LWS, SOURCE_YAML, SOURCE_ENVIRONMENT, SOURCE_FLAG };

struct parse {
    const struct option_table *table;
    void *out;
    struct arena *arena;
    struct option_notes *notes;
    const char **positional;
    const char *config_path;
    enum source set_by[OPTIONS_MAX];
};

// options.c: sets an option, if nothing stronger has.
int option_set_from(struct parse *p, const struct option *o, enum source source,
                    const struct option_text *value, struct err_text *e);

// --- options_foreign.c

struct foreign_flag;

// Whether the table answers flags of other engines and this is one, named as behind "--".
bool option_is_foreign(const struct option_table *table, const char *name,
                       struct foreign_flag *out);
// The value of a flag of another engine that needs none of its own ("true", or "false" with *name
// moved past "no-"), or NULL: the next entry is its value.
const char *option_foreign_implied(const struct foreign_flag *flag, const char *next);
// Does what the table says. value may be NULL.
int option_set_foreign(struct parse *p, const struct foreign_flag *flag, enum source source,
                       const struct option_text *value, struct err_text *e);
// Our own option's value, which may be in another engine's words ("half" for float16).
const char *option_own_word(const struct parse *p, const struct option *o, const char *text);
// Another engine's flag that an unknown name begins, as people shorten them; false: none.
bool option_foreign_begun(const struct option_table *table, const char *name,
                          struct foreign_flag *out);
// What stands where a flag was expected; the second behind a flag that took no value.
int option_refuse_word(const struct option_table *table, const char *text, struct err_text *e);
int option_refuse_value(const struct option_table *table, const char *text, const char *flag,
                        struct err_text *e);

int option_set(const struct option *option, void *out, const struct option_text *value,
               struct err_text *e);

#endif
