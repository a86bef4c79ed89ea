// client.c: see client.h. The names of requests, which both kinds of client give in the same way.
#include "leader/client.h"

#include <stdio.h>
#include <string.h>

bool client_id_ok(const char *id) {
    size_t n = strnlen(id, REQUEST_ID_BYTES_MAX + 1);
    if (n == 0 || n > REQUEST_ID_BYTES_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        if (id[i] < 0x21 || id[i] > 0x7e) return false;
    }
    return true;
}

void client_id_draw(char id[REQUEST_ID_BYTES_MAX + 1], struct env *env) {
    uint64_t drawn[2];
    env_random(env, drawn, sizeof drawn);
    snprintf(id, REQUEST_ID_BYTES_MAX + 1, "%016llx%016llx", (unsigned long long)drawn[0],
             (unsigned long long)drawn[1]);
}
