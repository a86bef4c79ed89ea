// test_preempt.c: requests that together need twice the KV blocks that there are: all of them end,
// none waits for ever, and their answers are as if each had been alone; of a model that attends and
// of those that keep states in their slots, too.
#include "common/base/log.h"
#include "tests/harness/suite.h"
#include "tests/sim/cluster.h"

#define N_JOBS 12
#define N_TOKENS 60

static const char *const folders[] = {SOURCE_ROOT "/models/seedling",
                                      SOURCE_ROOT "/tests/data/models/qwen3-next",
                                      SOURCE_ROOT "/tests/data/models/deepseek-v4"};
#define N_MODELS (int)(sizeof folders / sizeof *folders)

static struct model_cache models[N_MODELS];
static struct job_pool pools[N_MODELS];
static struct answer references[N_MODELS][N_JOBS];
static int current; // of the models

// Where there are states, prompts have blocks in common, and a state where those end.
static uint32_t prompt_max(int m) {
    return spec_state_bytes(&models[m].spec) > 0 ? 40 : 16;
}

static void run(uint32_t n_workers, uint32_t budget, uint32_t depth, bool kill) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    char text[256];
    struct cluster_config config = cluster_config_default(&models[current], 90 + budget + depth);
    config.n_workers = n_workers;
    config.max_num_batched_tokens = budget;
    config.max_model_len = 256;
    config.pipeline_depth = depth;
    config.kv_blocks = 5 * N_JOBS / 2 / n_workers; // each job needs 5 blocks
    turns_make(turns, &pools[current]);
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
    ck_assert(prompt_max(current) < 2 * KV_BLOCK_TOKENS || c.view.prefix_hits > 0);
    cluster_destroy(&c);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        const char *differs =
            answer_differs(&turns[i].answer, &references[current][i], text, sizeof text);
        ck_assert_msg(differs == NULL, "job %u: %s", i, text);
        ck_assert_int_eq(turns[i].answer.finish, FINISH_LENGTH);
        ck_assert_uint_eq(turns[i].answer.n_finals, 1);
    }
}

START_TEST(a_load_of_twice_the_blocks_ends_with_the_same_answers) {
    current = _i;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        run(1, 64, depth, false);
        run(2, 7, depth, false);
    }
}
END_TEST

START_TEST(a_worker_killed_under_such_a_load_changes_no_answer) {
    current = _i;
    run(1, 64, 2, true);
    run(2, 16, 1, true);
}
END_TEST

static void prepare(int m) {
    struct job_mix mix = {.seed = 41, .n_jobs = N_JOBS, .prompt_min = 5, .tokens_max = N_TOKENS};
    model_cache_open(&models[m], folders[m]);
    mix.prompt_max = prompt_max(m);
    job_pool_make(&pools[m], &models[m].spec, &mix);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        pools[m].jobs[i].max_tokens = N_TOKENS;
        pools[m].jobs[i].n_stop_ids = 0;
    }
    reference_run(&models[m], &pools[m], references[m]);
}

int main(void) {
    log_setup("sim", LOG_SILENT);
    for (int m = 0; m < N_MODELS; m++)
        prepare(m);
    TCase *tcase = tcase_create("preempt");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, a_load_of_twice_the_blocks_ends_with_the_same_answers, 0, N_MODELS);
    tcase_add_loop_test(tcase, a_worker_killed_under_such_a_load_changes_no_answer, 0, N_MODELS);
    Suite *suite = suite_create("sim_preempt");
    suite_add_tcase(suite, tcase);
    int code = suite_run(suite);
    for (int m = 0; m < N_MODELS; m++) {
        job_pool_finish(&pools[m]);
        model_cache_close(&models[m]);
    }
    return code;
}
