// leader_salt.c: what decides who shares KV blocks, and that it fails without memory as a request
// fails.
#include "leader/salt.h"

#include <gnutls/gnutls.h>
#include <string.h>

#include "common/base/err.h"
#include "tests/harness/suite.h"

START_TEST(key_and_cache_salt_decide_together) {
    uint64_t a[2], b[2];
    ck_assert_int_eq(salt_fill(a, 1, "x"), 0);
    ck_assert_int_eq(salt_fill(b, 1, "x"), 0);
    ck_assert_mem_eq(a, b, sizeof a);
    ck_assert_int_eq(salt_fill(b, 2, "x"), 0);
    ck_assert_mem_ne(a, b, sizeof a);
    ck_assert_int_eq(salt_fill(b, 1, "y"), 0);
    ck_assert_mem_ne(a, b, sizeof a);
    ck_assert_int_eq(salt_fill(b, 1, NULL), 0);
    ck_assert_mem_ne(a, b, sizeof a);
}
END_TEST

static void *no_memory(size_t bytes) {
    (void)bytes;
    return NULL;
}

START_TEST(without_memory_it_is_an_error) {
    gnutls_alloc_function real = gnutls_malloc;
    uint64_t salt[2];
    gnutls_malloc = no_memory;
    int rc = salt_fill(salt, 1, "x");
    gnutls_malloc = real;
    ck_assert_int_eq(rc, ERR_FATAL_NOMEM);
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_salt");
    TCase *t = tcase_create("salt");
    tcase_add_test(t, key_and_cache_salt_decide_together);
    tcase_add_test(t, without_memory_it_is_an_error);
    suite_add_tcase(s, t);
    return suite_run(s);
}
