// metrics.c: see metrics.h.
#include "common/base/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

void histogram_init(struct histogram *h, const double *bounds, uint32_t n_bounds) {
    check(n_bounds <= HISTOGRAM_BOUNDS_MAX);
    memset(h, 0, sizeof *h);
    h->n_bounds = n_bounds;
    memcpy(h->bounds, bounds, n_bounds * sizeof *bounds);
}

void histogram_init_decades(struct histogram *h, uint64_t max) {
    static const double steps[] = {1, 2, 5};
    double bounds[HISTOGRAM_BOUNDS_MAX];
    uint32_t n = 0;
    double decade = 1;
    while (n < HISTOGRAM_BOUNDS_MAX && decade * steps[n % 3] <= (double)max) {
        bounds[n] = decade * steps[n % 3];
        n++;
        if (n % 3 == 0) decade *= 10;
    }
    histogram_init(h, bounds, n);
}

void histogram_observe(struct histogram *h, double value) {
    uint32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    double sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&h->sum, &sum, sum + value, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void metrics_family(struct buf *page, const char *name, const char *type, const char *help) {
    buf_format(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_name(struct buf *page, const char *name, const struct buf *labels) {
    buf_text(page, name);
    if (labels != NULL && labels->bytes != 0) {
        buf_text(page, "{");
        buf_add(page, labels->data, labels->bytes);
        buf_text(page, "}");
    }
}

// %.17g would show 0.1 as 0.10000000000000001, so the shortest form that reads back equal is
// searched.
static void write_number(struct buf *page, double value) {
    if (isnan(value)) {
        buf_text(page, "NaN");
    } else if (isinf(value)) {
        buf_text(page, value > 0 ? "+Inf" : "-Inf");
    } else {
        char text[40];
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value) break;
        }
        buf_text(page, text);
    }
}

void metrics_value(struct buf *page, const char *name, const struct buf *labels, double value) {
    write_name(page, name, labels);
    buf_text(page, " ");
    write_number(page, value);
    buf_text(page, "\n");
}

void metrics_count(struct buf *page, const char *name, const struct buf *labels, uint64_t value) {
    write_name(page, name, labels);
    buf_format(page, " %llu\n", (unsigned long long)value);
}

static void write_bucket(struct buf *page, const char *name, const struct buf *labels, double bound,
                         uint64_t count) {
    buf_format(page, "%s_bucket{", name);
    if (labels != NULL && labels->bytes != 0) {
        buf_add(page, labels->data, labels->bytes);
        buf_text(page, ",");
    }
    buf_text(page, "le=\"");
    write_number(page, bound);
    buf_format(page, "\"} %llu\n", (unsigned long long)count);
}

// The count is the sum of the buckets as they were read, so that the page agrees with itself while
// others observe.
void metrics_histogram(struct buf *page, const char *name, const struct buf *labels,
                       const struct histogram *h) {
    char part[128];
    double sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    uint64_t count = 0;
    for (uint32_t i = 0; i <= h->n_bounds; i++) {
        count += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        write_bucket(page, name, labels, i < h->n_bounds ? h->bounds[i] : INFINITY, count);
    }
    snprintf(part, sizeof part, "%s_sum", name);
    metrics_value(page, part, labels, sum);
    snprintf(part, sizeof part, "%s_count", name);
    metrics_count(page, part, labels, count);
}

void metrics_label(struct buf *labels, const char *key, const char *value) {
    buf_format(labels, "%s%s=\"", labels->bytes != 0 ? "," : "", key);
    for (const char *c = value; *c != '\0';) {
        size_t n = utf8_char_bytes(c, strlen(c));
        if (*c == '\\' || *c == '"')
            buf_format(labels, "\\%c", *c);
        else if (*c == '\n')
            buf_text(labels, "\\n");
        else if (n == 0)
            buf_text(labels, "\xef\xbf\xbd");
        else
            buf_add(labels, c, n);
        c += n == 0 ? 1 : n;
    }
    buf_text(labels, "\"");
}
