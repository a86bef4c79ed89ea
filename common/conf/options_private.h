// options_private.h: between options.c (sources and their order) and options_value.c (one value
// from text).
#ifndef MOESAIC_COMMON_CONF_OPTIONS_PRIVATE_H
#define MOESAIC_COMMON_CONF_OPTIONS_PRIVATE_H

#include "common/conf/options.h"

// A value as somebody wrote it.
struct option_text {
    const char *text;
    const char *where;   // for errors: "--port", "MOESAIC_PORT", "a.yaml:3: port"
    struct arena *arena; // for strings
};

int option_set(const struct option *option, void *out, const struct option_text *value,
               struct err_text *e);

#endif
