// worker_store.c: the memory of pages outlives a group, is had ahead by a thread, and is refused in
// words when there is not enough of it, at once or later.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/env.h"
#include "common/base/mem.h"
#include "tests/harness/suite.h"
#include "worker/store.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define MIB ((size_t)1 << 20)

static struct store store;
static struct env *env;
static struct waker *waker;
static _Atomic uint64_t left_bytes;

static uint64_t left(void) {
    return atomic_load(&left_bytes);
}

static void set_up(void) {
    env = env_real_create();
    ck_assert_ptr_nonnull(env);
    ck_assert_int_eq(waker_create(env, &waker), 0);
    atomic_store(&left_bytes, UINT64_MAX);
    store_init(&store, &(struct store_config){.waker = waker, .left = left});
}

static void tear_down(void) {
    store_finish(&store);
    waker_destroy(waker);
    env_real_destroy(env);
}

static uint8_t *take(size_t bytes) {
    struct err_text e = {0};
    void *p = NULL;
    ck_assert_msg(store_take(&store, &p, bytes, &e) == 0, "%s", e.text);
    ck_assert_uint_eq((uintptr_t)p % 64, 0);
    return p;
}

// Until the thread has done all, or given up.
static void wait_for_thread(void) {
    int64_t until_ns = env_now_ns(env) + 60 * NS_PER_S;
    while (atomic_load(&store.committed) < store.bytes && !atomic_load(&store.ran_out)) {
        ck_assert_int_lt(env_now_ns(env), until_ns);
        waker_wait(waker, env_now_ns(env) + NS_PER_MS);
    }
}

START_TEST(memory_of_the_same_size_is_kept_with_what_it_holds) {
    uint8_t *p = take(32 * MIB);
    p[5] = 42;
    p[32 * MIB - 1] = 43;
    wait_for_thread();
    ck_assert_ptr_eq(take(32 * MIB), p);
    ck_assert_uint_eq(p[5], 42);
    ck_assert_uint_eq(p[32 * MIB - 1], 43);
    ck_assert_int_eq(store_check(&store, NULL), 0);
}
END_TEST

START_TEST(memory_of_another_size_is_new_and_zero) {
    memset(take(32 * MIB), 0xff, 32 * MIB);
    const uint8_t *p = take(48 * MIB);
    for (size_t i = 0; i < 48 * MIB; i += 4096)
        ck_assert_uint_eq(p[i], 0);
    take(1);
    take(0);
}
END_TEST

START_TEST(a_step_may_write_what_the_thread_has_not_reached) {
    uint8_t *p = take(64 * MIB);
    for (size_t i = 0; i < 64 * MIB; i += 64)
        p[i] = (uint8_t)(i >> 6);
    wait_for_thread();
    for (size_t i = 0; i < 64 * MIB; i += 64)
        ck_assert_uint_eq(p[i], (uint8_t)(i >> 6));
    ck_assert_uint_eq(atomic_load(&store.committed), 64 * MIB);
}
END_TEST

START_TEST(more_than_is_left_is_refused_at_once_with_both_numbers) {
    struct err_text e = {0};
    void *p = NULL;
    atomic_store(&left_bytes, 32 * MIB - 1);
    ck_assert_int_eq(store_take(&store, &p, 32 * MIB, &e), ERR_FATAL_NOMEM);
    ck_assert_ptr_null(p);
    ck_assert_msg(strstr(e.text, "33554432 bytes") != NULL, "%s", e.text);
    ck_assert_msg(strstr(e.text, "33554431 bytes") != NULL, "%s", e.text);
    atomic_store(&left_bytes, 32 * MIB);
    take(32 * MIB);
}
END_TEST

START_TEST(what_is_there_already_need_not_be_left) {
    take(32 * MIB);
    wait_for_thread();
    atomic_store(&left_bytes, 0);
    take(32 * MIB);
}
END_TEST

// The first look is of the one who takes, the others are of the thread: the more is left, the later
// is its next one.
static _Atomic uint32_t n_looks;
static uint64_t left_at_first(void) {
    return atomic_fetch_add(&n_looks, 1) < 2 ? 1024 * MIB : 90 * MIB;
}

START_TEST(memory_that_others_use_up_meanwhile_is_missed_in_words) {
    struct err_text e = {0};
    atomic_store(&n_looks, 0);
    store.config.left = left_at_first;
    take(160 * MIB);
    wait_for_thread();
    ck_assert_uint_eq(atomic_load(&store.committed), 66 * MIB);
    ck_assert_int_eq(store_check(&store, &e), ERR_FATAL_NOMEM);
    ck_assert_msg(strstr(e.text, "167772160 bytes") != NULL, "%s", e.text);
    store_release(&store);
    ck_assert_int_eq(store_check(&store, &e), 0);
}
END_TEST

