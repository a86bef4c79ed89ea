// worker_sample.c: sampling against the contract written out plainly: a full sort, integers of 128
// bits, every sum over everything.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/suite.h"
#include "worker/sample.h"

#define VOCAB_LARGEST 151936

static struct scratch memory;
static struct sample_scratch sample_memory;
static float logits[VOCAB_LARGEST], steered[VOCAB_LARGEST];
static const struct kernel_ops *ops;
static uint64_t random_state;

static void setup(void) {
    memory = (struct scratch){0};
    sample_lay(&sample_memory, VOCAB_LARGEST, &memory);
    ck_assert_int_eq(scratch_allocate(&memory, NULL), 0);
    sample_lay(&sample_memory, VOCAB_LARGEST, &memory);
    ops = kernel_ops_select(NULL);
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
    sample_row(ops, &row, &sample_memory, &out);
    return out;
}

static uint32_t random_of(uint32_t position, const Moesaic__Step__V1__Sampling *p) {
    uint32_t words[4], counter[4] = {position, 0, p->choice_index, p->prompt_index};
    sample_philox(words, counter,
                  (const uint32_t[2]){(uint32_t)p->seed, (uint32_t)(p->seed >> 32)});
    return words[0];
}

// --- the contract, literally

typedef unsigned __int128 wide;

struct item {
    float x;
    uint32_t id;
    uint64_t weight;
};
static struct item items[VOCAB_LARGEST];

static int by_order(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->x != y->x) return x->x > y->x ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    return x->id < y->id ? -1 : 1;
}

static uint64_t plain_sum(uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += items[i].weight;
    return sum;
}

static uint32_t plain_top_p(uint32_t n, float top_p) {
    wide wanted = (wide)floor((double)top_p * 4294967296.0) * plain_sum(n), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += items[i].weight;
        if (sum << 32 >= wanted) return i + 1;
    }
    ck_abort_msg("all together are less than a part of them");
}

// How many items of the order are kept; min-p takes others' weights away.
static uint32_t plain_filters(uint32_t n, const Moesaic__Step__V1__Sampling *p) {
    if (p->top_k != 0 && p->top_k < n) n = p->top_k;
    if (p->top_p < 1.0f) n = plain_top_p(n, p->top_p);
    for (uint32_t i = 0; i < n; i++) {
        if ((double)items[i].weight < (double)p->min_p * 4294967296.0) items[i].weight = 0;
    }
    return n;
}

// Sorts by order and sets weights.
static void plain_order(const float *x, uint32_t vocab, float temperature) {
    for (uint32_t i = 0; i < vocab; i++)
        items[i] = (struct item){x[i] / temperature, i, 0};
    qsort(items, vocab, sizeof *items, by_order);
    for (uint32_t i = 0; i < vocab; i++) {
        double weight = (double)elementary_exp(items[i].x - items[0].x);
        items[i].weight = (uint64_t)floor(weight * 4294967296.0);
    }
}

static uint32_t plain_sample(const float *x, uint32_t vocab, uint32_t position,
                             const Moesaic__Step__V1__Sampling *p) {
    plain_order(x, vocab, p->temperature);
    uint32_t n = plain_filters(vocab, p);
    qsort(items, n, sizeof *items, by_id);
    uint64_t wanted = (uint64_t)((wide)random_of(position, p) * plain_sum(n) >> 32), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += items[i].weight;
        if (sum > wanted) return items[i].id;
    }
    ck_abort_msg("the sum never passed what is wanted");
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

static Moesaic__Step__V1__Sampling random_params(uint32_t vocab) {
    static const float temperatures[] = {1.0f, 0.7f, 0.01f, 2.0f, 100.0f};
    Moesaic__Step__V1__Sampling p = params_of(temperatures[next_random() % 5]);
    p.seed = next_random();
    p.choice_index = (uint32_t)next_random();
    p.prompt_index = (uint32_t)next_random();
    if (next_random() % 2)
        p.top_k = 1 + (uint32_t)(next_random() % (next_random() % 2 ? 50 : vocab + 3));
    if (next_random() % 2) p.top_p = random_unit() * (next_random() % 4 == 0 ? 0x1p-9f : 1.0f);
    if (next_random() % 3 == 0) p.min_p = random_unit() * 0.5f;
    return p;
}

