// text_bpe.c: merges of long pieces: the lists by rank give what the heap gives, and are used only
// where they do.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/text/bpe.h"
#include "tests/harness/suite.h"

#define BYTES 256
#define LETTERS 4
#define MERGES 400

static unsigned seed;

static void seed_it(void) {
    const char *given = getenv("SEED");
    seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : 20261130;
    printf("SEED=%u\n", seed);
    srand(seed);
}

// A vocabulary over a few letters. Each merge makes a new token of two that were there, or, now and
// then, the newest once more, as tiktoken's do: then equal pairs are found at different times, and
// only their order says which of two that overlap comes first. Ranks are the order of training,
// unless they are shuffled.
static void make(struct vocab *v, bool shuffled) {
    struct err_text e;
    uint32_t n = BYTES;
    *v = (struct vocab){.byte_level = true};
    ck_assert_int_eq(vocab_init(v, BYTES + MERGES, MERGES, &e), 0);
    v->byte_level = true;
    for (uint32_t id = 0; id < BYTES; id++)
        v->byte_ids[id] = id;
    for (uint32_t rank = 0; rank < MERGES; rank++) {
        bool again = n > BYTES && rand() % 3 == 0;
        uint32_t known = n - BYTES + LETTERS - again, part[2];
        for (int i = 0; i < 2; i++) {
            uint32_t k = (uint32_t)rand() % (rand() % 2 ? known : known < 12 ? known : 12);
            part[i] = k < LETTERS ? 'a' + k : BYTES + k - LETTERS;
        }
        uint32_t id = again ? n - 1 : n++;
        uint32_t at = shuffled ? (uint32_t)rand() % MERGES : rank;
        ck_assert_int_eq(vocab_add_merge(v, (struct merge){part[0], part[1], at, id}, &e), 0);
    }
    ck_assert_int_eq(vocab_order_merges(v), 0);
}

static void fill(char *piece, size_t n) {
    size_t run = 0;
    char letter = 'a';
    for (size_t i = 0; i < n; i++, run--) {
        if (run == 0) run = rand() % 50 == 0 ? 300 : (size_t)(rand() % 4 + 1);
        if (rand() % 3 == 0 || run == 1) letter = (char)('a' + rand() % LETTERS);
        piece[i] = letter;
    }
}

static bool equal_chains(const struct bpe *a, const struct bpe *b) {
    uint32_t i = 0, k = 0;
    while (i != ID_NONE && k != ID_NONE) {
        if (a->symbols[i].id != b->symbols[k].id) return false;
        i = a->symbols[i].next;
        k = b->symbols[k].next;
    }
    return i == k;
}

START_TEST(long_pieces_have_the_tokens_that_the_heap_gives) {
    static char piece[3 * BPE_LONG];
    seed_it();
    for (int round = 0; round < 40; round++) {
        struct vocab v;
        struct bpe lists, heap;
        make(&v, false);
        ck_assert(v.ordered);
        bpe_init(&lists, &v);
        bpe_init(&heap, &v);
        heap.heap_only = true;
        for (int again = 0; again < 2; again++) { // what is left over must not matter
            size_t n = BPE_LONG + (size_t)rand() % (2 * BPE_LONG);
            fill(piece, n);
            ck_assert_int_eq(bpe_run(&lists, piece, n), 0);
            ck_assert_int_eq(bpe_run(&heap, piece, n), 0);
            ck_assert(lists.in_buckets && !heap.in_buckets);
            ck_assert_msg(equal_chains(&lists, &heap), "round %d", round);
        }
        bpe_finish(&lists);
        bpe_finish(&heap);
        vocab_finish(&v);
    }
}
END_TEST

START_TEST(merges_that_no_training_made_stay_with_the_heap) {
    int unordered = 0;
    static char piece[BPE_LONG];
    seed_it();
    for (int round = 0; round < 20; round++) {
        struct vocab v;
        struct bpe b;
        make(&v, true);
        unordered += !v.ordered;
        bpe_init(&b, &v);
        fill(piece, sizeof piece);
        ck_assert_int_eq(bpe_run(&b, piece, sizeof piece), 0);
        ck_assert(b.in_buckets == v.ordered);
        bpe_finish(&b);
        vocab_finish(&v);
    }
    ck_assert_int_eq(unordered, 20);
}
END_TEST

// One letter over and over, where all levels of a token's doublings merge.
static uint64_t steps_of(size_t n) {
    struct vocab v = {.byte_level = true};
    struct bpe b;
    struct err_text e;
    char *piece = malloc(n);
    memset(piece, 'a', n);
    ck_assert_int_eq(vocab_init(&v, BYTES + 16, 16, &e), 0);
    for (uint32_t id = 0; id < BYTES; id++)
        v.byte_ids[id] = id;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t part = i == 0 ? 'a' : BYTES - 1 + i;
        ck_assert_int_eq(vocab_add_merge(&v, (struct merge){part, part, i, BYTES + i}, &e), 0);
    }
    ck_assert_int_eq(vocab_order_merges(&v), 0);
    bpe_init(&b, &v);
    ck_assert_int_eq(bpe_run(&b, piece, n), 0);
    ck_assert(b.in_buckets);
    uint64_t steps = b.steps;
    bpe_finish(&b);
    vocab_finish(&v);
    free(piece);
    return steps;
}

START_TEST(a_long_piece_takes_a_few_steps_a_letter) {
    ck_assert_uint_lt(steps_of(1 << 16), 4 << 16);
    ck_assert_uint_lt(steps_of(1 << 20), 4 << 20);
}
END_TEST

int main(void) {
    Suite *s = suite_create("bpe");
    TCase *t = tcase_create("long");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, long_pieces_have_the_tokens_that_the_heap_gives);
    tcase_add_test(t, merges_that_no_training_made_stay_with_the_heap);
    tcase_add_test(t, a_long_piece_takes_a_few_steps_a_letter);
    suite_add_tcase(s, t);
    return suite_run(s);
}
