// tokenizer_file.c: tokenizer.json to struct tokenizer. The first station of text: encode.c and
// detok.c use what is built here.
//
// Each field of the file either means what the encoder does, is known not to change ids, or is
// refused by name.
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/json_reader.h"
#include "common/text/nfc.h"
#include "common/text/tokenizer_parts.h"
#include "common/text/utf8.h"

// A vocabulary of VOCAB_MAX with a merge (an array) for nearly each token.
static const struct json_bounds bounds = {
    .name = "tokenizer.json", .depth_max = 16, .containers_max = (size_t)2 * VOCAB_MAX};

struct loader {
    struct tokenizer *t;
    json_t *root;
    struct err_text *e;
};

#define refuse(l, ...) err_set((l)->e, ERR_FATAL_MODEL, "tokenizer.json: " __VA_ARGS__)

static int check_keys(struct loader *l, const json_t *object, const char *const *known,
                      const char *where) {
    char place[80];
    snprintf(place, sizeof place, "tokenizer.json: %s", where);
    return json_check_keys(object, known, place, l->e);
}

static bool is_absent(const json_t *value) {
    return value == NULL || json_is_null(value);
}

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type == NULL ? "" : type;
}

// Refuses a flag that is there and is not wanted.
static int check_flag(struct loader *l, const json_t *object, const char *key, bool wanted) {
    const json_t *value = json_object_get(object, key);
    if (is_absent(value) || (json_is_boolean(value) && json_is_true(value) == wanted)) return 0;
    return refuse(l, "%s of %s must be %s", key, type_of(object), wanted ? "true" : "false");
}

// Refuses a value that is neither missing, null nor an empty string.
static int check_empty(struct loader *l, const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (is_absent(value) || (json_is_string(value) && json_string_length(value) == 0)) return 0;
    return refuse(l, "%s is not supported", key);
}

static int read_id(struct loader *l, const json_t *value, const char *where, uint32_t *id) {
    bool ok = json_is_integer(value) && json_integer_value(value) >= 0 &&
              json_integer_value(value) < VOCAB_MAX;
    if (!ok) return refuse(l, "%s: an id is not an integer below %d", where, VOCAB_MAX);
    *id = (uint32_t)json_integer_value(value);
    return 0;
}

// --- vocabulary and merges

static int count_ids(struct loader *l, json_t *vocab, const json_t *added, uint32_t *n_ids) {
    const char *content;
    json_t *value;
    size_t i;
    uint32_t id;
    *n_ids = 0;
    json_object_foreach(vocab, content, value) {
        int rc = read_id(l, value, "model.vocab", &id);
        if (rc != 0) return rc;
        if (id >= *n_ids) *n_ids = id + 1;
    }
    json_array_foreach(added, i, value) {
        int rc = read_id(l, json_object_get(value, "id"), "added_tokens", &id);
        if (rc != 0) return rc;
        if (id >= *n_ids) *n_ids = id + 1;
    }
    return 0;
}

static int read_vocab(struct loader *l, json_t *vocab) {
    const char *content;
    json_t *value;
    json_object_foreach(vocab, content, value) {
        uint32_t id = (uint32_t)json_integer_value(value);
        int rc = vocab_store(&l->t->vocab, id, content, strlen(content), l->e);
        if (rc == 0) rc = vocab_index(&l->t->vocab, id, l->e);
        if (rc != 0) return rc;
    }
    return vocab_find_bytes(&l->t->vocab, l->e);
}

// Appends the bytes of a merge's half to scratch and looks them up.
static bool find_half(const struct vocab *v, const char *content, size_t n, struct buf *scratch,
                      uint32_t *id) {
    size_t begin = scratch->bytes;
    bool in_alphabet;
    // A character of the alphabet has at most two bytes: what is longer is no token.
    if (n == 0 || n > (size_t)2 * v->token_bytes_max) return false;
    buf_add(scratch, content, n); // room for the bytes, which are not more
    if (scratch->failed) return false;
    size_t n_bytes = vocab_content_bytes(content, n, scratch->data + begin, &in_alphabet);
    *id = vocab_id(v, scratch->data + begin, n_bytes, in_alphabet);
    scratch->bytes = begin + n_bytes;
    return *id != ID_NONE;
}

static int split_merge(const json_t *value, const char *halves[2], size_t lengths[2]) {
    if (json_is_array(value) && json_array_size(value) == 2) {
        for (size_t i = 0; i < 2; i++) {
            const json_t *half = json_array_get(value, i);
            if (!json_is_string(half)) return ERR_FATAL_MODEL;
            halves[i] = json_string_value(half);
            lengths[i] = json_string_length(half);
        }
        return 0;
    }
    const char *text = json_string_value(value);
    const char *space = text == NULL ? NULL : strchr(text, ' ');
    if (space == NULL || strchr(space + 1, ' ') != NULL) return ERR_FATAL_MODEL;
    halves[0] = text;
    halves[1] = space + 1;
    lengths[0] = (size_t)(space - text);
    lengths[1] = strlen(space + 1);
    return 0;
}

