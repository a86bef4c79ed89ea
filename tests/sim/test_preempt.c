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

struct load {
    uint32_t n_workers, budget, depth;
    uint32_t snapshots; // 0: as many as by default
    bool kill;
};

static void run(struct load load) {
    struct cluster c;
    static struct turn turns[N_JOBS];
    char text[256];
    uint32_t n_workers = load.n_workers, budget = load.budget, depth = load.depth;
    struct cluster_config config = cluster_config_default(&models[current], 90 + budget + depth);
    config.n_workers = n_workers;
    if (load.snapshots != 0) config.snapshots = load.snapshots;
    config.max_num_batched_tokens = budget;
    config.max_model_len = 256;
    config.pipeline_depth = depth;
    config.kv_blocks = 5 * N_JOBS / 2 / n_workers; // each job needs 5 blocks
    turns_make(turns, &pools[current]);
    cluster_create(&c, &config, turns, N_JOBS);
    if (load.kill) {
        (void)cluster_run(&c, sim_now_ns(c.sim) + 500 * NS_PER_MS);
        cluster_kill_worker(&c, 0);
        (void)cluster_run(&c, sim_now_ns(c.sim) + NS_PER_S);
        cluster_start_worker(&c, 0);
    }
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    ck_assert_uint_gt(c.view.preemptions, 0);
    ck_assert_uint_eq(c.view.replay_mismatches, 0);
    ck_assert(load.kill || c.view.replays == 0);
    ck_assert(prompt_max(current) < 2 * KV_BLOCK_TOKENS || load.snapshots != 0 ||
              c.view.prefix_hits > 0);
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
        run((struct load){.n_workers = 1, .budget = 64, .depth = depth});
        run((struct load){.n_workers = 2, .budget = 7, .depth = depth});
    }
}
END_TEST

// More states are to be kept in a step than there are places for.
START_TEST(few_places_for_states_change_no_answer) {
    current = _i;
    if (spec_state_bytes(&models[current].spec) == 0) return;
    for (uint32_t snapshots = 1; snapshots <= 2; snapshots++)
        run((struct load){.n_workers = 1, .budget = 256, .depth = 2, .snapshots = snapshots});
}
END_TEST

START_TEST(a_worker_killed_under_such_a_load_changes_no_answer) {
    current = _i;
    run((struct load){.n_workers = 1, .budget = 64, .depth = 2, .kill = true});
    run((struct load){.n_workers = 2, .budget = 16, .depth = 1, .kill = true});
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
    tcase_add_loop_test(tcase, few_places_for_states_change_no_answer, 0, N_MODELS);
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
