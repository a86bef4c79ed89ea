// drawn.c: see drawn.h.
#include "ctl/drawn.h"

uint64_t drawn_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// Sequences of near keys would be one another's continuation: the key is mixed before it is a
// state.
static uint64_t state_of(uint64_t seed, uint64_t number) {
    uint64_t state = seed, key = drawn_next(&state) + number;
    return drawn_next(&key);
}

static int add_ids(json_t *ids, uint64_t state, uint32_t n, uint32_t vocab) {
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = json_array_append_new(ids, json_integer((json_int_t)(drawn_next(&state) % vocab)));
    return rc;
}

json_t *drawn_ids(const struct drawn *d, uint64_t number) {
    json_t *ids = json_array();
    if (ids == NULL) return NULL;
    int rc = add_ids(ids, state_of(d->seed, 0), d->prefix_tokens, d->vocab);
    if (rc == 0) rc = add_ids(ids, state_of(d->seed, number + 1), d->input_tokens, d->vocab);
    if (rc == 0) return ids;
    json_decref(ids);
    return NULL;
}
