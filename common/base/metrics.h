// metrics.h: counters and histograms that any thread updates without a lock, and the writers of the
// Prometheus text format (version 0.0.4).
//
// There is no registry: a module owns its counters as struct members and one function writes its
// page.
#ifndef MOESAIC_COMMON_BASE_METRICS_H
#define MOESAIC_COMMON_BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/base/buf.h"

#define HISTOGRAM_BOUNDS_MAX 32

struct counter {
    _Atomic uint64_t value;
};

static inline void counter_add(struct counter *c, uint64_t n) {
    atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed);
}
static inline uint64_t counter_get(const struct counter *c) {
    return atomic_load_explicit(&c->value, memory_order_relaxed);
}

struct histogram {
    uint32_t n_bounds;
    double bounds[HISTOGRAM_BOUNDS_MAX]; // upper bounds, ascending
    _Atomic uint64_t counts[HISTOGRAM_BOUNDS_MAX + 1];
    _Atomic double sum;
};

void histogram_init(struct histogram *h, const double *bounds, uint32_t n_bounds);
// Bounds 1, 2, 5, 10, 20, 50, ... as long as they are not above max.
void histogram_init_decades(struct histogram *h, uint64_t max);
void histogram_observe(struct histogram *h, double value);

// Page writers. labels is what metrics_label wrote, or NULL.
void metrics_family(struct buf *page, const char *name, const char *type, const char *help);
void metrics_value(struct buf *page, const char *name, const struct buf *labels, double value);
void metrics_count(struct buf *page, const char *name, const struct buf *labels, uint64_t value);
void metrics_histogram(struct buf *page, const char *name, const struct buf *labels,
                       const struct histogram *h);

// Appends key="value" (and a comma if something is there) with the escapes of the format.
void metrics_label(struct buf *labels, const char *key, const char *value);

#endif
