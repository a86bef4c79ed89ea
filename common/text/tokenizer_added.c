// tokenizer_added.c: tokenizer.json's added_tokens.
#include <string.h>

#include "common/base/buf.h"
#include "common/text/tokenizer_loader.h"

// White space, also as SentencePiece writes it.
static bool is_blank(const char *text, size_t n) {
    static const char mark[] = "\xe2\x96\x81";
    for (size_t i = 0; i < n;) {
        bool marked = n - i >= 3 && memcmp(text + i, mark, 3) == 0;
        if (!marked && strchr(" \t\r\n\v\f", text[i]) == NULL) return false;
        i += marked ? 3 : 1;
    }
    return true;
}

// The content that is looked for: as written, or normalised for a token that is looked for in
// normalised text.
static int added_content(struct loader *l, const json_t *value, bool normalized,
                         struct added_token *token) {
    static const struct normalizer none;
    const json_t *string = json_object_get(value, "content");
    struct buf content = {0};
    int rc = normalize_text(normalized ? &l->t->normalizer : &none, json_string_value(string),
                            json_string_length(string), &content);
    char *copy = rc == 0 ? arena_alloc(&l->t->vocab.arena, content.bytes + 1) : NULL;
    if (copy == NULL) {
        rc = err_set(l->e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for added_tokens");
    } else if (content.bytes == 0 || content.bytes > ADDED_BYTES_MAX) {
        rc = refuse(l, "added_tokens: \"%.60s\" is normalised to %zu bytes",
                    json_string_value(string), content.bytes);
    } else {
        memcpy(copy, content.data, content.bytes);
        token->content = copy;
        token->n_bytes = (uint32_t)content.bytes;
        token->blank = is_blank(copy, content.bytes);
    }
    buf_finish(&content);
    return rc;
}

// The vocabulary may hold the token already; then both must agree.
static int store_added(struct loader *l, const json_t *value, uint32_t id) {
    struct vocab *v = &l->t->vocab;
    const char *content = json_string_value(json_object_get(value, "content"));
    size_t n = strlen(content);
    char bytes[ADDED_BYTES_MAX];
    bool in_alphabet;
    size_t n_bytes = vocab_content_bytes(v, content, n, bytes, &in_alphabet);
    uint32_t in_vocab = vocab_id(v, bytes, n_bytes, in_alphabet);
    if (in_vocab != ID_NONE && in_vocab != id)
        return refuse(l, "added_tokens: id %u is id %u in model.vocab", id, in_vocab);
    if (v->tokens[id].added) return refuse(l, "added_tokens: id %u is given twice", id);
    if (in_vocab == ID_NONE)
        return vocab_store(v, id, content, n, l->e); // refuses an id that is taken
    return 0;
}

static int check_added(struct loader *l, const json_t *value) {
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", NULL};
    if (!json_is_object(value)) return refuse(l, "added_tokens: not an object");
    int rc = loader_check_keys(l, value, known, "added_tokens");
    if (rc != 0) return rc;
    const json_t *content = json_object_get(value, "content");
    size_t n = json_string_length(content);
    if (!json_is_string(content) || n == 0 || n > ADDED_BYTES_MAX)
        return refuse(l, "added_tokens: a content is not a string of 1 to %d bytes",
                      ADDED_BYTES_MAX);
    for (size_t i = 0; flags[i] != NULL; i++) {
        const json_t *flag = json_object_get(value, flags[i]);
        if (!loader_is_absent(flag) && !json_is_boolean(flag))
            return refuse(l, "added_tokens: %s of \"%.60s\" is not a boolean", flags[i],
                          json_string_value(content));
    }
    if (!json_is_boolean(json_object_get(value, "normalized")) ||
        !json_is_boolean(json_object_get(value, "special")))
        return refuse(l, "added_tokens: \"%.60s\" lacks normalized or special",
                      json_string_value(content));
    return 0;
}

// One content in both sets would have two ids.
static int check_sets(struct loader *l) {
    const struct added_set *set = &l->t->normalized;
    for (uint32_t i = 0; i < set->n; i++) {
        const struct added_token *t = &set->tokens[i],
                                 *other = added_set_find(&l->t->raw, t->content, t->n_bytes);
        if (other != NULL)
            return refuse(l, "added_tokens: ids %u and %u have the same content", other->id, t->id);
    }
    return 0;
}

static int read_one(struct loader *l, const json_t *value) {
    bool normalized = json_is_true(json_object_get(value, "normalized"));
    struct added_token token = {
        .id = (uint32_t)json_integer_value(json_object_get(value, "id")),
        .single_word = json_is_true(json_object_get(value, "single_word")),
        .lstrip = json_is_true(json_object_get(value, "lstrip")),
        .rstrip = json_is_true(json_object_get(value, "rstrip")),
    };
    int rc = store_added(l, value, token.id);
    if (rc == 0) rc = added_content(l, value, normalized, &token);
    if (rc == 0) rc = added_set_add(normalized ? &l->t->normalized : &l->t->raw, token, l->e);
    if (rc != 0) return rc;
    struct token *t = &l->t->vocab.tokens[token.id];
    t->added = true;
    t->special = json_is_true(json_object_get(value, "special"));
    t->only_mark = !token.blank;
    return 0;
}

int loader_added_check(struct loader *l, const json_t *added) {
    if (!loader_is_absent(added) && !json_is_array(added))
        return refuse(l, "added_tokens is not an array");
    int rc = 0;
    for (size_t i = 0; i < json_array_size(added) && rc == 0; i++)
        rc = check_added(l, json_array_get(added, i));
    return rc;
}

int loader_added(struct loader *l, const json_t *added) {
    int rc = 0;
    for (size_t i = 0; i < json_array_size(added) && rc == 0; i++)
        rc = read_one(l, json_array_get(added, i));
    if (rc == 0) rc = added_set_sort(&l->t->raw, l->e);
    if (rc == 0) rc = added_set_sort(&l->t->normalized, l->e);
    if (rc == 0) rc = check_sets(l);
    if (rc != 0) return rc;
    vocab_drop_merges(&l->t->vocab);
    if (vocab_order_merges(&l->t->vocab) == 0) return 0;
    return err_set(l->e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for the merges");
}
