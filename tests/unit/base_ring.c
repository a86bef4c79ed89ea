// base_ring.c: items come out once, in order, also between threads; a full or closed ring refuses;
// lists lose nothing.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/base/ring.h"
#include "tests/harness/suite.h"

START_TEST(ring_gives_items_back_in_order_and_refuses_when_full) {
    struct ring *r;
    int x;
    ck_assert_int_eq(ring_create(&r, 4, sizeof x), 0);
    ck_assert(!ring_pop(r, &x));
    for (int round = 0; round < 5; round++) { // the places wrap around
        for (x = 0; x < 4; x++)
            ck_assert(ring_push(r, &x, 0));
        ck_assert(!ring_push(r, &x, 0));
        for (int i = 0; i < 4; i++) {
            ck_assert(ring_pop(r, &x));
            ck_assert_int_eq(x, i);
        }
        x = 9;
        ck_assert(ring_push(r, &x, 0));
        ck_assert(ring_pop(r, &x));
    }
    ring_destroy(r);
}
END_TEST

START_TEST(ring_keeps_places_for_those_who_may_have_them) {
    struct ring *r;
    int x = 1;
    ck_assert_int_eq(ring_create(&r, 4, sizeof x), 0);
    ck_assert(ring_push(r, &x, 2));
    ck_assert(ring_push(r, &x, 2));
    ck_assert(!ring_push(r, &x, 2));
    ck_assert(ring_push(r, &x, 0));
    ring_close(r);
    ck_assert(!ring_push(r, &x, 0));
    for (int i = 0; i < 3; i++)
        ck_assert(ring_pop(r, &x));
    ck_assert(!ring_pop(r, &x));
    ring_destroy(r);
    ring_destroy(NULL);
    for (long n = 1; n <= 2; n++) {
        mem_fail_after(n);
        ck_assert_int_eq(ring_create(&r, 4, sizeof x), ERR_FATAL_NOMEM);
        mem_fail_after(0);
    }
}
END_TEST

#define PER_THREAD 20000

static struct ring *shared;

static void *push_many(void *arg) {
    for (uint64_t i = 0; i < PER_THREAD; i++) {
        uint64_t item = (uint64_t)(uintptr_t)arg << 32 | i;
        while (!ring_push(shared, &item, 0))
            sched_yield();
    }
    return NULL;
}

START_TEST(ring_loses_nothing_between_threads) {
    pthread_t threads[3];
    uint64_t next[3] = {0}, item;
    ck_assert_int_eq(ring_create(&shared, 64, sizeof item), 0);
    for (uintptr_t i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, push_many, (void *)i);
    for (int n = 0; n < 3 * PER_THREAD;) {
        if (!ring_pop(shared, &item)) {
            sched_yield();
            continue;
        }
        ck_assert_uint_eq(item & 0xffffffff, next[item >> 32]++); // each thread's own order stays
        n++;
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ring_destroy(shared);
}
END_TEST

struct thing {
    int n;
    struct list_node node;
};

START_TEST(list_removes_from_any_place) {
    struct list l;
    struct thing things[4];
    list_init(&l);
    ck_assert_ptr_null(list_first(&l));
    for (int i = 0; i < 4; i++) {
        things[i].n = i;
        list_push(&l, &things[i].node);
    }
    list_remove(&l, &things[1].node);
    list_remove(&l, &things[3].node);
    list_push(&l, &things[1].node);
    static const int expected[] = {0, 2, 1};
    int at = 0;
    for (struct list_node *n = list_first(&l); n != NULL; n = list_next(&l, n))
        ck_assert_int_eq(list_item(n, struct thing, node)->n, expected[at++]);
    ck_assert_int_eq(at, 3);
    ck_assert_uint_eq(l.count, 3);
    while (list_first(&l) != NULL)
        list_remove(&l, list_first(&l));
    ck_assert_uint_eq(l.count, 0);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("ring");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, ring_gives_items_back_in_order_and_refuses_when_full);
    tcase_add_test(t, ring_keeps_places_for_those_who_may_have_them);
    tcase_add_test(t, ring_loses_nothing_between_threads);
    tcase_add_test(t, list_removes_from_any_place);
    Suite *s = suite_create("base_ring");
    suite_add_tcase(s, t);
    return suite_run(s);
}