static void check_equal(uint32_t vocab, uint32_t position, const Moesaic__Step__V1__Sampling *p) {
    uint32_t got = sample(vocab, position, p).token,
             expected = plain_sample(logits, vocab, position, p);
    ck_assert_msg(got == expected,
                  "%s: %u, not %u: vocab %u temperature %g top_k %u top_p %g min_p %g", ops->name,
                  got, expected, vocab, p->temperature, p->top_k, p->top_p, p->min_p);
}

START_TEST(partial_selection_equals_the_full_sort) {
    static const uint32_t vocabs[] = {1, 2, 17, 64, 65, 511, 512, 513, 1000, 32003};
    for (int round = 0; round < 600; round++) {
        uint32_t vocab = vocabs[round % 10];
        ops = round % 4 == 0 ? kernel_ops_ref() : kernel_ops_select(NULL);
        fill_logits(vocab, (int)(next_random() % 6));
        Moesaic__Step__V1__Sampling p = random_params(vocab);
        check_equal(vocab, (uint32_t)next_random(), &p);
    }
}
END_TEST

START_TEST(a_large_vocabulary_is_sampled_as_the_full_sort_does_it) {
    for (int shape = 0; shape < 6; shape++) {
        fill_logits(VOCAB_LARGEST, shape);
        for (int round = 0; round < 3; round++) {
            Moesaic__Step__V1__Sampling p = params_of(1.0f);
            p.top_k = round == 1 ? 1000 : round == 2 ? 60000 : 0;
            p.top_p = round == 1 ? 1.0f : 0.95f;
            check_equal(VOCAB_LARGEST, (uint32_t)next_random(), &p);
        }
    }
}
END_TEST

// Positions whose random number has the property, found by looking at many.
static void find_positions(uint32_t *positions, uint32_t n, bool (*wanted)(uint32_t random)) {
    Moesaic__Step__V1__Sampling p = params_of(1.0f);
    uint32_t found = 0;
    for (uint32_t position = 0; found < n; position++) {
        if (wanted(random_of(position, &p))) positions[found++] = position;
    }
}

static bool close_to_zero(uint32_t random) {
    return random < 1u << 14;
}

static bool multiple_of_2_16(uint32_t random) {
    return random % (1u << 16) == 0;
}

// A tail of weights of nothing, one or a few, and one large logit behind it; the last case rounds
// in the division.
static void fill_tail(uint32_t vocab, int shape) {
    for (uint32_t i = 0; i < vocab; i++)
        logits[i] = shape < 2 ? -20.5f - 3.0f * random_unit() - (float)shape
                              : 1e6f - 0.0625f * (float)(3 + next_random() % 5);
    logits[vocab - 1] = shape < 2 ? 0.0f : 1e6f;
}

// Its ids come first, so that the least numbers take them, one unit of their sums apart.
START_TEST(the_far_tail_is_drawn_as_the_full_sort_draws_it) {
    enum { POSITIONS = 12 };
    uint32_t positions[POSITIONS], n_tail = 0;
    find_positions(positions, POSITIONS, close_to_zero);
    for (int i = 0; i < 6 * POSITIONS; i++) {
        fill_tail(20000, i % 3);
        Moesaic__Step__V1__Sampling p = params_of(i % 3 < 2 ? 1.0f : 0.01f);
        if (i % 2) p.top_p = 0x1.fffffep-1f;
        if (i / 6 % 3 == 1) p.top_k = 19999;
        if (i / 6 % 3 == 2) p.min_p = 0x1.8p-32f; // between two weights
        uint32_t token = sample(20000, positions[i % POSITIONS], &p).token;
        ck_assert_uint_eq(token, plain_sample(logits, 20000, positions[i % POSITIONS], &p));
        n_tail += token != 19999;
    }
    ck_assert_uint_ge(n_tail, POSITIONS); // else nothing was seen of the tail
}
END_TEST

