// keys.h: who may call: a set of bearer keys, of which only digests are kept.
//
// The leader's HTTP and gRPC servers share one set (API keys); the control plane's has one (the
// workers' token). Immutable once made: any thread may ask.
#ifndef MOESAIC_COMMON_NET_KEYS_H
#define MOESAIC_COMMON_NET_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define KEYS_MAX 1024
#define KEY_NONE (-1)

struct keys;

// From text as in secret.h, which may be wiped afterwards; where names it in messages. At least one
// key, no key or name twice. Warns of short keys.
int keys_parse(struct keys **out, const char *text, const char *where, struct err_text *e);
// One key without a name.
int keys_create_one(struct keys **out, const char *key, struct err_text *e);
void keys_destroy(struct keys *k); // NULL is fine

// The number of the key in an authorization header "Bearer KEY", or KEY_NONE. The time taken
// depends on the given bytes' count and on how many keys there are, not on what was right.
int32_t keys_find(const struct keys *k, const void *authorization, size_t bytes);
// What the operator calls a key: its name, or "key-N" by its place. NULL for KEY_NONE.
const char *keys_name(const struct keys *k, int32_t key);

#endif
