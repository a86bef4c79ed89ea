// tokenizer.c: a tokenizer's life and the questions about single tokens.
#include "common/text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/json_reader.h"
#include "common/text/tokenizer_parts.h"

// tokenizer_config.json may ask for tokens that tokenizer.json does not mention. Prompts would
// silently lack them.
static int check_config(const char *folder, struct err_text *e) {
    static const char *const flags[] = {"add_bos_token", "add_eos_token", "add_prefix_space", NULL};
    const struct json_bounds bounds = {
        .name = "tokenizer_config.json", .depth_max = 64, .containers_max = 100000};
    char path[PATH_BYTES_MAX], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    int rc = json_file_read(&text, &bytes, path, CONFIG_BYTES_MAX, e);
    if (rc == ERR_REQ_NOT_FOUND) return 0;
    json_t *root = NULL;
    if (rc == 0) rc = json_read(&root, text, bytes, &bounds, e);
    for (size_t i = 0; rc == 0 && flags[i] != NULL; i++) {
        if (json_is_true(json_object_get(root, flags[i])))
            rc =
                err_set(e, ERR_FATAL_MODEL, "tokenizer_config.json: %s is not supported", flags[i]);
    }
    json_decref(root);
    mem_free(text);
    return rc;
}

int tokenizer_load(struct tokenizer **out, const char *folder, struct err_text *e) {
    char path[PATH_BYTES_MAX], *text = NULL;
    size_t bytes = 0;
    int n = snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    if (n < 0 || (size_t)n + 16 >= sizeof path)
        return err_set(e, ERR_FATAL_CONFIG, "the model's path is too long");
    int rc = check_config(folder, e);
    if (rc == 0) rc = json_file_read(&text, &bytes, path, TOKENIZER_BYTES_MAX, e);
    if (rc == ERR_REQ_NOT_FOUND)
        return err_set(e, ERR_FATAL_MODEL, "%s: there is no such file", path);
    if (rc == 0) rc = tokenizer_parse(out, text, bytes, e);
    mem_free(text);
    return rc;
}

void tokenizer_destroy(struct tokenizer *t) {
    if (t == NULL) return;
    added_set_finish(&t->raw);
    added_set_finish(&t->normalized);
    splitter_finish(&t->splitter);
    vocab_finish(&t->vocab);
    mem_free(t);
}

uint32_t tokenizer_vocab(const struct tokenizer *t) {
    return t->vocab.n_ids;
}

uint32_t tokenizer_id(const struct tokenizer *t, const char *content) {
    size_t n = strlen(content);
    const struct added_token *added = added_set_find(&t->raw, content, n);
    if (added == NULL) added = added_set_find(&t->normalized, content, n);
    if (added != NULL) return added->id;
    char *bytes = mem_alloc(n);
    if (bytes == NULL) return ID_NONE;
    bool in_alphabet;
    size_t n_bytes = vocab_content_bytes(content, n, bytes, &in_alphabet);
    uint32_t id = vocab_id(&t->vocab, bytes, n_bytes, in_alphabet);
    mem_free(bytes);
    return id;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id) {
    return id < t->vocab.n_ids && t->vocab.tokens[id].special;
}

const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *bytes) {
    if (id >= t->vocab.n_ids || t->vocab.tokens[id].bytes == NULL) return NULL;
    *bytes = t->vocab.tokens[id].n_bytes;
    return t->vocab.tokens[id].bytes;
}
