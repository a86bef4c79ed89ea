// check.h: assertions that stay on in release builds.
//
// check() guards our own logic (arguments, results, both sides of a boundary) and aborts with file
// and line. It is never used on data from outside: that gets an error code from err.h.
#ifndef MOESAIC_COMMON_BASE_CHECK_H
#define MOESAIC_COMMON_BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Noreturn void check_failed(const char *expression, const char *file, int line);

#define check(expression) ((expression) ? (void)0 : check_failed(#expression, __FILE__, __LINE__))

// Size arithmetic for numbers that come from outside: false on overflow, *out is then untouched.
static inline bool size_mul(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool size_add(size_t a, size_t b, size_t *out) {
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

#endif
