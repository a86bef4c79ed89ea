// base_log_gate.c: a flood of lines becomes a handful and a number.
#include "common/base/log_gate.h"
#include "tests/harness/suite.h"

START_TEST(gate_lets_a_handful_through_and_counts_the_rest) {
    struct log_gate g = {0};
    uint32_t n = 0;
    for (int64_t i = 0; i < 1000; i++)
        n += log_gate_pass(&g, 5 + i);
    ck_assert_uint_eq(n, LOG_GATE_LINES);
    ck_assert_uint_eq(log_gate_hidden(&g, 1005), 0); // the span lasts
    ck_assert_uint_eq(log_gate_hidden(&g, 5 + LOG_GATE_SPAN_NS), 1000 - LOG_GATE_LINES);
    ck_assert_uint_eq(log_gate_hidden(&g, 5 + LOG_GATE_SPAN_NS), 0); // said once
}
END_TEST

START_TEST(gate_does_not_hide_rare_lines) {
    struct log_gate g = {0};
    for (int64_t i = 0; i < 100; i++)
        ck_assert(log_gate_pass(&g, i * LOG_GATE_SPAN_NS / 5));
    ck_assert_uint_eq(log_gate_hidden(&g, INT64_MAX / 2), 0);
}
END_TEST

START_TEST(gate_opens_again_after_the_number_was_said) {
    struct log_gate g = {0};
    while (log_gate_pass(&g, 0))
        continue;
    ck_assert(!log_gate_pass(&g, 2 * LOG_GATE_SPAN_NS)); // nobody has asked for the number yet
    ck_assert_uint_eq(log_gate_hidden(&g, 2 * LOG_GATE_SPAN_NS), 2);
    ck_assert(log_gate_pass(&g, 2 * LOG_GATE_SPAN_NS));
}
END_TEST

START_TEST(gate_opens_again_by_itself_for_who_asks_with_each_line) {
    struct log_gate g = {0};
    uint32_t n_hidden;
    for (int i = 0; i < 2 * LOG_GATE_LINES; i++) {
        ck_assert_int_eq(log_gate_pass_late(&g, i, &n_hidden), i < LOG_GATE_LINES);
        ck_assert_uint_eq(n_hidden, 0);
    }
    ck_assert(log_gate_pass_late(&g, LOG_GATE_SPAN_NS, &n_hidden));
    ck_assert_uint_eq(n_hidden, LOG_GATE_LINES);
    ck_assert(log_gate_pass_late(&g, LOG_GATE_SPAN_NS, &n_hidden));
    ck_assert_uint_eq(n_hidden, 0);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("log_gate");
    tcase_add_test(t, gate_lets_a_handful_through_and_counts_the_rest);
    tcase_add_test(t, gate_does_not_hide_rare_lines);
    tcase_add_test(t, gate_opens_again_after_the_number_was_said);
    tcase_add_test(t, gate_opens_again_by_itself_for_who_asks_with_each_line);
    Suite *s = suite_create("base_log_gate");
    suite_add_tcase(s, t);
    return suite_run(s);
}
