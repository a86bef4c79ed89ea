// window.h: what happened in the last seconds: counters in slots of one second, and the rates and
// quantiles of them. The owner guards it and brings the clock.
#ifndef MOESAIC_LEADER_WINDOW_H
#define MOESAIC_LEADER_WINDOW_H

#include <stdint.h>

#include "common/base/env.h"

#define WINDOW_SLOTS 10 // seconds that are looked back on

struct window {
    uint32_t n_series;
    int64_t begun_ns;
    int64_t seconds[WINDOW_SLOTS]; // which second a slot holds
    uint64_t *counts;              // [WINDOW_SLOTS][n_series], the owner's memory, zeroed
};

void window_init(struct window *w, uint64_t *counts, uint32_t n_series, int64_t now_ns);
void window_add(struct window *w, int64_t now_ns, uint32_t series, uint64_t n);
uint64_t window_sum(const struct window *w, int64_t now_ns, uint32_t series);
// How much time the sums are of: what of the slots' time has gone by. At least one second, so that
// the first event of a process is no burst.
double window_span_s(const struct window *w, int64_t now_ns);

// --- durations as series: SPAN_SERIES of them from `first` on, each a quarter wider than the last

#define SPAN_SERIES 64 // 0.1 ms to 130 s

void window_add_span(struct window *w, int64_t now_ns, uint32_t first, int64_t span_ns);
// A duration that the share p of them did not exceed, at most an eighth off; -1 when there were
// none.
double window_quantile_s(const struct window *w, int64_t now_ns, uint32_t first, double p);

#endif