START_TEST(a_number_on_a_border_takes_the_next_id) {
    enum { N = 1 << 16, POSITIONS = 20 };
    uint32_t positions[POSITIONS];
    find_positions(positions, POSITIONS, multiple_of_2_16);
    for (uint32_t i = 0; i < N; i++)
        logits[i] = 2.0f;
    Moesaic__Step__V1__Sampling p = params_of(1.0f);
    for (int i = 0; i < POSITIONS; i++)
        ck_assert_uint_eq(sample(N, positions[i], &p).token, random_of(positions[i], &p) >> 16);
    for (uint32_t position = 0; position < 50; position++)
        ck_assert_uint_eq(sample(N, position, &p).token, random_of(position, &p) >> 16);
}
END_TEST

static uint32_t sample_steered(uint32_t vocab, uint32_t position,
                               const Moesaic__Step__V1__Sampling *p) {
    struct sample_row row = {logits, steered, vocab, position, p};
    struct seq_result out = {.slot = 3};
    sample_row(ops, &row, &sample_memory, &out);
    ck_assert(!out.nonfinite);
    return out.token;
}

// Masked ids in front push the others into other blocks and lanes.
START_TEST(where_a_sum_is_divided_changes_nothing) {
    static const uint32_t shifts[] = {1, 15, 16, 100, 511, 512, 1000};
    enum { N = 3000 };
    for (int round = 0; round < 60; round++) {
        fill_logits(N, round % 5);
        Moesaic__Step__V1__Sampling p = random_params(N);
        uint32_t position = (uint32_t)next_random(), token = sample(N, position, &p).token;
        for (int i = 0; i < 7; i++) {
            for (uint32_t id = 0; id < shifts[i]; id++)
                steered[id] = -INFINITY;
            memcpy(steered + shifts[i], logits, N * sizeof *logits);
            ck_assert_uint_eq(sample_steered(N + shifts[i], position, &p), token + shifts[i]);
        }
    }
}
END_TEST

START_TEST(filters_that_keep_all_change_nothing) {
    enum { N = 2048 };
    for (uint32_t position = 0; position < 200; position++) {
        fill_logits(N, (int)position % 6);
        Moesaic__Step__V1__Sampling p = params_of(0.8f), same[5] = {p, p, p, p, p};
        same[0].top_k = N;
        same[1].top_k = N + 1;
        same[2].top_k = UINT32_MAX;
        same[3].min_p = 0x1p-33f; // less than any weight but none
        same[4].top_k = N - 1;
        logits[N - 1] = -3e38f;
        for (int i = 0; i < 5; i++)
            ck_assert_uint_eq(sample(N, position, &same[i]).token, sample(N, position, &p).token);
    }
}
END_TEST

START_TEST(equal_logits_are_kept_from_the_lowest_id_on) {
    static const struct {
        uint32_t top_k, n;
        float top_p;
    } cases[] = {{0, 75968, 0.5f}, {50, 50, 1.0f}, {100000, 25000, 0.25f},  {0, 1, 0.0f},
                 {0, 2, 7e-6f},    {1, 1, 1.0f},   {0, VOCAB_LARGEST, 1.0f}};
    for (uint32_t i = 0; i < VOCAB_LARGEST; i++)
        logits[i] = -7.25f;
    for (int i = 0; i < 7; i++) {
        Moesaic__Step__V1__Sampling p = params_of(0.3f);
        p.top_k = cases[i].top_k;
        p.top_p = cases[i].top_p;
        for (uint32_t position = 0; position < 10; position++) {
            uint64_t expected = (uint64_t)random_of(position, &p) * cases[i].n >> 32;
            ck_assert_uint_eq(sample(VOCAB_LARGEST, position, &p).token, expected);
        }
    }
}
END_TEST

// A top-p just above a token's share wants one more, however little above.
START_TEST(top_p_counts_in_steps_of_2_to_minus_32) {
    enum { N = 1024 };
    uint32_t n_second = 0;
    for (uint32_t i = 0; i < N; i++)
        logits[i] = 2.0f;
    Moesaic__Step__V1__Sampling p = params_of(1.0f);
    for (uint32_t position = 0; position < 50; position++) {
        p.top_p = 0x1p-10f;
        ck_assert_uint_eq(sample(N, position, &p).token, 0);
        p.top_p = 0x1p-10f + 0x1p-32f;
        uint32_t token = sample(N, position, &p).token;
        ck_assert_uint_eq(token, random_of(position, &p) >> 31);
        n_second += token;
    }
    ck_assert_uint_gt(n_second, 0);
}
END_TEST

