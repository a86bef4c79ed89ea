// generation.c: see generation.h.
#include "common/model/generation.h"

#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/model/config.h"

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

int generation_read(struct generation_defaults *out, const json_t *root, struct err_text *e) {
    struct generation_defaults d = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    const struct {
        struct range range;
        double *out;
    } keys[] = {{{"temperature", 0, 2}, &d.temperature},
                {{"top_p", 0, 1}, &d.top_p},
                {{"min_p", 0, 1}, &d.min_p},
                {{"top_k", -1, INT32_MAX}, &d.top_k},
                {{"repetition_penalty", 0.01, 10}, &d.repetition_penalty},
                {{"max_new_tokens", 1, INT32_MAX}, &d.max_new_tokens}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int rc = read_number(root, &keys[i].range, keys[i].out, e);
        if (rc != 0) return rc;
    }
    *out = d;
    return 0;
}

int generation_load(struct generation_defaults *out, const char *folder, struct err_text *e) {
    static const char name[] = "generation_config.json";
    struct file_bytes file = {0};
    json_t *root = NULL;
    int rc = 0;
    if (file_exists(folder, name)) {
        rc = file_read_whole(&file, folder, name, CONFIG_BYTES_MAX, e);
        if (rc == 0) rc = config_parse(&root, file.data, file.bytes, name, e);
    }
    if (rc == 0) rc = generation_read(out, root, e);
    json_decref(root);
    mem_free(file.data);
    return rc;
}
