// base_cgroup.c: tests of how the cgroups' limits are read.
#include "common/base/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

// A directory as one of the kernel's: the names and numbers of some of its files.
struct told {
    uint64_t swap_left;
    const char *files[8]; // name, text, ...
};

static uint64_t swap_left_of(const struct told *told) {
    char folder[] = "/tmp/moesaic-cgroup-XXXXXX", path[128];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (size_t i = 0; i < 8 && told->files[i] != NULL; i += 2) {
        snprintf(path, sizeof path, "%s/%s", folder, told->files[i]);
        FILE *f = fopen(path, "we");
        ck_assert_ptr_nonnull(f);
        fprintf(f, "%s\n", told->files[i + 1]);
        fclose(f);
    }
    uint64_t left = cgroup_swap_left(folder, 1000);
    for (size_t i = 0; i < 8 && told->files[i] != NULL; i += 2) {
        snprintf(path, sizeof path, "%s/%s", folder, told->files[i]);
        unlink(path);
    }
    rmdir(folder);
    return left;
}

#define V1(both, both_used, memory, memory_used)                                                   \
    {                                                                                              \
        "memory.memsw.limit_in_bytes", both, "memory.memsw.usage_in_bytes", both_used,             \
            "memory.limit_in_bytes", memory, "memory.usage_in_bytes", memory_used                  \
    }

START_TEST(cgroup_counts_only_the_swap_that_it_may_use) {
    static const struct told cases[] = {
        {1000, {NULL}},
        {1000, {"memory.swap.max", "max"}},
        {70, {"memory.swap.max", "100", "memory.swap.current", "30"}},
        {0, {"memory.swap.max", "100", "memory.swap.current", "130"}},
        {1000, {"memory.limit_in_bytes", "5000"}}, // swap is not counted there
        {200, V1("5000", "900", "4500", "600")},
        {0, V1("5000", "900", "5000", "900")}, // as most containers have it
        {0, V1("5000", "5100", "5000", "900")},
        {0, V1("5000", "900", "9223372036854771712", "900")},
        {1000, V1("9223372036854771712", "900", "4500", "600")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_uint_eq(swap_left_of(&cases[i]), cases[i].swap_left);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base_cgroup");
    TCase *tcase = tcase_create("cgroup");
    tcase_add_test(tcase, cgroup_finds_memory_on_this_machine);
    tcase_add_test(tcase, cgroup_parses_bytes_and_refuses_overflow);
    tcase_add_test(tcase, cgroup_finds_the_path_of_each_version);
    tcase_add_test(tcase, cgroup_counts_only_the_swap_that_it_may_use);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
