// window.c: see window.h.
#include "leader/window.h"

#include <math.h>
#include <string.h>

#define SPAN_LEAST_S 1e-4
#define SPAN_FACTOR 1.25

void window_init(struct window *w, uint64_t *counts, uint32_t n_series, int64_t now_ns) {
    *w = (struct window){.n_series = n_series, .begun_ns = now_ns, .counts = counts};
    for (int i = 0; i < WINDOW_SLOTS; i++)
        w->seconds[i] = -1;
}

static uint64_t *slot(const struct window *w, int64_t second) {
    return w->counts + (size_t)(second % WINDOW_SLOTS) * w->n_series;
}

// Clocks of two threads may be read in one order and come here in the other: what is late counts
// for the newer second of its slot.
void window_add(struct window *w, int64_t now_ns, uint32_t series, uint64_t n) {
    int64_t second = now_ns / NS_PER_S, *held = &w->seconds[second % WINDOW_SLOTS];
    uint64_t *counts = slot(w, second);
    if (*held < second) {
        memset(counts, 0, w->n_series * sizeof *counts);
        *held = second;
    }
    counts[series] += n;
}

uint64_t window_sum(const struct window *w, int64_t now_ns, uint32_t series) {
    int64_t last = now_ns / NS_PER_S;
    uint64_t sum = 0;
    for (int i = 0; i < WINDOW_SLOTS; i++) {
        if (w->seconds[i] >= 0 && w->seconds[i] > last - WINDOW_SLOTS)
            sum += slot(w, w->seconds[i])[series];
    }
    return sum;
}

double window_span_s(const struct window *w, int64_t now_ns) {
    int64_t first_ns = (now_ns / NS_PER_S - (WINDOW_SLOTS - 1)) * NS_PER_S;
    if (first_ns < w->begun_ns) first_ns = w->begun_ns;
    double span_s = (double)(now_ns - first_ns) / (double)NS_PER_S;
    return span_s < 1 ? 1 : span_s;
}

void window_add_span(struct window *w, int64_t now_ns, uint32_t first, int64_t span_ns) {
    double s = (double)span_ns / (double)NS_PER_S;
    double place = s <= SPAN_LEAST_S ? 0 : log(s / SPAN_LEAST_S) / log(SPAN_FACTOR) + 0.5;
    uint32_t i = place < SPAN_SERIES - 1 ? (uint32_t)place : SPAN_SERIES - 1;
    window_add(w, now_ns, first + i, 1);
}

double window_quantile_s(const struct window *w, int64_t now_ns, uint32_t first, double p) {
    uint64_t counts[SPAN_SERIES], n = 0, seen = 0;
    for (uint32_t i = 0; i < SPAN_SERIES; i++)
        n += counts[i] = window_sum(w, now_ns, first + i);
    if (n == 0) return -1;
    uint64_t wanted = (uint64_t)ceil((double)n * p);
    uint32_t i = 0;
    while (i < SPAN_SERIES - 1 && (seen += counts[i]) < wanted)
        i++;
    return SPAN_LEAST_S * pow(SPAN_FACTOR, i);
}
