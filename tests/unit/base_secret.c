// base_secret.c: where secrets come from, how their lines read, and that they are gone afterwards.
#include "common/base/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "tests/harness/suite.h"

static int next(const char *text, struct secret_line *out, struct err_text *e) {
    struct secret_lines lines = {.at = text, .where = "keys.txt"};
    return secret_next(&lines, out, e);
}

START_TEST(a_line_is_a_key_or_a_name_and_a_key) {
    struct secret_lines lines = {.at = "# a comment\n\n  \t\nfirst\r\nbob  second\t\n #no\nlast#1",
                                 .where = "keys.txt"};
    static const char *const wanted[][2] = {{"", "first"}, {"bob", "second"}, {"", "last#1"}};
    struct secret_line line;
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(secret_next(&lines, &line, NULL), 0);
        ck_assert_uint_eq(line.key_bytes, strlen(wanted[i][1]));
        ck_assert(memcmp(line.key, wanted[i][1], line.key_bytes) == 0);
        ck_assert_uint_eq(line.name_bytes, strlen(wanted[i][0]));
        ck_assert(line.name_bytes == 0 || memcmp(line.name, wanted[i][0], line.name_bytes) == 0);
    }
    ck_assert_uint_eq(lines.number, 7);
    ck_assert_int_eq(secret_next(&lines, &line, NULL), ERR_AGAIN);
    ck_assert_int_eq(next("", &line, NULL), ERR_AGAIN);
}
END_TEST

START_TEST(a_wrong_line_is_named_and_not_shown) {
    static char long_key[500], long_name[100];
    memset(long_key, 'k', 401);
    memset(long_name, 'n', 65);
    memcpy(long_name + 65, " key", 5);
    const char *const wrong[] = {"sesame sesame sesame",
                                 "na/me sesame",
                                 "sesam\xc3\xa9",
                                 "ses\x7f"
                                 "ame",
                                 long_key,
                                 long_name};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct secret_line line;
        struct err_text e;
        char text[600];
        snprintf(text, sizeof text, "# one\n%s\n", wrong[i]);
        ck_assert_int_eq(next(text, &line, &e), ERR_FATAL_CONFIG);
        ck_assert_msg(strstr(e.text, "keys.txt, line 2: ") == e.text, "%s", e.text);
        ck_assert(strstr(e.text, "ses") == NULL && strstr(e.text, "kkk") == NULL);
    }
    struct secret_line line;
    long_key[400] = '\0';
    ck_assert_int_eq(next(long_key, &line, NULL), 0);
    ck_assert_uint_eq(line.key_bytes, 400);
}
END_TEST

START_TEST(one_secret_is_asked_for_and_no_more) {
    struct secret_source s = {.flag = "--token-file", .variable = "TOKEN"};
    struct err_text e;
    char *out;
    ck_assert_int_eq(secret_read_one(&out, &s, &e), 0);
    ck_assert_ptr_null(out);
    s.value = "# ours\nsesame\n";
    ck_assert_int_eq(secret_read_one(&out, &s, &e), 0);
    ck_assert_str_eq(out, "sesame");
    secret_free(out);
    static const char *const wrong[] = {"", "# none\n", "one\ntwo", "one\nt w o"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s.value = wrong[i];
        ck_assert_int_eq(secret_read_one(&out, &s, &e), ERR_FATAL_CONFIG);
        ck_assert_ptr_null(out);
        ck_assert_ptr_nonnull(strstr(e.text, "TOKEN"));
    }
    s.path = "/dev/null";
    ck_assert_int_eq(secret_read_one(&out, &s, &e), ERR_FATAL_CONFIG);
    ck_assert_ptr_nonnull(strstr(e.text, "--token-file and TOKEN are both given"));
}
END_TEST

START_TEST(a_file_is_read_whole_or_refused_by_its_name) {
    char path[] = "/tmp/secret-XXXXXX";
    int fd = mkstemp(path);
    struct secret_source s = {"--key-file", path, "KEY", NULL};
    struct err_text e;
    char *out;
    ck_assert(fd >= 0 && write(fd, "a b\nc\n", 6) == 6);
    ck_assert_int_eq(secret_read(&out, &s, &e), 0);
    ck_assert_str_eq(out, "a b\nc\n");
    secret_free(out);
    mem_fail_after(1);
    ck_assert_int_eq(secret_read(&out, &s, &e), ERR_FATAL_NOMEM);
    mem_fail_after(0);
    ck_assert(write(fd, "\0", 1) == 1);
    ck_assert_int_eq(secret_read(&out, &s, &e), ERR_FATAL_CONFIG);
    ck_assert(strstr(e.text, path) != NULL && strstr(e.text, "value 0") != NULL);
    ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
    ck_assert_int_eq(secret_read(&out, &s, &e), ERR_FATAL_CONFIG);
    close(fd);
    unlink(path);
    ck_assert_int_eq(secret_read(&out, &s, &e), ERR_FATAL_CONFIG);
    ck_assert(strstr(e.text, "--key-file") != NULL && strstr(e.text, "No such file") != NULL);
}
END_TEST

START_TEST(a_variable_is_wiped_where_it_stands) {
    char first[] = "KEY=sesame", other[] = "KEYS=stay", again[] = "KEY=x", bare[] = "KEY";
    char *environment[] = {first, other, again, bare, NULL};
    secret_wipe_variable(environment, "KEY");
    ck_assert(memcmp(first, "KEY=\0\0\0\0\0\0", sizeof first) == 0);
    ck_assert_str_eq(other, "KEYS=stay");
    ck_assert_str_eq(again, "KEY=");
    ck_assert_str_eq(bare, "KEY");
}
END_TEST

int main(void) {
    Suite *s = suite_create("base_secret");
    TCase *t = tcase_create("secret");
    log_setup("test", LOG_SILENT);
    tcase_add_test(t, a_line_is_a_key_or_a_name_and_a_key);
    tcase_add_test(t, a_wrong_line_is_named_and_not_shown);
    tcase_add_test(t, one_secret_is_asked_for_and_no_more);
    tcase_add_test(t, a_file_is_read_whole_or_refused_by_its_name);
    tcase_add_test(t, a_variable_is_wiped_where_it_stands);
    suite_add_tcase(s, t);
    return suite_run(s);
}
