// test_layouts.c: promise 1 over all layouts: the same requests give equal tokens,
// log-probabilities and logits digests in every legal (pp, dp, tp, ep, etp) of up to 8 ranks, also
// when workers are killed on the way.
//
// SIM_SEEDS below 1000 (sanitizer builds) takes fewer requests and every fifth layout.
#include <stdio.h>

#include "common/base/log.h"
#include "common/model/legal.h"
#include "tests/harness/suite.h"
#include "tests/sim/halves.h"
#include "tests/sim/storm.h"

#define N_JOBS 64
#define FULL_SEEDS 1000
#define LAYOUTS_MAX 128
#define RANKS 8
#define KILL_EVERY 7 // of the layouts one in so many loses workers

static const char *const folders[] = {"models/seedling", "tests/data/models/awkward",
                                      "tests/data/models/qwen3-next",
                                      "tests/data/models/deepseek-v4"};

// Made before Check forks, anew for each model.
static struct model_cache model;
static struct job_pool pool;
static struct answer reference[N_JOBS];
static struct layout layouts[LAYOUTS_MAX];
static uint32_t n_layouts;
static bool full;

// Every second one, from first on.
static void list_layouts(uint32_t first) {
    struct layout all[LEGAL_LAYOUTS_MAX];
    uint32_t seen = 0, step = full ? 2 : 10;
    n_layouts = 0;
    for (uint32_t n_ranks = 1; n_ranks <= RANKS; n_ranks++) {
        uint32_t n = legal_list(&model.spec, n_ranks, all);
        for (uint32_t i = 0; i < n; i++)
            if (seen++ % step == first) layouts[n_layouts++] = all[i];
    }
}

static void check_answers(const struct turn *turns, const char *where) {
    char text[256];
    for (uint32_t i = 0; i < pool.n_jobs; i++) {
        const struct answer *a = &turns[i].answer;
        ck_assert_msg(a->finish == FINISH_STOP || a->finish == FINISH_LENGTH, "%s: job %u: %s",
                      where, i, a->message);
        const char *differs = answer_differs(a, &reference[i], text, sizeof text);
        ck_assert_msg(differs == NULL, "%s: job %u of %u tokens: %s", where, i,
                      pool.jobs[i].n_prompt, text);
    }
}

static struct cluster_config config_of(const struct layout *l, uint32_t index) {
    static const uint32_t budgets[] = {64, 7, 512};
    struct cluster_config config = cluster_config_default(&model, 500 + index);
    config.layout = *l;
    config.max_num_batched_tokens = budgets[index % 3];
    config.max_num_seqs = index % 4 == 3 ? 3 : 24;
    config.pipeline_depth = 1 + index / 2 % 2;
    config.world.full_percent = index % 2 * 20;
    config.world.full_ns_max = NS_PER_MS;
    return config;
}

START_TEST(answers_are_equal_in_every_legal_layout) {
    static struct turn turns[N_JOBS];
    struct cluster c;
    char where[LAYOUT_TEXT_MAX];
    struct cluster_config config = config_of(&layouts[_i], (uint32_t)_i);
    layout_text(where, &layouts[_i]);
    turns_make(turns, &pool);
    cluster_create(&c, &config, turns, pool.n_jobs);
    ck_assert_msg(cluster_run(&c, NO_DEADLINE) == SIM_UNTIL, "%s: it did not end", where);
    ck_assert_int_eq(c.check_result, 0);
    // Of the stateful model, too: each stage then begins from its own part of a state.
    ck_assert_msg(!full || c.view.layout.dp > 1 || c.view.prefix_hits > 0, "%s: no hits", where);
    cluster_destroy(&c);
    check_answers(turns, where);
}
END_TEST

// Every third worker, while requests run; another takes its place.
START_TEST(answers_are_equal_when_workers_of_a_layout_are_killed) {
    static struct turn turns[N_JOBS];
    struct cluster c;
    char where[LAYOUT_TEXT_MAX];
    struct cluster_config config = config_of(&layouts[_i], (uint32_t)_i);
    if (_i % KILL_EVERY != 0 || layouts[_i].n_ranks == 1) return;
    layout_text(where, &layouts[_i]);
    turns_make(turns, &pool);
    for (uint32_t i = 0; i < pool.n_jobs; i++)
        turns[i].arrival_ns =
            i * (13 * NS_PER_S / pool.n_jobs); // there is always something to lose
    cluster_create(&c, &config, turns, pool.n_jobs);
    int64_t at_ns = 2 * NS_PER_S;
    for (uint32_t i = 0; i < layouts[_i].n_ranks && !c.finished; i += 3) {
        (void)cluster_run(&c, at_ns += 2 * NS_PER_S);
        cluster_kill_worker(&c, i);
        (void)cluster_run(&c, at_ns += NS_PER_S);
        cluster_start_worker(&c, i);
    }
    ck_assert_msg(cluster_run(&c, NO_DEADLINE) == SIM_UNTIL, "%s: it did not end", where);
    ck_assert_int_eq(c.check_result, 0);
    ck_assert_uint_ge(c.view.counts.lost, 1);
    ck_assert_uint_eq(c.view.replay_mismatches, 0);
    cluster_destroy(&c);
    check_answers(turns, where);
}
END_TEST

static int run_model(const char *name, uint32_t first) {
    char folder[512];
    snprintf(folder, sizeof folder, "%s/%s", SOURCE_ROOT, name);
    model_cache_open(&model, folder);
    struct job_mix mix = {.seed = 11,
                          .n_jobs = full ? N_JOBS : 12,
                          .prompt_min = 1,
                          .prompt_max = full ? 150 : 50,
                          .tokens_max = full ? 8 : 4};
    job_pool_make(&pool, &model.spec, &mix);
    list_layouts(first);
    reference_run(&model, &pool, reference);
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create("layouts");
    tcase_set_timeout(tcase, 600);
    tcase_add_loop_test(tcase, answers_are_equal_in_every_legal_layout, 0, (int)n_layouts);
    tcase_add_loop_test(tcase, answers_are_equal_when_workers_of_a_layout_are_killed, 0,
                        (int)n_layouts);
    suite_add_tcase(suite, tcase);
    int code = suite_run(suite);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return code;
}

static int run_models(uint32_t first) {
    int code = EXIT_SUCCESS;
    for (uint32_t i = 0; i < sizeof folders / sizeof *folders; i++)
        code |= run_model(folders[i], first);
    return code;
}

int main(void) {
    log_setup("sim", LOG_SILENT);
    full = storm_setting("SIM_SEEDS", FULL_SEEDS) >= FULL_SEEDS;
    return sim_run_halves(run_models);
}
