// base_metrics.c: histograms and the Prometheus text format.
#include "common/base/metrics.h"

#include <string.h>

#include "common/base/mem.h"
#include "tests/harness/suite.h"

static char *text_of(struct buf *b) {
    ck_assert(!b->failed);
    buf_add(b, "", 1);
    return b->data;
}

START_TEST(histogram_buckets_are_cumulative_and_count_equals_inf) {
    static const double bounds[] = {0.1, 1, 2.5};
    struct histogram h;
    histogram_init(&h, bounds, 3);
    histogram_observe(&h, 0.1); // a value at a bound belongs below it
    histogram_observe(&h, 0.5);
    histogram_observe(&h, 2);
    histogram_observe(&h, 100);
    struct buf page, labels;
    buf_init(&page, 0);
    buf_init(&labels, 0);
    metrics_label(&labels, "engine", "0");
    metrics_histogram(&page, "x", &labels, &h);
    ck_assert_str_eq(text_of(&page), "x_bucket{engine=\"0\",le=\"0.1\"} 1\n"
                                     "x_bucket{engine=\"0\",le=\"1\"} 2\n"
                                     "x_bucket{engine=\"0\",le=\"2.5\"} 3\n"
                                     "x_bucket{engine=\"0\",le=\"+Inf\"} 4\n"
                                     "x_sum{engine=\"0\"} 102.6\n"
                                     "x_count{engine=\"0\"} 4\n");
    buf_finish(&page);
    buf_finish(&labels);
}
END_TEST

START_TEST(decades_end_at_the_largest_not_above_max) {
    struct histogram h;
    histogram_init_decades(&h, 2048);
    ck_assert_uint_eq(h.n_bounds, 11);
    ck_assert(h.bounds[0] == 1 && h.bounds[3] == 10 && h.bounds[10] == 2000);
    histogram_init_decades(&h, UINT64_MAX);
    ck_assert_uint_eq(h.n_bounds, HISTOGRAM_BOUNDS_MAX);
}
END_TEST

START_TEST(label_values_are_escaped) {
    struct buf labels;
    buf_init(&labels, 0);
    metrics_label(&labels, "a", "q\"b\\n\n");
    metrics_label(&labels, "b", "\xff");
    ck_assert_str_eq(text_of(&labels), "a=\"q\\\"b\\\\n\\n\",b=\"\xef\xbf\xbd\"");
    buf_finish(&labels);
}
END_TEST

START_TEST(numbers_read_back_equal_in_their_shortest_form) {
    struct buf page;
    buf_init(&page, 0);
    metrics_value(&page, "a", NULL, 0.1);
    metrics_value(&page, "b", NULL, 1.0 / 3);
    metrics_value(&page, "c", NULL, -0.0 / 0.0);
    metrics_count(&page, "d", NULL, UINT64_MAX);
    ck_assert_str_eq(text_of(&page),
                     "a 0.1\nb 0.3333333333333333\nc NaN\nd 18446744073709551615\n");
    buf_finish(&page);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base_metrics");
    TCase *t = tcase_create("metrics");
    tcase_add_test(t, histogram_buckets_are_cumulative_and_count_equals_inf);
    tcase_add_test(t, decades_end_at_the_largest_not_above_max);
    tcase_add_test(t, label_values_are_escaped);
    tcase_add_test(t, numbers_read_back_equal_in_their_shortest_form);
    suite_add_tcase(s, t);
    return suite_run(s);
}
