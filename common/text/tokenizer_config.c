// tokenizer_config.c: what tokenizer_config.json says about ids: tokens to add before and after a
// text, the space before it, and added tokens.
//
// Its add_bos_token and add_eos_token replace the file's post-processor, as in Hugging Face
// transformers; what contradicts tokenizer.json is refused, since one of the two would be ignored.
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/tokenizer_loader.h"

#define refuse_config(e, ...) err_set(e, ERR_FATAL_MODEL, "tokenizer_config.json: " __VA_ARGS__)

// A token is a string or an object with a content.
static const char *token_content(const json_t *value) {
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

struct addition {
    const char *flag, *token;
    struct affix *to;
};

static int add_token(const struct tokenizer *t, const json_t *config, const struct addition *a,
                     struct err_text *e) {
    *a->to = (struct affix){0};
    const char *content = token_content(json_object_get(config, a->token));
    if (!json_is_true(json_object_get(config, a->flag)) || content == NULL) return 0;
    uint32_t id = tokenizer_id(t, content);
    if (id == ID_NONE)
        return refuse_config(e, "%s \"%.60s\" is not in tokenizer.json", a->token, content);
    *a->to = (struct affix){.ids = {id}, .n = 1};
    return 0;
}

static int read_additions(struct tokenizer *t, const json_t *config, struct err_text *e) {
    const struct addition both[] = {{"add_bos_token", "bos_token", &t->before},
                                    {"add_eos_token", "eos_token", &t->after}};
    if (json_object_get(config, both[0].flag) == NULL &&
        json_object_get(config, both[1].flag) == NULL)
        return 0;
    int rc = add_token(t, config, &both[0], e);
    return rc != 0 ? rc : add_token(t, config, &both[1], e);
}

static int check_prefix(const struct tokenizer *t, const json_t *config, struct err_text *e) {
    const json_t *flag = json_object_get(config, "add_prefix_space");
    bool prefix = t->spacing.prefix != PREFIX_NEVER;
    for (uint32_t i = 0; i < t->normalizer.n; i++)
        prefix = prefix || t->normalizer.steps[i].kind == NORMALIZE_PREPEND;
    if (!json_is_boolean(flag) || json_is_true(flag) == prefix) return 0;
    return refuse_config(e, "add_prefix_space is %s, tokenizer.json says otherwise",
                         prefix ? "false" : "true");
}

static int check_added(const struct tokenizer *t, const char *key, const json_t *value,
                       struct err_text *e) {
    char *end = NULL;
    unsigned long id = strtoul(key, &end, 10);
    const char *content = token_content(value);
    if (*end != '\0' || content == NULL)
        return refuse_config(e, "added_tokens_decoder: \"%.40s\" is no token", key);
    if (id < t->vocab.n_ids && tokenizer_id(t, content) == id) return 0;
    return refuse_config(e, "added_tokens_decoder: tokenizer.json has no \"%.60s\" at id %s",
                         content, key);
}

int tokenizer_configure(struct tokenizer *t, const json_t *config, struct err_text *e) {
    json_t *added = json_object_get(config, "added_tokens_decoder"), *value;
    const char *key;
    int rc = read_additions(t, config, e);
    if (rc == 0) rc = check_prefix(t, config, e);
    json_object_foreach(added, key, value) {
        if (rc == 0) rc = check_added(t, key, value, e);
    }
    return rc;
}
