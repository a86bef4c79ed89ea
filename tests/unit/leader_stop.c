// leader_stop.c: stop strings in a growing text.
#include "leader/stop.h"
#include "tests/harness/suite.h"

#include <stdlib.h>
#include <string.h>

// Pushes text in pieces of the given size; returns what was shown, flushed when nothing matched.
static char *shown(const struct stop_strings *strings, const char *text, size_t piece,
                   int *matched) {
    struct stop s;
    struct buf out;
    size_t n = strlen(text);
    bool stopped = false;
    stop_init(&s, strings);
    buf_init(&out, 0);
    for (size_t i = 0; i < n && !stopped; i += piece)
        stopped = stop_push(&s, text + i, n - i < piece ? n - i : piece, &out);
    if (!stopped) stop_flush(&s, &out);
    *matched = s.matched;
    buf_add(&out, "", 1);
    ck_assert(!out.failed);
    stop_finish(&s);
    return out.data; // freed by the caller
}

static struct stop_strings strings_of(const char *a, const char *b) {
    struct stop_strings s = {.n = b == NULL ? 1 : 2, .text = {a, b}};
    s.bytes[0] = strlen(a);
    s.bytes[1] = b == NULL ? 0 : strlen(b);
    return s;
}

static void expect(const struct stop_strings *strings, const char *text, const char *want,
                   int want_matched) {
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        int matched;
        char *got = shown(strings, text, piece, &matched);
        ck_assert_str_eq(got, want);
        ck_assert_int_eq(matched, want_matched);
        free(got);
    }
}

START_TEST(text_ends_before_the_stop_string_however_it_is_cut) {
    struct stop_strings s = strings_of("END", NULL);
    expect(&s, "some text END and more", "some text ", 0);
    expect(&s, "END", "", 0);
    expect(&s, "EENEND", "EEN", 0);
}
END_TEST

START_TEST(text_ends_behind_the_stop_string_that_is_kept) {
    struct stop_strings s = strings_of("END", "DO");
    s.keep = true;
    expect(&s, "some text END and more", "some text END", 0);
    expect(&s, "DOEND", "DO", 1);
}
END_TEST

START_TEST(what_only_began_like_a_stop_string_is_shown_at_the_end) {
    struct stop_strings s = strings_of("\n\nUser:", NULL);
    expect(&s, "hello\n\nUse", "hello\n\nUse", -1);
    expect(&s, "a\n\nUsed: b", "a\n\nUsed: b", -1);
}
END_TEST

START_TEST(the_string_that_is_complete_first_wins) {
    struct stop_strings s = strings_of("abcd", "bc");
    expect(&s, "xabcdx", "xa", 1);
    struct stop_strings same_end = strings_of("c", "bc");
    expect(&same_end, "abc", "a", 1);
}
END_TEST

START_TEST(characters_of_several_bytes_are_matched_whole) {
    struct stop_strings s = strings_of("\xe4\xbd\xa0\xe5\xa5\xbd", NULL); // two characters
    expect(&s, "\xe4\xbd\xa0 \xe4\xbd\xa0\xe5\xa5\xbd!", "\xe4\xbd\xa0 ", 0);
}
END_TEST

START_TEST(a_possible_beginning_is_held_back_and_nothing_else) {
    struct stop_strings strings = strings_of("STOP", NULL);
    struct stop s;
    struct buf out;
    stop_init(&s, &strings);
    buf_init(&out, 0);
    ck_assert(!stop_push(&s, "abcST", 5, &out));
    ck_assert_uint_eq(out.bytes, 3);
    ck_assert(!stop_push(&s, "ART", 3, &out));
    ck_assert_uint_eq(out.bytes, 8);
    ck_assert(memcmp(out.data, "abcSTART", 8) == 0);
    ck_assert(!stop_push(&s, "S", 1, &out));
    ck_assert_uint_eq(out.bytes, 8);
    stop_finish(&s);
    buf_finish(&out);
}
END_TEST

START_TEST(without_stop_strings_everything_is_shown_at_once) {
    struct stop_strings none = {0};
    struct stop s;
    struct buf out;
    stop_init(&s, &none);
    buf_init(&out, 0);
    ck_assert(!stop_push(&s, "abc", 3, &out));
    ck_assert_uint_eq(out.bytes, 3);
    stop_finish(&s);
    buf_finish(&out);
}
END_TEST

int main(void) {
    Suite *s = suite_create("leader_stop");
    TCase *t = tcase_create("stop");
    tcase_add_test(t, text_ends_before_the_stop_string_however_it_is_cut);
    tcase_add_test(t, text_ends_behind_the_stop_string_that_is_kept);
    tcase_add_test(t, what_only_began_like_a_stop_string_is_shown_at_the_end);
    tcase_add_test(t, the_string_that_is_complete_first_wins);
    tcase_add_test(t, characters_of_several_bytes_are_matched_whole);
    tcase_add_test(t, a_possible_beginning_is_held_back_and_nothing_else);
    tcase_add_test(t, without_stop_strings_everything_is_shown_at_once);
    suite_add_tcase(s, t);
    return suite_run(s);
}
