// base_env_real.c: the real env: clocks that run, wakes that stick, waits that end.
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/env.h"
#include "tests/harness/suite.h"

static struct env *env;
static struct waker *waker;

static void setup(void) {
    env = env_real_create();
    ck_assert_ptr_nonnull(env);
    ck_assert_int_eq(waker_create(env, &waker), 0);
}

static void teardown(void) {
    waker_destroy(waker);
    env_real_destroy(env);
}

START_TEST(wake_before_wait_is_kept_and_consumed_once) {
    waker_wake(waker);
    waker_wake(waker);
    ck_assert(waker_wait(waker, NO_DEADLINE));
    ck_assert(!waker_wait(waker, 0));
}
END_TEST

START_TEST(wait_ends_at_its_deadline_and_not_before) {
    int64_t deadline = env_now_ns(env) + 20 * NS_PER_MS;
    ck_assert(!waker_wait(waker, deadline));
    ck_assert_int_ge(env_now_ns(env), deadline);
    ck_assert(!waker_wait(waker, 1)); // long past
}
END_TEST

START_TEST(descriptor_is_readable_exactly_while_a_wake_is_pending) {
    struct pollfd pfd = {.fd = waker_fd(waker), .events = POLLIN};
    ck_assert_int_eq(poll(&pfd, 1, 0), 0);
    waker_wake(waker);
    ck_assert_int_eq(poll(&pfd, 1, 0), 1);
    ck_assert(waker_wait(waker, 0));
    ck_assert_int_eq(poll(&pfd, 1, 0), 0);
}
END_TEST

#define WAKES 2000
static int shared_count; // handed over by the wakes below, guarded by shared_lock
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

static void *wake_many(void *arg) {
    for (int i = 0; i < WAKES; i++) {
        pthread_mutex_lock(&shared_lock);
        shared_count++;
        pthread_mutex_unlock(&shared_lock);
        waker_wake(arg);
    }
    return NULL;
}

START_TEST(no_wake_from_another_thread_is_lost) {
    pthread_t thread;
    shared_count = 0;
    ck_assert_int_eq(pthread_create(&thread, NULL, wake_many, waker), 0);
    for (int seen = 0; seen < WAKES;) {
        ck_assert(waker_wait(waker, env_now_ns(env) + 20 * NS_PER_S));
        pthread_mutex_lock(&shared_lock);
        seen = shared_count;
        pthread_mutex_unlock(&shared_lock);
    }
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(stop_is_for_good_and_random_numbers_differ) {
    unsigned char a[32] = {0}, b[32] = {0};
    env_random(env, a, sizeof a);
    env_random(env, b, sizeof b);
    ck_assert_int_ne(memcmp(a, b, sizeof a), 0);
    ck_assert(!env_stopped(env));
    env_real_stop(env);
    ck_assert(env_stopped(env));
    ck_assert_int_gt(env_wall_ns(env), INT64_C(1600000000) * NS_PER_S);
}
END_TEST

int main(void) {
    Suite *s = suite_create("env_real");
    TCase *t = tcase_create("env");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, wake_before_wait_is_kept_and_consumed_once);
    tcase_add_test(t, wait_ends_at_its_deadline_and_not_before);
    tcase_add_test(t, descriptor_is_readable_exactly_while_a_wake_is_pending);
    tcase_add_test(t, no_wake_from_another_thread_is_lost);
    tcase_add_test(t, stop_is_for_good_and_random_numbers_differ);
    suite_add_tcase(s, t);
    return suite_run(s);
}
