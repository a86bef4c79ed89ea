// persona.c: see persona.h.
#include "leader/persona.h"

#include <jansson.h>
#include <string.h>

#include "common/base/file.h"
#include "common/model/config.h"
#include "common/model/generation.h"

// *out is NULL when there is no such file.
static int load_object(json_t **out, const char *folder, const char *name, struct err_text *e) {
    struct file_bytes file;
    *out = NULL;
    if (!file_exists(folder, name)) return 0;
    int rc = file_read_whole(&file, folder, name, TOKENIZER_BYTES_MAX, e);
    if (rc != 0) return rc;
    rc = config_parse(out, file.data, file.bytes, name, e);
    mem_free(file.data);
    return rc;
}

// --- generation_config.json

static int read_generation(struct openai_defaults *d, const char *folder, struct err_text *e) {
    struct generation_defaults g;
    int rc = generation_load(&g, folder, e);
    if (rc != 0) return rc;
    d->temperature = (float)g.temperature;
    d->top_p = g.top_p > 0 ? (float)g.top_p : 1e-30f;
    d->min_p = (float)g.min_p;
    d->top_k = g.top_k > 0 ? (uint32_t)g.top_k : 0;
    d->repetition_penalty = (float)g.repetition_penalty;
    d->max_tokens = (uint32_t)g.max_new_tokens;
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
    json_t *tokenizer = NULL;
    int rc = use_generation ? read_generation(&p.sampling, folder, e) : 0;
    if (rc == 0) rc = load_object(&tokenizer, folder, "tokenizer_config.json", e);
    if (rc == 0 && (read_token(tokenizer, "bos_token", &p.bos_token) != 0 ||
                    read_token(tokenizer, "eos_token", &p.eos_token) != 0))
        rc = err_set(e, ERR_FATAL_NOMEM, "no memory for the special tokens");
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
