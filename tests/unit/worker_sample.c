// worker_sample.c: sampling against the contract written out plainly: a full sort, every sum over
// everything.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/suite.h"
#include "worker/sample.h"

#define VOCAB_LARGEST 40000

static struct scratch memory;
static struct sample_scratch sample_memory;
static float logits[VOCAB_LARGEST];
static uint64_t random_state;

static void setup(void) {
    memory = (struct scratch){0};
    sample_lay(&sample_memory, VOCAB_LARGEST, &memory);
    ck_assert_int_eq(scratch_allocate(&memory, NULL), 0);
    sample_lay(&sample_memory, VOCAB_LARGEST, &memory);
    const char *seed = getenv("SEED");
    random_state = seed != NULL ? strtoull(seed, NULL, 10) : 20261129;
    printf("SEED=%llu\n", (unsigned long long)random_state);
}

static void teardown(void) {
    scratch_finish(&memory);
}

static uint64_t next_random(void) {
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 27);
}

static float random_unit(void) {
    return (float)(next_random() >> 40) * 0x1p-24f;
}

static Moesaic__Step__V1__Sampling params_of(float temperature) {
    Moesaic__Step__V1__Sampling p = MOESAIC__STEP__V1__SAMPLING__INIT;
    p.temperature = temperature;
    p.top_p = 1.0f;
    p.seed = 5;
    return p;
}

static struct seq_result sample(uint32_t vocab, uint32_t position,
                                const Moesaic__Step__V1__Sampling *params) {
    struct sample_row row = {logits, logits, vocab, position, params};
    struct seq_result out = {.slot = 3};
    sample_row(kernel_ops_select(NULL), &row, &sample_memory, &out);
    return out;
}

// --- the contract, literally

struct item {
    float x;
    uint32_t id;
};

static int by_order(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->x != y->x) return x->x > y->x ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static float plain_sum(const float *w, uint32_t n) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += w[i];
    return sum;
}

static uint32_t plain_filters(const float *w, uint32_t n, const Moesaic__Step__V1__Sampling *p) {
    if (p->top_p < 1.0f) {
        float wanted = p->top_p * plain_sum(w, n), sum = 0.0f;
        for (uint32_t i = 0; i < n; i++) {
            sum += w[i];
            if (sum >= wanted) n = i + 1;
        }
    }
    uint32_t kept = 0;
    while (kept < n && w[kept] >= p->min_p * w[0])
        kept++;
    return kept;
}

static uint32_t plain_sample(uint32_t vocab, uint32_t position,
                             const Moesaic__Step__V1__Sampling *p) {
    static struct item items[VOCAB_LARGEST];
    static float w[VOCAB_LARGEST];
    for (uint32_t i = 0; i < vocab; i++)
        items[i] = (struct item){logits[i] / p->temperature, i};
    qsort(items, vocab, sizeof *items, by_order);
    uint32_t n = p->top_k != 0 && p->top_k < vocab ? p->top_k : vocab;
    for (uint32_t i = 0; i < n; i++)
        w[i] = elementary_exp(items[i].x - items[0].x);
    n = plain_filters(w, n, p);
    uint32_t words[4], counter[4] = {position, 0, p->choice_index, p->prompt_index};
    sample_philox(words, counter,
                  (const uint32_t[2]){(uint32_t)p->seed, (uint32_t)(p->seed >> 32)});
    float wanted = (float)(words[0] >> 8) * 0x1p-24f * plain_sum(w, n), sum = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        sum += w[i];
        if (sum > wanted) return items[i].id;
    }
    ck_abort_msg("the sum never passed u");
}

// --- tests

START_TEST(philox_gives_the_published_numbers) {
    static const uint32_t cases[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        sample_philox(out, cases[i], cases[i] + 4);
        ck_assert_mem_eq(out, cases[i] + 6, sizeof out);
    }
}
END_TEST

// Shapes of logits: flat, peaked, spread, with ties, large beside the temperature.
static void fill_logits(uint32_t vocab, int shape) {
    for (uint32_t i = 0; i < vocab; i++) {
        float u = random_unit();
        logits[i] = shape == 0   ? u
                    : shape == 1 ? -logf(u + 1e-6f) * 3.0f
                    : shape == 2 ? 60.0f * u - 40.0f
                    : shape == 3 ? floorf(8.0f * u) - 4.0f
                    : shape == 4 ? 1e6f * u
                                 : (u < 0.5f ? -0.0f : 0.0f);
    }
}

