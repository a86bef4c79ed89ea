// config.h: typed reading of JSON model files: every refusal names the file and the key.
//
// Used by spec.c and the families (config.json) and by safetensors.c (headers, index). A reader
// keeps the first error: the functions below then return harmless values, so a family reads as a
// list and asks once at its end.
#ifndef MOESAIC_COMMON_MODEL_CONFIG_H
#define MOESAIC_COMMON_MODEL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

// Released files nest four deep; the parser recurses once a level.
#define CONFIG_DEPTH_MAX 32

// Parses an object. Duplicate keys, depth above CONFIG_DEPTH_MAX and anything behind the object are
// ERR_FATAL_MODEL. The caller json_decref's it. file is the name for messages.
int config_parse(json_t **out, const char *bytes, size_t n_bytes, const char *file,
                 struct err_text *e);

struct config_reader {
    const json_t *object;
    const char *file;
    struct err_text *e;
    int rc; // 0 or the first error
};

// Ends with the reader's first error, or makes this text it. Returns rc.
int config_refuse(struct config_reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The key's value, or NULL when it is absent or null.
const json_t *config_value(const struct config_reader *r, const char *key);

// A whole number from 1 to max. Required; or fallback when absent or null.
uint32_t config_size(struct config_reader *r, const char *key, uint32_t max);
uint32_t config_size_or(struct config_reader *r, const char *key, uint32_t max, uint32_t fallback);
// A whole number from 0 to max; fallback when absent or null.
uint32_t config_count_or(struct config_reader *r, const char *key, uint32_t max, uint32_t fallback);
// Any finite number, as float32 (finite there too).
float config_real_or(struct config_reader *r, const char *key, float fallback);
// The same number as the file has it, for what is reckoned from it before it becomes a float.
double config_double_or(struct config_reader *r, const char *key, double fallback);
bool config_flag_or(struct config_reader *r, const char *key, bool fallback);
// Refuses a key whose value is true or other than the one named: what it asks for is not there.
void config_refuse_flag(struct config_reader *r, const char *key);
void config_expect_text(struct config_reader *r, const char *key, const char *only);
// A string; fallback when absent or null. Valid as long as the object.
const char *config_text_or(struct config_reader *r, const char *key, const char *fallback);

#endif
