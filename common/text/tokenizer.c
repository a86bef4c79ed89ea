// tokenizer.c: a tokenizer's life and the questions about single tokens.
#include "common/text/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/json_reader.h"
#include "common/text/tiktoken_file.h"
#include "common/text/tok_json_file.h"
#include "common/text/tokenizer_parts.h"

static int read_file(char **text, size_t *bytes, const char *folder, const char *name,
                     struct err_text *e) {
    char path[PATH_BYTES_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(e, ERR_FATAL_CONFIG, "the model's path is too long");
    return json_file_read(text, bytes, path, TOKENIZER_BYTES_MAX, e);
}

static int read_config(json_t **out, const char *folder, struct err_text *e) {
    const struct json_bounds bounds = {
        .name = "tokenizer_config.json", .depth_max = 64, .containers_max = 100000};
    char *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    int rc = read_file(&text, &bytes, folder, "tokenizer_config.json", e);
    if (rc == ERR_REQ_NOT_FOUND) return 0;
    if (rc == 0) rc = json_read(out, text, bytes, &bounds, e);
    mem_free(text);
    return rc;
}

// What other tokenizers leave in a folder, so that a refusal can name it.
static int nothing_found(const char *folder, struct err_text *e) {
    static const char *const others[] = {"tokenizer.model", "tekken.json", "vocab.json", NULL};
    for (size_t i = 0; others[i] != NULL; i++) {
        char path[PATH_BYTES_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, others[i]);
        if (access(path, F_OK) == 0)
            return err_set(e, ERR_FATAL_MODEL,
                           "%s: not supported; the folder needs a tokenizer.json, which "
                           "Hugging Face's AutoTokenizer can write",
                           path);
    }
    return err_set(e, ERR_FATAL_MODEL, "%s/tokenizer.json: there is no such file", folder);
}

static int parse_json(struct tokenizer **out, const char *text, size_t bytes, const json_t *config,
                      struct err_text *e) {
    (void)config;
    return tokenizer_parse(out, text, bytes, e);
}

static int parse_tok_json(struct tokenizer **out, const char *text, size_t bytes,
                          const json_t *config, struct err_text *e) {
    (void)config;
    return tok_json_parse(out, text, bytes, e);
}

// The files that may hold a tokenizer; the first one that is there does.
static const struct kind {
    const char *file;
    int (*parse)(struct tokenizer **out, const char *text, size_t bytes, const json_t *config,
                 struct err_text *e);
} kinds[] = {
    {"tokenizer.json", parse_json},
    {"tiktoken.model", tiktoken_parse},
    {"tokenizer.tok.json", parse_tok_json},
};

int tokenizer_load(struct tokenizer **out, const char *folder, struct err_text *e) {
    char *text = NULL;
    size_t bytes = 0;
    json_t *config = NULL;
    struct tokenizer *t = NULL;
    const struct kind *kind = kinds, *last = kinds + sizeof kinds / sizeof *kinds;
    int rc = read_config(&config, folder, e);
    if (rc == 0) rc = read_file(&text, &bytes, folder, kind->file, e);
    while (rc == ERR_REQ_NOT_FOUND && ++kind < last)
        rc = read_file(&text, &bytes, folder, kind->file, e);
    if (rc == ERR_REQ_NOT_FOUND) rc = nothing_found(folder, e);
    if (rc == 0) rc = kind->parse(&t, text, bytes, config, e);
    if (rc == 0 && config != NULL) rc = tokenizer_configure(t, config, e);
    json_decref(config);
    mem_free(text);
    if (rc == 0)
        *out = t;
    else
        tokenizer_destroy(t);
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

// By its bytes, among all ids: an added token that is looked for in normalised text is not found by
// its content in its set.
static uint32_t find_added(const struct vocab *v, const char *bytes, size_t n) {
    for (uint32_t id = 0; id < v->n_ids; id++) {
        const struct token *t = &v->tokens[id];
        if (t->added && t->n_bytes == n && memcmp(t->bytes, bytes, n) == 0) return id;
    }
    return ID_NONE;
}

uint32_t tokenizer_id(const struct tokenizer *t, const char *content) {
    size_t n = strlen(content);
    const struct added_token *added = added_set_find(&t->raw, content, n);
    if (added != NULL) return added->id;
    char *bytes = mem_alloc(n);
    if (bytes == NULL) return ID_NONE;
    bool in_alphabet;
    size_t n_bytes = vocab_content_bytes(&t->vocab, content, n, bytes, &in_alphabet);
    uint32_t id = find_added(&t->vocab, bytes, n_bytes);
    if (id == ID_NONE) id = vocab_id(&t->vocab, bytes, n_bytes, in_alphabet);
    mem_free(bytes);
    return id;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id) {
    return id < t->vocab.n_ids && t->vocab.tokens[id].special;
}

const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *bytes) {
    if (id >= t->vocab.n_ids || t->vocab.tokens[id].bytes == NULL) return NULL;
    *bytes = t->vocab.tokens[id].n_text;
    return t->vocab.tokens[id].text;
}
