// leader_admit.c: places are taken all or none, and a full server's word about when to come again
// follows the rate at which places come free.
#include "common/base/env.h"
#include "leader/admit.h"
#include "tests/harness/suite.h"

START_TEST(places_are_taken_all_or_none) {
    struct admit a = {.max = 4};
    ck_assert(admit_reserve(&a, 3));
    ck_assert(!admit_reserve(&a, 2));
    ck_assert(admit_reserve(&a, 1));
    ck_assert(!admit_reserve(&a, UINT32_MAX));
    admit_release(&a, 4);
    ck_assert(admit_reserve(&a, 4));
}
END_TEST

// One choice ends and another takes its place.
static void replace(struct admit *a, int64_t arrived_ns, int64_t now_ns) {
    admit_finish(a, arrived_ns, now_ns);
    ck_assert(admit_reserve(a, 1));
}

START_TEST(retry_after_is_the_queue_over_the_rate) {
    struct admit a = {.max = 100};
    ck_assert(admit_reserve(&a, 100));
    ck_assert_uint_eq(admit_retry_after_s(&a), 1); // nothing is known
    int64_t now_ns = NS_PER_S;
    for (int i = 0; i < 500; i++) { // 20 a second
        now_ns += 50 * NS_PER_MS;
        replace(&a, now_ns - 5 * NS_PER_S, now_ns);
    }
    ck_assert_uint_ge(admit_retry_after_s(&a), 5);
    ck_assert_uint_le(admit_retry_after_s(&a), 6);
    for (int i = 0; i < 100; i++) { // the same rate, ten at a time
        now_ns += 500 * NS_PER_MS;
        for (int j = 0; j < 10; j++)
            replace(&a, now_ns - 5 * NS_PER_S, now_ns);
    }
    ck_assert_uint_ge(admit_retry_after_s(&a), 5);
    ck_assert_uint_le(admit_retry_after_s(&a), 6);
    for (int i = 0; i < 20; i++) { // one in ten seconds
        now_ns += 10 * NS_PER_S;
        replace(&a, now_ns - 20 * NS_PER_S, now_ns);
    }
    ck_assert_uint_eq(admit_retry_after_s(&a), RETRY_AFTER_MAX_S);
}
END_TEST

START_TEST(an_idle_hour_is_no_slow_rate) {
    struct admit a = {.max = 10};
    ck_assert(admit_reserve(&a, 10));
    int64_t now_ns = NS_PER_S;
    for (int i = 0; i < 50; i++) {
        now_ns += 100 * NS_PER_MS;
        replace(&a, now_ns - NS_PER_S, now_ns);
    }
    now_ns += 3600 * NS_PER_S;
    replace(&a, now_ns - 100 * NS_PER_MS, now_ns);
    ck_assert_uint_le(admit_retry_after_s(&a), 2);
}
END_TEST

START_TEST(the_first_end_speaks_for_all_that_ran_with_it) {
    struct admit a = {.max = 50};
    ck_assert(admit_reserve(&a, 50));
    replace(&a, NS_PER_S, 4 * NS_PER_S);
    ck_assert_uint_ge(admit_retry_after_s(&a), 3);
    ck_assert_uint_le(admit_retry_after_s(&a), 4);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("admit");
    tcase_add_test(t, places_are_taken_all_or_none);
    tcase_add_test(t, retry_after_is_the_queue_over_the_rate);
    tcase_add_test(t, an_idle_hour_is_no_slow_rate);
    tcase_add_test(t, the_first_end_speaks_for_all_that_ran_with_it);
    Suite *s = suite_create("leader_admit");
    suite_add_tcase(s, t);
    return suite_run(s);
}