static int read_merge(struct loader *l, const json_t *value, uint32_t rank, struct buf *scratch) {
    const struct vocab *v = &l->t->vocab;
    const char *halves[2];
    size_t lengths[2];
    if (split_merge(value, halves, lengths) != 0)
        return refuse(l, "model.merges: merge %u is not a pair", rank);
    struct merge m = {.rank = rank};
    buf_reset(scratch);
    bool known = find_half(v, halves[0], lengths[0], scratch, &m.left) &&
                 find_half(v, halves[1], lengths[1], scratch, &m.right);
    if (!known)
        return refuse(l, "model.merges: merge %u names a token that is not in model.vocab", rank);
    bool in_alphabet = v->tokens[m.left].in_alphabet && v->tokens[m.right].in_alphabet;
    m.id = vocab_id(v, scratch->data, scratch->bytes, in_alphabet);
    if (m.id == ID_NONE)
        return refuse(l, "model.merges: what merge %u makes is not in model.vocab", rank);
    return vocab_add_merge(&l->t->vocab, m, l->e);
}

static int read_merges(struct loader *l, const json_t *merges) {
    struct buf scratch = {0};
    int rc = 0;
    for (size_t i = 0; i < json_array_size(merges) && rc == 0; i++)
        rc = read_merge(l, json_array_get(merges, i), (uint32_t)i, &scratch);
    buf_finish(&scratch);
    return rc;
}

static int check_model(struct loader *l, const json_t *model) {
    static const char *const known[] = {"type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "vocab",
                                        "merges",
                                        NULL};
    if (strcmp(type_of(model), "BPE") != 0)
        return refuse(l, "model type \"%.60s\" is not supported", type_of(model));
    int rc = check_keys(l, model, known, "model");
    if (rc == 0 && !is_absent(json_object_get(model, "dropout")))
        rc = refuse(l, "model.dropout is not supported");
    if (rc == 0) rc = check_empty(l, model, "continuing_subword_prefix");
    if (rc == 0) rc = check_empty(l, model, "end_of_word_suffix");
    if (rc == 0) rc = check_flag(l, model, "byte_fallback", false);
    if (rc != 0) return rc;
    // All 256 bytes are in the vocabulary (vocab_find_bytes), so unk_token and fuse_unk have no
    // work.
    const json_t *ignore = json_object_get(model, "ignore_merges");
    if (!is_absent(ignore) && !json_is_boolean(ignore))
        return refuse(l, "model.ignore_merges is not a boolean");
    l->t->ignore_merges = json_is_true(ignore);
    if (!json_is_object(json_object_get(model, "vocab")))
        return refuse(l, "model.vocab is not an object");
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_array(merges)) return refuse(l, "model.merges is not an array");
    if (json_array_size(merges) > MERGES_MAX)
        return refuse(l, "model.merges has more than %d", MERGES_MAX);
    return 0;
}

static int read_model(struct loader *l, const json_t *added) {
    const json_t *model = json_object_get(l->root, "model");
    if (!json_is_object(model)) return refuse(l, "model is not an object");
    int rc = check_model(l, model);
    if (rc != 0) return rc;
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *merges = json_object_get(model, "merges");
    uint32_t n_ids;
    rc = count_ids(l, vocab, added, &n_ids);
    if (rc == 0) rc = vocab_init(&l->t->vocab, n_ids, (uint32_t)json_array_size(merges), l->e);
    if (rc == 0) rc = read_vocab(l, vocab);
    if (rc == 0) rc = read_merges(l, merges);
    return rc;
}

// --- added tokens

static bool is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strchr(" \t\r\n\v\f", text[i]) == NULL) return false;
    }
    return true;
}

