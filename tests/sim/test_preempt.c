// test_preempt.c: requests that together need twice the KV blocks that there are: all of them end,
// none waits for ever, and their answers are as if each had been alone.
#include <check.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "tests/sim/cluster.h"

#define N_JOBS 12
#define N_TOKENS 60

static struct model_cache model;
static struct job_pool pool;
static struct answer reference[N_JOBS];

static void run(uint32_t n_workers, uint32_t budget, uint32_t depth, bool kill) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    char text[256];
    struct cluster_config config = cluster_config_default(&model, 90 + budget + depth);
    config.n_workers = n_workers;
    config.max_num_batched_tokens = budget;
    config.max_model_len = 256;
    config.pipeline_depth = depth;
    config.kv_blocks = 5 * N_JOBS / 2 / n_workers; // each job needs 5 blocks
    turns_make(turns, &pool);
    cluster_create(&c, &config, turns, N_JOBS);
    if (kill) {
        (void)cluster_run(&c, sim_now_ns(c.sim) + 500 * NS_PER_MS);
        cluster_kill_worker(&c, 0);
        (void)cluster_run(&c, sim_now_ns(c.sim) + NS_PER_S);
        cluster_start_worker(&c, 0);
    }
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    ck_assert_uint_gt(c.view.preemptions, 0);
    ck_assert_uint_eq(c.view.replay_mismatches, 0);
    cluster_destroy(&c);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        const char *differs = answer_differs(&turns[i].answer, &reference[i], text, sizeof text);
        ck_assert_msg(differs == NULL, "job %u: %s", i, text);
        ck_assert_int_eq(turns[i].answer.finish, FINISH_LENGTH);
        ck_assert_uint_eq(turns[i].answer.n_finals, 1);
    }
}

START_TEST(a_load_of_twice_the_blocks_ends_with_the_same_answers) {
    for (uint32_t depth = 1; depth <= 2; depth++) {
        run(1, 64, depth, false);
        run(2, 7, depth, false);
    }
}
END_TEST

START_TEST(a_worker_killed_under_such_a_load_changes_no_answer) {
    run(1, 64, 2, true);
    run(2, 16, 1, true);
}
END_TEST

int main(void) {
    struct job_mix mix = {
        .seed = 41, .n_jobs = N_JOBS, .prompt_min = 5, .prompt_max = 16, .tokens_max = N_TOKENS};
    log_setup("sim", LOG_SILENT);
    model_cache_open(&model, SOURCE_ROOT "/models/seedling");
    job_pool_make(&pool, &model.spec, &mix);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        pool.jobs[i].max_tokens = N_TOKENS;
        pool.jobs[i].n_stop_ids = 0;
    }
    reference_run(&model, &pool, reference);
    TCase *tcase = tcase_create("preempt");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, a_load_of_twice_the_blocks_ends_with_the_same_answers);
    tcase_add_test(tcase, a_worker_killed_under_such_a_load_changes_no_answer);
    Suite *suite = suite_create("sim_preempt");
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