START_TEST(one_id_that_is_not_masked_is_drawn) {
    enum { N = 1500 };
    static const uint32_t left[] = {0, 511, 512, 1023, 1499};
    fill_logits(N, 0);
    for (int i = 0; i < 5; i++) {
        for (uint32_t id = 0; id < N; id++)
            steered[id] = id == left[i] ? -900.0f : -INFINITY;
        for (uint32_t position = 0; position < 60; position++) {
            Moesaic__Step__V1__Sampling p = random_params(N);
            if (position % 4 == 0) p.temperature = 0.0f;
            ck_assert_uint_eq(sample_steered(N, position, &p), left[i]);
        }
    }
}
END_TEST

START_TEST(temperatures_of_any_size_follow_the_contract) {
    static const float temperatures[] = {3e38f, 1e30f, 1e4f, 1e-3f, 1e-10f, 1e-30f, 2e-38f};
    for (int i = 0; i < 7 * 24; i++) {
        fill_logits(1000, i % 6);
        Moesaic__Step__V1__Sampling p = params_of(temperatures[i / 24]);
        p.top_p = i % 2 ? 0.6f : 1.0f;
        p.top_k = i % 3 ? 0 : 100;
        if (isfinite(1e6f / p.temperature)) check_equal(1000, (uint32_t)i, &p);
    }
}
END_TEST

// Chi squared of draws against the exact distribution of what the filters leave of 8 logits.
static double chi_squared(const Moesaic__Step__V1__Sampling *p, uint32_t n_kept, uint32_t draws) {
    enum { N = 8 };
    double total = 0, chi = 0;
    uint32_t counts[N] = {0};
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = (float)((i * 5) % N) * 0.5f;
        if ((i * 5) % N >= N - n_kept) total += exp((double)(logits[i] / p->temperature));
    }
    for (uint32_t i = 0; i < draws; i++)
        counts[sample(N, i, p).token]++;
    for (uint32_t i = 0; i < N; i++) {
        double expected = draws * exp((double)(logits[i] / p->temperature)) / total;
        if ((i * 5) % N < N - n_kept)
            ck_assert_uint_eq(counts[i], 0);
        else
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return chi;
}

// 0.1 % of true distributions are beyond the limits; the numbers are fixed by the seed.
START_TEST(draws_follow_the_distribution) {
    Moesaic__Step__V1__Sampling plain = params_of(1.0f), cool = params_of(0.7f), top_k = plain,
                                top_p = cool, min_p = plain;
    ck_assert_double_lt(chi_squared(&plain, 8, 80000), 24.3); // 7 degrees
    ck_assert_double_lt(chi_squared(&cool, 8, 40000), 24.3);
    top_k.top_k = 5;
    ck_assert_double_lt(chi_squared(&top_k, 5, 40000), 18.5); // 4 degrees
    top_p.top_p = 0.85f;                                      // three are 0.88 of all, two 0.76
    ck_assert_double_lt(chi_squared(&top_p, 3, 40000), 13.8); // 2 degrees
    min_p.min_p = 0.2f;                                       // exp(-1.5) is above, exp(-2) below
    ck_assert_double_lt(chi_squared(&min_p, 4, 40000), 16.3); // 3 degrees
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
    for (uint32_t id = 0; id < 1002; id++)
        steered[id] = -INFINITY;
    struct sample_row row = {logits, steered, 1002, 0, &p};
    sample_row(ops, &row, &sample_memory, &r);
    ck_assert(r.nonfinite);
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
    tcase_add_test(tests, a_number_on_a_border_takes_the_next_id);
    tcase_add_test(tests, a_large_vocabulary_is_sampled_as_the_full_sort_does_it);
    tcase_add_test(tests, where_a_sum_is_divided_changes_nothing);
    tcase_add_test(tests, filters_that_keep_all_change_nothing);
    tcase_add_test(tests, equal_logits_are_kept_from_the_lowest_id_on);
    tcase_add_test(tests, top_p_counts_in_steps_of_2_to_minus_32);
    tcase_add_test(tests, one_id_that_is_not_masked_is_drawn);
    tcase_add_test(tests, temperatures_of_any_size_follow_the_contract);
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
