// base_buf.c: text buffers and JSON strings.
#include "common/base/buf.h"

#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/suite.h"

static void expect(struct buf *b, const char *want) {
    ck_assert(!b->failed);
    ck_assert_uint_eq(b->bytes, strlen(want));
    ck_assert(memcmp(b->data, want, b->bytes) == 0);
}

START_TEST(buf_joins_pieces_and_formats) {
    struct buf b;
    buf_init(&b, 0);
    for (int i = 0; i < 300; i++)
        buf_format(&b, "%d,", i % 10);
    ck_assert_uint_eq(b.bytes, 600);
    buf_drop(&b, 596);
    expect(&b, "8,9,");
    buf_finish(&b);
}
END_TEST

START_TEST(buf_stays_failed_past_its_limit) {
    struct buf b;
    buf_init(&b, 8);
    buf_text(&b, "12345678");
    ck_assert(!b.failed);
    buf_text(&b, "9");
    ck_assert(b.failed);
    buf_text(&b, "");
    ck_assert(b.failed);
    ck_assert_uint_eq(b.bytes, 8);
    buf_finish(&b);
}
END_TEST

START_TEST(buf_fails_when_memory_is_out) {
    struct buf b;
    buf_init(&b, 0);
    mem_fail_after(1);
    buf_text(&b, "x");
    mem_fail_after(0);
    ck_assert(b.failed);
    buf_finish(&b);
}
END_TEST

START_TEST(json_escapes_controls_quotes_and_backslash) {
    struct buf b;
    buf_init(&b, 0);
    buf_json(&b, "a\"\\\n\x01\x7f/\0z", 9);
    expect(&b, "\"a\\\"\\\\\\n\\u0001\\u007f/\\u0000z\"");
    buf_finish(&b);
}
END_TEST

START_TEST(json_replaces_bytes_that_are_not_utf8) {
    static const char *const bad[] = {"\x80", "\xc0", "\xc1", "\xf5", "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct buf b;
        buf_init(&b, 0);
        buf_json(&b, bad[i], 1);
        expect(&b, "\"\xef\xbf\xbd\"");
        buf_finish(&b);
    }
    ck_assert_uint_eq(utf8_char_bytes("\xed\xa0\x80", 3), 0);     // a surrogate
    ck_assert_uint_eq(utf8_char_bytes("\xe0\x80\x80", 3), 0);     // overlong
    ck_assert_uint_eq(utf8_char_bytes("\xf4\x90\x80\x80", 4), 0); // above U+10FFFF
    ck_assert_uint_eq(utf8_char_bytes("\xe4\xbd\xa0", 2), 0);     // cut
    ck_assert_uint_eq(utf8_char_bytes("\xe4\xbd\xa0", 3), 3);
    ck_assert_uint_eq(utf8_char_bytes("\xf0\x9f\x8c\xb1", 4), 4);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base_buf");
    TCase *t = tcase_create("buf");
    tcase_add_test(t, buf_joins_pieces_and_formats);
    tcase_add_test(t, buf_stays_failed_past_its_limit);
    tcase_add_test(t, buf_fails_when_memory_is_out);
    tcase_add_test(t, json_escapes_controls_quotes_and_backslash);
    tcase_add_test(t, json_replaces_bytes_that_are_not_utf8);
    suite_add_tcase(s, t);
    return suite_run(s);
}
