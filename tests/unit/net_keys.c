// net_keys.c: which key a header holds, out of many, and which sets of keys are refused.
#include "common/net/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "tests/harness/suite.h"

static int32_t find(const struct keys *k, const char *header) {
    return keys_find(k, header, strlen(header));
}

START_TEST(each_key_is_found_by_its_number_and_name) {
    struct keys *k;
    ck_assert_int_eq(keys_parse(&k, "alpha\nbob beta\n# no\n-._~+/=\n", "file", NULL), 0);
    ck_assert_int_eq(find(k, "Bearer alpha"), 0);
    ck_assert_int_eq(find(k, "bearer beta"), 1);
    ck_assert_int_eq(find(k, "BEARER -._~+/="), 2);
    ck_assert_str_eq(keys_name(k, 0), "key-1");
    ck_assert_str_eq(keys_name(k, 1), "bob");
    ck_assert_str_eq(keys_name(k, 2), "key-3");
    ck_assert(keys_name(k, KEY_NONE) == NULL && keys_name(k, 3) == NULL);
    keys_destroy(k);
}
END_TEST

START_TEST(whatever_is_not_a_key_is_not_found) {
    struct keys *k;
    ck_assert_int_eq(keys_parse(&k, "alpha\nbob beta\n", "file", NULL), 0);
    static const char *const wrong[] = {"",
                                        "Bearer",
                                        "Bearer ",
                                        "alpha",
                                        "Bearer  alpha",
                                        "Bearer alph",
                                        "Basic beta",
                                        "Bearer alphaalpha",
                                        "Bearer alpha ",
                                        "Bearer bob",
                                        "Bearer Alpha",
                                        "Bearer bob beta",
                                        "Bearer alpha,Bearer beta",
                                        "Bearer\talpha",
                                        "Bearer alpha\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(find(k, wrong[i]) == KEY_NONE, "%s", wrong[i]);
    ck_assert_int_eq(keys_find(k, "Bearer alpha\0", 13), KEY_NONE); // a byte more
    ck_assert_int_eq(keys_find(k, "Bearer alphabet", 12), 0);       // only the bytes given
    keys_destroy(k);
}
END_TEST

START_TEST(sets_that_nobody_means_are_refused_by_line) {
    static const struct {
        const char *text, *says;
    } wrong[] = {{"", "no key"},
                 {"# only this\n", "no key"},
                 {"same\nother\nsame\n", "line 3: the key was given before"},
                 {"a one\na two\n", "line 2: the name was given before"},
                 {"key-2 one\ntwo\n", "line 2: the name was given before"},
                 {"one\na b c\n", "line 2: more than a name and a key"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct keys *k;
        struct err_text e;
        ck_assert_int_eq(keys_parse(&k, wrong[i].text, "file", &e), ERR_FATAL_CONFIG);
        ck_assert_msg(strstr(e.text, wrong[i].says) != NULL, "%s", e.text);
        ck_assert_ptr_nonnull(strstr(e.text, "file"));
    }
}
END_TEST

START_TEST(a_thousand_keys_are_the_most) {
    struct buf text;
    struct keys *k;
    struct err_text e;
    buf_init(&text, 0);
    for (int i = 0; i < KEYS_MAX; i++)
        buf_format(&text, "key-number-%d-of-many\n", i);
    buf_add(&text, "", 1);
    ck_assert_int_eq(keys_parse(&k, text.data, "file", &e), 0);
    ck_assert_int_eq(find(k, "Bearer key-number-1023-of-many"), 1023);
    ck_assert_int_eq(find(k, "Bearer key-number-1024-of-many"), KEY_NONE);
    keys_destroy(k);
    text.bytes--;
    buf_text(&text, "one-more\n");
    buf_add(&text, "", 1);
    ck_assert_int_eq(keys_parse(&k, text.data, "file", &e), ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(e.text, "line 1025"));
    buf_finish(&text);
}
END_TEST

START_TEST(no_memory_is_an_error) {
    struct keys *k;
    for (long n = 1; n <= 2; n++) {
        mem_fail_after(n);
        ck_assert_int_eq(keys_parse(&k, "alpha\n", "file", NULL), ERR_FATAL_NOMEM);
        mem_fail_after(n);
        ck_assert_int_eq(keys_create_one(&k, "alpha", NULL), ERR_FATAL_NOMEM);
    }
    mem_fail_after(0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("net_keys");
    TCase *t = tcase_create("keys");
    log_setup("test", LOG_SILENT);
    tcase_add_test(t, each_key_is_found_by_its_number_and_name);
    tcase_add_test(t, whatever_is_not_a_key_is_not_found);
    tcase_add_test(t, sets_that_nobody_means_are_refused_by_line);
    tcase_add_test(t, a_thousand_keys_are_the_most);
    tcase_add_test(t, no_memory_is_an_error);
    suite_add_tcase(s, t);
    return suite_run(s);
}
