// salt.c: see salt.h. render.c is before it in the walk, seq.c reads what it made.
#include "leader/salt.h"

#include <gnutls/crypto.h>
#include <string.h>

#include "common/base/check.h"

void salt_fill(uint64_t salt[2], int32_t key, const char *cache_salt) {
    uint8_t digest[32];
    gnutls_hash_hd_t hash;
    check(gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) == 0 &&
          gnutls_hash(hash, &key, sizeof key) == 0 &&
          (cache_salt == NULL || gnutls_hash(hash, cache_salt, strlen(cache_salt)) == 0));
    gnutls_hash_deinit(hash, digest);
    memcpy(salt, digest, 2 * sizeof *salt);
}
