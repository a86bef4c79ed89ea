// worker_cores.c: tests of how CPUs are found and shared.
#include <stdlib.h>
#include <string.h>

#include "tests/harness/suite.h"
#include "worker/cores.h"

static struct core_set make_set(uint32_t n, uint32_t usable) {
    struct core_set set = {.n = n, .usable = usable};
    for (uint32_t i = 0; i < n; i++)
        set.cpus[i] = (int)(2 * i + 1); // not simply 0, 1, 2: a cpuset has gaps
    return set;
}

// Every CPU of the share is taken once, none was taken before; taken counts by position in the set.
static void take_share(uint32_t *taken, const struct core_set *set,
                       const struct core_share *share) {
    for (uint32_t t = 0; t < share->n_threads; t++) {
        uint32_t at = (uint32_t)(share->cpus[t] - 1) / 2; // make_set's numbering
        ck_assert_uint_lt(at, set->n);
        ck_assert_int_eq(set->cpus[at], share->cpus[t]);
        ck_assert_uint_eq(taken[at]++, 0);
    }
}

START_TEST(cores_shares_are_disjoint) {
    struct core_set set = make_set(13, 13);
    for (uint32_t n_workers = 1; n_workers <= 5; n_workers++) {
        uint32_t taken[13] = {0};
        for (uint32_t i = 0; i < n_workers; i++) {
            struct core_share share;
            cores_share(&share, &set, i, n_workers, 0);
            ck_assert(share.exclusive);
            ck_assert_uint_ge(share.n_threads, 13 / n_workers);
            take_share(taken, &set, &share);
        }
    }
}
END_TEST

START_TEST(cores_fewer_than_workers_are_shared_with_one_thread_each) {
    struct core_set set = make_set(2, 2);
    for (uint32_t i = 0; i < 4; i++) {
        struct core_share share;
        cores_share(&share, &set, i, 4, 0);
        ck_assert_uint_eq(share.n_threads, 1);
        ck_assert(!share.exclusive);
    }
}
END_TEST

START_TEST(cores_quota_below_the_set_limits_threads) {
    struct core_set set = make_set(16, 4);
    struct core_share share;
    cores_share(&share, &set, 1, 2, 0);
    ck_assert_uint_eq(share.n_threads, 2);
    ck_assert(share.exclusive);
    ck_assert_int_eq(share.cpus[0], set.cpus[8]);
    cores_share(&share, &set, 7, 8, 0);
    ck_assert_uint_eq(share.n_threads, 1);
    ck_assert(!share.exclusive);
}
END_TEST

START_TEST(cores_asked_for_threads_above_the_share_are_not_exclusive) {
    struct core_set set = make_set(4, 4);
    struct core_share share;
    cores_share(&share, &set, 0, 2, 3);
    ck_assert_uint_eq(share.n_threads, 3);
    ck_assert(!share.exclusive);
    cores_share(&share, &set, 0, 2, 1);
    ck_assert_uint_eq(share.n_threads, 1);
    ck_assert(share.exclusive);
}
END_TEST

START_TEST(cores_reads_this_machine) {
    struct core_set set;
    cores_read(&set);
    ck_assert_uint_ge(set.n, 1);
    ck_assert_uint_ge(set.usable, 1);
    ck_assert_uint_le(set.usable, set.n);
    for (uint32_t i = 1; i < set.n; i++)
        ck_assert_int_lt(set.cpus[i - 1], set.cpus[i]);
}
END_TEST

START_TEST(cores_parses_the_quota_and_refuses_no_limit) {
    double cpus = 0;
    ck_assert(cores_parse_cpu_max("150000 100000\n", &cpus));
    ck_assert(cpus > 1.49 && cpus < 1.51);
    ck_assert(!cores_parse_cpu_max("max 100000\n", &cpus));
    ck_assert(!cores_parse_cpu_max("-1 100000\n", &cpus));
    ck_assert(!cores_parse_cpu_max("100000 0\n", &cpus));
    ck_assert(!cores_parse_cpu_max("100000", &cpus));
    ck_assert(!cores_parse_cpu_max("", &cpus));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_cores");
    TCase *tcase = tcase_create("cores");
    tcase_add_test(tcase, cores_shares_are_disjoint);
    tcase_add_test(tcase, cores_fewer_than_workers_are_shared_with_one_thread_each);
    tcase_add_test(tcase, cores_quota_below_the_set_limits_threads);
    tcase_add_test(tcase, cores_asked_for_threads_above_the_share_are_not_exclusive);
    tcase_add_test(tcase, cores_reads_this_machine);
    tcase_add_test(tcase, cores_parses_the_quota_and_refuses_no_limit);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
