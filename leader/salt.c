// salt.c: see salt.h. render.c is before it in the walk, seq.c reads what it made.
#include "leader/salt.h"

#include <gnutls/crypto.h>
#include <string.h>

#include "common/base/err.h"

int salt_fill(uint64_t salt[2], int32_t key, const char *cache_salt) {
    uint8_t digest[32];
    gnutls_hash_hd_t hash;
    if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) != 0) return ERR_FATAL_NOMEM;
    int rc = gnutls_hash(hash, &key, sizeof key);
    if (rc == 0 && cache_salt != NULL) rc = gnutls_hash(hash, cache_salt, strlen(cache_salt));
    gnutls_hash_deinit(hash, digest);
    if (rc != 0) return ERR_FATAL_NOMEM;
    memcpy(salt, digest, 2 * sizeof *salt);
    return 0;
}
