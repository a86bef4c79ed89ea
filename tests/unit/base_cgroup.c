// base_cgroup.c: tests of how the cgroups' limits are read.
#include "common/base/cgroup.h"

#include "tests/harness/suite.h"

START_TEST(cgroup_finds_memory_on_this_machine) {
    ck_assert_uint_ge(cgroup_memory_bytes(), 1 << 20);
}
END_TEST

START_TEST(cgroup_parses_bytes_and_refuses_overflow) {
    uint64_t bytes = 0;
    ck_assert(cgroup_parse_bytes("536870912\n", &bytes));
    ck_assert_uint_eq(bytes, 536870912);
    ck_assert(!cgroup_parse_bytes("max\n", &bytes));
    ck_assert(!cgroup_parse_bytes("-1\n", &bytes));
    ck_assert(!cgroup_parse_bytes("99999999999999999999999\n", &bytes));
    ck_assert(!cgroup_parse_bytes("12 MiB\n", &bytes));
}
END_TEST

START_TEST(cgroup_finds_the_path_of_each_version) {
    const char *text = "4:memory:/a/b\n3:cpu,cpuacct:/c\n1:name=systemd:/d\n0::/e:f\n";
    char path[64];
    ck_assert(cgroup_parse_path(text, "", path, sizeof path));
    ck_assert_str_eq(path, "/e:f");
    ck_assert(cgroup_parse_path(text, "memory", path, sizeof path));
    ck_assert_str_eq(path, "/a/b");
    ck_assert(cgroup_parse_path(text, "cpuacct", path, sizeof path));
    ck_assert_str_eq(path, "/c");
    ck_assert(!cgroup_parse_path(text, "mem", path, sizeof path));
    ck_assert(!cgroup_parse_path(text, "memory", path, 3));
    ck_assert(!cgroup_parse_path("nonsense", "", path, sizeof path));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base_cgroup");
    TCase *tcase = tcase_create("cgroup");
    tcase_add_test(tcase, cgroup_finds_memory_on_this_machine);
    tcase_add_test(tcase, cgroup_parses_bytes_and_refuses_overflow);
    tcase_add_test(tcase, cgroup_finds_the_path_of_each_version);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
