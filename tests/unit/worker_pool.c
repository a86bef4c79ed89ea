// worker_pool.c: the compute team runs every item once, sleeps and wakes without losing a loop, and
// ends cleanly.
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/suite.h"
#include "worker/pool.h"

#define ITEMS_MAX 5000

static uint32_t
    counts[ITEMS_MAX]; // plain: an item run twice at once would be a race that TSan sees

static void count_item(void *context, uint32_t i, uint32_t thread) {
    ck_assert_uint_lt(thread, *(uint32_t *)context);
    counts[i]++;
}

static void count_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    ck_assert_uint_lt(row_begin, row_end);
    for (uint32_t row = row_begin; row < row_end; row++)
        count_item(context, row, thread);
}

static struct pool *make(uint32_t n_threads, bool spin) {
    struct pool *p;
    struct err_text e;
    ck_assert_msg(pool_create(&p, n_threads, NULL, spin, &e) == 0, "%s", e.text);
    return p;
}

static void expect_each_once(uint32_t n) {
    for (uint32_t i = 0; i < ITEMS_MAX; i++) {
        ck_assert_uint_eq(counts[i], i < n);
        counts[i] = 0;
    }
}

START_TEST(every_item_runs_once) {
    static const uint32_t sizes[] = {0, 1, 2, 3, 7, 100, ITEMS_MAX};
    for (uint32_t n_threads = 1; n_threads <= 5; n_threads++) {
        struct pool *p = make(n_threads, _i);
        ck_assert_uint_eq(pool_threads(p), n_threads);
        for (int i = 0; i < 7; i++) {
            pool_run(p, sizes[i], count_item, &n_threads);
            expect_each_once(sizes[i]);
            pool_run_rows(p, sizes[i], 100, count_rows, &n_threads);
            expect_each_once(sizes[i]);
        }
        pool_destroy(p);
    }
}
END_TEST

// Each loop reads what the loop before wrote, on whatever thread that was.
static uint64_t values[64];
static void chain(void *context, uint32_t i, uint32_t thread) {
    (void)thread;
    const uint64_t *round = context;
    values[*round % 2 * 32 + i] = values[(*round + 1) % 2 * 32 + (i + 1) % 32] + 1;
}

START_TEST(many_short_loops_hand_their_results_on) {
    struct pool *p = make(3, _i);
    memset(values, 0, sizeof values);
    for (uint64_t round = 1; round <= 5000; round++) {
        pool_run(p, 32, chain, &round);
        if (round % 512 == 0) sched_yield(); // lets helpers fall asleep now and then
    }
    for (int i = 0; i < 32; i++)
        ck_assert_uint_eq(values[i], 5000);
    pool_destroy(p);
}
END_TEST

START_TEST(a_pool_that_never_ran_ends) {
    pool_destroy(make(4, true));
    pool_destroy(NULL);
}
END_TEST

START_TEST(threads_are_pinned_and_the_callers_cores_come_back) {
    cpu_set_t before, inside, after;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    int core = 0;
    while (!CPU_ISSET(core, &before))
        core++;
    struct pool *p;
    struct err_text e;
    ck_assert_int_eq(pool_create(&p, 2, (const int[2]){core, core}, false, &e), 0);
    ck_assert_int_eq(sched_getaffinity(0, sizeof inside, &inside), 0);
    ck_assert_int_eq(CPU_COUNT(&inside), 1);
    pool_destroy(p);
    ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
    ck_assert(CPU_EQUAL(&before, &after));
}
END_TEST

START_TEST(bad_arguments_are_refused) {
    struct pool *p = NULL;
    struct err_text e;
    ck_assert_int_eq(pool_create(&p, 0, NULL, false, &e), ERR_FATAL_CONFIG);
    ck_assert_int_eq(pool_create(&p, 2, (const int[2]){0, -1}, false, &e), ERR_FATAL_CONFIG);
    ck_assert_int_eq(pool_create(&p, 2, (const int[2]){0, 100000}, false, &e), ERR_FATAL_CONFIG);
    mem_fail_after(1);
    ck_assert_int_eq(pool_create(&p, 2, NULL, false, &e), ERR_FATAL_NOMEM);
    ck_assert_ptr_null(p);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pool");
    TCase *tests = tcase_create("pool");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_item_runs_once, 0, 2);
    tcase_add_loop_test(tests, many_short_loops_hand_their_results_on, 0, 2);
    tcase_add_test(tests, a_pool_that_never_ran_ends);
    tcase_add_test(tests, threads_are_pinned_and_the_callers_cores_come_back);
    tcase_add_test(tests, bad_arguments_are_refused);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
