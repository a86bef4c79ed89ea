// base_file.c: limits, short files and things that are no files.
#include "common/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "tests/harness/suite.h"

static char folder[256];

static void make_folder(void) {
    char path[512];
    snprintf(folder, sizeof folder, "%s/file-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/ten", folder);
    FILE *f = fopen(path, "wb");
    ck_assert(f != NULL && fwrite("0123456789", 1, 10, f) == 10 && fclose(f) == 0);
    snprintf(path, sizeof path, "%s/pipe", folder);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
}

static void remove_folder(void) {
    static const char *const names[] = {"/ten", "/pipe", ""};
    char path[512];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", folder, names[i]);
        ck_assert_int_eq(remove(path), 0);
    }
}

START_TEST(file_is_read_whole_up_to_the_limit) {
    struct file_bytes b = {0};
    struct err_text e;
    ck_assert_int_eq(file_read_whole(&b, folder, "ten", 10, &e), 0);
    ck_assert_uint_eq(b.bytes, 10);
    ck_assert_str_eq(b.data, "0123456789");
    mem_free(b.data);
    ck_assert_int_eq(file_read_whole(&b, folder, "ten", 9, &e), ERR_FATAL_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "ten has 10 bytes"));
    mem_fail_after(1);
    ck_assert_int_eq(file_read_whole(&b, folder, "ten", 10, &e), ERR_FATAL_NOMEM);
    mem_fail_after(0);
}
END_TEST

START_TEST(file_must_be_a_regular_one) {
    struct file f;
    struct err_text e;
    ck_assert_int_eq(file_open(&f, folder, "pipe", &e), ERR_FATAL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "not a regular file"));
    ck_assert_int_eq(file_open(&f, folder, ".", &e), ERR_FATAL_IO);
    ck_assert_int_eq(file_open(&f, folder, "none", &e), ERR_FATAL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "none: No such file"));
    ck_assert(file_exists(folder, "ten") && !file_exists(folder, "none"));
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ck_assert_int_eq(file_open(&f, folder, name, &e), ERR_FATAL_IO);
    ck_assert(!file_exists(folder, name));
}
END_TEST

START_TEST(file_that_ends_early_is_an_error) {
    struct file f;
    struct err_text e;
    char buf[10];
    ck_assert_int_eq(file_open(&f, folder, "ten", &e), 0);
    ck_assert_uint_eq(f.bytes, 10);
    ck_assert_int_eq(file_read_at(&f, 4, buf, 6, &e), 0);
    ck_assert_mem_eq(buf, "456789", 6);
    ck_assert_int_eq(file_read_at(&f, 4, buf, 7, &e), ERR_FATAL_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "ten ends at byte 10, before byte 11"));
    close(f.fd);
}
END_TEST

int main(void) {
    TCase *c = tcase_create("file");
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, file_is_read_whole_up_to_the_limit);
    tcase_add_test(c, file_must_be_a_regular_one);
    tcase_add_test(c, file_that_ends_early_is_an_error);
    Suite *s = suite_create("base_file");
    suite_add_tcase(s, c);
    return suite_run(s);
}
