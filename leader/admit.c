// admit.c: see admit.h.
#include "leader/admit.h"

#include "common/base/check.h"

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
