// admit.c: see admit.h.
#include "leader/admit.h"

#include "common/base/check.h"
#include "common/base/env.h"

// How far back the rate looks.
#define WINDOW_NS (10 * NS_PER_S)

bool admit_reserve(struct admit *a, uint32_t n_choices) {
    uint32_t now = atomic_load(&a->in_flight);
    do {
        if (n_choices > a->max || now > a->max - n_choices) return false;
    } while (!atomic_compare_exchange_weak(&a->in_flight, &now, now + n_choices));
    return true;
}

void admit_release(struct admit *a, uint32_t n_choices) {
    uint32_t before = atomic_fetch_sub(&a->in_flight, n_choices);
    check(before >= n_choices);
}

// Time counts only while there was work: an idle hour says nothing about how quickly places come
// free. The choice that ends was there since it arrived, so there was.
void admit_finish(struct admit *a, int64_t arrived_ns, int64_t now_ns) {
    int64_t since_ns = a->ended_ns > arrived_ns ? a->ended_ns : arrived_ns;
    double busy_ns = now_ns > since_ns ? (double)(now_ns - since_ns) : 0;
    double keep = busy_ns < WINDOW_NS ? 1 - busy_ns / WINDOW_NS : 0;
    // The first one's time is that of all that were there with it.
    if (a->ended_ns == 0) busy_ns /= atomic_load(&a->in_flight);
    a->ended_ns = now_ns;
    a->n_ended = a->n_ended * keep + 1;
    a->busy_ns = a->busy_ns * keep + busy_ns;
    atomic_store(&a->gap_ns, (int64_t)(a->busy_ns / a->n_ended));
    admit_release(a, 1);
}

uint32_t admit_retry_after_s(const struct admit *a) {
    double ns = (double)atomic_load(&a->gap_ns) * atomic_load(&a->in_flight);
    double s = ns / NS_PER_S;
    if (s >= RETRY_AFTER_MAX_S) return RETRY_AFTER_MAX_S;
    return (uint32_t)s + 1;
}