// Steps are faster than the thread, and bring all pages but the last 8 MiB before it looks.
static _Atomic uint64_t left_behind_steps;
static uint64_t left_while_steps_write(void) {
    if (atomic_fetch_add(&n_looks, 1) == 0) return 1024 * MIB;
    for (size_t i = 0; i < store.bytes - 8 * MIB; i += 4096)
        ((_Atomic uint8_t *)store.base)[i] = 1;
    return atomic_load(&left_behind_steps);
}

START_TEST(pages_that_steps_brought_are_not_missed_again) {
    for (int fits = 1; fits >= 0; fits--) {
        atomic_store(&n_looks, 0);
        atomic_store(&left_behind_steps, fits ? 8 * MIB : 8 * MIB - 1);
        store.config.left = left_while_steps_write;
        take(24 * MIB);
        wait_for_thread();
        ck_assert_int_eq(store_check(&store, NULL), fits ? 0 : ERR_FATAL_NOMEM);
        store_release(&store);
    }
}
END_TEST

START_TEST(pages_that_steps_brought_need_not_be_left) {
    memset(take(4 * MIB), 1, 4 * MIB); // too little for a thread
    ck_assert_uint_eq(atomic_load(&store.committed), 0);
    atomic_store(&left_bytes, 0);
    take(4 * MIB);
}
END_TEST

// Pages behind the end of a file, which the kernel cannot bring at all.
static void *broken_map;
static uint64_t left_while_the_map_breaks(void) {
    if (atomic_fetch_add(&n_looks, 1) == 0) return 1024 * MIB;
    int fd = memfd_create("empty", MFD_CLOEXEC);
    broken_map = mmap(store.base, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
    return 1024 * MIB;
}

START_TEST(a_kernel_that_gives_nothing_ahead_is_not_one_without_memory) {
    uint8_t *probe = mem_map(2 * MIB);
    bool known = madvise(probe, 2 * MIB, MADV_POPULATE_WRITE) == 0; // since Linux 5.14
    mem_unmap(probe, 2 * MIB);
    if (!known) return;
    atomic_store(&n_looks, 0);
    store.config.left = left_while_the_map_breaks;
    take(16 * MIB);
    pthread_join(store.thread, NULL);
    store.running = false;
    ck_assert_ptr_eq(broken_map, store.base);
    ck_assert_uint_eq(atomic_load(&store.committed), 0);
    ck_assert_int_eq(store_check(&store, NULL), 0);
}
END_TEST

START_TEST(memory_that_is_still_coming_can_be_given_back) {
    for (size_t n = 0; n < 20; n++) {
        take((256 + n % 2) * MIB);
        if (n % 3 == 0) store_release(&store);
    }
}
END_TEST

START_TEST(addresses_that_do_not_exist_are_refused) {
    struct err_text e = {0};
    void *p = NULL;
    ck_assert_int_eq(store_take(&store, &p, SIZE_MAX - 5, &e), ERR_FATAL_NOMEM);
    ck_assert_int_eq(store_take(&store, &p, SIZE_MAX / 2, &e), ERR_FATAL_NOMEM);
    mem_fail_after(1);
    ck_assert_int_eq(store_take(&store, &p, 4096, &e), ERR_FATAL_NOMEM);
    ck_assert_ptr_null(p);
    take(4096);
}
END_TEST

START_TEST(a_lazy_store_neither_looks_nor_commits) {
    store_init(&store, &(struct store_config){.lazy = true, .left = left});
    atomic_store(&left_bytes, 0);
    take(32 * MIB);
    ck_assert(!store.running);
    ck_assert_uint_eq(atomic_load(&store.committed), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("worker_store");
    TCase *tests = tcase_create("store");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, memory_of_the_same_size_is_kept_with_what_it_holds);
    tcase_add_test(tests, memory_of_another_size_is_new_and_zero);
    tcase_add_test(tests, a_step_may_write_what_the_thread_has_not_reached);
    tcase_add_test(tests, more_than_is_left_is_refused_at_once_with_both_numbers);
    tcase_add_test(tests, what_is_there_already_need_not_be_left);
    tcase_add_test(tests, memory_that_others_use_up_meanwhile_is_missed_in_words);
    tcase_add_test(tests, pages_that_steps_brought_are_not_missed_again);
    tcase_add_test(tests, pages_that_steps_brought_need_not_be_left);
    tcase_add_test(tests, a_kernel_that_gives_nothing_ahead_is_not_one_without_memory);
    tcase_add_test(tests, memory_that_is_still_coming_can_be_given_back);
    tcase_add_test(tests, addresses_that_do_not_exist_are_refused);
    tcase_add_test(tests, a_lazy_store_neither_looks_nor_commits);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
