// check.c: the end of a process whose own logic is broken.
#include "common/base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *expression, const char *file, int line) {
    fprintf(stderr, "check failed: %s at %s:%d\n", expression, file, line);
    abort();
}
