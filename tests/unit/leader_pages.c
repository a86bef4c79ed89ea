// leader_pages.c: block accounts: what is given back can be taken again, and the recount sees
// errors.
#include <stdlib.h>

#include "leader/pages.h"
#include "tests/harness/suite.h"

START_TEST(pages_needed_counts_started_blocks) {
    ck_assert_uint_eq(pages_needed(0), 0);
    ck_assert_uint_eq(pages_needed(1), 1);
    ck_assert_uint_eq(pages_needed(16), 1);
    ck_assert_uint_eq(pages_needed(17), 2);
}
END_TEST

START_TEST(pages_take_never_gives_a_block_twice_and_gives_all_again) {
    struct pages p;
    ck_assert_int_eq(pages_init(&p, 64), 0);
    for (int round = 0; round < 2; round++) {
        bool seen[64] = {false};
        for (int i = 0; i < 64; i++) {
            uint32_t block = pages_take(&p);
            ck_assert_uint_lt(block, 64);
            ck_assert(!seen[block]);
            seen[block] = true;
        }
        ck_assert_uint_eq(p.n_free, 0);
        for (uint32_t i = 0; i < 64; i++)
            pages_give(&p, i);
    }
    pages_finish(&p);
}
END_TEST

START_TEST(pages_check_sees_what_does_not_add_up) {
    struct pages p;
    struct err_text e;
    ck_assert_int_eq(pages_init(&p, 8), 0);
    uint32_t block = pages_take(&p);
    ck_assert_int_eq(pages_check(&p, 1, &e), 0);
    ck_assert_int_eq(pages_check(&p, 2, &e), ERR_FATAL_BOOKS);
    p.taken[block] = false; // a lost mark
    ck_assert_int_eq(pages_check(&p, 1, &e), ERR_FATAL_BOOKS);
    pages_finish(&p);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("pages");
    tcase_add_test(t, pages_needed_counts_started_blocks);
    tcase_add_test(t, pages_take_never_gives_a_block_twice_and_gives_all_again);
    tcase_add_test(t, pages_check_sees_what_does_not_add_up);
    Suite *s = suite_create("leader_pages");
    suite_add_tcase(s, t);
    return suite_run(s);
}
