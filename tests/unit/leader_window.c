// leader_window.c: rates and quantiles of the last seconds: what is counted, what is forgotten.
#include "leader/window.h"

#include <math.h>

#include "tests/harness/suite.h"

#define SERIES (1 + SPAN_SERIES)
#define AT(seconds) ((int64_t)((seconds)*1e9))

static uint64_t counts[WINDOW_SLOTS * SERIES];
static struct window window;

static void setup(void) {
    for (size_t i = 0; i < WINDOW_SLOTS * SERIES; i++)
        counts[i] = 0;
    window_init(&window, counts, SERIES, AT(100));
}

START_TEST(sums_forget_what_is_older_than_the_window) {
    window_add(&window, AT(100.5), 0, 3);
    window_add(&window, AT(105.5), 0, 4);
    ck_assert_uint_eq(window_sum(&window, AT(105.9), 0), 7);
    ck_assert_uint_eq(window_sum(&window, AT(109.9), 0), 7);
    ck_assert_uint_eq(window_sum(&window, AT(110.1), 0), 4);
    ck_assert_uint_eq(window_sum(&window, AT(115.1), 0), 0);
    window_add(&window, AT(120.5), 0, 1); // the slot of second 100 again
    ck_assert_uint_eq(window_sum(&window, AT(120.6), 0), 1);
}
END_TEST

START_TEST(the_span_is_the_time_that_the_sums_are_of) {
    ck_assert(window_span_s(&window, AT(100.2)) == 1);
    ck_assert(fabs(window_span_s(&window, AT(104.5)) - 4.5) < 1e-6);
    ck_assert(fabs(window_span_s(&window, AT(150.5)) - 9.5) < 1e-6);
    for (int i = 0; i < 3000; i++) // 100 a second for 30 seconds
        window_add(&window, AT(100 + i * 0.01), 0, 1);
    double rate = (double)window_sum(&window, AT(130), 0) / window_span_s(&window, AT(130));
    ck_assert_msg(fabs(rate - 100) < 1, "%f", rate);
}
END_TEST

START_TEST(late_news_count_and_do_not_empty_a_newer_slot) {
    window_add(&window, AT(111), 0, 5);
    window_add(&window, AT(101), 0, 1); // of the same slot
    ck_assert_uint_eq(window_sum(&window, AT(111), 0), 6);
}
END_TEST

START_TEST(quantiles_are_an_eighth_off_at_most) {
    ck_assert(window_quantile_s(&window, AT(100), 1, 0.5) == -1);
    for (int i = 1; i <= 1000; i++)
        window_add_span(&window, AT(101), 1, i * NS_PER_MS);
    double p50 = window_quantile_s(&window, AT(101), 1, 0.5);
    double p95 = window_quantile_s(&window, AT(101), 1, 0.95);
    ck_assert_msg(p50 > 0.5 / 1.13 && p50 < 0.5 * 1.13, "%f", p50);
    ck_assert_msg(p95 > 0.95 / 1.13 && p95 < 0.95 * 1.13, "%f", p95);
}
END_TEST

START_TEST(spans_of_any_length_find_a_place) {
    const int64_t spans[] = {INT64_MIN, -1, 0, 1, 1000, NS_PER_S, 200 * NS_PER_S, INT64_MAX};
    size_t n = sizeof spans / sizeof *spans;
    for (size_t i = 0; i < n; i++)
        window_add_span(&window, AT(101), 1, spans[i]);
    ck_assert_uint_eq(window_sum(&window, AT(101), 0), 0); // no other series was hit
    ck_assert(window_quantile_s(&window, AT(101), 1, 0.01) == 1e-4);
    ck_assert(window_quantile_s(&window, AT(101), 1, 1) > 100);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("leader_window");
    TCase *t = tcase_create("window");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, sums_forget_what_is_older_than_the_window);
    tcase_add_test(t, the_span_is_the_time_that_the_sums_are_of);
    tcase_add_test(t, late_news_count_and_do_not_empty_a_newer_slot);
    tcase_add_test(t, quantiles_are_an_eighth_off_at_most);
    tcase_add_test(t, spans_of_any_length_find_a_place);
    suite_add_tcase(suite, t);
    return suite_run(suite);
}