START_TEST(partial_selection_equals_the_full_sort) {
    static const uint32_t vocabs[] = {1, 2, 17, 64, 65, 1000, 32003};
    static const float temperatures[] = {1.0f, 0.7f, 0.01f, 2.0f, 100.0f};
    for (int round = 0; round < 400; round++) {
        uint32_t vocab = vocabs[round % 7];
        fill_logits(vocab, (int)(next_random() % 6));
        Moesaic__Step__V1__Sampling p = params_of(temperatures[next_random() % 5]);
        p.seed = next_random();
        p.choice_index = (uint32_t)next_random();
        p.prompt_index = (uint32_t)next_random();
        if (next_random() % 2)
            p.top_k = 1 + (uint32_t)(next_random() % (next_random() % 2 ? 50 : vocab + 3));
        if (next_random() % 2) p.top_p = random_unit();
        if (next_random() % 3 == 0) p.min_p = random_unit() * 0.5f;
        uint32_t position = (uint32_t)next_random();
        uint32_t got = sample(vocab, position, &p).token,
                 expected = plain_sample(vocab, position, &p);
        ck_assert_msg(got == expected,
                      "round %d: %u, not %u: vocab %u temperature %g top_k %u top_p %g min_p %g",
                      round, got, expected, vocab, p.temperature, p.top_k, p.top_p, p.min_p);
    }
}
END_TEST

// Positions whose u has the property, found by looking at many.
static uint32_t find_positions(uint32_t *positions, uint32_t n, bool (*wanted)(uint32_t top24),
                               uint32_t from) {
    Moesaic__Step__V1__Sampling p = params_of(1.0f);
    uint32_t found = 0;
    for (uint32_t position = from; found < n; position++) {
        uint32_t words[4], counter[4] = {position, 0, 0, 0};
        sample_philox(words, counter, (const uint32_t[2]){(uint32_t)p.seed, 0});
        if (wanted(words[0] >> 8)) positions[found++] = position;
    }
    return found;
}

static bool close_to_one(uint32_t top24) {
    return top24 >= (1u << 24) - 64;
}

static bool multiple_of_a_4096th(uint32_t top24) {
    return top24 % 4096 == 0;
}

// One large logit and a tail around the weight that may be left out; the last case rounds in the
// division.
static void fill_tail(uint32_t vocab, int shape) {
    for (uint32_t i = 0; i < vocab; i++)
        logits[i] = shape < 2 ? -12.0f - 6.0f * random_unit() - (float)shape
                              : 1e6f - 0.0625f * (float)(3 + next_random() % 5);
    logits[vocab / 2] = shape < 2 ? 0.0f : 1e6f;
}

START_TEST(the_far_tail_is_drawn_as_the_full_sort_draws_it) {
    enum { POSITIONS = 12 };
    uint32_t positions[POSITIONS];
    find_positions(positions, POSITIONS, close_to_one, 0);
    for (int i = 0; i < 6 * POSITIONS; i++) {
        fill_tail(20000, i % 3);
        Moesaic__Step__V1__Sampling p = params_of(i % 3 < 2 ? 1.0f : 0.01f);
        if (i % 2) p.top_p = 0.9999f;
        uint32_t position = positions[i % POSITIONS];
        ck_assert_uint_eq(sample(20000, position, &p).token, plain_sample(20000, position, &p));
    }
}
END_TEST

START_TEST(u_on_a_border_takes_the_next_id) {
    uint32_t positions[20];
    find_positions(positions, 20, multiple_of_a_4096th, 0);
    for (uint32_t i = 0; i < 4096; i++)
        logits[i] = 2.0f;
    Moesaic__Step__V1__Sampling p = params_of(1.0f);
    for (int i = 0; i < 20; i++) {
        uint32_t words[4], counter[4] = {positions[i], 0, 0, 0};
        sample_philox(words, counter, (const uint32_t[2]){(uint32_t)p.seed, 0});
        ck_assert_uint_eq(sample(4096, positions[i], &p).token, words[0] >> 20);
    }
}
END_TEST

START_TEST(draws_follow_the_distribution) {
    enum { N = 8, DRAWS = 80000 };
    double weights[N], total = 0, chi = 0;
    uint32_t counts[N] = {0};
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = (float)((i * 5) % N) * 0.5f;
        weights[i] = exp(logits[i]);
        total += weights[i];
    }
    Moesaic__Step__V1__Sampling p = params_of(1.0f);
    for (uint32_t i = 0; i < DRAWS; i++)
        counts[sample(N, i, &p).token]++;
    for (uint32_t i = 0; i < N; i++) {
        double expected = DRAWS * weights[i] / total;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    ck_assert_msg(chi < 24.3, "chi squared %g of 7 degrees",
                  chi); // 0.1 %; the numbers are fixed by the seed
}
END_TEST

START_TEST(the_draw_depends_on_seed_position_choice_and_prompt) {
    for (uint32_t i = 0; i < 10000; i++)
        logits[i] = 0.0f;
    Moesaic__Step__V1__Sampling p = params_of(1.0f), seed = p, choice = p, prompt = p;
    seed.seed ^= UINT64_C(1) << 40;
    choice.choice_index = 1;
    prompt.prompt_index = 1;
    uint32_t token = sample(10000, 9, &p).token;
    ck_assert_uint_eq(token, sample(10000, 9, &p).token);
    ck_assert_uint_ne(token, sample(10000, 10, &p).token);
    ck_assert_uint_ne(token, sample(10000, 9, &seed).token);
    ck_assert_uint_ne(token, sample(10000, 9, &choice).token);
    ck_assert_uint_ne(token, sample(10000, 9, &prompt).token);
}
END_TEST

