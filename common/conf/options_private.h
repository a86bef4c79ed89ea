// options_private.h: between options.c (sources and their order) and options_value.c (one value
// from text).
#ifndef MOESAIC_COMMON_CONF_OPTIONS_PRIVATE_H
#define MOESAIC_COMMON_CONF_OPTIONS_PRIVATE_H

#include "common/conf/options.h"

// Sets one field from text. where names the source in errors ("--port", "MOESAIC_PORT", "a.yaml:3:
// port").
int option_set(const struct option *option, void *out, const char *text, const char *where,
               struct arena *arena, struct err_text *e);

#endif
