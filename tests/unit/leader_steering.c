// leader_steering.c: what of a request's steering contradicts itself.
#include "leader/steering.h"

#include "tests/harness/suite.h"

static const uint32_t stop_ids[] = {2, 9};

static bool conflicts(const struct steering *s, bool words, bool stops) {
    struct steering_conflict by;
    bool yes = steering_conflicts(s, stop_ids, 2, &by);
    if (yes) ck_assert(by.words == words && by.stops == stops);
    return yes;
}

START_TEST(allowed_ids_that_are_all_held_back_contradict_themselves) {
    const uint32_t allowed[] = {9, 2, 5};
    struct steering s = {.min_tokens = 1, .allowed_ids = allowed, .n_allowed = 2};
    ck_assert(conflicts(&s, false, true));
    s.n_allowed = 3; // 5 may come
    ck_assert(!conflicts(&s, false, false));
    s.n_allowed = 2;
    s.min_tokens = 0; // then it ends at once
    ck_assert(!conflicts(&s, false, false));
    s = (struct steering){.min_tokens = 1};
    ck_assert(!conflicts(&s, false, false));
}
END_TEST

START_TEST(bad_words_count_when_they_are_one_token) {
    const uint32_t allowed[] = {5, 2}, words[] = {5, 5, 7, 2}, lengths[] = {2, 1, 1};
    const uint32_t long_words[] = {7, 5}, long_lengths[] = {2};
    struct steering s = {.allowed_ids = allowed,
                         .n_allowed = 1,
                         .word_ids = words,
                         .n_word_ids = 4,
                         .word_lengths = lengths,
                         .n_words = 2};
    ck_assert(!conflicts(&s, false, false)); // 5 5, and 7
    const uint32_t single[] = {5}, one[] = {1};
    s.word_ids = single;
    s.word_lengths = one;
    s.n_word_ids = s.n_words = 1;
    ck_assert(conflicts(&s, true, false));
    s.n_allowed = 2;
    ck_assert(!conflicts(&s, false, false));
    s.min_tokens = 4;
    ck_assert(conflicts(&s, true, true));
    s.word_ids = long_words;
    s.word_lengths = long_lengths;
    s.n_word_ids = 2;
    ck_assert(!conflicts(&s, false, false));
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_steering");
    TCase *t = tcase_create("conflicts");
    tcase_add_test(t, allowed_ids_that_are_all_held_back_contradict_themselves);
    tcase_add_test(t, bad_words_count_when_they_are_one_token);
    suite_add_tcase(s, t);
    return suite_run(s);
}
