// cut.c: see cut.h.
#include "worker/cut.h"

#include "common/base/check.h"

#define DIGIT_BITS 8
#define DIGITS (1 << DIGIT_BITS)
#define FEW 16 // items that are sorted sooner than dealt

// The values among which the end is: low comes first. Items are compared by their upper halves.
struct span {
    uint32_t low, high;
    uint32_t n;      // items that have them
    uint64_t wanted; // of these items' weights
};

static uint32_t key_of(const struct cut_list *list, uint32_t i) {
    return (uint32_t)(list->items[i] >> 32);
}

static uint64_t weight_of(const struct cut_list *list, uint32_t i) {
    return list->weights == NULL ? 1 : cut_weight(list->weights[i]);
}

static struct span span_of(const struct cut_list *list, uint64_t wanted) {
    struct span s = {UINT32_MAX, 0, list->n, wanted};
    for (uint32_t i = 0; i < list->n; i++) {
        uint32_t key = key_of(list, i);
        s.low = key < s.low ? key : s.low;
        s.high = key > s.high ? key : s.high;
    }
    return s;
}

// Digits divide the span itself and not all 32 bits, so that values which are close together are
// spread as well.
static void narrow(struct span *s, const struct cut_list *list) {
    uint64_t sums[DIGITS] = {0};
    uint32_t counts[DIGITS] = {0}, width = s->high - s->low;
    int bits = 32 - __builtin_clz(width), shift = bits > DIGIT_BITS ? bits - DIGIT_BITS : 0;
    for (uint32_t i = 0; i < list->n; i++) {
        uint32_t from_low = key_of(list, i) - s->low;
        if (from_low > width) continue;
        sums[from_low >> shift] += weight_of(list, i);
        counts[from_low >> shift]++;
    }
    uint32_t digit = 0;
    for (; sums[digit] < s->wanted; digit++) {
        s->wanted -= sums[digit];
        check(digit + 1 < DIGITS); // the sum of all is what is wanted or more
    }
    uint32_t below = digit << shift, last = (1u << shift) - 1;
    s->low += below;
    s->high = s->low + (width - below < last ? width - below : last);
    s->n = counts[digit];
}

struct pair {
    uint64_t item, weight;
};

static void insert(struct pair *sorted, uint32_t n, struct pair pair) {
    for (; n > 0 && sorted[n - 1].item > pair.item; n--)
        sorted[n] = sorted[n - 1];
    sorted[n] = pair;
}

static uint64_t end_among_few(const struct span *s, const struct cut_list *list) {
    struct pair sorted[FEW];
    uint32_t n = 0;
    for (uint32_t i = 0; n < s->n; i++) {
        if (key_of(list, i) - s->low > s->high - s->low) continue;
        insert(sorted, n++, (struct pair){list->items[i], weight_of(list, i)});
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += sorted[i].weight;
        if (sum >= s->wanted) return sorted[i].item;
    }
    check(!"the sum of all is what is wanted or more");
    return 0;
}

// Of one value: ids ascend already.
static uint64_t end_among_equals(const struct span *s, const struct cut_list *list) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        if (key_of(list, i) != s->low) continue;
        sum += weight_of(list, i);
        if (sum >= s->wanted) return list->items[i];
    }
    check(!"the sum of all is what is wanted or more");
    return 0;
}

uint64_t cut_find(const struct cut_list *list, uint64_t wanted) {
    struct span s = span_of(list, wanted);
    while (s.n > FEW && s.low != s.high)
        narrow(&s, list);
    return s.n > FEW ? end_among_equals(&s, list) : end_among_few(&s, list);
}
