// test_kill.c: a worker is killed under load: each request it takes along ends with one error, the
// group forms again after a restart, and answers are as before.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "tests/sim/cluster.h"

#define N_JOBS 16
#define N_BEFORE 8 // these are asked at once, the others after the kill

static struct model_cache model;
static struct job_pool pool;
static struct answer reference[N_JOBS];

static void check_equal(const struct turn *turns, uint32_t first, uint32_t last) {
    char text[256];
    for (uint32_t i = first; i < last; i++) {
        const struct answer *a = &turns[i].answer;
        ck_assert_uint_eq(a->n_finals, 1);
        ck_assert_uint_eq(a->n_late, 0);
        const char *differs = answer_differs(a, &reference[i], text, sizeof text);
        ck_assert_msg(differs == NULL, "job %u: %s", i, text);
    }
}

static bool is_decoding(void *arg) {
    const struct cluster *c = arg;
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_BEFORE; i++)
        n += c->turns[i].answer.n_tokens > 0;
    return n >= 3;
}

static bool first_have_ended(void *arg) {
    const struct cluster *c = arg;
    return c->n_ended >= N_BEFORE;
}

// A world whose first N_BEFORE requests run, and whose others arrive only after 60 s.
static void start(struct cluster *c, struct turn *turns, uint64_t seed) {
    struct cluster_config config = cluster_config_default(&model, seed);
    config.n_workers = 3;
    config.max_num_batched_tokens = 16;
    config.pipeline_depth = 1 + (uint32_t)(seed & 1);
    turns_make(turns, &pool);
    for (uint32_t i = N_BEFORE; i < N_JOBS; i++)
        turns[i].arrival_ns = 60 * NS_PER_S;
    cluster_create(c, &config, turns, N_JOBS);
    ck_assert_int_eq(sim_run_until(c->sim, 60 * NS_PER_S, is_decoding, c), SIM_UNTIL);
}

START_TEST(killed_worker_costs_each_running_request_one_error_and_the_group_comes_back) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    uint32_t n_lost = 0;
    start(&c, turns, 40 + (uint64_t)_i);
    int64_t killed_ns = sim_now_ns(c.sim);
    cluster_kill_worker(&c, (uint32_t)_i % 3);
    // Three heartbeats and a little: the clients must not wait longer than 5 s after the detection.
    ck_assert_int_eq(sim_run_until(c.sim, killed_ns + 9 * NS_PER_S, first_have_ended, &c),
                     SIM_UNTIL);
    ck_assert(!leader_ready(c.leader));
    for (uint32_t i = 0; i < N_BEFORE; i++) {
        if (turns[i].answer.finish != FINISH_ERROR) continue;
        ck_assert_int_eq(turns[i].answer.error, ERR_REQ_WORKER_LOST);
        n_lost++;
    }
    ck_assert_uint_ge(n_lost, 1);
    cluster_start_worker(&c, (uint32_t)_i % 3);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_equal(turns, 0, N_JOBS);
    for (uint32_t i = N_BEFORE; i < N_JOBS; i++)
        ck_assert(turns[i].answer.finish == FINISH_STOP || turns[i].answer.finish == FINISH_LENGTH);
}
END_TEST

START_TEST(paused_worker_is_lost_after_three_missed_beats_and_joins_again) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    start(&c, turns, 50);
    int64_t paused_ns = sim_now_ns(c.sim);
    sim_pause(c.sim, c.workers[1], 20 * NS_PER_S);
    ck_assert_int_eq(sim_run_until(c.sim, paused_ns + 9 * NS_PER_S, first_have_ended, &c),
                     SIM_UNTIL);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_equal(turns, 0, N_JOBS);
    for (uint32_t i = N_BEFORE; i < N_JOBS; i++)
        ck_assert(turns[i].answer.finish == FINISH_STOP || turns[i].answer.finish == FINISH_LENGTH);
}
END_TEST

START_TEST(group_forms_again_when_every_worker_was_killed) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    start(&c, turns, 60);
    for (uint32_t i = 0; i < 3; i++)
        cluster_kill_worker(&c, i);
    ck_assert_int_eq(sim_run_until(c.sim, sim_now_ns(c.sim) + 9 * NS_PER_S, first_have_ended, &c),
                     SIM_UNTIL);
    for (uint32_t i = 0; i < 3; i++)
        cluster_start_worker(&c, i);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_equal(turns, 0, N_JOBS);
}
END_TEST

int main(void) {
    struct job_mix mix = {
        .seed = 21, .n_jobs = N_JOBS, .prompt_min = 2, .prompt_max = 60, .tokens_max = 24};
    log_setup("sim", LOG_SILENT);
    model_cache_open(&model, SOURCE_ROOT "/models/seedling");
    job_pool_make(&pool, &model.spec, &mix);
    for (uint32_t i = 0; i < N_JOBS; i++)
        pool.jobs[i].max_tokens = 24;
    reference_run(&model, &pool, reference);
    Suite *suite = suite_create("sim_kill");
    TCase *tcase = tcase_create("kill");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(
        tcase, killed_worker_costs_each_running_request_one_error_and_the_group_comes_back, 0, 4);
    tcase_add_test(tcase, paused_worker_is_lost_after_three_missed_beats_and_joins_again);
    tcase_add_test(tcase, group_forms_again_when_every_worker_was_killed);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
