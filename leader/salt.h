// salt.h: who may share KV blocks with whom (the prefix cache): requests of one API key with one
// cache_salt. What is shared answers sooner, so who may share can tell what others asked.
#ifndef MOESAIC_LEADER_SALT_H
#define MOESAIC_LEADER_SALT_H

#include <stdint.h>

// Fills salt from the key's number (KEY_NONE where there are no keys) and cache_salt (NULL: none).
// Nobody can find another pair with the same. 0 or ERR_FATAL_NOMEM.
int salt_fill(uint64_t salt[2], int32_t key, const char *cache_salt);

#endif
