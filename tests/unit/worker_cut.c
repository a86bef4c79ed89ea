// worker_cut.c: the end of a beginning against a full sort.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/suite.h"
#include "worker/cut.h"

#define N_MOST 20000

static uint64_t items[N_MOST];
static float weights[N_MOST];
static uint64_t random_state;

static void setup(void) {
    const char *seed = getenv("SEED");
    random_state = seed != NULL ? strtoull(seed, NULL, 10) : 20261130;
    printf("SEED=%llu\n", (unsigned long long)random_state);
}

static uint64_t next_random(void) {
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 27);
}

struct entry {
    float value;
    uint32_t id;
    uint64_t weight;
};
static struct entry entries[N_MOST];

static int by_order(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

// The id of the last one, by sorting all.
static uint32_t plain_find(uint32_t n, uint64_t wanted) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += entries[i].weight;
        if (sum >= wanted) return entries[i].id;
    }
    ck_abort_msg("the sum never came to what is wanted");
}

// Values that are spread, close together, few, all equal, of every size, or about zero.
static float value_of(int shape) {
    float unit = (float)(next_random() >> 40) * 0x1p-24f, sign = next_random() % 2 ? 1.0f : -1.0f;
    switch (shape) {
    case 0: return 40.0f * unit - 25.0f;
    case 1: return 8.0f + unit * 0x1p-10f;
    case 2: return sign * floorf(4.0f * unit);
    case 3: return -3.5f;
    case 4: return sign * ldexpf(1.0f + unit, (int)(next_random() % 250) - 125);
    default: return next_random() % 3 == 0 ? -INFINITY : sign * 0x1p-149f * (float)(unit < 0.5f);
    }
}

// Returns the sum of all weights.
static uint64_t fill(uint32_t n, int shape, bool weighted) {
    uint64_t total = 0;
    for (uint32_t i = 0, id = 0; i < n; i++, id += 1 + (uint32_t)(next_random() % 3)) {
        float value = value_of(shape);
        items[i] = cut_item(value, id);
        weights[i] = (float)(next_random() % 1000 + 1) * 1e-3f;
        entries[i] = (struct entry){value, id, weighted ? cut_weight(weights[i]) : 1};
        total += entries[i].weight;
    }
    qsort(entries, n, sizeof *entries, by_order);
    return total;
}

START_TEST(the_end_is_where_a_full_sort_has_it) {
    static const uint32_t sizes[] = {1, 2, 16, 17, 300, 5000, N_MOST};
    for (int round = 0; round < 210; round++) {
        uint32_t n = sizes[round % 7];
        bool weighted = round % 2;
        uint64_t total = fill(n, round % 6, weighted);
        struct cut_list list = {items, weighted ? weights : NULL, n};
        uint64_t wanted[] = {1,
                             total,
                             1 + next_random() % total,
                             1 + next_random() % total,
                             entries[0].weight,
                             entries[0].weight + (n > 1)};
        for (int i = 0; i < 6; i++)
            ck_assert_uint_eq((uint32_t)cut_find(&list, wanted[i]), plain_find(n, wanted[i]));
    }
}
END_TEST

START_TEST(items_order_as_values_and_ids_do) {
    static const float values[] = {INFINITY, 3.4e38f, 1.5f,  1.0f,     0x1p-149f, 0.0f,
                                   -0.0f,    -1e-40f, -2.0f, -3.4e38f, -INFINITY};
    for (int i = 0; i < 11; i++) {
        ck_assert_float_eq(cut_value(cut_item(values[i], 7)), values[i]);
        ck_assert(cut_item(values[i], 7) < cut_item(values[i], 8));
        for (int k = i + 1; k < 11; k++)
            ck_assert_int_eq(cut_item(values[i], 9) < cut_item(values[k], 3),
                             values[i] > values[k]);
    }
}
END_TEST

START_TEST(a_weight_is_cut_off_to_a_whole_number) {
    ck_assert_uint_eq(cut_weight(1.0f), UINT64_C(1) << 32);
    ck_assert_uint_eq(cut_weight(0.3f), (uint64_t)((double)0.3f * 4294967296.0));
    ck_assert_uint_eq(cut_weight(0x1.fffffep-32f), 1);
    ck_assert_uint_eq(cut_weight(0x1.fffffep-33f), 0);
    ck_assert_uint_eq(cut_weight(0.0f), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cut");
    TCase *tests = tcase_create("cut");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, the_end_is_where_a_full_sort_has_it);
    tcase_add_test(tests, items_order_as_values_and_ids_do);
    tcase_add_test(tests, a_weight_is_cut_off_to_a_whole_number);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
