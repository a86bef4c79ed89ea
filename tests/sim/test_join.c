// test_join.c: workers and leader meet: again after a leader's death, with one that took another's
// place, and not at all when they do not fit each other.
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "tests/harness/suite.h"
#include "tests/sim/cluster.h"
#include "worker/worker.h"

#define N_JOBS 6

static struct model_cache model;
static struct job_pool pool;
static struct answer reference[N_JOBS];
static struct turn turns[N_JOBS];

static void check_answers(void) {
    char text[256];
    for (uint32_t i = 0; i < N_JOBS; i++) {
        const struct answer *a = &turns[i].answer;
        ck_assert_uint_eq(a->n_finals, 1);
        ck_assert_msg(a->finish == FINISH_STOP || a->finish == FINISH_LENGTH, "job %u: %s", i,
                      a->message);
        const char *differs = answer_differs(a, &reference[i], text, sizeof text);
        ck_assert_msg(differs == NULL, "job %u: %s", i, text);
    }
}

static struct cluster_config make_config(uint64_t seed) {
    struct cluster_config config = cluster_config_default(&model, seed);
    turns_make(turns, &pool);
    return config;
}

static bool is_ready(void *arg) {
    const struct cluster *c = arg;
    return c->leader != NULL && leader_ready(c->leader);
}

static void run_to_ready(struct cluster *c) {
    ck_assert_int_eq(sim_run_until(c->sim, sim_now_ns(c->sim) + 60 * NS_PER_S, is_ready, c),
                     SIM_UNTIL);
}

START_TEST(workers_keep_their_weights_when_the_leader_is_started_again) {
    struct cluster c;
    struct cluster_config config = make_config(70);
    for (uint32_t i = 0; i < N_JOBS; i++)
        turns[i].arrival_ns = 100 * NS_PER_S;
    cluster_create(&c, &config, turns, N_JOBS);
    run_to_ready(&c);
    ck_assert_uint_eq(c.n_loads, 2);
    cluster_kill_leader(&c);
    ck_assert_int_eq(sim_run(c.sim, sim_now_ns(c.sim) + 5 * NS_PER_S), SIM_TIME);
    cluster_start_leader(&c);
    run_to_ready(&c);
    for (uint32_t i = 0; i < N_JOBS; i++)
        turns[i].due_ns = 0;
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    ck_assert_uint_eq(c.n_loads, 2); // none loaded again
    cluster_destroy(&c);
    check_answers();
}
END_TEST

START_TEST(worker_of_another_build_is_refused_until_a_right_one_takes_its_place) {
    struct cluster c;
    struct cluster_config config = make_config(71);
    config.builds[1] = "another";
    cluster_create(&c, &config, turns, N_JOBS);
    ck_assert_int_eq(sim_run_until(c.sim, 30 * NS_PER_S, is_ready, &c), SIM_TIME);
    ck_assert_uint_eq(c.n_ended, 0);
    cluster_kill_worker(&c, 1);
    c.config.builds[1] = NULL;
    cluster_start_worker(&c, 1);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_answers();
}
END_TEST

START_TEST(workers_whose_model_differs_from_the_leaders_load_nothing_and_stay) {
    struct cluster c;
    struct cluster_config config = make_config(72);
    config.leader_digest = model.digest ^ 1;
    cluster_create(&c, &config, turns, N_JOBS);
    ck_assert_int_eq(sim_run_until(c.sim, 30 * NS_PER_S, is_ready, &c), SIM_TIME);
    ck_assert_uint_eq(c.n_loads, 0);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert(!sim_done(c.workers[i]));
    cluster_kill_leader(&c);
    c.config.leader_digest = 0; // the leader's model was put right
    cluster_start_leader(&c);
    ck_assert_int_eq(cluster_run(&c, NO_DEADLINE), SIM_UNTIL);
    ck_assert_int_eq(c.check_result, 0);
    cluster_destroy(&c);
    check_answers();
}
END_TEST

START_TEST(worker_with_unknown_kernels_does_not_start) {
    struct worker_config config = {
        .kernels = "abacus", .build_id = "simulated", .single_thread = true};
    struct worker *worker = NULL;
    struct err_text e = {0};
    ck_assert_int_eq(worker_create(&worker, &config, &e), ERR_FATAL_CONFIG);
    ck_assert_ptr_null(worker);
    ck_assert_msg(strstr(e.text, "abacus") != NULL && strstr(e.text, "ref") != NULL, "%s", e.text);
}
END_TEST

int main(void) {
    struct job_mix mix = {
        .seed = 31, .n_jobs = N_JOBS, .prompt_min = 2, .prompt_max = 40, .tokens_max = 8};
    log_setup("sim", LOG_SILENT);
    model_cache_open(&model, SOURCE_ROOT "/tests/data/models/awkward");
    job_pool_make(&pool, &model.spec, &mix);
    reference_run(&model, &pool, reference);
    Suite *suite = suite_create("sim_join");
    TCase *tcase = tcase_create("join");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, workers_keep_their_weights_when_the_leader_is_started_again);
    tcase_add_test(tcase, worker_of_another_build_is_refused_until_a_right_one_takes_its_place);
    tcase_add_test(tcase, workers_whose_model_differs_from_the_leaders_load_nothing_and_stay);
    tcase_add_test(tcase, worker_with_unknown_kernels_does_not_start);
    suite_add_tcase(suite, tcase);
    int code = suite_run(suite);
    job_pool_finish(&pool);
    model_cache_close(&model);
    return code;
}
