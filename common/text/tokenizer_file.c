// tokenizer_file.c: tokenizer.json to struct tokenizer. The first station of text: encode.c and
// detok.c use what is built here.
//
// The model is read here; tokenizer_stages.c, tokenizer_added.c and tokenizer_ends.c read the parts
// around it.
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/text/json_reader.h"
#include "common/text/tokenizer_loader.h"

// A vocabulary of VOCAB_MAX with a merge (an array) for nearly each token.
static const struct json_bounds bounds = {
    .name = "tokenizer.json", .depth_max = 16, .containers_max = (size_t)2 * VOCAB_MAX};

// --- vocabulary and merges

static int count_ids(struct loader *l, json_t *vocab, const json_t *added, uint32_t *n_ids) {
    const char *content;
    json_t *value;
    size_t i;
    uint32_t id;
    *n_ids = 0;
    json_object_foreach(vocab, content, value) {
        int rc = loader_id(l, value, "model.vocab", &id);
        if (rc != 0) return rc;
        if (id >= *n_ids) *n_ids = id + 1;
    }
    json_array_foreach(added, i, value) {
        int rc = loader_id(l, json_object_get(value, "id"), "added_tokens", &id);
        if (rc != 0) return rc;
        if (id >= *n_ids) *n_ids = id + 1;
    }
    return 0;
}

// All bytes are in a byte-level vocabulary, so that unk_token, fuse_unk and byte_fallback have no
// work.
static int read_fallback(struct loader *l, const json_t *model) {
    struct vocab *v = &l->t->vocab;
    const json_t *unk = json_object_get(model, "unk_token");
    int rc = loader_flag(l, model, "byte_fallback", false, &v->byte_fallback);
    if (rc == 0) rc = loader_flag(l, model, "fuse_unk", false, &v->fuse_unk);
    if (rc == 0 && !loader_is_absent(unk) && !json_is_string(unk))
        rc = refuse(l, "model.unk_token is not a string");
    if (rc != 0 || v->byte_level || loader_is_absent(unk)) return rc;
    v->unk_id = vocab_id(v, json_string_value(unk), json_string_length(unk), true);
    if (v->unk_id == ID_NONE) rc = refuse(l, "model.unk_token is not in model.vocab");
    return rc;
}

static int read_vocab(struct loader *l, const json_t *model) {
    json_t *vocab = json_object_get(model, "vocab");
    const char *content;
    json_t *value;
    json_object_foreach(vocab, content, value) {
        uint32_t id = (uint32_t)json_integer_value(value);
        int rc = vocab_store(&l->t->vocab, id, content, strlen(content), l->e);
        if (rc == 0) rc = vocab_index(&l->t->vocab, id, l->e);
        if (rc != 0) return rc;
    }
    int rc = read_fallback(l, model);
    return rc != 0 ? rc : vocab_find_bytes(&l->t->vocab, l->e);
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
    size_t n_bytes = vocab_content_bytes(v, content, n, scratch->data + begin, &in_alphabet);
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
    if (strcmp(loader_type(model), "BPE") != 0)
        return refuse(l, "model type \"%.60s\" is not supported", loader_type(model));
    int rc = loader_check_keys(l, model, known, "model");
    if (rc == 0 && !loader_is_absent(json_object_get(model, "dropout")))
        rc = refuse(l, "model.dropout is not supported");
    if (rc == 0) rc = loader_check_empty(l, model, "continuing_subword_prefix");
    if (rc == 0) rc = loader_check_empty(l, model, "end_of_word_suffix");
    if (rc == 0) rc = loader_flag(l, model, "ignore_merges", false, &l->t->ignore_merges);
    if (rc != 0) return rc;
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
    if (rc == 0) rc = read_vocab(l, model);
    if (rc == 0) rc = read_merges(l, merges);
    return rc;
}

// --- the file

static int check_rest(struct loader *l) {
    static const char *const known[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    static const char *const never[] = {"truncation", "padding", NULL};
    int rc = loader_check_keys(l, l->root, known, "top level");
    if (rc != 0) return rc;
    const char *version = json_string_value(json_object_get(l->root, "version"));
    if (version == NULL || strcmp(version, "1.0") != 0) return refuse(l, "version is not \"1.0\"");
    for (size_t i = 0; never[i] != NULL; i++) {
        if (!loader_is_absent(json_object_get(l->root, never[i])))
            return refuse(l, "%s is not supported", never[i]);
    }
    return 0;
}

static int read_file(struct loader *l) {
    const json_t *added = json_object_get(l->root, "added_tokens");
    int rc = check_rest(l);
    if (rc == 0) rc = loader_added_check(l, added);
    if (rc == 0) rc = loader_normalizer(l);
    if (rc == 0) rc = loader_pre_tokenizer(l);
    if (rc == 0) rc = loader_decoder(l);
    if (rc == 0) rc = read_model(l, added);
    if (rc == 0) rc = loader_added(l, added);
    if (rc == 0) rc = loader_post_processor(l);
    return rc != 0 ? rc : loader_texts(l);
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