START_TEST(greedy_takes_the_lowest_id_of_the_largest) {
    for (uint32_t i = 0; i < 100; i++)
        logits[i] = -1.0f;
    logits[40] = logits[41] = logits[99] = 2.5f;
    Moesaic__Step__V1__Sampling p = params_of(0.0f);
    ck_assert_uint_eq(sample(100, 0, &p).token, 40);
    p.temperature = 1e-40f; // what overflows is greedy too
    ck_assert_uint_eq(sample(100, 0, &p).token, 40);
    p.temperature = 1.0f;
    p.top_k = 1;
    ck_assert_uint_eq(sample(100, 0, &p).token, 40);
}
END_TEST

START_TEST(top_p_zero_and_min_p_one_keep_one) {
    for (uint32_t i = 0; i < 100; i++)
        logits[i] = (float)i * 0.001f;
    for (uint32_t position = 0; position < 50; position++) {
        Moesaic__Step__V1__Sampling p = params_of(1.0f);
        p.top_p = 0.0f;
        ck_assert_uint_eq(sample(100, position, &p).token, 99);
        p.top_p = 1.0f;
        p.min_p = 1.0f;
        ck_assert_uint_eq(sample(100, position, &p).token, 99);
    }
}
END_TEST

START_TEST(top_k_cuts_ties_by_id) {
    for (uint32_t i = 0; i < 200; i++)
        logits[i] = 1.0f;
    bool seen[200] = {false};
    Moesaic__Step__V1__Sampling p = params_of(1.0f);
    p.top_k = 3;
    for (uint32_t position = 0; position < 200; position++)
        seen[sample(200, position, &p).token] = true;
    for (uint32_t i = 0; i < 200; i++)
        ck_assert_int_eq(seen[i], i < 3);
}
END_TEST

START_TEST(what_is_not_finite_is_never_sampled) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const uint32_t at[] = {0, 15, 16, 500, 1001};
    for (int i = 0; i < 15; i++) {
        fill_logits(1002, 0);
        logits[at[i / 3]] = bad[i % 3];
        Moesaic__Step__V1__Sampling p = params_of(i % 2 ? 0.0f : 1.0f);
        p.want_logprob = true;
        ck_assert(sample(1002, 0, &p).nonfinite);
    }
    fill_logits(1002, 0);
    logits[3] = 3.4e38f;
    logits[4] = -3.4e38f;
    Moesaic__Step__V1__Sampling p = params_of(1.0f);
    struct seq_result r = sample(1002, 0, &p);
    ck_assert(!r.nonfinite);
    ck_assert_uint_eq(r.token, 3);
}
END_TEST

START_TEST(logprobs_are_of_the_raw_logits_in_order) {
    fill_logits(5000, 1);
    logits[7] = logits[8] = 50.0f;
    Moesaic__Step__V1__Sampling p = params_of(0.3f);
    p.top_k = 2;
    p.n_logprobs = TOP_LOGPROBS_MAX;
    struct seq_result r = sample(5000, 0, &p);
    double sum = 0;
    for (uint32_t i = 0; i < 5000; i++)
        sum += exp((double)logits[i] - 50.0);
    ck_assert_uint_eq(r.n_top, TOP_LOGPROBS_MAX);
    ck_assert_uint_eq(r.top_ids[0], 7);
    ck_assert_uint_eq(r.top_ids[1], 8);
    for (uint32_t i = 0; i < r.n_top; i++) {
        ck_assert_double_eq_tol(r.top_logprobs[i], (double)logits[r.top_ids[i]] - 50.0 - log(sum),
                                1e-5);
        if (i > 1) ck_assert(r.top_logprobs[i] <= r.top_logprobs[i - 1]);
    }
    ck_assert(r.token == 7 || r.token == 8);
    ck_assert_float_eq(r.logprob, r.top_logprobs[0]);
    p.n_logprobs = 20;
    ck_assert_uint_eq(sample(3, 0, &p).n_top, 3);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sample");
    TCase *tests = tcase_create("sample");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, philox_gives_the_published_numbers);
    tcase_add_test(tests, partial_selection_equals_the_full_sort);
    tcase_add_test(tests, the_far_tail_is_drawn_as_the_full_sort_draws_it);
    tcase_add_test(tests, u_on_a_border_takes_the_next_id);
    tcase_add_test(tests, draws_follow_the_distribution);
    tcase_add_test(tests, the_draw_depends_on_seed_position_choice_and_prompt);
    tcase_add_test(tests, greedy_takes_the_lowest_id_of_the_largest);
    tcase_add_test(tests, top_p_zero_and_min_p_one_keep_one);
    tcase_add_test(tests, top_k_cuts_ties_by_id);
    tcase_add_test(tests, what_is_not_finite_is_never_sampled);
    tcase_add_test(tests, logprobs_are_of_the_raw_logits_in_order);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
