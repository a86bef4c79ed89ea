// keys.c: see keys.h. Digests have one length, so comparing them tells nothing about the keys'
// lengths, and a core dump shows no key.
#include "common/net/keys.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/secret.h"

#define DIGEST_BYTES 32
#define SHORT_BYTES 16 // a shorter key may be found by trying

struct key {
    uint8_t digest[DIGEST_BYTES];
    char name[SECRET_NAME_BYTES_MAX + 1];
};

struct keys {
    uint32_t n;
    struct key *list; // owned
};

static bool digest_of(uint8_t out[DIGEST_BYTES], const void *data, size_t bytes) {
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, data, bytes, out) == 0;
}

static const char *repeated(const struct keys *k, const struct key *added) {
    for (uint32_t i = 0; i < k->n; i++) {
        if (memcmp(k->list[i].digest, added->digest, DIGEST_BYTES) == 0)
            return "the key was given before";
        if (strcmp(k->list[i].name, added->name) == 0) return "the name was given before";
    }
    return NULL;
}

// NULL, or why not.
static const char *add(struct keys *k, const struct secret_line *line) {
    if (k->n == KEYS_MAX) return "more than 1024 keys";
    struct key *key = &k->list[k->n];
    snprintf(key->name, sizeof key->name, "key-%u", k->n + 1);
    if (line->name_bytes != 0)
        snprintf(key->name, sizeof key->name, "%.*s", (int)line->name_bytes, line->name);
    if (!digest_of(key->digest, line->key, line->key_bytes)) return "it cannot be hashed";
    const char *wrong = repeated(k, key);
    if (wrong == NULL) k->n++;
    return wrong;
}

static int parse(struct keys *k, struct secret_lines *lines, struct err_text *e) {
    struct secret_line line;
    uint32_t n_short = 0;
    int rc;
    while ((rc = secret_next(lines, &line, e)) == 0) {
        const char *wrong = add(k, &line);
        if (wrong != NULL)
            return err_set(e, ERR_FATAL_CONFIG, "%.300s, line %u: %s", lines->where, lines->number,
                           wrong);
        n_short += line.key_bytes < SHORT_BYTES;
    }
    if (rc != ERR_AGAIN) return rc;
    if (k->n == 0) return err_set(e, ERR_FATAL_CONFIG, "%.300s: holds no key", lines->where);
    if (n_short != 0)
        log_warn("main", "%.300s: keys of fewer than %d characters may be guessed: %u of %u",
                 lines->where, SHORT_BYTES, n_short, k->n);
    return 0;
}

static struct keys *make(uint32_t n_max) {
    struct keys *k = mem_zalloc(sizeof *k);
    if (k == NULL) return NULL;
    k->list = mem_array(n_max, sizeof *k->list);
    if (k->list != NULL) return k;
    mem_free(k);
    return NULL;
}

int keys_parse(struct keys **out, const char *text, const char *where, struct err_text *e) {
    struct keys *k = make(KEYS_MAX);
    if (k == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for keys");
    struct secret_lines lines = {.at = text, .where = where};
    int rc = parse(k, &lines, e);
    if (rc == 0)
        *out = k;
    else
        keys_destroy(k);
    return rc;
}

int keys_create_one(struct keys **out, const char *key, struct err_text *e) {
    struct keys *k = make(1);
    if (k == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for a key");
    struct secret_line line = {.key = key, .key_bytes = strlen(key)};
    const char *wrong = add(k, &line);
    if (wrong != NULL) {
        keys_destroy(k);
        return err_set(e, ERR_FATAL_CONFIG, "a key: %s", wrong);
    }
    *out = k;
    return 0;
}

void keys_destroy(struct keys *k) {
    if (k == NULL) return;
    mem_free(k->list);
    mem_free(k);
}

int32_t keys_find(const struct keys *k, const void *authorization, size_t bytes) {
    static const char scheme[] = "Bearer ";
    size_t skip = sizeof scheme - 1;
    uint8_t digest[DIGEST_BYTES];
    int32_t found = KEY_NONE;
    if (bytes <= skip || strncasecmp(authorization, scheme, skip) != 0 ||
        !digest_of(digest, (const char *)authorization + skip, bytes - skip))
        return KEY_NONE;
    for (uint32_t i = 0; i < k->n; i++) {
        // Every key is looked at.
        int same = gnutls_memcmp(digest, k->list[i].digest, DIGEST_BYTES) == 0;
        found = same ? (int32_t)i : found;
    }
    return found;
}

const char *keys_name(const struct keys *k, int32_t key) {
    return key >= 0 && (uint32_t)key < k->n ? k->list[key].name : NULL;
}
