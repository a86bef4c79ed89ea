// persona.c: see persona.h.
#include "leader/persona.h"

#include <jansson.h>
#include <string.h>

#include "common/base/file.h"

// *out is NULL when there is no such file.
static int load_object(json_t **out, const char *folder, const char *name, struct err_text *e) {
    struct file_bytes file;
    json_error_t error;
    *out = NULL;
    if (!file_exists(folder, name)) return 0;
    int rc = file_read_whole(&file, folder, name, TOKENIZER_BYTES_MAX, e);
    if (rc != 0) return rc;
    json_t *root = json_loadb(file.data, file.bytes, JSON_REJECT_DUPLICATES, &error);
    mem_free(file.data);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(e, ERR_FATAL_MODEL, "%s/%s: %s", folder, name,
                       root == NULL ? error.text : "not an object");
    }
    *out = root;
    return 0;
}

// --- generation_config.json

struct range {
    const char *key;
    double min, max;
};

// 0 when the key is absent or null (*out is untouched).
static int read_number(const json_t *root, const struct range *r, double *out, struct err_text *e) {
    const json_t *value = json_object_get(root, r->key);
    if (value == NULL || json_is_null(value)) return 0;
    double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= r->min && x <= r->max))
        return err_set(e, ERR_FATAL_MODEL,
                       "generation_config.json: %s must be a number between %g and %g "
                       "(--generation-config none ignores the file)",
                       r->key, r->min, r->max);
    *out = x;
    return 0;
}

static int read_generation(struct openai_defaults *d, const json_t *root, struct err_text *e) {
    double temperature = 1, top_p = 1, min_p = 0, top_k = 0, max_tokens = 0, repetition = 1;
    const struct {
        struct range range;
        double *out;
    } keys[] = {{{"temperature", 0, 2}, &temperature},
                {{"top_p", 0, 1}, &top_p},
                {{"min_p", 0, 1}, &min_p},
                {{"top_k", -1, INT32_MAX}, &top_k},
                {{"repetition_penalty", 0.01, 10}, &repetition},
                {{"max_new_tokens", 1, INT32_MAX}, &max_tokens}};
    int rc = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == 0; i++)
        rc = read_number(root, &keys[i].range, keys[i].out, e);
    if (rc != 0) return rc;
    d->temperature = (float)temperature;
    d->top_p = top_p > 0 ? (float)top_p : 1e-30f;
    d->min_p = (float)min_p;
    d->top_k = top_k > 0 ? (uint32_t)top_k : 0;
    d->repetition_penalty = (float)repetition;
    d->max_tokens = (uint32_t)max_tokens;
    return 0;
}

// --- tokenizer_config.json

// A special token is a string or an object with its content.
static int read_token(const json_t *root, const char *key, char **out) {
    const json_t *value = json_object_get(root, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    *out = mem_strdup(json_is_string(value) ? json_string_value(value) : "");
    return *out == NULL ? ERR_FATAL_NOMEM : 0;
}

int persona_load(struct persona *out, const char *folder, bool use_generation, struct err_text *e) {
    struct persona p = {.sampling = {.temperature = 1, .top_p = 1}};
    json_t *generation = NULL, *tokenizer = NULL;
    int rc = use_generation ? load_object(&generation, folder, "generation_config.json", e) : 0;
    if (rc == 0 && generation != NULL) rc = read_generation(&p.sampling, generation, e);
    if (rc == 0) rc = load_object(&tokenizer, folder, "tokenizer_config.json", e);
    if (rc == 0 && (read_token(tokenizer, "bos_token", &p.bos_token) != 0 ||
                    read_token(tokenizer, "eos_token", &p.eos_token) != 0))
        rc = err_set(e, ERR_FATAL_NOMEM, "no memory for the special tokens");
    json_decref(generation);
    json_decref(tokenizer);
    if (rc != 0) {
        persona_finish(&p);
        return rc;
    }
    *out = p;
    return 0;
}

void persona_finish(struct persona *p) {
    mem_free(p->bos_token);
    mem_free(p->eos_token);
    *p = (struct persona){0};
}
