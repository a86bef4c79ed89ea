// tok_json_file.c: Grok-2's tokenizer.tok.json to struct tokenizer: two lists of tokens, each with
// its bytes and its id, which is its rank; and the name of the pattern that cuts a text ("V1",
// which takes digits one by one), or the pattern itself. Special tokens stand between the others.
#include "common/text/tok_json_file.h"

#include <jansson.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/json_reader.h"
#include "common/text/ranked.h"

#define FILE_NAME "tokenizer.tok.json"

static const char v1_pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

struct reader {
    struct tokenizer *t;
    const json_t *root;
    struct err_text *e;
};

#define refuse(r, ...) err_set((r)->e, ERR_FATAL_MODEL, FILE_NAME ": " __VA_ARGS__)

struct ranked {
    unsigned char bytes[RANKED_BYTES_MAX];
    size_t n;
    uint32_t id;
};

static int read_token(struct reader *r, const char *list, size_t i, struct ranked *out) {
    const json_t *token = json_array_get(json_object_get(r->root, list), i);
    const json_t *bytes = json_object_get(token, "bytes"), *id = json_object_get(token, "token");
    out->n = json_array_size(bytes);
    if (out->n == 0 || out->n > RANKED_BYTES_MAX)
        return refuse(r, "%s: entry %zu has %zu bytes", list, i, out->n);
    for (size_t k = 0; k < out->n; k++) {
        const json_t *byte = json_array_get(bytes, k);
        json_int_t value = json_integer_value(byte);
        if (!json_is_integer(byte) || value < 0 || value > 255)
            return refuse(r, "%s: entry %zu has a byte that is none", list, i);
        out->bytes[k] = (unsigned char)value;
    }
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= VOCAB_MAX)
        return refuse(r, "%s: entry %zu has no token id below %d", list, i, VOCAB_MAX);
    out->id = (uint32_t)json_integer_value(id);
    return 0;
}

typedef int token_user(struct reader *r, const struct ranked *token, void *context);

static int for_each_token(struct reader *r, const char *list, token_user *use, void *context) {
    struct ranked token;
    const json_t *tokens = json_object_get(r->root, list);
    if (!json_is_array(tokens)) return refuse(r, "%s must be a list", list);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        int rc = read_token(r, list, i, &token);
        if (rc == 0) rc = use(r, &token, context);
        if (rc != 0) return rc;
    }
    return 0;
}

static int find_last(struct reader *r, const struct ranked *token, void *context) {
    uint32_t *n_ids = context;
    (void)r;
    if (token->id >= *n_ids) *n_ids = token->id + 1;
    return 0;
}

static int store_regular(struct reader *r, const struct ranked *token, void *context) {
    struct vocab *v = &r->t->vocab;
    (void)context;
    int rc = vocab_store_bytes(v, token->id, (const char *)token->bytes, token->n, r->e);
    return rc != 0 ? rc : vocab_index(v, token->id, r->e);
}

static int store_special(struct reader *r, const struct ranked *token, void *context) {
    const struct ranked_special special = {.id = token->id,
                                           .content = (const char *)token->bytes,
                                           .n_bytes = token->n,
                                           .special = true};
    (void)context;
    return ranked_add_special(r->t, &special, FILE_NAME, r->e);
}

static int read_tokens(struct reader *r) {
    struct vocab *v = &r->t->vocab;
    uint32_t n_ids = 0;
    int rc = for_each_token(r, "regular_tokens", find_last, &n_ids);
    if (rc == 0) rc = for_each_token(r, "special_tokens", find_last, &n_ids);
    v->byte_level = true;
    if (rc == 0) rc = vocab_init(v, n_ids, 0, r->e);
    if (rc == 0) rc = for_each_token(r, "regular_tokens", store_regular, NULL);
    if (rc == 0) rc = vocab_find_bytes(v, r->e);
    if (rc == 0) rc = ranked_merges(v, FILE_NAME, r->e);
    if (rc == 0) rc = for_each_token(r, "special_tokens", store_special, NULL);
    if (rc == 0) rc = added_set_sort(&r->t->raw, r->e);
    return rc != 0 ? rc : added_set_sort(&r->t->normalized, r->e);
}

static int read_pattern(struct reader *r) {
    const json_t *name = json_object_get(r->root, "word_split"),
                 *own = json_object_get(r->root, "pat_str");
    struct split_rule rule = {.source = v1_pattern, .n = sizeof v1_pattern - 1};
    const char *text = json_is_string(name) ? json_string_value(name) : "";
    if (strcmp(text, "V1") != 0)
        return refuse(r, "word_split \"%.60s\" is not supported, only \"V1\"", text);
    if (own != NULL && !json_is_string(own)) return refuse(r, "pat_str must be a string");
    if (own != NULL) {
        rule.source = json_string_value(own);
        rule.n = json_string_length(own);
    }
    int rc = splitter_init(&r->t->splitter, r->e);
    return rc != 0 ? rc : splitter_add(&r->t->splitter, &rule, r->e);
}

int tok_json_parse(struct tokenizer **out, const char *text, size_t bytes, struct err_text *e) {
    const struct json_bounds bounds = {
        .name = FILE_NAME, .depth_max = 8, .containers_max = 4 * VOCAB_MAX};
    json_t *root = NULL;
    int rc = json_read(&root, text, bytes, &bounds, e);
    if (rc != 0) return rc;
    struct reader r = {.root = root, .e = e, .t = mem_zalloc(sizeof *r.t)};
    rc = r.t == NULL ? err_set(e, ERR_FATAL_NOMEM, FILE_NAME ": no memory") : read_pattern(&r);
    if (rc == 0) rc = read_tokens(&r);
    json_decref(root);
    if (rc != 0) {
        tokenizer_destroy(r.t);
        return rc;
    }
    r.t->ignore_merges = true;
    *out = r.t;
    return 0;
}
