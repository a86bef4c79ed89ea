// json_reader.h: reading JSON files of a model that may be hostile: bounds before parsing, and
// every key known or refused.
#ifndef MOESAIC_COMMON_TEXT_JSON_READER_H
#define MOESAIC_COMMON_TEXT_JSON_READER_H

#include <jansson.h>
#include <stddef.h>

#include "common/base/err.h"

// Parses an object. Refuses more than depth_max levels or containers_max objects and arrays before
// anything is allocated, and duplicate keys.
struct json_bounds {
    const char *name; // the file's, for messages
    size_t depth_max, containers_max;
};
int json_read(json_t **out, const char *text, size_t bytes, const struct json_bounds *bounds,
              struct err_text *e);

// Reads a whole file of at most bytes_max into *out (mem_alloc'd). ERR_REQ_NOT_FOUND, without a
// text, when there is none.
int json_file_read(char **out, size_t *bytes, const char *path, size_t bytes_max,
                   struct err_text *e);

// Refuses a key of object that is not in the NULL-terminated list known. where is its place in the
// file ("model").
int json_check_keys(const json_t *object, const char *const *known, const char *where,
                    struct err_text *e);

#endif