// The content that is looked for: as written, or normalised for a token that is looked for in
// normalised text.
static int added_content(struct loader *l, const json_t *value, bool normalized,
                         struct added_token *token) {
    const json_t *string = json_object_get(value, "content");
    const char *content = json_string_value(string);
    size_t n = json_string_length(string);
    struct buf normal = {0};
    if (normalized && l->t->nfc) {
        if (nfc_append(&normal, content, n) != 0) return refuse(l, "no memory for added_tokens");
        content = normal.data;
        n = normal.bytes;
    }
    char *copy = arena_alloc(&l->t->vocab.arena, n);
    if (copy != NULL) memcpy(copy, content, n);
    buf_finish(&normal);
    if (copy == NULL)
        return err_set(l->e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for added_tokens");
    token->content = copy;
    token->n_bytes = (uint32_t)n;
    token->blank = is_blank(copy, n);
    return 0;
}

// The vocabulary may hold the token already; then both must agree.
static int store_added(struct loader *l, const json_t *value, uint32_t id) {
    struct vocab *v = &l->t->vocab;
    const char *content = json_string_value(json_object_get(value, "content"));
    size_t n = strlen(content);
    char bytes[ADDED_BYTES_MAX];
    bool in_alphabet;
    size_t n_bytes = vocab_content_bytes(content, n, bytes, &in_alphabet);
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
    static const char *const never[] = {"single_word", "lstrip", "rstrip", NULL};
    if (!json_is_object(value)) return refuse(l, "added_tokens: not an object");
    int rc = check_keys(l, value, known, "added_tokens");
    if (rc != 0) return rc;
    const json_t *content = json_object_get(value, "content");
    size_t n = json_string_length(content);
    if (!json_is_string(content) || n == 0 || n > ADDED_BYTES_MAX)
        return refuse(l, "added_tokens: a content is not a string of 1 to %d bytes",
                      ADDED_BYTES_MAX);
    for (size_t i = 0; never[i] != NULL; i++) {
        const json_t *flag = json_object_get(value, never[i]);
        if (!is_absent(flag) && !json_is_false(flag))
            return refuse(l, "added_tokens: %s of \"%.60s\" is not supported", never[i],
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

static int read_added(struct loader *l, const json_t *added) {
    size_t i;
    json_t *value;
    json_array_foreach(added, i, value) {
        bool normalized = json_is_true(json_object_get(value, "normalized"));
        struct added_token token = {.id =
                                        (uint32_t)json_integer_value(json_object_get(value, "id"))};
        int rc = store_added(l, value, token.id);
        if (rc == 0) rc = added_content(l, value, normalized, &token);
        if (rc == 0) rc = added_set_add(normalized ? &l->t->normalized : &l->t->raw, token, l->e);
        if (rc != 0) return rc;
        l->t->vocab.tokens[token.id].added = true;
        l->t->vocab.tokens[token.id].special = json_is_true(json_object_get(value, "special"));
    }
    int rc = added_set_sort(&l->t->raw, l->e);
    if (rc == 0) rc = added_set_sort(&l->t->normalized, l->e);
    return rc != 0 ? rc : check_sets(l);
}

// --- the stations around the model

static int read_one_normalizer(struct loader *l, const json_t *value) {
    static const char *const known[] = {"type", NULL};
    if (strcmp(type_of(value), "NFC") != 0)
        return refuse(l, "normalizer type \"%.60s\" is not supported", type_of(value));
    l->t->nfc = true;
    return check_keys(l, value, known, "normalizer");
}

static int read_normalizer(struct loader *l) {
    static const char *const known[] = {"type", "normalizers", NULL};
    const json_t *value = json_object_get(l->root, "normalizer");
    if (is_absent(value)) return 0;
    if (strcmp(type_of(value), "Sequence") != 0) return read_one_normalizer(l, value);
    const json_t *list = json_object_get(value, "normalizers");
    if (!json_is_array(list)) return refuse(l, "normalizer.normalizers is not an array");
    int rc = check_keys(l, value, known, "normalizer");
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = read_one_normalizer(l, json_array_get(list, i));
    return rc;
}

static int read_split(struct loader *l, const json_t *value) {
    static const char *const known[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const pattern_keys[] = {"Regex", "String", NULL};
    int rc = check_keys(l, value, known, "pre_tokenizer");
    if (rc == 0) rc = check_flag(l, value, "invert", false);
    if (rc != 0) return rc;
    const char *behavior = json_string_value(json_object_get(value, "behavior"));
    if (behavior == NULL || strcmp(behavior, "Isolated") != 0)
        return refuse(l, "behavior \"%.40s\" of Split is not supported",
                      behavior == NULL ? "" : behavior);
    const json_t *pattern = json_object_get(value, "pattern");
    if (!json_is_object(pattern) || json_object_size(pattern) != 1)
        return refuse(l, "pattern of Split is wrong");
    rc = check_keys(l, pattern, pattern_keys, "pre_tokenizer pattern");
    if (rc != 0) return rc;
    const json_t *literal = json_object_get(pattern, "String");
    const json_t *source = literal == NULL ? json_object_get(pattern, "Regex") : literal;
    if (!json_is_string(source)) return refuse(l, "pattern of Split is not a string");
    return splitter_add(&l->t->splitter, json_string_value(source), json_string_length(source),
                        literal != NULL, l->e);
}

static int read_digits(struct loader *l, const json_t *value) {
    static const char *const known[] = {"type", "individual_digits", NULL};
    int rc = check_keys(l, value, known, "pre_tokenizer");
    if (rc != 0) return rc;
    const char *pattern =
        json_is_true(json_object_get(value, "individual_digits")) ? "\\p{N}" : "\\p{N}+";
    return splitter_add(&l->t->splitter, pattern, strlen(pattern), false, l->e);
}

static int read_byte_level(struct loader *l, const json_t *value) {
    static const char *const known[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                        NULL};
    static const char pattern[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    int rc = check_keys(l, value, known, "pre_tokenizer");
    if (rc == 0) rc = check_flag(l, value, "add_prefix_space", false);
    const json_t *use = json_object_get(value, "use_regex");
    if (rc != 0 || json_is_false(use)) return rc;
    return splitter_add(&l->t->splitter, pattern, sizeof pattern - 1, false,
                        l->e); // GPT-2's, the default
}

static int read_one_pre_tokenizer(struct loader *l, const json_t *value, bool last) {
    const char *type = type_of(value);
    bool byte_level = strcmp(type, "ByteLevel") == 0;
    if (byte_level != last)
        return refuse(l, "pre_tokenizer: ByteLevel must be the last one, and only the last");
    if (byte_level) return read_byte_level(l, value);
    if (strcmp(type, "Split") == 0) return read_split(l, value);
    if (strcmp(type, "Digits") == 0) return read_digits(l, value);
    return refuse(l, "pre_tokenizer type \"%.60s\" is not supported", type);
}

static int read_pre_tokenizer(struct loader *l) {
    static const char *const known[] = {"type", "pretokenizers", NULL};
    const json_t *value = json_object_get(l->root, "pre_tokenizer");
    int rc = splitter_init(&l->t->splitter, l->e);
    if (rc != 0) return rc;
    if (strcmp(type_of(value), "Sequence") != 0) return read_one_pre_tokenizer(l, value, true);
    const json_t *list = json_object_get(value, "pretokenizers");
    size_t n = json_array_size(list);
    if (n == 0) return refuse(l, "pre_tokenizer.pretokenizers is not a list");
    rc = check_keys(l, value, known, "pre_tokenizer");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_one_pre_tokenizer(l, json_array_get(list, i), i + 1 == n);
    return rc;
}

static int check_rest(struct loader *l) {
    static const char *const known[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    static const char *const never[] = {"truncation", "padding", NULL};
    int rc = check_keys(l, l->root, known, "top level");
    if (rc != 0) return rc;
    const char *version = json_string_value(json_object_get(l->root, "version"));
    if (version == NULL || strcmp(version, "1.0") != 0) return refuse(l, "version is not \"1.0\"");
    for (size_t i = 0; never[i] != NULL; i++) {
        if (!is_absent(json_object_get(l->root, never[i])))
            return refuse(l, "%s is not supported", never[i]);
    }
    // ByteLevel as a post-processor only moves offsets; as a decoder its flags mean nothing.
    const json_t *post = json_object_get(l->root, "post_processor"),
                 *decoder = json_object_get(l->root, "decoder");
    if (!is_absent(post) && strcmp(type_of(post), "ByteLevel") != 0)
        return refuse(l, "post_processor type \"%.60s\" is not supported", type_of(post));
    if (strcmp(type_of(decoder), "ByteLevel") != 0)
        return refuse(l, "decoder type \"%.60s\" is not supported", type_of(decoder));
    return 0;
}

static int read_file(struct loader *l) {
    const json_t *added = json_object_get(l->root, "added_tokens");
    if (!is_absent(added) && !json_is_array(added))
        return refuse(l, "added_tokens is not an array");
    int rc = check_rest(l);
    for (size_t i = 0; i < json_array_size(added) && rc == 0; i++)
        rc = check_added(l, json_array_get(added, i));
    if (rc == 0) rc = read_normalizer(l);
    if (rc == 0) rc = read_pre_tokenizer(l);
    if (rc == 0) rc = read_model(l, added);
    if (rc == 0) rc = read_added(l, added);
    return rc;
}

int tokenizer_parse(struct tokenizer **out, const char *json, size_t bytes, struct err_text *e) {
    if (bytes > TOKENIZER_BYTES_MAX)
        return err_set(e, ERR_FATAL_MODEL, "tokenizer.json: larger than %u bytes",
                       TOKENIZER_BYTES_MAX);
    struct loader l = {.e = e};
    int rc = json_read(&l.root, json, bytes, &bounds, e);
    if (rc != 0) return rc;
    l.t = mem_zalloc(sizeof *l.t);
    rc = l.t == NULL ? err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory") : read_file(&l);
    json_decref(l.root);
    if (rc == 0)
        *out = l.t;
    else
        tokenizer_destroy(l.t);
    return rc;
}
