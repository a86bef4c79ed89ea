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
    ck_assert_int_eq(pages_init(&p, 64, 0), 0);
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

START_TEST(pages_of_a_group_that_never_formed_add_up) {
    struct pages p = {0};
    struct err_text e;
    ck_assert_int_eq(pages_check(&p, 0, &e), 0);
    ck_assert_int_eq(pages_check(&p, 1, &e), ERR_FATAL_BOOKS);
}
END_TEST

static void fill(uint32_t *tokens, uint32_t first) {
    for (uint32_t i = 0; i < KV_BLOCK_TOKENS; i++)
        tokens[i] = first + i;
}

START_TEST(pages_keep_what_was_published_until_they_are_taken) {
    struct pages p;
    uint32_t tokens[KV_BLOCK_TOKENS];
    struct prefix root = {.root = 1}, at = root;
    ck_assert_int_eq(pages_init(&p, 3, 0), 0);
    fill(tokens, 5);
    uint32_t block = pages_take(&p);
    pages_publish(&p, block, &at, tokens);
    ck_assert_uint_eq(pages_find(&p, &root, tokens), block);
    ck_assert_uint_eq(pages_find(&p, &at, tokens), PAGE_NONE); // there it would be another
    pages_give(&p, block);
    ck_assert_uint_eq(pages_find(&p, &root, tokens), block);
    pages_hold(&p, block);
    pages_hold(&p, block);
    ck_assert_uint_eq(p.n_free, 2);
    pages_give(&p, block);
    ck_assert_uint_eq(p.n_free, 2); // one holder is left
    pages_give(&p, block);
    ck_assert_uint_eq(p.n_free, 3);
    ck_assert_uint_ne(pages_take(&p), block); // it goes last
    ck_assert_uint_ne(pages_take(&p), block);
    ck_assert_uint_eq(pages_find(&p, &root, tokens), block);
    ck_assert_uint_eq(pages_take(&p), block);
    ck_assert_uint_eq(pages_find(&p, &root, tokens), PAGE_NONE);
    pages_finish(&p);
}
END_TEST

START_TEST(pages_publish_the_same_contents_once) {
    struct pages p;
    struct err_text e;
    uint32_t tokens[KV_BLOCK_TOKENS];
    struct prefix root = {.root = 1}, at = root, other = root;
    ck_assert_int_eq(pages_init(&p, 4, 0), 0);
    fill(tokens, 5);
    uint32_t a = pages_take(&p), b = pages_take(&p);
    pages_publish(&p, a, &at, tokens);
    pages_publish(&p, b, &other, tokens);
    ck_assert_uint_eq(at.id, other.id); // both chains go on alike
    ck_assert_uint_eq(p.n_published, 1);
    ck_assert_uint_eq(pages_find(&p, &root, tokens), a);
    ck_assert_int_eq(pages_check(&p, 2, &e), 0);
    pages_finish(&p);
}
END_TEST

START_TEST(pages_with_clashing_hashes_are_told_apart) {
    struct pages p;
    struct err_text e;
    struct prefix root = {.root = 1};
    uint32_t tokens[KV_BLOCK_TOKENS], n = 4096;
    ck_assert_int_eq(pages_init(&p, n, 0), 0);
    p.places.n_buckets = 2;
    for (uint32_t i = 0; i < n; i++) {
        struct prefix at = root;
        fill(tokens, i);
        pages_publish(&p, pages_take(&p), &at, tokens);
    }
    for (uint32_t i = 0; i < n; i++) {
        fill(tokens, i);
        ck_assert_uint_eq(p.pages[pages_find(&p, &root, tokens)].tokens[0], i);
    }
    ck_assert_int_eq(pages_check(&p, n, &e), 0);
    pages_finish(&p);
}
END_TEST

static void start_with_buckets(struct pages *p, uint32_t n_buckets, uint64_t seed) {
    ck_assert_int_eq(pages_init(p, 4096, seed), 0);
    p->places.n_buckets = n_buckets;
}

static void publish(struct pages *p, const uint32_t *tokens) {
    struct prefix at = {.root = 1};
    pages_publish(p, pages_take(p), &at, tokens);
}

// Who knows the hash but not its seed cannot aim at one bucket.
START_TEST(pages_that_share_a_bucket_under_one_seed_do_not_under_another) {
    struct pages p, q;
    uint32_t tokens[KV_BLOCK_TOKENS], n = 0;
    start_with_buckets(&p, 64, 1);
    start_with_buckets(&q, 64, 2);
    for (uint32_t i = 0; i < p.n_blocks; i++) {
        fill(tokens, i);
        publish(&p, tokens);
    }
    for (uint32_t i = p.places.buckets[0]; i != PAGE_NONE; i = p.places.links[i].next_in_chain)
        publish(&q, p.pages[i].tokens);
    ck_assert_uint_gt(q.n_published, 32);
    for (uint32_t i = q.places.buckets[0]; i != PAGE_NONE; i = q.places.links[i].next_in_chain)
        n++;
    ck_assert_uint_lt(n, q.n_published / 4);
    pages_finish(&p);
    pages_finish(&q);
}
END_TEST

START_TEST(pages_check_sees_what_does_not_add_up) {
    struct pages p;
    struct err_text e;
    uint32_t tokens[KV_BLOCK_TOKENS];
    struct prefix at = {.root = 1};
    ck_assert_int_eq(pages_init(&p, 8, 0), 0);
    fill(tokens, 5);
    uint32_t block = pages_take(&p);
    pages_publish(&p, block, &at, tokens);
    ck_assert_int_eq(pages_check(&p, 1, &e), 0);
    ck_assert_int_eq(pages_check(&p, 2, &e), ERR_FATAL_BOOKS);
    p.pages[block].tokens[0]++; // it cannot be found any more
    ck_assert_int_eq(pages_check(&p, 1, &e), ERR_FATAL_BOOKS);
    p.pages[block].tokens[0]--;
    p.pages[p.places.first].n_holders++;
    ck_assert_int_eq(pages_check(&p, 2, &e), ERR_FATAL_BOOKS);
    p.pages[p.places.first].n_holders--;
    ck_assert_int_eq(pages_check(&p, 1, &e), 0);
    pages_finish(&p);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("pages");
    tcase_add_test(t, pages_needed_counts_started_blocks);
    tcase_add_test(t, pages_take_never_gives_a_block_twice_and_gives_all_again);
    tcase_add_test(t, pages_keep_what_was_published_until_they_are_taken);
    tcase_add_test(t, pages_publish_the_same_contents_once);
    tcase_add_test(t, pages_of_a_group_that_never_formed_add_up);
    tcase_add_test(t, pages_with_clashing_hashes_are_told_apart);
    tcase_add_test(t, pages_that_share_a_bucket_under_one_seed_do_not_under_another);
    tcase_add_test(t, pages_check_sees_what_does_not_add_up);
    Suite *s = suite_create("leader_pages");
    suite_add_tcase(s, t);
    return suite_run(s);
}
