// json_text.c: see json_text.h.
#include "ctl/json_text.h"

#include <stdio.h>

#include "common/base/err.h"
#include "common/base/mem.h"

#define DIGITS 12 // all that a leader writes; 17 would show how binary numbers miss them

json_t *json_text(const char *text) {
    json_t *s = json_string(text);
    return s != NULL ? s : json_null();
}

int json_text_print(const json_t *object) {
    char *text =
        object == NULL ? NULL : json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS));
    if (text == NULL) return ERR_FATAL_NOMEM;
    puts(text);
    fflush(stdout);
    mem_free(text);
    return 0;
}
